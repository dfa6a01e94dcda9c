//! Filters of NIP-01, and matching of events against them.

use std::{
    fmt,
    hash::{Hash, Hasher},
    ops::RangeInclusive,
};

use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeSeed, MapAccess},
};

use crate::{
    event::Event,
    id::{EventId, PublicKey},
    kind::Kind,
    refusal::Malformed,
    tags::Letter,
    time::Timestamp,
    topic::TopicId,
};

/// One filter. An event matches if it meets all conditions (W-1).
///
/// Lists are sorted and without duplicates. `None` is no condition; an empty list matches nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Filter {
    ids: Option<Vec<EventId>>,
    authors: Option<Vec<PublicKey>>,
    kinds: Option<Vec<Kind>>,
    tags: Vec<(Letter, Vec<Box<str>>)>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    limit: Option<usize>,
    search: Option<Box<str>>,
    written: Written,
}

/// The tags in the order of the filter's JSON, each with its first value. Not a condition: filters that differ only in
/// this are equal.
#[derive(Clone, Debug, Default)]
struct Written(Vec<(Letter, Option<Box<str>>)>);

impl PartialEq for Written {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Written {}

impl Hash for Written {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Filter {
    /// A filter that matches everything.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a filter from JSON. An unknown key is an error: ignoring it would answer a different query.
    pub fn from_json(json: impl AsRef<[u8]>) -> Result<Self, Malformed> {
        serde_json::from_slice(json.as_ref()).map_err(|error| Malformed::from_json(&error))
    }

    /// Restricts to these ids.
    #[must_use]
    pub fn with_ids(mut self, ids: impl IntoIterator<Item = EventId>) -> Self {
        self.ids = Some(sorted(ids));
        self
    }

    /// Restricts to these authors.
    #[must_use]
    pub fn with_authors(mut self, authors: impl IntoIterator<Item = PublicKey>) -> Self {
        self.authors = Some(sorted(authors));
        self
    }

    /// Restricts to these kinds.
    #[must_use]
    pub fn with_kinds(mut self, kinds: impl IntoIterator<Item = Kind>) -> Self {
        self.kinds = Some(sorted(kinds));
        self
    }

    /// Restricts to events with a tag of this name and one of these values.
    #[must_use]
    pub fn with_tag<V: Into<Box<str>>>(mut self, letter: Letter, values: impl IntoIterator<Item = V>) -> Self {
        let values: Vec<Box<str>> = values.into_iter().map(Into::into).collect();
        self.written.0.retain(|(other, _)| *other != letter);
        self.written.0.push((letter, values.first().cloned()));
        self.tags.retain(|(other, _)| *other != letter);
        self.tags.push((letter, sorted(values)));
        self.tags.sort_unstable_by_key(|(letter, _)| *letter);
        self
    }

    /// Restricts to events created at or after this time.
    #[must_use]
    pub fn with_since(mut self, since: Timestamp) -> Self {
        self.since = Some(since);
        self
    }

    /// Restricts to events created at or before this time.
    #[must_use]
    pub fn with_until(mut self, until: Timestamp) -> Self {
        self.until = Some(until);
        self
    }

    /// Sets the maximum number of stored events.
    #[must_use]
    pub fn with_limit(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self
    }

    /// The conditions alone, without the limit: the same for all filters that match by the same conditions.
    #[must_use]
    pub fn into_conditions(mut self) -> Self {
        self.limit = None;
        self.written = Written::default();
        self
    }

    /// The ids. `None`: any.
    pub fn ids(&self) -> Option<&[EventId]> {
        self.ids.as_deref()
    }

    /// The authors. `None`: any.
    pub fn authors(&self) -> Option<&[PublicKey]> {
        self.authors.as_deref()
    }

    /// The kinds. `None`: any.
    pub fn kinds(&self) -> Option<&[Kind]> {
        self.kinds.as_deref()
    }

    /// The tag conditions, ordered by letter.
    pub fn tags(&self) -> &[(Letter, Vec<Box<str>>)] {
        &self.tags
    }

    /// The tags in the order of the filter's JSON, each with its first value.
    pub fn tags_as_written(&self) -> impl Iterator<Item = (Letter, Option<&str>)> {
        self.written.0.iter().map(|(letter, first)| (*letter, first.as_deref()))
    }

    /// The values of one tag condition. `None`: any.
    pub fn tag_values(&self, letter: Letter) -> Option<&[Box<str>]> {
        self.tags.iter().find(|(other, _)| *other == letter).map(|(_, values)| values.as_slice())
    }

    /// The range of `created_at`, both ends included.
    pub fn window(&self) -> RangeInclusive<Timestamp> {
        self.since.unwrap_or_default()..=self.until.unwrap_or(Timestamp(u64::MAX))
    }

    /// The earliest `created_at`.
    pub fn since(&self) -> Option<Timestamp> {
        self.since
    }

    /// The latest `created_at`.
    pub fn until(&self) -> Option<Timestamp> {
        self.until
    }

    /// The maximum number of stored events.
    pub fn limit(&self) -> Option<usize> {
        self.limit
    }

    /// The search words (NIP-50). Stores and [`Self::matches`] ignore them.
    pub fn search(&self) -> Option<&str> {
        self.search.as_deref()
    }

    /// The total number of values in all lists, for a limit on them (W-4).
    pub fn value_count(&self) -> usize {
        self.ids.as_ref().map_or(0, Vec::len)
            + self.authors.as_ref().map_or(0, Vec::len)
            + self.kinds.as_ref().map_or(0, Vec::len)
            + self.tags.iter().map(|(_, values)| values.len()).sum::<usize>()
    }

    /// Whether no event can match.
    pub fn is_empty(&self) -> bool {
        self.window().is_empty()
            || self.ids.as_ref().is_some_and(Vec::is_empty)
            || self.authors.as_ref().is_some_and(Vec::is_empty)
            || self.kinds.as_ref().is_some_and(Vec::is_empty)
            || self.tags.iter().any(|(_, values)| values.is_empty())
    }

    /// Whether an event that is bound to these topics meets every condition. Ignores the limit and the search words.
    ///
    /// `#t` matches topics as well as tags: an event may be bound to a topic it does not name (T-7, T-9).
    pub fn matches(&self, event: &Event, topics: &[TopicId]) -> bool {
        self.matches_besides(None, event, topics)
    }

    /// Like [`Self::matches`], for an event that is known to match the tag condition `known`: skips that check.
    pub fn matches_besides(&self, known: Option<Letter>, event: &Event, topics: &[TopicId]) -> bool {
        self.window().contains(&event.created_at)
            && listed(self.ids.as_deref(), &event.id)
            && listed(self.authors.as_deref(), &event.pubkey)
            && listed(self.kinds.as_deref(), &event.kind)
            && self
                .tags
                .iter()
                .all(|(letter, values)| known == Some(*letter) || matches_tag(event, topics, *letter, values))
    }
}

fn matches_tag(event: &Event, topics: &[TopicId], letter: Letter, values: &[Box<str>]) -> bool {
    let wanted = |value: &str| values.binary_search_by(|wanted| wanted.as_ref().cmp(value)).is_ok();
    event.tags.indexed().any(|(name, value)| name == letter && wanted(value))
        || (letter == Letter::T && topics.iter().any(|topic| wanted(topic.as_str())))
}

fn listed<T: Ord>(list: Option<&[T]>, value: &T) -> bool {
    list.is_none_or(|list| list.binary_search(value).is_ok())
}

fn sorted<T: Ord>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut values: Vec<T> = values.into_iter().collect();
    values.sort_unstable();
    values.dedup();
    values
}

impl<'de> Deserialize<'de> for Filter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Conditions;
        impl<'de> de::Visitor<'de> for Conditions {
            type Value = Filter;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a filter: a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Filter, A::Error> {
                let mut filter = Filter::default();
                while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
                    match key.as_ref() {
                        "ids" => once(&mut filter.ids, "ids", sorted(map.next_value::<Vec<_>>()?))?,
                        "authors" => once(&mut filter.authors, "authors", sorted(map.next_value::<Vec<_>>()?))?,
                        "kinds" => once(&mut filter.kinds, "kinds", sorted(map.next_value::<Vec<_>>()?))?,
                        "since" => once(&mut filter.since, "since", map.next_value()?)?,
                        "until" => once(&mut filter.until, "until", map.next_value()?)?,
                        "search" => once(&mut filter.search, "search", map.next_value()?)?,
                        "limit" => once(&mut filter.limit, "limit", map.next_value_seed(AnyLimit)?)?,
                        name => {
                            let letter = name.strip_prefix('#').and_then(Letter::from_name);
                            let letter = letter.ok_or_else(|| unknown_key(name))?;
                            if filter.tag_values(letter).is_some() {
                                return Err(de::Error::custom(format_args!("filter key `#{letter}` is there twice")));
                            }
                            filter = filter.with_tag(letter, map.next_value::<Vec<Box<str>>>()?);
                        }
                    }
                }
                Ok(filter)
            }
        }
        deserializer.deserialize_map(Conditions)
    }
}

/// Reads a limit from any number: out-of-range values are clamped, never refused (W-1).
struct AnyLimit;

impl<'de> DeserializeSeed<'de> for AnyLimit {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_u64(self)
    }
}

impl de::Visitor<'_> for AnyLimit {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a limit: a number")
    }

    fn visit_u64<E: de::Error>(self, limit: u64) -> Result<usize, E> {
        Ok(usize::try_from(limit).unwrap_or(usize::MAX))
    }

    fn visit_i64<E: de::Error>(self, _negative: i64) -> Result<usize, E> {
        Ok(0)
    }

    fn visit_f64<E: de::Error>(self, limit: f64) -> Result<usize, E> {
        // The cast saturates.
        Ok(limit as usize)
    }
}

fn once<T, E: de::Error>(field: &mut Option<T>, name: &'static str, value: T) -> Result<(), E> {
    if field.replace(value).is_some() {
        return Err(E::duplicate_field(name));
    }
    Ok(())
}

fn unknown_key<E: de::Error>(name: &str) -> E {
    let shown: String = name.chars().take(40).collect();
    E::custom(format_args!(
        "filter key `{shown}` is unknown; there are ids, authors, kinds, since, until, limit, search and # with one letter"
    ))
}
