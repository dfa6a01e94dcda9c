//! A builder for test events: `note().by(BOB).at(3).tag(["e", &id])`.
//!
//! Events are unsigned but have correct ids, and pass through the real admission, so that topics are bound and vanish
//! requests recognised as on a node.

use std::sync::LazyLock;

use kukuri_domain::{
    Admission, Admitted, Event, EventId, Kind, Millis, Origin, PublicKey, RelayUrls, Signature, Timestamp, TopicId,
    topic::{TopicRules, TopicsMode},
};

/// The current time in tests.
pub const NOW: Millis = Millis::from_secs(1_700_000_000);
/// The Unix time of `at(0)`, in seconds; 1000 seconds before [`NOW`].
const EPOCH: u64 = NOW.seconds().0 - 1_000;
/// The URL of the relay under test.
pub const RELAY: &str = "wss://relay.example.com";
/// The default topic of events.
pub const TOPIC: &str = "kukuri:0101010101010101010101010101010101010101010101010101010101010101";
/// A second topic.
pub const OTHER_TOPIC: &str = "kukuri:0202020202020202020202020202020202020202020202020202020202020202";

/// The default author of events.
pub const ALICE: PublicKey = PublicKey::from_bytes([0xa1; 32]);
/// A second author.
pub const BOB: PublicKey = PublicKey::from_bytes([0xb0; 32]);
/// A third author.
pub const CAROL: PublicKey = PublicKey::from_bytes([0xca; 32]);

/// `seconds` after the epoch of the tests.
pub const fn at(seconds: u64) -> Timestamp {
    Timestamp(EPOCH + seconds)
}

/// `seconds` after [`NOW`].
pub const fn later(seconds: u64) -> Millis {
    Millis::from_secs(NOW.seconds().0 + seconds)
}

/// [`TOPIC`].
pub fn topic() -> TopicId {
    TopicId::new_unchecked(TOPIC)
}

/// [`OTHER_TOPIC`].
pub fn other_topic() -> TopicId {
    TopicId::new_unchecked(OTHER_TOPIC)
}

/// The builder of an event.
#[derive(Clone)]
pub struct Draft {
    author: PublicKey,
    created_at: Timestamp,
    kind: u16,
    tags: Vec<Vec<String>>,
    content: String,
}

/// An event of this kind by Alice, created at 0, without tags.
pub fn bare(kind: u16) -> Draft {
    Draft { author: ALICE, created_at: at(0), kind, tags: Vec::new(), content: String::new() }
}

/// An event of this kind by Alice, created at 0, in [`TOPIC`].
pub fn event(kind: u16) -> Draft {
    bare(kind).tag(["t", TOPIC])
}

/// A text note by Alice, created at 0, in [`TOPIC`].
pub fn note(content: &str) -> Draft {
    event(1).content(content)
}

/// A version of Alice's profile.
pub fn profile(content: &str) -> Draft {
    event(0).content(content)
}

/// A version of one of Alice's articles.
pub fn article(identifier: &str, content: &str) -> Draft {
    event(30_023).tag(["d", identifier]).content(content)
}

/// A deletion request by Alice, with no target yet.
pub fn deletion() -> Draft {
    event(5)
}

/// Alice's request to vanish, addressed to this relay.
pub fn vanish() -> Draft {
    event(62).tag(["relay", RELAY])
}

impl Draft {
    /// Sets the author.
    #[must_use]
    pub fn by(mut self, author: PublicKey) -> Self {
        self.author = author;
        self
    }

    /// Sets `created_at`, in seconds after the epoch of the tests.
    #[must_use]
    pub fn at(mut self, seconds: u64) -> Self {
        self.created_at = at(seconds);
        self
    }

    /// Adds a tag.
    #[must_use]
    pub fn tag<const N: usize>(mut self, items: [&str; N]) -> Self {
        self.tags.push(items.iter().map(ToString::to_string).collect());
        self
    }

    /// Sets the content.
    #[must_use]
    pub fn content(mut self, content: &str) -> Self {
        self.content = content.to_owned();
        self
    }

    /// Adds an `e` tag with the event's id.
    pub fn of(self, target: &Event) -> Self {
        self.tag(["e", &target.id.to_string()])
    }

    /// Adds an `a` tag with the event's address.
    pub fn of_key(self, target: &Event) -> Self {
        let address = target.address().expect("a version of a key");
        self.tag(["a", &address.to_string()])
    }

    /// Sets the expiration to `seconds` after [`NOW`].
    pub fn until(self, seconds: u64) -> Self {
        self.tag(["expiration", &later(seconds).seconds().to_string()])
    }

    /// The event, with its correct id and no valid signature.
    pub fn build(self) -> Event {
        let mut event = Event {
            id: EventId::from_bytes([0; 32]),
            pubkey: self.author,
            created_at: self.created_at,
            kind: Kind(self.kind),
            tags: self.tags.into_iter().collect(),
            content: self.content,
            sig: Signature::from_bytes([0; 64]),
        };
        event.id = event.true_id();
        event
    }
}

/// Builds the drafts and sorts the events by id, so that a test knows which one wins a tie.
pub fn by_id<const N: usize>(drafts: [Draft; N]) -> [Event; N] {
    let mut events = drafts.map(Draft::build);
    events.sort_by_key(|event| event.id);
    events
}

/// The event as admitted from a client.
pub fn admitted(event: &Event) -> Admitted {
    admitted_from(event, Origin::unauthenticated_client())
}

/// The event as admitted from this origin.
pub fn admitted_from(event: &Event, origin: Origin) -> Admitted {
    static RELAY_RULES: LazyLock<Admission> = LazyLock::new(|| Admission {
        topics: TopicRules::new(TopicsMode::Global, &[""; 0]).expect("no reserved ids"),
        relay_urls: RelayUrls::new(&[RELAY]),
        ..Admission::default()
    });
    RELAY_RULES.screen(event.clone(), origin, NOW).expect("an event that passes admission").admit_unchecked()
}
