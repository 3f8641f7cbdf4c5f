//! What the helper sees, for Prometheus. GPUs are bounded by the helper's protocol.

use std::fmt::{self, Write};

use super::metrics::head;

/// The helper.
#[derive(Debug, Default)]
pub struct HelperGauges {
    /// It is connected and speaks.
    pub there: bool,
    /// It tells of GPUs; else it is blind.
    pub sees: bool,
    /// It hears the kernel's log.
    pub hears: bool,
    /// How often it was started again.
    pub restarts: u32,
    /// The GPUs.
    pub gpus: Vec<GpuGauges>,
}

/// One GPU.
#[derive(Debug, Default)]
pub struct GpuGauges {
    /// Its number with the driver.
    pub gpu: u8,
    /// It is not down.
    pub up: bool,
    /// All its memory and what is free of it, in bytes, where that is known.
    pub memory: Option<(u64, u64)>,
}

/// In Prometheus' text format; nothing where there is no helper.
#[must_use]
pub fn render(gauges: Option<&HelperGauges>) -> String {
    let mut out = String::new();
    if let Some(gauges) = gauges {
        // Writing to a String does not fail.
        let _ = write(&mut out, gauges);
    }
    out
}

fn write(out: &mut String, gauges: &HelperGauges) -> fmt::Result {
    const RESTARTS: &str = "edgeward_helper_restarts_total";
    for (name, help, yes) in [
        ("edgeward_helper_up", "Whether the NVML helper is there and speaks.", gauges.there),
        (
            "edgeward_helper_sees",
            "Whether it knows of the GPUs; 0 while it is there: it is blind.",
            gauges.sees,
        ),
        ("edgeward_helper_hears_kernel", "Whether the kernel's log is heard.", gauges.hears),
    ] {
        head(out, name, "gauge", help)?;
        writeln!(out, "{name} {}", u8::from(yes))?;
    }
    head(out, RESTARTS, "counter", "How often the NVML helper was started again.")?;
    writeln!(out, "{RESTARTS} {}", gauges.restarts)?;
    if gauges.gpus.is_empty() {
        return Ok(());
    }
    type Value = fn(&GpuGauges) -> Option<u64>;
    let all: [(&str, &str, Value); 3] = [
        ("edgeward_gpu_up", "Whether the GPU is not down.", |gpu| Some(u64::from(gpu.up))),
        ("edgeward_gpu_memory_total_bytes", "All memory of the GPU.", |gpu| {
            gpu.memory.map(|(total, _)| total)
        }),
        ("edgeward_gpu_memory_free_bytes", "What is free of it.", |gpu| gpu.memory.map(|(_, free)| free)),
    ];
    for (name, help, value) in all {
        head(out, name, "gauge", help)?;
        for gpu in &gauges.gpus {
            if let Some(value) = value(gpu) {
                writeln!(out, "{name}{{gpu=\"{}\"}} {value}", gpu.gpu)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_gpu_has_what_is_known_of_it() {
        assert_eq!(render(None), "");
        let gpus = vec![
            GpuGauges { gpu: 0, up: true, memory: Some((10, 4)) },
            GpuGauges { gpu: 1, up: false, memory: None },
        ];
        let text =
            render(Some(&HelperGauges { there: true, sees: true, restarts: 3, gpus, ..Default::default() }));
        for line in [
            "edgeward_helper_up 1",
            "edgeward_helper_hears_kernel 0",
            "edgeward_helper_restarts_total 3",
            "edgeward_gpu_up{gpu=\"1\"} 0",
            "edgeward_gpu_memory_free_bytes{gpu=\"0\"} 4",
        ] {
            assert!(text.lines().any(|have| have == line), "{line} in {text}");
        }
        assert!(!text.contains("bytes{gpu=\"1\"}"), "{text}");
    }
}
