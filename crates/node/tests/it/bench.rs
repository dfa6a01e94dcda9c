//! The benchmark at its smallest sizes, on the real binary: it measures every part, accepts this relay's answers, names
//! a relay that fails, and writes a readable report.

use std::{ffi::OsString, fs};

use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_kukuri-node");

/// Small enough for a busy machine; the test asserts no durations.
const SMALL: [&str; 12] = [
    "--events",
    "400",
    "--sizes",
    "200,400",
    "--subscribers",
    "5",
    "--connections",
    "20",
    "--part",
    "ingest,req,live,idle,growth",
    "--timeout",
    "120",
];

fn figure(report: &Value, part: &str, row: &str, name: &str) -> Value {
    let figures = report["figures"].as_array().unwrap();
    let is_it = |figure: &&Value| {
        figure["of"] == "kukuri" && figure["part"] == part && figure["row"] == row && figure["figure"] == name
    };
    let found = figures.iter().find(is_it).unwrap_or_else(|| panic!("no {part}, {row}, {name}"));
    found["value"].clone()
}

#[test]
fn benchmark_passes_this_relay_and_reports_a_relay_that_fails() {
    let out = tempfile::tempdir().unwrap();
    let place = out.path().to_str().unwrap();
    let other = "broken=sh -c 'echo no luck; exit 3' {port} {dir}";
    let named = ["bench", "--node", BINARY, "--dir", place, "--relay", other];
    kukuri_bench::run(named.iter().chain(&SMALL).map(OsString::from)).unwrap();

    let report: Value = serde_json::from_slice(&fs::read(out.path().join("report.json")).unwrap()).unwrap();
    assert_eq!(report["faults"].as_array().unwrap().len(), 0);
    for row in ["answers", "answers after kill -9"] {
        // W-1, also after SIGKILL.
        assert!(figure(&report, "req", row, "questions").as_f64().unwrap() > 100.0);
        assert_eq!(figure(&report, "req", row, "wrong"), 0.0);
        assert_eq!(figure(&report, "req", row, "ties"), 0.0);
    }
    assert_eq!(figure(&report, "req", "kill -9", "lost"), 0.0);
    assert_eq!(figure(&report, "ingest", "durability", "synced before OK"), 100.0);
    assert_eq!(figure(&report, "live", "fan-out", "missed"), 0.0);
    assert!(figure(&report, "growth", "in all", "query CPU").as_f64().unwrap() > 0.0);
    assert!(figure(&report, "idle", "connections", "connections").as_f64().unwrap() > 0.0);

    let failures: Vec<&str> =
        report["failures"].as_array().unwrap().iter().map(|failure| failure["reason"].as_str().unwrap()).collect();
    assert!(!failures.is_empty() && failures.iter().all(|reason| reason.contains("no luck")), "{failures:?}");
    let page = fs::read_to_string(out.path().join("report.md")).unwrap();
    assert!(page.contains(report["corpus"]["fingerprint"].as_str().unwrap()));
}
