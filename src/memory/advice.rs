//! What an operator can set on this kind of box, with these model servers, so that memory lasts.

use crate::config::{Board, Kind};
use crate::limits::MEMORY_SMALL_KIB;

/// What is known of the box.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// What kind it is.
    pub board: Board,
    /// The GPU's memory is the processor's.
    pub shared: bool,
    /// All memory, in KiB; 0 when unknown.
    pub total: u32,
    /// Which model servers answer on it.
    pub servers: &'a [Kind],
    /// `/proc/swaps`.
    pub swaps: &'a [u8],
    /// NVIDIA's driver is loaded.
    pub nvidia: bool,
    /// Its persistence daemon runs.
    pub persistent: bool,
    /// Packages are upgraded unattended.
    pub upgrades: bool,
}

/// Each with what to type. Nothing where nothing is to be done.
pub fn on(seen: &Seen<'_>) -> impl Iterator<Item = &'static str> {
    let runs = |kind| seen.servers.contains(&kind);
    let small = seen.total > 0 && seen.total <= MEMORY_SMALL_KIB;
    let jetson = matches!(seen.board, Board::JetsonOrin | Board::JetsonThor);
    let zram = memchr::memmem::find(seen.swaps, b"/dev/zram").is_some();
    [
        (
            zram && jetson,
            "zram takes memory that the GPU needs, which itself cannot be swapped: sudo systemctl disable --now \
             nvzramconfig, and put swap on an NVMe disk",
        ),
        (
            zram && seen.shared && !jetson,
            "zram takes memory that the GPU needs, which itself cannot be swapped: swap to a disk instead",
        ),
        (
            runs(Kind::Ollama) && small,
            "Ollama's runners keep up to 8 GiB of old prompts in memory: systemctl edit ollama, there \
             [Service] Environment=LLAMA_ARG_CACHE_RAM=512 (MiB); OLLAMA_NUM_PARALLEL=1 keeps one context, \
             OLLAMA_FLASH_ATTENTION=1 with OLLAMA_KV_CACHE_TYPE=q8_0 halves it",
        ),
        (
            runs(Kind::Ollama) && !small,
            "Ollama's runners keep up to 8 GiB of old prompts in memory, each: if that is too much, systemctl edit \
             ollama, there [Service] Environment=LLAMA_ARG_CACHE_RAM=1024 (MiB)",
        ),
        (
            runs(Kind::Llamacpp) && small,
            "llama-server keeps up to 8 GiB of old prompts in memory: --cache-ram 512, or LLAMA_ARG_CACHE_RAM=512 (MiB); \
             --cache-type-k q8_0 --cache-type-v q8_0 halves the context's memory",
        ),
        (
            runs(Kind::Llamacpp) && !small,
            "llama-server keeps up to 8 GiB of old prompts in memory: if that is too much, --cache-ram 1024, or \
             LLAMA_ARG_CACHE_RAM=1024 (MiB)",
        ),
        (
            runs(Kind::Vllm) && seen.shared,
            "vLLM takes 92 % of the GPU's memory, which here is the box's: say how much its cache may have, \
             --kv-cache-memory-bytes, or a smaller --gpu-memory-utilization",
        ),
        (
            seen.nvidia && !seen.persistent && !seen.shared,
            "the GPU driver is set up anew for each program where nothing keeps it: sudo systemctl enable --now \
             nvidia-persistenced",
        ),
        (
            seen.nvidia && seen.upgrades,
            "an unattended upgrade of NVIDIA's driver leaves its figures unreadable until a reboot: sudo apt-mark hold its \
             packages, and upgrade them by hand",
        ),
    ]
    .into_iter()
    .filter_map(|(holds, advice)| holds.then_some(advice))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZRAM: &[u8] = include_bytes!("../../board/fixtures/jetson-orin/proc/swaps");

    fn words(seen: &Seen<'_>) -> String {
        on(seen).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn advice_is_for_this_box_and_its_servers() {
        let quiet = Seen {
            board: Board::Generic,
            shared: false,
            total: 8 << 20,
            servers: &[],
            swaps: b"Filename Type Size Used Priority\n/swapfile file 1 0 -2\n",
            nvidia: false,
            persistent: false,
            upgrades: true,
        };
        assert_eq!(words(&quiet), "");
        let orin =
            Seen { board: Board::JetsonOrin, shared: true, swaps: ZRAM, servers: &[Kind::Ollama], ..quiet };
        let told = words(&orin);
        assert!(told.contains("nvzramconfig") && told.contains("LLAMA_ARG_CACHE_RAM=512"), "{told}");
        assert!(told.contains("NUM_PARALLEL=1") && told.contains("KV_CACHE_TYPE=q8_0"), "{told}");
        let spark = Seen {
            board: Board::DgxSpark,
            total: 120 << 20,
            servers: &[Kind::Llamacpp, Kind::Vllm],
            nvidia: true,
            ..orin
        };
        let told = words(&spark);
        assert!(!told.contains("nvzramconfig") && told.contains("swap to a disk"), "{told}");
        assert!(told.contains("--cache-ram 1024") && told.contains("--kv-cache-memory-bytes"), "{told}");
        assert!(told.contains("apt-mark hold") && !told.contains("persistenced"), "{told}");
        let card = Seen { board: Board::X86Rtx, nvidia: true, upgrades: false, ..quiet };
        assert!(words(&card).contains("nvidia-persistenced"));
        assert_eq!(words(&Seen { persistent: true, ..card }), "");
        assert_eq!(
            words(&Seen { swaps: ZRAM, ..quiet }),
            "",
            "zram is fine where the GPU has its own memory"
        );
    }
}
