//! Nodes that are peers of each other, and their metrics.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    time::Duration,
};

use serde_json::json;

use super::{Node, TOPIC};
use kukuri_testing::{Client, eventually};

impl Node {
    /// The node's address for peers, from its announcement at start.
    pub(crate) fn peer(&self) -> String {
        let line = self.announcement.lines().find_map(|line| line.trim().strip_prefix("peers "));
        line.expect("it told").trim().to_owned()
    }

    /// The value of a metric: the sum over all labels, or over those that contain `label`; 0 if there is none.
    pub(crate) fn figure(&self, name: &str, label: &str) -> u64 {
        let text = self.http("/metrics", "text/plain");
        let of_name = |line: &&str| line.split(['{', ' ']).next() == Some(name) && line.contains(label);
        let values = text.lines().filter(of_name).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        values.sum::<f64>() as u64
    }

    /// The number of dropped messages from peers, by reason.
    pub(crate) fn dropped(&self) -> BTreeMap<String, u64> {
        let text = self.http("/metrics", "text/plain");
        let of = |line: &str| {
            let (reason, count) = line.strip_prefix("kukuri_gossip_dropped_total{reason=\"")?.split_once("\"} ")?;
            Some((reason.to_owned(), count.parse().ok()?))
        };
        text.lines().filter_map(of).filter(|(_, count)| *count > 0).collect()
    }

    /// The gossip part of `/healthz`.
    pub(crate) fn gossip(&self) -> serde_json::Value {
        self.get("/healthz").1["gossip"].clone()
    }

    /// Waits until a topic has this number of neighbours.
    pub(crate) async fn joined(&self, topic: &str, neighbours: usize) {
        let what = format!("{neighbours} neighbours in {topic}");
        eventually(&what, || async { self.neighbours(topic) == Some(neighbours) }).await;
    }

    /// The number of neighbours of a topic; `None`: the node does not share it.
    pub(crate) fn neighbours(&self, topic: &str) -> Option<usize> {
        let table = self.run(&["gossip", "topics"]).ok();
        let row = table.lines().find(|line| line.ends_with(topic))?;
        row.split_whitespace().next()?.parse().ok()
    }

    /// Enables many topics on the running node, over its admin socket.
    pub(crate) fn enable_all(&self, topics: &[String]) {
        let mut socket = UnixStream::connect(self.place("data/admin.sock")).unwrap();
        let mut answers = BufReader::new(socket.try_clone().unwrap()).lines();
        for topic in topics {
            writeln!(socket, "{}", json!({ "topic": { "topic": topic, "enabled": true, "policy": null } })).unwrap();
            assert_eq!(answers.next().unwrap().unwrap(), r#"{"Ok":null}"#);
        }
    }

    /// The memory of the node's process, in KiB.
    pub(crate) fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process_id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Enables or disables a topic on the running node.
    pub(crate) fn topic(&self, change: &str, topic: &str) {
        self.run(&["topic", change, topic]).ok();
    }
}

/// Starts nodes that are peers of each other, with the topic enabled and joined by all.
pub(crate) async fn mesh<const N: usize>(configuration: &str) -> [Node; N] {
    let mut peers: Vec<String> = Vec::new();
    let nodes: [Node; N] = std::array::from_fn(|_| {
        let node = Node::start_with("required", &configured(configuration, &peers));
        peers.push(format!("{:?}", node.peer()));
        node.topic("enable", TOPIC);
        node
    });
    for node in &nodes {
        node.joined(TOPIC, N - 1).await;
    }
    nodes
}

/// The configuration with known peers, each a TOML string.
pub(crate) fn configured(configuration: &str, peers: &[String]) -> String {
    format!("gossip.known = [{}]\n{configuration}\n", peers.join(", "))
}

/// A client that is subscribed to the topic.
pub(crate) async fn listener(node: &Node, topic: &str) -> Client {
    let mut client = node.client().await;
    client.say(json!(["REQ", "live", { "#t": [topic], "limit": 0 }])).await;
    assert_eq!(client.hear().await[0], "EOSE");
    client
}

/// Long enough for a forbidden effect to show.
pub(crate) const A_WHILE: Duration = Duration::from_millis(500);
