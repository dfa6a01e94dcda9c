//! docs/metrics.md lists the metrics of the code, and a running node exports no other.

use std::{collections::BTreeSet, fs, path::Path};

use kukuri_engine::metrics::{EngineMetrics, MetricSpec};
use kukuri_gossip::metrics::GossipMetrics;
use kukuri_http::HttpMetrics;
use kukuri_relay::RelayMetrics;

use crate::support::Node;

const REWRITE: &str = "KUKURI_TEST_WRITE_DOCS";
const MARK: &str = "<!-- From here on generated from the tables in the code. To regenerate: \
    KUKURI_TEST_WRITE_DOCS=1 cargo test -p kukuri-node metrics -->\n";

fn tables() -> [(&'static str, &'static [MetricSpec]); 4] {
    [
        ("Engine", EngineMetrics::SPECS),
        ("Relay", RelayMetrics::SPECS),
        ("HTTP", HttpMetrics::SPECS),
        ("Gossip and catch-up", GossipMetrics::SPECS),
    ]
}

fn generated() -> String {
    let mut text = String::new();
    for (title, specs) in tables() {
        text += &format!("\n## {title}\n\n| metric | kind | labels | meaning |\n|---|---|---|---|\n");
        for spec in specs {
            let labels = match spec.labels() {
                None => String::new(),
                Some((name, values)) if values.is_empty() => format!("`{name}`"),
                Some((name, values)) => format!("`{name}`: {}", values.join(", ")),
            };
            text += &format!("| `{}` | {} | {labels} | {} |\n", spec.name, spec.kind, spec.help);
        }
    }
    text
}

#[test]
fn docs_list_every_metric_of_the_tables() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let text = fs::read_to_string(&path).unwrap();
    let (prose, _) = text.split_once(MARK).expect("the mark is there");
    let expected = format!("{prose}{MARK}{}", generated());
    if std::env::var_os(REWRITE).is_some() {
        fs::write(&path, expected).unwrap();
    } else {
        assert!(text == expected, "docs/metrics.md is out of date: {REWRITE}=1 cargo test -p kukuri-node metrics");
    }
}

#[tokio::test]
async fn a_node_exports_only_metrics_of_the_tables() {
    let node = Node::start("required");
    let body = node.http_text("/metrics");
    let known: BTreeSet<&str> = tables().iter().flat_map(|(_, specs)| specs.iter().map(|spec| spec.name)).collect();
    let exported = body.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let exported: BTreeSet<&str> = exported.collect();
    assert!(exported.contains("kukuri_events_total") && exported.contains("kukuri_gossip_topics"), "{body}");
    let unknown: Vec<_> = exported.difference(&known).collect();
    assert!(unknown.is_empty(), "not in a table: {unknown:?}");
}
