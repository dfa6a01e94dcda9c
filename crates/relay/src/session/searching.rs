//! What is stored for a subscription, words among it (NIP-50).

use std::collections::HashSet;

use kukuri_domain::{EventId, Filter, Letter, TopicId};
use kukuri_search::{FindError, Search, SearchQuery};
use kukuri_store::{Rest, Seq, StoredEvent};

use super::Session;
use crate::{clock, hub::Asked, relay::Relay};

/// The stored events of a subscription.
pub(super) struct Stored {
    pub(super) events: Vec<StoredEvent>,
    /// Those that searches found. They may have come later than `seq`.
    pub(super) found: HashSet<EventId>,
    /// Everything up to here was seen.
    pub(super) seq: Seq,
    pub(super) rest: Rest,
}

impl Relay {
    /// Filters with the words they ask for.
    pub(super) fn read_words(&self, filters: Vec<Filter>) -> Result<Vec<Asked>, String> {
        let read = |filter: Filter| {
            let words = match filter.search() {
                None => None,
                Some(_) if self.finder.is_none() => return Err("unsupported: there is no search here".to_owned()),
                Some(text) => Some(SearchQuery::parse(text).map_err(|error| format!("invalid: {error}"))?),
            };
            Ok(Asked { filter, words })
        };
        filters.into_iter().map(read).collect()
    }
}

/// Words are searched for, not counted or reconciled.
pub(super) fn without_words(filters: Vec<Filter>) -> Result<Vec<Filter>, String> {
    let has_words = filters.iter().any(|filter| filter.search().is_some());
    if has_words { Err("unsupported: only a REQ can search".to_owned()) } else { Ok(filters) }
}

impl Session {
    /// Hits of searches, the best first, then the rest, the newest first.
    pub(super) async fn stored(&self, asked: Vec<Asked>) -> Result<Stored, FindError> {
        let (searches, plain): (Vec<Asked>, Vec<Asked>) = asked.into_iter().partition(|asked| asked.words.is_some());
        let query = self.query(plain.into_iter().map(|asked| asked.filter).collect());
        // First, so that whatever comes later than this is in the searches or live.
        let answer = self.relay.store.query(&query).await?;
        let mut stored = Stored { events: Vec::new(), found: HashSet::new(), seq: answer.seq, rest: answer.rest };
        let mut bytes = 0;
        for search in searches {
            let (found, has_more) = self.search(search).await?;
            if has_more {
                stored.rest = Rest::More;
            }
            for event in found {
                if bytes >= query.bytes {
                    stored.rest = Rest::More;
                } else if stored.found.insert(event.id) {
                    bytes += event.json.len();
                    stored.events.push(event);
                }
            }
        }
        let others = answer.events.into_iter().filter(|event| !stored.found.contains(&event.id));
        stored.events.extend(others);
        Ok(stored)
    }

    /// The hits of one search, and whether there may be more.
    async fn search(&self, asked: Asked) -> Result<(Vec<StoredEvent>, bool), FindError> {
        let (Some(finder), Some(words)) = (&self.relay.finder, asked.words) else { return Ok((Vec::new(), false)) };
        let (filter, now) = (asked.filter, clock::now());
        // The index knows topics. Among other values of `t` the filter itself decides.
        let topics = filter.tag_values(Letter::T).filter(|values| values.iter().all(|value| is_topic(value)));
        let search = Search {
            topics: topics.map(|values| values.iter().map(|value| TopicId::trusted(value)).collect()),
            kinds: filter.kinds().map(<[_]>::to_vec),
            authors: filter.authors().map(<[_]>::to_vec),
            since: filter.since(),
            until: filter.until(),
            ..Search::new(words, now.seconds(), filter.limit().unwrap_or_default())
        };
        let accepts = |event: &_, topics: &[TopicId]| filter.matches(event, topics);
        let findings = finder.find(&search, &self.viewer(), now, accepts).await?;
        let has_more = findings.next.is_some();
        Ok((findings.found.into_iter().map(|found| found.stored).collect(), has_more))
    }
}

fn is_topic(value: &str) -> bool {
    value.starts_with("kukuri:")
}
