//! Random sets of events and random orders of arrival.
//!
//! The universe is small on purpose: three authors, five seconds, a handful of keys. So nearly every event meets a
//! competing version, a deletion or a tie. Recipes refer to each other by index, so that proptest can shrink a failing
//! case.

use std::collections::BTreeSet;

use kukuri_domain::{Event, PublicKey};
use proptest::{
    collection::vec,
    option,
    prelude::{Just, Strategy, any},
    prop_oneof,
    sample::{Index, select},
};

use super::build::{ALICE, BOB, CAROL, Draft, OTHER_TOPIC, RELAY, TOPIC, bare};

/// All authors.
pub(super) const AUTHORS: [PublicKey; 3] = [ALICE, BOB, CAROL];
/// Number of distinct values of `created_at`: seconds 0 to 4.
const SECONDS: u64 = 5;

/// A target tag of a deletion request.
#[derive(Clone, Debug)]
enum Target {
    /// An earlier event, by `e`.
    Id(Index),
    /// The address of an earlier event, by `a`; a malformed address if that event has no key.
    Address(Index),
    /// A malformed tag.
    Malformed(&'static [&'static str]),
}

#[derive(Clone, Copy, Debug)]
enum Requester {
    /// An owner of the first target.
    Owner,
    /// The author of the recipe, regardless of who owns the targets.
    Anyone,
}

#[derive(Clone, Debug)]
enum Shape {
    Plain(u16),
    Article(&'static str),
    GiftWrap { to: Vec<PublicKey> },
    Deletion { by: Requester, of: Vec<Target> },
    Vanish { relay: &'static str },
}

/// Describes one event, which may refer to earlier ones, and its arrivals.
#[derive(Clone, Debug)]
pub(super) struct Recipe {
    author: PublicKey,
    second: u64,
    shape: Shape,
    topics: &'static [&'static str],
    /// Distinguishes events that are otherwise equal.
    salt: u8,
    /// The expiration, in seconds after the tests' `NOW`.
    expires: Option<u64>,
    /// The event arrives once per number; all arrivals of a world are sorted by these numbers.
    arrivals: Vec<u16>,
}

impl Recipe {
    /// Builds the event, with `created_at` shifted by `shift` seconds.
    pub(super) fn build(&self, earlier: &[Event], shift: u64) -> Event {
        let mut draft = match &self.shape {
            Shape::Plain(kind) => bare(*kind),
            Shape::Article(identifier) => bare(30_023).tag(["d", identifier]),
            Shape::GiftWrap { to } => to.iter().fold(bare(1059), |draft, key| draft.tag(["p", &key.to_string()])),
            Shape::Deletion { of, .. } => of.iter().fold(bare(5), |draft, target| target.add_to(draft, earlier)),
            Shape::Vanish { relay } => bare(62).tag(["relay", relay]),
        };
        draft = self.topics.iter().fold(draft, |draft, topic| draft.tag(["t", topic]));
        if let Some(seconds) = self.expires {
            draft = draft.until(seconds);
        }
        draft.by(self.requester(earlier)).at(shift + self.second).content(&self.salt.to_string()).build()
    }

    fn requester(&self, earlier: &[Event]) -> PublicKey {
        let Shape::Deletion { by: Requester::Owner, of } = &self.shape else { return self.author };
        let first = of.iter().find_map(|target| target.event(earlier));
        let owners: Vec<_> = first.into_iter().flat_map(Event::owners).collect();
        owners.get(usize::from(self.salt) % owners.len().max(1)).copied().unwrap_or(self.author)
    }
}

impl Target {
    fn event<'a>(&self, earlier: &'a [Event]) -> Option<&'a Event> {
        match self {
            Self::Id(index) | Self::Address(index) if !earlier.is_empty() => Some(index.get(earlier)),
            _ => None,
        }
    }

    fn add_to(&self, draft: Draft, earlier: &[Event]) -> Draft {
        match (self, self.event(earlier)) {
            (Self::Id(_), Some(event)) => draft.of(event),
            (Self::Address(_), Some(event)) => match event.address() {
                Some(address) => draft.tag(["a", &address.to_string()]),
                None => draft.tag(["a", &format!("{}:{}:", event.kind, event.pubkey)]),
            },
            (Self::Malformed([name]), _) => draft.tag([name]),
            (Self::Malformed(items), _) => draft.tag([items[0], items[1]]),
            (_, None) => draft,
        }
    }
}

/// A set of events and an order of arrival.
#[derive(Clone, Debug)]
pub(super) struct World {
    recipes: Vec<Recipe>,
    batch_sizes: Vec<usize>,
}

impl World {
    /// The events, each once.
    pub(super) fn events(&self) -> Vec<Event> {
        let mut ids = BTreeSet::new();
        self.build().into_iter().filter(|event| ids.insert(event.id)).collect()
    }

    fn build(&self) -> Vec<Event> {
        let mut events = Vec::with_capacity(self.recipes.len());
        for recipe in &self.recipes {
            events.push(recipe.build(&events, 0));
        }
        events
    }

    /// Every arrival, repeats included, cut into batches.
    pub(super) fn batches(&self) -> Vec<Vec<Event>> {
        let events = self.build();
        let mut arrivals: Vec<(u16, usize)> = Vec::new();
        for (index, recipe) in self.recipes.iter().enumerate() {
            arrivals.extend(recipe.arrivals.iter().map(|place| (*place, index)));
        }
        arrivals.sort_unstable();
        let mut rest = arrivals.into_iter().map(|(_, index)| events[index].clone()).peekable();
        let mut batches = Vec::new();
        for size in self.batch_sizes.iter().cycle() {
            if rest.peek().is_none() {
                break;
            }
            batches.push(rest.by_ref().take(*size).collect());
        }
        batches
    }
}

/// The events of these batches in the order in which each first arrived.
pub(super) fn first_arrivals(batches: &[Vec<Event>]) -> Vec<&Event> {
    let mut ids = BTreeSet::new();
    batches.iter().flatten().filter(|event| ids.insert(event.id)).collect()
}

pub(super) fn worlds() -> impl Strategy<Value = World> {
    // Small sets for simple cases, large ones so that enough hard cases occur.
    let recipes = prop_oneof![1 => vec(recipes(), 1..12), 2 => vec(recipes(), 25..45)];
    (recipes, vec(1..6usize, 1..6)).prop_map(|(recipes, batch_sizes)| World { recipes, batch_sizes })
}

pub(super) fn recipes() -> impl Strategy<Value = Recipe> {
    let arrivals = prop_oneof![3 => vec(any::<u16>(), 1), 1 => vec(any::<u16>(), 2..4)];
    let expires = option::weighted(0.2, 1..60u64);
    (authors(), 0..SECONDS, shapes(), topics(), 0..4u8, expires, arrivals).prop_map(
        |(author, second, shape, topics, salt, expires, arrivals)| Recipe {
            author,
            second,
            shape,
            topics,
            salt,
            expires,
            arrivals,
        },
    )
}

/// Alice is the most frequent author, so that her events compete.
fn authors() -> impl Strategy<Value = PublicKey> {
    prop_oneof![5 => Just(ALICE), 2 => Just(BOB), 1 => Just(CAROL)]
}

fn topics() -> impl Strategy<Value = &'static [&'static str]> {
    const SOME: [&[&str]; 6] = [
        &[TOPIC],
        &[TOPIC, OTHER_TOPIC],
        &[OTHER_TOPIC],
        &[],
        &["hashtag"],
        &["hashtag", OTHER_TOPIC, "kukuri:global"],
    ];
    select(&SOME[..])
}

fn shapes() -> impl Strategy<Value = Shape> {
    prop_oneof![
        4 => select(&[1u16, 1, 1111, 20_001][..]).prop_map(Shape::Plain),
        6 => select(&[0u16, 0, 0, 10_002][..]).prop_map(Shape::Plain),
        4 => select(&["", "a"][..]).prop_map(Shape::Article),
        2 => vec(select(&AUTHORS[..]), 1..3).prop_map(|to| Shape::GiftWrap { to }),
        10 => deletions(),
        2 => select(&[RELAY, "ALL_RELAYS", "wss://elsewhere.example.com"][..]).prop_map(|relay| Shape::Vanish { relay }),
    ]
}

fn deletions() -> impl Strategy<Value = Shape> {
    let by = prop_oneof![3 => Just(Requester::Owner), 1 => Just(Requester::Anyone)];
    (by, vec(targets(), 1..4)).prop_map(|(by, of)| Shape::Deletion { by, of })
}

fn targets() -> impl Strategy<Value = Target> {
    const MALFORMED: [&[&str]; 5] = [&["e", "no id"], &["e"], &["a", "0"], &["a", "30023:nobody:"], &["k", "1"]];
    prop_oneof![
        5 => any::<Index>().prop_map(Target::Id),
        3 => any::<Index>().prop_map(Target::Address),
        1 => select(&MALFORMED[..]).prop_map(Target::Malformed),
    ]
}
