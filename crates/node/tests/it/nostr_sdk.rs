//! The Rust client library `nostr-sdk` against the real binary.

use std::{collections::HashSet, time::Duration};

use crate::support::{Node, TOPIC};
use kukuri_testing::{TIMEOUT, eventually};
use nostr_sdk::prelude::*;

/// Connects a client with these keys.
async fn connect(node: &Node, keys: &Keys) -> Client {
    connect_as(node, Client::builder().signer(keys.clone()).build()).await
}

async fn connect_as(node: &Node, client: Client) -> Client {
    // The shortest interval: the test waits for the reconnection.
    let options = RelayOptions::new().retry_interval(Duration::from_secs(1)).adjust_retry_interval(false);
    client.pool().add_relay(node.url(), options).await.unwrap();
    client.connect().await;
    client.wait_for_connection(TIMEOUT).await;
    client
}

/// Publishes an event. Fails with the relay's reason.
async fn send(client: &Client, event: &Event) -> Result<(), String> {
    match client.send_event(event).await.unwrap().failed.into_values().next() {
        None => Ok(()),
        Some(reason) => Err(reason),
    }
}

/// The stored events that a new client finds, newest first.
async fn stored(node: &Node, filter: Filter) -> Vec<EventId> {
    let client = connect(node, &Keys::generate()).await;
    let found = client.fetch_events(filter, TIMEOUT).await.unwrap();
    client.shutdown().await;
    found.into_iter().map(|event| event.id).collect()
}

/// The next event of a subscription.
async fn next_event(
    notifications: &mut tokio::sync::broadcast::Receiver<RelayPoolNotification>,
    id: &SubscriptionId,
) -> Event {
    let next = async {
        loop {
            match notifications.recv().await.unwrap() {
                RelayPoolNotification::Event { subscription_id, event, .. } if subscription_id == *id => return *event,
                _ => {}
            }
        }
    };
    tokio::time::timeout(TIMEOUT, next).await.expect("a live event")
}

fn note(keys: &Keys, content: &str) -> Event {
    EventBuilder::text_note(content).sign_with_keys(keys).unwrap()
}

#[tokio::test]
async fn events_of_a_topic_are_published_stored_and_live() {
    // T-4, T-5, T-6, W-1
    let node = Node::start("required");
    let (alice, bob) = (Keys::generate(), Keys::generate());
    let writer = connect(&node, &alice).await;
    let in_topic = |text: &str| EventBuilder::text_note(text).tag(Tag::hashtag(TOPIC)).sign_with_keys(&alice).unwrap();
    let (first, second) = (in_topic("first"), in_topic("second"));
    assert_eq!(send(&writer, &first).await, Ok(()));
    assert_eq!(send(&writer, &note(&alice, "nowhere")).await, Err("invalid: missing topic".to_owned()));

    let topic = Filter::new().hashtag(TOPIC);
    assert_eq!(stored(&node, topic.clone()).await, [first.id]);
    let reader = connect(&node, &bob).await;
    let mut notifications = reader.notifications();
    let subscription = reader.subscribe(topic.clone(), None).await.unwrap().val;
    assert_eq!(next_event(&mut notifications, &subscription).await, first, "stored");
    assert_eq!(send(&writer, &second).await, Ok(()));
    assert_eq!(next_event(&mut notifications, &subscription).await, second, "live");
    assert_eq!(stored(&node, topic.kind(Kind::TextNote).author(alice.public_key())).await.len(), 2);
}

#[tokio::test]
async fn a_newer_version_replaces_an_older_one() {
    // E-3
    let node = Node::start("global");
    let keys = Keys::generate();
    let client = connect(&node, &keys).await;
    let now = Timestamp::now();
    let profile = |name: &str, at: Timestamp| {
        let profile = EventBuilder::metadata(&Metadata::new().name(name));
        profile.custom_created_at(at).sign_with_keys(&keys).unwrap()
    };
    let (old, new) = (profile("old", now - 20u64), profile("new", now));
    for event in [&old, &new] {
        assert_eq!(send(&client, event).await, Ok(()));
    }
    let between = profile("between", now - 10u64);
    assert_eq!(send(&client, &between).await, Err("replaced: a newer version is known".to_owned()));
    assert_eq!(stored(&node, Filter::new().kind(Kind::Metadata)).await, [new.id]);
}

#[tokio::test]
async fn deletions_by_id_and_by_address_apply_to_earlier_and_later_targets() {
    // D-3, D-4, D-6
    let node = Node::start("global");
    let keys = Keys::generate();
    let client = connect(&node, &keys).await;
    let article = |text: &str| {
        let article = EventBuilder::long_form_text_note(text).tag(Tag::identifier("slug"));
        article.sign_with_keys(&keys).unwrap()
    };
    let delete = |request: EventDeletionRequest| EventBuilder::delete(request).sign_with_keys(&keys).unwrap();
    let (post, page, late) = (note(&keys, "post"), article("page"), note(&keys, "late"));
    for event in [&post, &page] {
        assert_eq!(send(&client, event).await, Ok(()));
    }
    let strangers = EventBuilder::delete(EventDeletionRequest::new().id(post.id)).sign_with_keys(&Keys::generate());
    let address = Coordinate::new(Kind::LongFormTextNote, keys.public_key()).identifier("slug");
    let requests = [
        delete(EventDeletionRequest::new().id(post.id)),
        delete(EventDeletionRequest::new().coordinate(address)),
        delete(EventDeletionRequest::new().id(late.id)),
    ];
    assert_eq!(send(&client, &strangers.unwrap()).await, Ok(()));
    let notes = Filter::new().kinds([Kind::TextNote, Kind::LongFormTextNote]);
    assert_eq!(stored(&node, notes.clone()).await.len(), 2, "a stranger deletes nothing");
    for request in &requests {
        assert_eq!(send(&client, request).await, Ok(()));
    }
    assert!(stored(&node, notes).await.is_empty());
    for event in [&post, &page, &late] {
        assert_eq!(send(&client, event).await, Err("blocked: deleted by its author".to_owned()));
    }
    let own = Filter::new().kind(Kind::EventDeletion).author(keys.public_key());
    assert_eq!(stored(&node, own).await.len(), 3, "the requests are there to be read (D-1)");
}

#[tokio::test]
async fn an_expired_event_is_not_served() {
    //
    let node = Node::start("global");
    let keys = Keys::generate();
    let client = connect(&node, &keys).await;
    let until_then =
        |end: Timestamp| EventBuilder::text_note("brief").tag(Tag::expiration(end)).sign_with_keys(&keys).unwrap();
    // Long enough to be visible first on a busy machine, short enough to wait for.
    let brief = until_then(Timestamp::now() + 8u64);
    assert_eq!(send(&client, &brief).await, Ok(()));
    assert_eq!(stored(&node, Filter::new().id(brief.id)).await, [brief.id]);
    // COUNT, because this client hides expired events even if the relay sends them.
    let relay = client.relay(node.url()).await.unwrap();
    eventually("it expires", || async {
        relay.count_events(Filter::new().author(keys.public_key()), TIMEOUT).await.unwrap() == 0
    })
    .await;
    let past = until_then(Timestamp::now() - 10u64);
    assert_eq!(send(&client, &past).await, Err("invalid: expired".to_owned()));
}

#[tokio::test]
async fn a_vanish_request_removes_all_events_of_its_author() {
    // D-12
    let node = Node::start("global");
    let (leaving, staying) = (Keys::generate(), Keys::generate());
    let client = connect(&node, &leaving).await;
    let (gone, kept) = (note(&leaving, "gone"), note(&staying, "kept"));
    for event in [&gone, &kept] {
        assert_eq!(send(&client, event).await, Ok(()));
    }
    let target = VanishTarget::relay(RelayUrl::parse(&node.url()).unwrap());
    let vanish = EventBuilder::request_vanish_with_reason(target, "farewell").unwrap();
    assert_eq!(send(&client, &vanish.sign_with_keys(&leaving).unwrap()).await, Ok(()));
    assert_eq!(stored(&node, Filter::new().kind(Kind::TextNote)).await, [kept.id]);
    assert_eq!(send(&client, &gone).await, Err("blocked: its author asked to vanish".to_owned()));
}

#[tokio::test]
async fn a_protected_event_is_accepted_only_from_its_authenticated_author() {
    // E-10
    let node = Node::start("global");
    let (alice, mallory) = (Keys::generate(), Keys::generate());
    let protected = EventBuilder::text_note("mine").tag(Tag::protected()).sign_with_keys(&alice).unwrap();
    let nobody = connect_as(&node, Client::default()).await;
    let refused = send(&nobody, &protected).await.unwrap_err();
    assert!(refused.starts_with("auth-required:"), "{refused}");
    let refused = send(&connect(&node, &mallory).await, &protected).await.unwrap_err();
    assert!(refused.starts_with("restricted:"), "{refused}");
    assert_eq!(
        send(&connect(&node, &alice).await, &protected).await,
        Ok(()),
        "the client answers the challenge itself"
    );
    assert_eq!(stored(&node, Filter::new().author(alice.public_key())).await, [protected.id]);
}

#[tokio::test]
async fn count_equals_the_number_of_events_a_query_returns() {
    let node = Node::start("global");
    let keys = Keys::generate();
    let client = connect(&node, &keys).await;
    for n in 0..7 {
        assert_eq!(send(&client, &note(&keys, &n.to_string())).await, Ok(()));
    }
    let relay = client.relay(node.url()).await.unwrap();
    let count = async |filter: Filter| relay.count_events(filter, TIMEOUT).await.unwrap();
    assert_eq!(count(Filter::new().author(keys.public_key())).await, 7);
    assert_eq!(count(Filter::new().kind(Kind::Metadata)).await, 0);
}

#[tokio::test]
async fn nip77_sync_finds_the_events_each_side_lacks() {
    // NIP-77
    let node = Node::start("global");
    let keys = Keys::generate();
    let options = MemoryDatabaseOptions { events: true, max_events: None };
    let database = MemoryDatabase::with_opts(options);
    let notes: Vec<_> = (0..120).map(|n| note(&keys, &n.to_string())).collect();
    let writer = connect(&node, &keys).await;
    // Forty events that both sides have, forty of the relay alone, forty of the client alone.
    for event in &notes[..80] {
        assert_eq!(send(&writer, event).await, Ok(()));
    }
    for event in &notes[40..] {
        database.save_event(event).await.unwrap();
    }
    let client = connect_as(&node, Client::builder().database(database).build()).await;
    let both_ways = SyncOptions::new().direction(SyncDirection::Both).initial_timeout(Duration::from_secs(20));
    let all = Filter::new().author(keys.public_key());
    let done = client.sync(all.clone(), &both_ways).await.unwrap();
    assert!(done.failed.is_empty(), "{:?}", done.failed);
    let ids = |events: &[Event]| events.iter().map(|event| event.id).collect::<HashSet<_>>();
    assert_eq!((&done.remote, &done.received), (&ids(&notes[..40]), &ids(&notes[..40])), "what the client lacked");
    assert_eq!((&done.local, &done.sent), (&ids(&notes[80..]), &ids(&notes[80..])), "what the relay lacked");
    assert_eq!(stored(&node, all).await.into_iter().collect::<HashSet<_>>(), ids(&notes));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_reconnect_after_a_crash_and_find_every_acknowledged_event() {
    let mut node = Node::start("global");
    let (alice, bob) = (Keys::generate(), Keys::generate());
    let (writer, reader) = (connect(&node, &alice).await, connect(&node, &bob).await);
    let mut notifications = reader.notifications();
    let all = Filter::new().author(alice.public_key());
    let subscription = reader.subscribe(all.clone(), None).await.unwrap().val;
    let before: Vec<_> = (0..20).map(|n| note(&alice, &n.to_string())).collect();
    for event in &before {
        assert_eq!(send(&writer, event).await, Ok(()));
        assert_eq!(next_event(&mut notifications, &subscription).await, *event);
    }
    node.kill();
    for client in [&writer, &reader] {
        let relay = client.relay(node.url()).await.unwrap();
        eventually("the client notices", || async { !relay.is_connected() }).await;
    }
    node.start_again();
    for client in [&writer, &reader] {
        let relay = client.relay(node.url()).await.unwrap();
        eventually("the client comes back", || async { relay.is_connected() }).await;
    }
    let found: HashSet<_> = stored(&node, all).await.into_iter().collect();
    assert_eq!(found, before.iter().map(|event| event.id).collect());
    let after = note(&alice, "after");
    assert_eq!(send(&writer, &after).await, Ok(()));
    assert_eq!(next_event(&mut notifications, &subscription).await, after, "its subscription is there again");
}
