//! Any event that the `nostr` crate makes is the same event here, and filters find it here as they do there.

use crate::support::{ALICE, BOB, CAROL, Draft, bare, ours};
use kukuri_domain::{Event, EventId, Filter, Kind, Letter, PublicKey, Refusal, Signature, Timestamp};
use nostr::filter::{MatchEventOptions, SingleLetterTag};
use proptest::{collection::vec, prelude::*, sample::select};

/// Any character but NUL (E-8), and more often one of those that JSON writers disagree about.
fn character() -> impl Strategy<Value = char> {
    let odd = "\"\\/\u{1}\u{8}\t\n\u{b}\u{c}\r\u{1f}\u{7f}\u{80}\u{a0}\u{ad}\u{2028}\u{2029}\u{feff}\u{fffd}\u{ffff}\u{10ffff}🙂👨\u{200d}é東";
    prop_oneof![
        4 => any::<char>().prop_filter("NUL is never stored", |character| *character != '\0'),
        3 => select(odd.chars().collect::<Vec<_>>()),
        3 => proptest::char::range('\u{1}', '\u{7f}'),
    ]
}

fn text(longest: usize) -> impl Strategy<Value = String> {
    vec(character(), 0..=longest).prop_map(String::from_iter)
}

/// Tags of any text, none of them without a name: the `nostr` crate makes no such tag.
fn tags() -> impl Strategy<Value = Vec<Vec<String>>> {
    let name = prop_oneof![select(vec!["e", "p", "t", "d", "E", "-", "alt", ""]).prop_map(str::to_owned), text(3)];
    let tag = (name, vec(text(12), 0..4)).prop_map(|(name, values)| [vec![name], values].concat());
    vec(tag, 0..6)
}

fn any_event() -> impl Strategy<Value = Draft> {
    let author = select(vec![ALICE, BOB, CAROL]);
    let created_at = prop_oneof![0..=Timestamp::MAX_IN_EVENT.0, Just(0), Just(Timestamp::MAX_IN_EVENT.0)];
    (author, created_at, any::<u16>(), tags(), text(60)).prop_map(|(author, created_at, kind, tags, content)| {
        bare(kind).by(author).at(created_at).tags(tags).content(content)
    })
}

/// An event whose every value is one of few, so that filters hit it as often as they miss.
fn plain_event() -> impl Strategy<Value = Draft> {
    let author = select(vec![ALICE, BOB, CAROL]);
    let tag = (select(vec!["e", "p", "t", "E", "alt"]), vec(select(vec!["", "a", "b", "東"]), 0..3));
    let tag = tag.prop_map(|(name, values)| [vec![name], values].concat());
    (author, 0..6_u64, 0..4_u16, vec(tag, 0..4))
        .prop_map(|(author, created_at, kind, tags)| bare(kind).by(author).at(created_at).tags(tags))
}

/// The same filter in both worlds. Lists are never empty: there an empty list is no condition, here it matches nothing.
#[derive(Clone, Debug, Default)]
struct Question {
    own_id: Option<bool>,
    authors: Vec<u8>,
    kinds: Vec<u16>,
    tags: Vec<(&'static str, Vec<&'static str>)>,
    since: Option<u64>,
    until: Option<u64>,
}

fn question() -> impl Strategy<Value = Question> {
    let tag = (select(vec!["e", "p", "t", "E", "z"]), vec(select(vec!["", "a", "b", "東"]), 1..3));
    let own_id = prop_oneof![3 => Just(None), 2 => Just(Some(true)), 1 => Just(Some(false))];
    let maybe = || proptest::option::of(0..6_u64);
    (own_id, vec(0..3_u8, 0..3), vec(0..4_u16, 0..3), vec(tag, 0..3), maybe(), maybe()).prop_map(
        |(own_id, authors, kinds, mut tags, since, until)| {
            // A second list of a letter would be added to the first there, and take its place here.
            tags.sort();
            tags.dedup_by_key(|(letter, _)| *letter);
            Question { own_id, authors, kinds, tags, since, until }
        },
    )
}

impl Question {
    fn keys(&self) -> impl Iterator<Item = [u8; 32]> {
        self.authors.iter().map(|&author| *[ALICE, BOB, CAROL][usize::from(author)].key().as_bytes())
    }

    fn id(&self, event: &Event) -> Option<[u8; 32]> {
        self.own_id.map(|own| if own { *event.id.as_bytes() } else { [0; 32] })
    }

    fn ours(&self, event: &Event) -> Filter {
        let mut filter = Filter::new();
        if let Some(id) = self.id(event) {
            filter = filter.with_ids([EventId::from_bytes(id)]);
        }
        if !self.authors.is_empty() {
            filter = filter.with_authors(self.keys().map(PublicKey::from_bytes));
        }
        if !self.kinds.is_empty() {
            filter = filter.with_kinds(self.kinds.iter().copied().map(Kind));
        }
        for (letter, values) in &self.tags {
            filter = filter.with_tag(Letter::from_name(letter).unwrap(), values.iter().copied());
        }
        if let Some(since) = self.since {
            filter = filter.with_since(Timestamp(since));
        }
        if let Some(until) = self.until {
            filter = filter.with_until(Timestamp(until));
        }
        filter
    }

    fn theirs(&self, event: &Event) -> nostr::filter::Filter {
        let mut filter = nostr::filter::Filter::new();
        if let Some(id) = self.id(event) {
            filter = filter.id(nostr::event::EventId::from_slice(&id).unwrap());
        }
        if !self.authors.is_empty() {
            filter = filter.authors(self.keys().map(|key| nostr::key::PublicKey::from_slice(&key).unwrap()));
        }
        if !self.kinds.is_empty() {
            filter = filter.kinds(self.kinds.iter().copied().map(Into::into));
        }
        for (letter, values) in &self.tags {
            filter = filter.custom_tags(letter.parse::<SingleLetterTag>().unwrap(), values.iter().copied());
        }
        if let Some(since) = self.since {
            filter = filter.since(since.into());
        }
        if let Some(until) = self.until {
            filter = filter.until(until.into());
        }
        filter
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(kukuri_testing::long::scaled(400)))]

    #[test]
    fn what_nostr_signs_is_verified_here(draft in any_event()) {
        // E-1
        let theirs = draft.nostr();
        let event = ours(&theirs);
        prop_assert_eq!(event.true_id(), event.id);
        let read = Event::from_json(theirs.as_json()).unwrap();
        prop_assert_eq!(&read, &event);
        let verified = read.verify();
        prop_assert!(verified.is_ok(), "{:?}", verified);
    }

    #[test]
    fn what_is_written_here_is_the_same_event_to_nostr(draft in any_event()) {
        let theirs = draft.nostr();
        let json = ours(&theirs).to_json();
        let read = nostr::event::Event::from_json(&json).unwrap();
        prop_assert_eq!(&read, &theirs);
        prop_assert!(read.verify().is_ok());
        prop_assert_eq!(std::str::from_utf8(&json).unwrap(), theirs.as_json());
        prop_assert_eq!(Event::from_json(&json).unwrap().to_json(), json);
    }

    #[test]
    fn one_changed_bit_is_noticed(draft in any_event(), place in any::<prop::sample::Index>(), bit in 0..8_u8) {
        // E-1
        let sound = draft.signed();
        let flipped = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            let index = place.index(bytes.len());
            bytes[index] ^= 1 << bit;
            bytes
        };
        let id = EventId::from_bytes(flipped(sound.id.as_bytes()).try_into().unwrap());
        prop_assert_eq!(Event { id, ..sound.clone() }.verify(), Err(Refusal::WrongId));
        let sig = Signature::from_bytes(flipped(sound.sig.as_bytes()).try_into().unwrap());
        prop_assert_eq!(Event { sig, ..sound.clone() }.verify(), Err(Refusal::WrongSignature));
        let pubkey = PublicKey::from_bytes(flipped(sound.pubkey.as_bytes()).try_into().unwrap());
        prop_assert_eq!(Event { pubkey, ..sound.clone() }.verify(), Err(Refusal::WrongId));
        let created_at = Timestamp(sound.created_at.0 ^ 1 << bit);
        prop_assert_eq!(Event { created_at, ..sound.clone() }.verify(), Err(Refusal::WrongId));
        let content = sound.content.clone() + "x";
        prop_assert_eq!(Event { content, ..sound.clone() }.verify(), Err(Refusal::WrongId));
        if let Ok(content) = String::from_utf8(flipped(format!("{} ", sound.content).as_bytes())) {
            prop_assert_eq!(Event { content, ..sound }.verify(), Err(Refusal::WrongId));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(kukuri_testing::long::scaled(4_000)))]

    #[test]
    fn a_filter_matches_here_what_it_matches_there(draft in plain_event(), question in question()) {
        // W-1. Unsigned events will do: neither side looks at the signature.
        let event = draft.unsigned();
        let theirs = nostr::event::Event::from_json(event.to_json()).unwrap();
        let expected = question.theirs(&event).match_event(&theirs, MatchEventOptions::new());
        prop_assert_eq!(question.ours(&event).matches(&event, &[]), expected, "{:?}", question);
        let read = Filter::from_json(question.theirs(&event).as_json()).unwrap();
        prop_assert_eq!(read, question.ours(&event), "the filter as nostr writes it is read as the same");
    }
}
