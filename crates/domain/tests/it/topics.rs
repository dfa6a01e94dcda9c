//! Which topics an event belongs to, and whether it may (T-1, T-4 to T-9).

use std::collections::HashSet;

use crate::support::{ALICE, Draft, NOW, OTHER_TOPIC, TOPIC, bare, client, event, gossip, note, refusal_of, relay};
use kukuri_domain::{
    Admission, Event, Limits, Origin, Refusal, TopicId, sharing,
    topic::{self, TopicRules, TopicsMode},
};

const GLOBAL: &str = "kukuri:global";
/// A topic that is not enabled and holds events.
const HELD: &str = "kukuri:user:0505050505050505050505050505050505050505050505050505050505050505";

fn node(mode: TopicsMode, reserved: &[&str]) -> Admission {
    Admission { topics: TopicRules::new(mode, reserved).unwrap(), ..relay() }
}

/// The topics an event is bound to, or why it is bound to none.
fn bound(node: &Admission, draft: Draft) -> Result<Vec<String>, Refusal> {
    let admitted = node.admit(&draft.json(), Origin::unauthenticated_client(), NOW)?;
    Ok(admitted.topics().iter().map(TopicId::to_string).collect())
}

#[test]
fn an_event_is_bound_to_every_topic_it_names_and_to_each_once() {
    // T-1, T-4
    let user = format!("kukuri:user:{}", ALICE.hex());
    let in_topics = |values: &[&str]| bare(1).tags(values.iter().map(|value| ["t", value]));
    for (what, draft, expected) in [
        ("one", in_topics(&[TOPIC]), vec![TOPIC]),
        ("two, in their order", in_topics(&[OTHER_TOPIC, TOPIC]), vec![OTHER_TOPIC, TOPIC]),
        ("one that is named twice", in_topics(&[TOPIC, OTHER_TOPIC, TOPIC]), vec![TOPIC, OTHER_TOPIC]),
        ("beside hashtags", in_topics(&["bitcoin", TOPIC, "", "Kukuri:x"]), vec![TOPIC]),
        ("the global one", in_topics(&[GLOBAL]), vec![GLOBAL]),
        ("a user's", in_topics(&[&user]), vec![user.as_str()]),
        ("with more items in the tag", bare(1).tag(["t", TOPIC, "wss://relay.example.com"]), vec![TOPIC]),
    ] {
        assert_eq!(bound(&relay(), draft).unwrap(), expected, "{what}");
    }
}

#[test]
fn an_event_in_hundreds_of_topics_is_bound_to_all_of_them() {
    // T-4
    let topics: Vec<_> = (0..1_300).map(|number| format!("kukuri:{number:064x}")).collect();
    let draft = bare(1).tags(topics.iter().map(|topic| ["t", topic]));
    let wide = Admission { limits: Limits { topics_per_event: 1_300, ..Limits::default() }, ..relay() };
    assert_eq!(bound(&wide, draft).unwrap(), topics);
}

#[test]
fn a_malformed_topic_is_refused() {
    // T-1
    let hex = &TOPIC["kukuri:".len()..];
    for value in [
        "kukuri:",
        "kukuri:x",
        "kukuri:Global",
        "kukuri:global ",
        "kukuri:global:x",
        "kukuri:lobby",
        "kukuri:user:",
        "kukuri:user:x",
        &format!("kukuri:user:{}", &hex[1..]),
        &format!("kukuri:{}", &hex[1..]),
        &format!("kukuri:{hex}0"),
        &format!("kukuri:{}", hex.replace('1', "A")),
        &format!("kukuri:main:{hex}"),
    ] {
        for node in [relay(), node(TopicsMode::Global, &[])] {
            let refusal = bound(&node, note().tag(["t", value])).unwrap_err();
            assert_eq!(refusal.to_string(), "invalid: malformed topic", "{value}");
        }
    }
}

#[test]
fn reserved_ids_are_topics_on_a_node_that_lists_them() {
    // T-1
    let listing = node(TopicsMode::Required, &["kukuri:lobby", "kukuri:room:*"]);
    let in_topic = |value: &str| bare(1).tag(["t", value]);
    for (value, is_topic) in [
        ("kukuri:lobby", true),
        ("kukuri:room:1", true),
        ("kukuri:room:1:2", true),
        ("kukuri:lobby:1", false),
        ("kukuri:room:", false),
        ("kukuri:room", false),
    ] {
        let expected = if is_topic { Ok(vec![value.to_owned()]) } else { Err(Refusal::MalformedTopic) };
        assert_eq!(bound(&listing, in_topic(value)), expected, "{value}");
        assert_eq!(bound(&relay(), in_topic(value)), Err(Refusal::MalformedTopic), "{value}, not listed");
    }
    let longest = format!("kukuri:room:{}", "x".repeat(TopicId::MAX_LEN - "kukuri:room:".len()));
    assert_eq!(bound(&listing, in_topic(&longest)), Ok(vec![longest.clone()]));
    assert_eq!(bound(&listing, in_topic(&format!("{longest}x"))), Err(Refusal::MalformedTopic));
}

#[test]
fn an_event_without_a_topic_is_refused_unless_it_is_a_vanish_request() {
    // T-5, T-9
    let missing = || Err(Refusal::MissingTopic);
    let vanish = || bare(62).tag(["relay", "ALL_RELAYS"]);
    for (what, draft, expected) in [
        ("no tag", bare(1), missing()),
        ("only a hashtag", bare(1).tag(["t", "bitcoin"]), missing()),
        ("a topic in another tag", bare(1).tag(["T", TOPIC]).tag(["r", TOPIC]), missing()),
        ("a t without a value", bare(1).tag(["t"]), missing()),
        ("a deletion request", bare(5).tag(["e", "x"]), missing()),
        ("a vanish request", vanish(), Ok(vec![GLOBAL.to_owned()])),
        ("a vanish request in a topic", vanish().tag(["t", TOPIC]), Ok(vec![TOPIC.to_owned()])),
    ] {
        assert_eq!(bound(&relay(), draft), expected, "{what}");
    }
    assert_eq!(refusal_of(bare(1).json()).unwrap().to_string(), "invalid: missing topic");
}

#[test]
fn in_global_mode_an_event_without_a_topic_belongs_to_the_global_one() {
    // T-7
    let global = node(TopicsMode::Global, &[]);
    for (what, draft, expected) in [
        ("no tag", bare(1), [GLOBAL]),
        ("only a hashtag", bare(1).tag(["t", "bitcoin"]), [GLOBAL]),
        ("a deletion request", bare(5), [GLOBAL]),
        ("a topic", note(), [TOPIC]),
    ] {
        assert_eq!(bound(&global, draft).unwrap(), expected, "{what}");
    }
}

#[test]
fn every_topic_of_a_clients_event_must_be_enabled_and_one_of_a_peers() {
    // T-4, T-8, T-9
    let enabled: HashSet<_> = [TOPIC, GLOBAL].into();
    let refused = || Err(Refusal::TopicNotEnabled);
    let both = || note().tag(["t", OTHER_TOPIC]);
    let elsewhere = |kind| bare(kind).tag(["t", OTHER_TOPIC]);
    for (what, draft, origin, expected) in [
        ("an enabled topic", note(), Origin::unauthenticated_client(), Ok(())),
        ("another topic", elsewhere(1), Origin::unauthenticated_client(), refused()),
        ("one enabled and one not", both(), Origin::unauthenticated_client(), refused()),
        ("whoever sends it", elsewhere(1), client(&[ALICE]), refused()),
        ("an ephemeral event", elsewhere(20_001), Origin::unauthenticated_client(), refused()),
        ("a deletion request, no topic known", elsewhere(5), Origin::unauthenticated_client(), refused()),
        ("a deletion request, one topic enabled", elsewhere(5).tag(["t", TOPIC]), client(&[ALICE]), Ok(())),
        ("a deletion request, one topic holding events", elsewhere(5).tag(["t", HELD]), client(&[ALICE]), Ok(())),
        ("an event in a topic that holds events", bare(1).tag(["t", HELD]), client(&[ALICE]), refused()),
        ("a deletion request from catch-up", elsewhere(5), Origin::Sync { peer: [7; 32] }, Ok(())),
        ("a deletion request from a file", elsewhere(5), Origin::Import, Ok(())),
        ("a vanish request", elsewhere(62).tag(["relay", "ALL_RELAYS"]), Origin::unauthenticated_client(), Ok(())),
        ("from gossip, one enabled and one not", both(), gossip(OTHER_TOPIC), Ok(())),
        ("from gossip, on a topic that was just left", elsewhere(1), gossip(OTHER_TOPIC), refused()),
        ("a deletion request from gossip", elsewhere(5), gossip(OTHER_TOPIC), Ok(())),
        ("from catch-up", both(), Origin::Sync { peer: [7; 32] }, Ok(())),
        ("from a file", elsewhere(1), Origin::Import, Ok(())),
    ] {
        let screened = relay().screen(draft.unsigned(), origin, NOW).unwrap();
        let is_enabled = |topic: &TopicId| enabled.contains(topic.as_str());
        assert_eq!(screened.check_enabled(is_enabled, |topic| topic.as_str() == HELD), expected, "{what}");
    }
    assert_eq!(Refusal::TopicNotEnabled.to_string(), "restricted: topic not enabled");
}

#[test]
fn a_request_is_bound_to_known_topics_and_told_in_those_it_names() {
    // T-4, T-9, G-7
    let vanish = || bare(62).tag(["relay", "ALL_RELAYS"]);
    let in_both = |draft: Draft| draft.tag(["t", TOPIC]).tag(["t", OTHER_TOPIC]);
    for (what, draft, is_known, expected, told) in [
        ("an event", in_both(bare(1)), "", vec![TOPIC, OTHER_TOPIC], None),
        ("all topics known", in_both(bare(5)), "kukuri", vec![TOPIC, OTHER_TOPIC], Some(vec![TOPIC, OTHER_TOPIC])),
        ("one topic known", in_both(bare(5)), OTHER_TOPIC, vec![OTHER_TOPIC], Some(vec![TOPIC, OTHER_TOPIC])),
        ("no topic known", in_both(bare(5)), "none", vec![GLOBAL], Some(vec![TOPIC, OTHER_TOPIC])),
        ("a vanish request", in_both(vanish()), "none", vec![GLOBAL], Some(vec![TOPIC, OTHER_TOPIC])),
        (
            "a vanish request that names no topic",
            vanish().tag(["t", "hashtag"]),
            "none",
            vec![GLOBAL],
            Some(vec![GLOBAL]),
        ),
    ] {
        let event = draft.unsigned();
        let screened = relay().screen(event.clone(), Origin::Import, NOW).unwrap();
        let known = |topic: &TopicId| Ok::<_, ()>(topic.as_str().starts_with(is_known));
        let bound = topic::bound(event.kind, screened.topics(), known).unwrap();
        assert_eq!(bound.iter().map(TopicId::as_str).collect::<Vec<_>>(), expected, "{what}");
        for topic in [TOPIC, OTHER_TOPIC, GLOBAL].iter().filter(|_| told.is_some()) {
            let is_told = told.as_ref().is_some_and(|told| told.contains(topic));
            assert_eq!(sharing::tells_of(&event, &TopicId::new_unchecked(topic)), is_told, "{what}: {topic}");
        }
    }
}

#[test]
fn a_request_by_catch_up_or_import_needs_no_topic() {
    // T-9
    for (what, origin, is_taken) in [
        ("a client", client(&[ALICE]), false),
        ("a peer, over gossip", gossip(GLOBAL), false),
        ("a peer, by catch-up", Origin::Sync { peer: [7; 32] }, true),
        ("a file", Origin::Import, true),
    ] {
        let screened = relay().screen(bare(5).unsigned(), origin.clone(), NOW);
        assert_eq!(screened.map(|it| it.topics().to_vec()).ok(), is_taken.then(|| vec![TopicId::global()]), "{what}");
        assert!(relay().screen(bare(1).unsigned(), origin, NOW).is_err(), "{what}: an event needs one");
    }
}

#[test]
fn an_event_must_name_the_gossip_topic_it_came_over() {
    // G-4
    let required = relay();
    let global = node(TopicsMode::Global, &[]);
    let vanish = || bare(62).tag(["relay", "ALL_RELAYS"]).unsigned();
    for (what, node, event, topic, is_taken) in [
        ("its topic", &required, note().unsigned(), TOPIC, true),
        ("one of its topics", &required, note().tag(["t", OTHER_TOPIC]).unsigned(), OTHER_TOPIC, true),
        ("another topic", &required, note().unsigned(), OTHER_TOPIC, false),
        ("the global topic", &required, note().unsigned(), GLOBAL, false),
        ("the global topic, in global mode", &global, note().unsigned(), GLOBAL, true),
        ("the global topic, in global mode, without one", &global, bare(1).unsigned(), GLOBAL, true),
        ("another topic, in global mode", &global, note().unsigned(), OTHER_TOPIC, false),
        ("a request in another topic", &required, event(5).unsigned(), OTHER_TOPIC, false),
        ("a vanish request that names no topic", &required, vanish(), GLOBAL, true),
        ("a vanish request on another topic", &required, vanish(), TOPIC, false),
    ] as [(&str, &Admission, Event, &str, bool); 10]
    {
        let refusal = node.screen(event, gossip(topic), NOW).err();
        assert_eq!(refusal, (!is_taken).then_some(Refusal::WrongTopic), "{what}");
    }
}
