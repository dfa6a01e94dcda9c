//! Descriptions of nodes: the lists, conditional requests, the well-known document (B-3 to B-5).

use axum::http::Request;
use kukuri_bootstrap::{ListAccess, Operator, Profile, Role, Shutdown, ShutdownStatus, Statement};
use kukuri_control::policy::PolicyType;
use kukuri_domain::{
    Event, Millis, TopicId,
    topic::{TopicRules, TopicsMode},
};
use kukuri_store::conformance::build::{NOW, TOPIC, later, topic};
use kukuri_testing::draft;
use secp256k1::{Keypair, SecretKey};
use serde_json::{Value, json};

use crate::support::{
    Answer, NETWORK_ID, Node, clock,
    person::{key_of, now},
    set_clock,
};

const NODES: &str = "/v1/bootstrap/nodes";
const COMMUNITY_NODE: &str = "/.well-known/kukuri/community-node.json";
const DAY: u64 = 24 * 3_600;

fn services(topic: &str) -> String {
    format!("/v1/bootstrap/topics/{topic}/services")
}

fn sign(author: u8, statement: &Statement) -> Event {
    let key = Keypair::from_secret_key(&SecretKey::from_secret_bytes([author; 32]).unwrap());
    statement.sign(&key, clock().seconds())
}

fn profile(node: &Node) -> Profile {
    Profile::clone(&node.profile.lock().unwrap())
}

/// The descriptor of the node of an author.
fn descriptor(node: &Node, author: u8) -> Event {
    sign(author, &Statement::descriptor(&profile(node)))
}

/// The ids in a list, in no order.
fn ids(answer: &Answer) -> Vec<String> {
    assert_eq!(answer.status, 200, "{answer:?}");
    let json = answer.json();
    let mut ids: Vec<_> =
        json["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect();
    ids.sort();
    ids
}

fn ids_of(events: &[&Event]) -> Vec<String> {
    let mut ids: Vec<_> = events.iter().map(|event| event.id.to_string()).collect();
    ids.sort();
    ids
}

fn header<'a>(answer: &'a Answer, name: &str) -> &'a str {
    answer.headers[name].to_str().unwrap()
}

async fn ask(node: &Node, path: &str, headers: &[(&str, &str)]) -> Answer {
    let request = headers.iter().fold(Request::get(path), |request, (name, value)| request.header(*name, *value));
    node.ask(request).await
}

#[tokio::test]
async fn nodes_are_this_one_and_those_that_the_operator_lists() {
    // B-3
    let node = Node::new(TopicsMode::Required);
    let (own, known, stranger) = (descriptor(&node, 7), descriptor(&node, 8), descriptor(&node, 9));
    let group = draft(8, 39000).at(now()).tag(["d", "group"]).tag(["t", TOPIC]).tag(["exp", "99999999999"]).sign();
    node.send(&[own.clone(), known.clone(), stranger, group]).await;
    assert_eq!(ids(&node.get(NODES).await), ids_of(&[&own]));
    node.configure(|profile| profile.known = vec![key_of(8), key_of(6)]);
    let answer = node.get(NODES).await;
    assert_eq!(ids(&answer), ids_of(&[&own, &known]));
    assert_eq!(answer.json()["next_refresh_at"], now() + DAY);
    let served = answer.json()["items"][0].to_string();
    assert!(Event::from_json(&served).unwrap().verify().is_ok(), "{served}");

    set_clock(Millis(NOW.0 + 6 * DAY * 1_000 + 1));
    assert_eq!(node.get(NODES).await.json()["next_refresh_at"], NOW.seconds().0 + 7 * DAY, "before the first one ends");
    set_clock(Millis(NOW.0 + 7 * DAY * 1_000));
    assert_eq!(ids(&node.get(NODES).await), ids_of(&[]), "expired");
}

#[tokio::test]
async fn services_of_a_topic_are_found_by_its_id_and_by_its_name() {
    // B-3, U-6
    let node = Node::new(TopicsMode::Required);
    node.configure(|profile| profile.known = vec![key_of(8)]);
    let tea = TopicId::from_name(NETWORK_ID, "green tea", &TopicRules::default()).unwrap();
    let own = [Role::Relay, Role::Bootstrap].map(|role| sign(7, &Statement::topic_service(&tea, role)));
    let (known, stranger) =
        (sign(8, &Statement::topic_service(&tea, Role::Relay)), sign(9, &Statement::topic_service(&tea, Role::Relay)));
    let elsewhere = sign(7, &Statement::topic_service(&topic(), Role::Relay));
    node.send(&[own[0].clone(), own[1].clone(), known.clone(), stranger, elsewhere]).await;
    for text in [tea.as_str(), "Green%20%20TEA"] {
        assert_eq!(ids(&node.get(&services(text)).await), ids_of(&[&own[0], &own[1], &known]), "{text}");
    }
    let nothing = node.get(&services("coffee")).await;
    assert_eq!((ids(&nothing), nothing.json()["next_refresh_at"].as_u64()), (vec![], Some(now() + DAY)));
    for text in ["kukuri:x", "%20", &"x".repeat(5_000)] {
        assert_eq!(node.get(&services(text)).await.refused_parameter().as_deref(), Some("topic"), "{text}");
    }

    set_clock(later(1));
    let withdrawn = sign(7, &Statement::withdrawal(&own[0]));
    node.send(&[withdrawn]).await;
    assert_eq!(ids(&node.get(&services("green%20tea")).await), ids_of(&[&own[1], &known]), "taken back");
}

#[tokio::test]
async fn client_that_has_a_list_is_told_so() {
    // B-3, RFC 9110
    let node = Node::new(TopicsMode::Required);
    node.configure(|profile| profile.known = vec![key_of(8)]);
    let known = descriptor(&node, 8);
    node.send(&[descriptor(&node, 7), known.clone()]).await;
    let first = node.get(NODES).await;
    let (etag, modified) = (header(&first, "etag").to_owned(), header(&first, "last-modified").to_owned());
    assert!(etag.starts_with('"') && header(&first, "cache-control") == "public, max-age=300", "{first:?}");
    assert!(!first.headers.contains_key("vary") || !header(&first, "vary").contains("authorization"), "{first:?}");
    set_clock(later(100));
    for held in [("if-none-match", etag.as_str()), ("if-modified-since", modified.as_str())] {
        let answer = ask(&node, NODES, &[held]).await;
        assert_eq!((answer.status.as_u16(), answer.text.as_str()), (304, ""), "{held:?}");
        let headers = ["etag", "last-modified", "cache-control"].map(|name| header(&answer, name));
        assert_eq!(headers, [&etag, &modified, "public, max-age=300"], "{held:?}");
    }

    // One goes, and no newer one comes: no event says when.
    set_clock(later(161));
    node.send(&[sign(8, &Statement::withdrawal(&known))]).await;
    for held in [("if-none-match", etag.as_str()), ("if-modified-since", modified.as_str())] {
        let answer = ask(&node, NODES, &[held]).await;
        assert_eq!(answer.status, 200, "{held:?}");
        assert_ne!((header(&answer, "etag"), header(&answer, "last-modified")), (etag.as_str(), modified.as_str()));
    }
    let empty = node.get(&services("nobody")).await;
    assert!(empty.headers.contains_key("etag") && !empty.headers.contains_key("last-modified"), "{empty:?}");
    let held = header(&empty, "etag");
    assert_eq!(ask(&node, &services("nobody"), &[("if-none-match", held)]).await.status, 304);
}

#[tokio::test]
async fn lists_for_members_show_strangers_this_node_only() {
    // B-5
    let node = Node::with_people().await;
    node.configure(|profile| profile.known = vec![key_of(8)]);
    let (own, known) = (descriptor(&node, 7), descriptor(&node, 8));
    let service = sign(7, &Statement::topic_service(&topic(), Role::Relay));
    node.send(&[own.clone(), known.clone(), service.clone()]).await;
    let enforce_at = later(50);
    node.configure(|profile| profile.access = ListAccess::MembersFrom(enforce_at));
    let services = services(TOPIC);
    assert_eq!(ids(&node.get(NODES).await), ids_of(&[&own, &known]), "before it begins");
    assert_eq!(ids(&node.get(&services).await), ids_of(&[&service]), "before it begins");

    set_clock(enforce_at);
    let member = node.sign_in(1).await;
    let stranger = node.get(NODES).await;
    assert_eq!(ids(&stranger), ids_of(&[&own]));
    assert!(header(&stranger, "vary").contains("authorization"), "{stranger:?}");
    let refused = node.get(&services).await;
    assert_eq!(refused.code(), (401, "AUTH_REQUIRED".to_owned()));
    assert!(refused.headers.contains_key("www-authenticate"));
    let ask_as = async |path: &str| ask(&node, path, &[("authorization", &member)]).await;
    for (path, expected) in [(NODES, ids_of(&[&own, &known])), (&services, ids_of(&[&service]))] {
        let answer = ask_as(path).await;
        assert_eq!(ids(&answer), expected, "{path}");
        assert_eq!(header(&answer, "cache-control"), "private, max-age=300", "{path}");
        assert!(header(&answer, "vary").contains("authorization"), "{path}: {answer:?}");
    }

    node.publish(PolicyType::Terms, "1", now()).await;
    assert_eq!(ids(&ask_as(NODES).await), ids_of(&[&own]), "without consent");
    assert_eq!(ask_as(&services).await.code(), (428, "CONSENT_REQUIRED".to_owned()));
    assert_eq!(node.get(COMMUNITY_NODE).await.status, 200, "it names the policies");
}

#[tokio::test]
async fn community_node_document_says_what_the_configuration_says() {
    // B-4
    let node = Node::with_people().await;
    node.publish(PolicyType::Terms, "1", now()).await;
    node.publish(PolicyType::Privacy, "2", now() + 100).await;
    node.configure(|profile| {
        profile.name = "お茶の間".to_owned();
        profile.contact = Some("mailto:operator@node.example".to_owned());
        profile.capabilities = vec!["relay", "index"];
        profile.operator = Operator {
            name: Some("Example".to_owned()),
            pubkey: Some(key_of(1)),
            jurisdiction: Some("JP".to_owned()),
            abuse_contact: None,
        };
    });
    let answer = node.get(COMMUNITY_NODE).await;
    let document = answer.json();
    let node_id = key_of(7);
    let npub = kukuri_domain::nip19::npub(&node_id);
    for (pointer, expected) in [
        ("/node_id", json!(node_id)),
        ("/npub", json!(npub)),
        ("/name", json!("お茶の間")),
        ("/contact", json!("mailto:operator@node.example")),
        ("/operator", json!({ "name": "Example", "pubkey": key_of(1), "jurisdiction": "JP", "abuse_contact": null })),
        ("/capabilities", json!(["relay", "index"])),
        ("/endpoints", json!({ "http": "https://node.example", "ws": "wss://node.example", "p2p": null })),
        ("/policies", json!([{ "type": "terms", "version": "1", "url": "https://node.example/v1/policies/terms/1" }])),
        ("/retention/regular", json!(30 * DAY)),
        ("/retention/current", Value::Null),
        ("/service_keys", json!([])),
        ("/shutdown_notice", json!({ "status": "active", "effective_at": null, "message": null, "alternatives": [] })),
    ] {
        assert_eq!(document.pointer(pointer), Some(&expected), "{pointer}");
    }
    assert_eq!(header(&answer, "access-control-allow-origin"), "*");
    let etag = header(&answer, "etag");
    assert_eq!(ask(&node, COMMUNITY_NODE, &[("if-none-match", etag), ("authorization", "Bearer x")]).await.status, 304);

    node.configure(|profile| {
        profile.shutdown = Shutdown {
            status: ShutdownStatus::WindingDown,
            effective_at: Some(1_900_000_000),
            message: Some("Thank you.".to_owned()),
            alternatives: vec!["https://other.example".to_owned()],
        };
    });
    let changed = ask(&node, COMMUNITY_NODE, &[("if-none-match", etag)]).await;
    assert_eq!(
        changed.json()["shutdown_notice"],
        json!({
            "status": "winding_down", "effective_at": 1_900_000_000, "message": "Thank you.",
            "alternatives": ["https://other.example"],
        })
    );
}
