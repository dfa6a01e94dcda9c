//! Floods of what is kept for ever, against a small capacity: nothing of others is thrown away for it (P-6).

use kukuri_testing::{Draft, draft, long::scaled, note, now, waiting::eventually};
use serde_json::json;

use crate::support::{Node, TOPIC};

const NOTES: usize = 200;
const TARGETS: u64 = 900;

/// An event of an author that nobody has seen before.
fn stranger(number: u64, kind: u16) -> Draft {
    let mut secret = [7; 32];
    secret[..8].copy_from_slice(&number.to_be_bytes());
    draft(1, kind).by(secret).tag(["t", TOPIC])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_requests_and_new_keys_evicts_no_note_of_others() {
    // P-6: 100 MB in a long run
    let capacity = u64::from(scaled(10)) * 1_000_000;
    let node = Node::start_with("required", &format!("[capacity]\nmax_bytes = {capacity}\n"));
    let mut client = node.client().await;
    for number in 0..NOTES {
        let content = format!("note {number} of a member. {}", "It has some length. ".repeat(20));
        client.accepted(&note(number as u8 % 5 + 1, &content).at(now() - 1_000 + number as u64).sign()).await;
    }

    let (mut sent, mut number, mut refusals) = (0, 0, Vec::new());
    while sent < 2 * capacity {
        number += 1;
        let event = if number % 2 == 0 {
            (0..TARGETS).fold(stranger(number, 5), |request, target| {
                request.tag(["e", &format!("{:064x}", number * TARGETS + target)])
            })
        } else {
            let key = format!("key {number}");
            stranger(number, 30_000).tag(["d", &key]).content(&"kept for ever. ".repeat(5_000))
        };
        let event = event.sign();
        sent += event.to_json().len() as u64;
        let (is_accepted, reason) = client.publish(&event).await;
        if !is_accepted {
            refusals.push(reason);
        }
    }
    assert_eq!(node.get("/healthz").1["permanent"], "full");
    eventually("the node says so in its log", async || node.log().contains("fill capacity.permanent_share")).await;
    let run = node.run(&["retention", "run"]);
    assert!(run.is_success, "{run:?}");

    let notes = client.request("notes", &[json!({ "#t": [TOPIC], "kinds": [1] })]).await;
    assert_eq!(notes.len(), NOTES, "refusals: {:?}", refusals.first());
    assert!(!refusals.is_empty(), "the flood is larger than the capacity");
    let reason = "restricted: space for events that are kept for ever is used up; ";
    assert!(refusals.iter().all(|refusal| refusal.starts_with(reason)), "{:?}", refusals.first());
    // Members are still heard: deletions, new keys, notes.
    client.accepted(&draft(1, 5).tag(["t", TOPIC]).tag(["e", &notes[0]]).sign()).await;
    client.accepted(&draft(2, 30_000).tag(["t", TOPIC]).tag(["d", "a member's key"]).sign()).await;
    client.accepted(&note(1, "still here").sign()).await;
    // A stranger may say something, and is known from then on.
    client.accepted(&stranger(0, 1).content("hello").sign()).await;
    client.accepted(&stranger(0, 0).content("{}").sign()).await;
}
