//! The remains of events without a row: enough to tell other nodes of a request that covers such an event and arrives
//! later (G-7).
//!
//! A request leaves a trace in the topics of the events that it covers. If an earlier cause that may not be passed on has
//! removed an event, or kept it out, the event's row no longer names its topics. Its remains do: by its id, by its key,
//! and by its author, because a request can name any of these.

use crate::{
    address::{Address, AddressDigest},
    decision::{DeletionMode, Reason},
    event::Event,
    id::{EventId, PublicKey},
    time::Timestamp,
    topic::TopicId,
};

/// Events as a request names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// One event: the target of an `e` tag.
    Event(EventId),
    /// All versions of a key: the target of an `a` tag.
    Key(AddressDigest),
    /// All events of an author: the subject of a vanish request.
    Author(PublicKey),
}

impl Subject {
    /// The subject as a key of a table.
    pub fn to_bytes(self) -> [u8; 33] {
        let (code, name) = match &self {
            Self::Event(id) => (b'e', id.as_bytes()),
            Self::Key(digest) => (b'a', &digest.0),
            Self::Author(pubkey) => (b'p', pubkey.as_bytes()),
        };
        let mut bytes = [code; 33];
        bytes[1..].copy_from_slice(name);
        bytes
    }

    /// Reverses [`Self::to_bytes`].
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (code, name) = bytes.split_first()?;
        let name: [u8; 32] = name.try_into().ok()?;
        match code {
            b'e' => Some(Self::Event(EventId::from_bytes(name))),
            b'a' => Some(Self::Key(AddressDigest(name))),
            b'p' => Some(Self::Author(PublicKey::from_bytes(name))),
            _ => None,
        }
    }

    /// The number of topics that are remembered of a subject, which bounds the traces that one request can leave.
    pub fn max_topics(self) -> usize {
        match self {
            Self::Event(_) | Self::Author(_) => 256,
            Self::Key(_) => 64,
        }
    }
}

/// The record that events of a subject were in a topic and have no row that a request would find.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remains {
    /// The events.
    pub subject: Subject,
    /// The topic that they were in.
    pub topic: TopicId,
    /// Their author.
    pub author: PublicKey,
    /// `created_at` of the earliest of them: a request that covers it by time covers at least one.
    pub earliest: Timestamp,
    /// For one event: the key whose floor hint a later deletion of it leaves. `None` for an event that vanished: of it no
    /// more than needed is remembered (D-12).
    pub key: Option<Address>,
}

impl Remains {
    /// The remains of an event that is kept out, or of a row that is removed, for this reason.
    pub fn without_row(event: &Event, topics: &[TopicId], reason: Reason) -> Vec<Self> {
        Self::of(event, topics, reason, &subjects_without_row(event))
    }

    /// The remains of a row that a request takes away. `topics` is called only if there are any.
    pub fn of_retired<E>(
        event: &Event,
        reason: Reason,
        mode: DeletionMode,
        topics: impl FnOnce() -> Result<Vec<TopicId>, E>,
    ) -> Result<Vec<Self>, E> {
        let subjects = match reason {
            // Later requests find a hidden row by its id and its author, not by its key.
            Reason::Nip09 if mode.keeps_row(reason) => key_of(event).into_iter().collect(),
            Reason::Nip09 | Reason::Vanish => subjects_without_row(event),
            Reason::Expiration | Reason::Replaced | Reason::Retention | Reason::Capacity => Vec::new(),
        };
        if subjects.is_empty() {
            return Ok(Vec::new());
        }
        Ok(Self::of(event, &topics()?, reason, &subjects))
    }

    fn of(event: &Event, topics: &[TopicId], reason: Reason, subjects: &[Subject]) -> Vec<Self> {
        let key = |subject: &Subject| match subject {
            Subject::Event(_) if reason != Reason::Vanish => event.address(),
            _ => None,
        };
        let in_topic = |topic: &TopicId| {
            subjects
                .iter()
                .map(|subject| Self {
                    subject: *subject,
                    topic: topic.clone(),
                    author: event.pubkey,
                    earliest: event.created_at,
                    key: key(subject),
                })
                .collect::<Vec<_>>()
        };
        topics.iter().flat_map(in_topic).collect()
    }
}

/// Requests can't be deleted, only vanish (D-5). Private kinds are not shared with other nodes (E-10) and leave nothing.
fn subjects_without_row(event: &Event) -> Vec<Subject> {
    if event.kind.is_private() {
        return Vec::new();
    }
    let mut subjects = vec![Subject::Author(event.pubkey)];
    if !event.kind.is_request() {
        subjects.push(Subject::Event(event.id));
        subjects.extend(key_of(event));
    }
    subjects
}

fn key_of(event: &Event) -> Option<Subject> {
    event.address().map(|address| Subject::Key(address.digest()))
}
