//! Where it was measured.

use std::fs;

use serde_json::{Value, json};

pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(crate) cpu: String,
    pub(crate) memory_gb: f64,
    pub(crate) kernel: String,
    /// When, as seconds since 1970.
    pub(crate) at: u64,
}

impl Machine {
    pub(crate) fn this(at: u64) -> Self {
        let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
        let (cpus, memory) = (read("/proc/cpuinfo"), read("/proc/meminfo"));
        let cpu = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let kib = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"));
        Self {
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            cpu: cpu.map_or("unknown", |(_, name)| name).trim().to_owned(),
            memory_gb: kib.and_then(|kib| kib.parse::<f64>().ok()).unwrap_or_default() / 1e6,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            at,
        }
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "cores": self.cores, "cpu": self.cpu, "memory_gb": self.memory_gb, "kernel": self.kernel, "at": self.at,
        })
    }
}
