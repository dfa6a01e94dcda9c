//! `GET /v1/search`: hits of the index, looked up in the store before they are shown (C-1).

use std::sync::Arc;

use axum::{Extension, Json, extract::State};
use kukuri_control::{metric::Metric, request::Service};
use kukuri_domain::{Kind, PublicKey, Timestamp, TopicId, Viewer, nip19::parse_public_key, topic::TopicsMode};
use kukuri_search::{Finder, Found, Search, SearchQuery, Snippet, Text};
use kukuri_store::Budget;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use utoipa::{IntoParams, ToSchema};

use crate::{
    Api, ApiState,
    answer::{Event, Page, stored_json},
    cursor::{MAX_SEARCH_CURSOR_LEN, SearchCursor},
    error::{Error, ErrorBody},
    extract::{ExactInteger, PageLimit, Query, repeated_text, shortened},
    gate::AnswerBytes,
    quota,
    reader::Reader,
};

/// Bytes of a page besides its hits.
const PAGE_FRAME_BYTES: usize = 64 + MAX_SEARCH_CURSOR_LEN;
/// Bytes of nearly every hit besides its event: topics and snippet.
const HIT_FRAME_BYTES: usize = 2 << 10;
/// About how many characters of a text a hit shows.
const SNIPPET_CHARS: usize = 160;

type Limit = PageLimit<20, 50>;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct SearchParameters {
    /// A topic to search in, by its id or its name; repeated: any of them. Required where the node's topics mode is `required`.
    #[serde(default)]
    #[param(schema_with = repeated_text, required = false)]
    topic: Vec<String>,
    /// The words; a hit has all of them.
    q: String,
    /// Kinds, separated by commas.
    kinds: Option<String>,
    /// A public key, as hex or npub; repeated: any of them.
    #[serde(default)]
    #[param(schema_with = repeated_text, required = false)]
    author: Vec<String>,
    /// The earliest `created_at`.
    #[param(schema_with = ExactInteger::schema, required = false)]
    since: Option<ExactInteger>,
    /// The latest `created_at`.
    #[param(schema_with = ExactInteger::schema, required = false)]
    until: Option<ExactInteger>,
    /// Hits on a page; clamped.
    #[serde(default)]
    #[param(schema_with = Limit::schema, required = false)]
    limit: Limit,
    /// The `cursor` of the page before; all other parameters have to be the same.
    #[param(value_type = Option<String>)]
    cursor: Option<SearchCursor>,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct Hit {
    #[schema(value_type = Event)]
    event: Box<RawValue>,
    topics: Vec<String>,
    /// Compares hits of one answer; null: the index does not have the event yet.
    #[schema(required = true)]
    score: Option<f32>,
    snippet: HitSnippet,
}

#[derive(Serialize, ToSchema)]
struct HitSnippet {
    /// Escaped; found words are in `<mark>`.
    html: String,
    text: String,
}

/// Finds events by words, the best first.
#[utoipa::path(get, path = "/v1/search", params(SearchParameters), responses(
    (status = 200, description = "A page of hits.", body = Page<Hit>),
    (status = 402, description = "The caller's plan has no more searches today.", body = ErrorBody),
    (status = 503, description = "Search or the store is not available.", body = ErrorBody),
))]
pub(crate) async fn search(
    State(api): State<Arc<ApiState>>,
    reader: Reader,
    Extension(budget): Extension<Budget>,
    Extension(AnswerBytes(max_bytes)): Extension<AnswerBytes>,
    Query(parameters): Query<SearchParameters>,
) -> Result<Json<Page<Box<RawValue>>>, Error> {
    let now = (api.clock)();
    let cursor = parameters.cursor.clone().unwrap_or_else(|| SearchCursor::first(now.seconds()));
    let search = parameters.into_search(&api, &cursor)?;
    reader.check(&api, search.topics.as_deref().unwrap_or_default(), Service::Index)?;
    let finder = api.finder.as_ref().ok_or(Error::SearchUnavailable)?;
    let find = find(&api, finder, search, &cursor, reader.viewer(), &budget, max_bytes);
    quota::counted(&api, &reader, Metric::SearchRequests, find).await.map(Json)
}

/// One page of hits.
async fn find(
    api: &Api,
    finder: &Finder,
    mut search: Search,
    cursor: &SearchCursor,
    viewer: Viewer,
    budget: &Budget,
    max_bytes: usize,
) -> Result<Page<Box<RawValue>>, Error> {
    let (now, visibility) = ((api.clock)(), (api.visibility)());
    let shows = |event: &kukuri_domain::Event, topics: &[TopicId]| {
        // E-10: nobody searches private events, whatever an index has.
        !cursor.has_shown(&event.id) && !event.kind.is_private() && visibility.shows(event, topics, &viewer, None)
    };
    let (findings, items) = loop {
        let max_event_bytes = max_bytes.saturating_sub(PAGE_FRAME_BYTES + search.limit * HIT_FRAME_BYTES);
        let findings = finder.begin(now, budget).await?.find(&search, max_event_bytes, shows).await?;
        let items = fitting_hits(&findings.found, &search.query, max_bytes)?;
        if items.len() == findings.found.len() {
            break (findings, items);
        }
        // Some hits have more besides their event. Searched again for fewer: only a search knows how many hits of the index
        // these are.
        search.limit = items.len();
    };
    // The time of the request was over before a hit was looked at: the next page would be this one again.
    if findings.found.is_empty() && findings.next == Some(search.skip) {
        return Err(Error::Timeout);
    }
    let ids = |is_indexed: bool| {
        findings.found.iter().filter(move |found| found.score.is_some() == is_indexed).map(|found| found.stored.id)
    };
    let next = findings.next.and_then(|skip| cursor.clone().next(skip, ids(false), ids(true)));
    Ok(Page { items, cursor: next.map(|cursor| cursor.to_string()) })
}

impl SearchParameters {
    fn into_search(self, api: &Api, cursor: &SearchCursor) -> Result<Search, Error> {
        let kinds = self.kinds.as_deref().map(read_kinds).transpose()?;
        let authors = self.author.iter().map(|author| read_author(author)).collect::<Result<_, _>>()?;
        let topics: Vec<TopicId> =
            self.topic.iter().map(|topic| api.read_topic("topic", topic)).collect::<Result<_, _>>()?;
        // T-6
        if topics.is_empty() && (api.topics)().mode == TopicsMode::Required {
            return Err(Error::invalid_parameter("topic", "is required on this node"));
        }
        Ok(Search {
            query: query(&self.q)?,
            topics: some(topics),
            kinds,
            authors: some(authors),
            since: self.since.map(|since| Timestamp(since.0)),
            until: self.until.map(|until| Timestamp(until.0)),
            now: cursor.now,
            skip: cursor.skip,
            limit: self.limit.0,
        })
    }
}

fn some<T>(values: Vec<T>) -> Option<Vec<T>> {
    (!values.is_empty()).then_some(values)
}

fn query(text: &str) -> Result<SearchQuery, Error> {
    if text.chars().any(|character| character.is_control() && !character.is_whitespace()) {
        return Err(Error::invalid_parameter("q", "has control characters"));
    }
    SearchQuery::parse(text).map_err(|error| Error::invalid_parameter("q", error))
}

fn read_kinds(text: &str) -> Result<Vec<Kind>, Error> {
    let kinds = text.split(',').map(|kind| kind.trim().parse().map(Kind)).collect::<Result<_, _>>();
    let reason = || format!("expected integers up to 65535 separated by commas, got `{}`", shortened(text));
    kinds.map_err(|_| Error::invalid_parameter("kinds", reason()))
}

fn read_author(text: &str) -> Result<PublicKey, Error> {
    parse_public_key(text).map_err(|error| Error::invalid_parameter("author", error))
}

/// The first of these hits, as many as fit into a page of this size. The first one is shown whatever its size.
fn fitting_hits(found: &[Found], query: &SearchQuery, max_bytes: usize) -> Result<Vec<Box<RawValue>>, Error> {
    let (mut hits, mut bytes) = (Vec::new(), PAGE_FRAME_BYTES);
    for found in found {
        let hit = to_raw_value(&hit(found, query)?).map_err(|_| Error::Internal)?;
        bytes += hit.get().len() + 1;
        if bytes > max_bytes && !hits.is_empty() {
            break;
        }
        hits.push(hit);
    }
    Ok(hits)
}

fn hit(found: &Found, query: &SearchQuery) -> Result<Hit, Error> {
    let Text { title, body } = Text::of(&found.stored.event()?);
    let text = if title.is_empty() { body } else { format!("{title}\n{body}") };
    let snippet = Snippet::of(&text, query, SNIPPET_CHARS);
    Ok(Hit {
        event: stored_json(&found.stored)?,
        topics: found.topics.iter().map(|topic| topic.as_str().to_owned()).collect(),
        score: found.score,
        snippet: HitSnippet { html: snippet.to_html(), text: snippet.text },
    })
}
