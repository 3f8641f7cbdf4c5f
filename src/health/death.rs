//! Of what a model server died: evidence in, cause out. And which faults of a GPU end only with a reset.

use crate::cause::Cause;

/// What is known at one moment about one death.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Processes of its cgroup that the OOM killer took since the last look; `None`: that cannot be read.
    pub group_kills: Option<u64>,
    /// Of the whole box.
    pub box_kills: u64,
    /// The kernel's log names this very process as killed for memory.
    pub killed: bool,
    /// An Xid of a moment ago, of this process or of none that it names.
    pub xid: Option<u16>,
    /// `NvMap` refused memory to the GPU a moment ago.
    pub nvmap: bool,
    /// Memory is not short.
    pub memory_fine: bool,
    /// What a request that failed a moment ago was told.
    pub said: Option<Cause>,
}

impl Evidence {
    /// The cause that it speaks for; [`Cause::Crashed`] where it speaks for none.
    #[must_use]
    pub fn cause(&self) -> Cause {
        let group = self.group_kills.map(|kills| kills > 0);
        // The box's counter is others' too: it counts where the cgroup's cannot be read.
        if self.killed || group == Some(true) || (group.is_none() && self.box_kills > 0) {
            return Cause::OomKill;
        }
        if self.xid.is_some_and(blames_gpu) {
            return Cause::Xid;
        }
        if self.nvmap {
            return if self.memory_fine { Cause::LoadRefused } else { Cause::CudaOom };
        }
        match self.said {
            Some(cause) if cause.is_oom() || matches!(cause, Cause::LoadRefused | Cause::Hang) => cause,
            _ => Cause::Crashed,
        }
    }
}

/// Whether an Xid explains a death: not those that only repeat it, as 43 and 45, which the driver logs of each process
/// that ends with work under way (DCGM and the Kubernetes device plugin ignore them).
const fn blames_gpu(code: u16) -> bool {
    !matches!(code, 43 | 45)
}

/// Whether an Xid means that the GPU works again only after a reset: those that DCGM's health check fails by. The others
/// (94, 63, 31, 32, 43, 13, 45, 68, 109) are an application's, or contained.
#[must_use]
pub const fn latches(code: u16) -> bool {
    matches!(code, 48 | 64 | 74 | 79 | 95 | 119 | 120 | 140)
}

/// The kind of a model server, as far as advice goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Ollama.
    Ollama,
    /// llama.cpp's server.
    Llamacpp,
    /// vLLM.
    Vllm,
    /// Another one.
    Other,
}

/// What an operator can do about it, as a sentence; empty where nothing is known to help.
#[must_use]
pub const fn advice(engine: Engine, cause: Cause) -> &'static str {
    match (cause, engine) {
        (Cause::OomKill, Engine::Ollama) => {
            "set LLAMA_ARG_CACHE_RAM=512 (each runner's prompt cache may take 8 GiB), OLLAMA_NUM_PARALLEL=1 and \
             OLLAMA_KV_CACHE_TYPE=q8_0 in its unit (systemctl edit ollama)"
        }
        (Cause::OomKill, Engine::Llamacpp) => {
            "start it with --cache-ram 512 (LLAMA_ARG_CACHE_RAM=512; its prompt cache may take 8 GiB), --parallel 1 and \
             --cache-type-k q8_0 --cache-type-v q8_0"
        }
        (Cause::CudaOom | Cause::Oom, Engine::Ollama) => {
            "set OLLAMA_NUM_PARALLEL=1 and OLLAMA_KV_CACHE_TYPE=q8_0, or a smaller OLLAMA_CONTEXT_LENGTH, in its unit"
        }
        (Cause::CudaOom | Cause::Oom, Engine::Llamacpp) => {
            "start it with a smaller --ctx-size, --parallel 1 and --cache-type-k q8_0 --cache-type-v q8_0"
        }
        (Cause::OomKill | Cause::CudaOom | Cause::Oom, Engine::Vllm) => {
            "start it with a lower --gpu-memory-utilization, or with --kv-cache-memory-bytes and a smaller --max-model-len"
        }
        (Cause::OomKill | Cause::CudaOom | Cause::Oom, Engine::Other) => {
            "give it a smaller model, context or cache"
        }
        (Cause::LoadRefused, _) => {
            "L4T 36.4.7 and newer refuse large allocations with memory free: use a smaller model or quantization, or another \
             L4T release"
        }
        (Cause::Xid, _) => {
            "look at `dmesg | grep Xid`; a GPU that has failed works again after a reboot at the earliest"
        }
        (Cause::Hang, _) => "look whether it still uses the GPU, and restart it if it does not",
        _ => "look at the server's own journal",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_certain_comes_before_what_may_be() {
        let none = Evidence::default();
        let all = Evidence {
            group_kills: Some(1),
            box_kills: 1,
            killed: true,
            xid: Some(79),
            nvmap: true,
            memory_fine: true,
            said: Some(Cause::CudaOom),
        };
        for (evidence, cause) in [
            (none, Cause::Crashed),
            (all, Cause::OomKill),
            (Evidence { group_kills: Some(0), killed: false, ..all }, Cause::Xid),
            (Evidence { group_kills: Some(0), killed: false, xid: Some(43), ..all }, Cause::LoadRefused),
            (Evidence { box_kills: 1, ..none }, Cause::OomKill),
            (Evidence { box_kills: 1, group_kills: Some(0), ..none }, Cause::Crashed),
            (Evidence { nvmap: true, ..none }, Cause::CudaOom),
            (Evidence { said: Some(Cause::CudaOom), ..none }, Cause::CudaOom),
            (Evidence { said: Some(Cause::Overloaded), ..none }, Cause::Crashed),
        ] {
            assert_eq!(evidence.cause(), cause, "{evidence:?}");
        }
    }

    #[test]
    fn only_what_a_reset_mends_latches() {
        let latching: Vec<u16> = (0..200).filter(|code| latches(*code)).collect();
        assert_eq!(latching, [48, 64, 74, 79, 95, 119, 120, 140]);
        for warns in [94, 63, 31, 32, 43, 13, 45, 68, 109] {
            assert!(!latches(warns));
        }
    }

    #[test]
    fn who_runs_out_of_memory_is_told_what_bounds_it() {
        assert!(advice(Engine::Ollama, Cause::OomKill).contains("LLAMA_ARG_CACHE_RAM=512"));
        assert!(advice(Engine::Llamacpp, Cause::OomKill).contains("LLAMA_ARG_CACHE_RAM=512"));
        assert!(advice(Engine::Vllm, Cause::CudaOom).contains("--gpu-memory-utilization"));
        for engine in [Engine::Ollama, Engine::Llamacpp, Engine::Vllm, Engine::Other] {
            for cause in Cause::ALL {
                assert!(!advice(engine, cause).is_empty());
            }
        }
    }

    proptest! {
        #[test]
        fn a_kill_that_is_known_is_the_cause_whatever_else(
            xid in proptest::option::of(0_u16..200), nvmap: bool, memory_fine: bool, kills in 1_u64..9
        ) {
            let evidence =
                Evidence { group_kills: Some(kills), xid, nvmap, memory_fine, ..Evidence::default() };
            prop_assert_eq!(evidence.cause(), Cause::OomKill);
        }
    }
}
