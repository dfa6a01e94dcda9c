//! `GET /v1/search`: what the index names, looked up in the store before it is shown (C-1).

use std::sync::Arc;

use axum::{extract::State, http::request::Parts, response::Response};
use kukuri_domain::{Kind, PublicKey, Timestamp, TopicId, Viewer, topic::TopicsMode};
use kukuri_search::{Found, Search, SearchQuery, Snippet, Text};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::{
    Api, Served,
    answer::{json, raw},
    cursor::SearchCursor,
    error::Problem,
    gate::Act,
    parameters::{Asked, Form, Limit, Parameter, invalid, short, topic},
};

/// About so many characters of a text are shown.
const SNIPPET: usize = 160;
const PAGE: Limit = Limit { most: 50, default: 20 };

const TOPIC: Parameter = Parameter::new(
    "topic",
    Form::Repeated,
    "A topic to search in; repeated: in any of them. A node whose topics mode is `required` needs one.",
);
const Q: Parameter = Parameter::required("q", Form::Text, "The words; a hit has all of them.");
const KINDS: Parameter = Parameter::new("kinds", Form::Text, "Kinds, with commas between them.");
const AUTHOR: Parameter = Parameter::new("author", Form::Repeated, "A public key in hex; repeated: any of them.");
const SINCE: Parameter = Parameter::new("since", Form::Number, "Made at or after this second.");
const UNTIL: Parameter = Parameter::new("until", Form::Number, "Made at or before this second.");
const LIMIT: Parameter = Parameter::new("limit", Form::Limit(PAGE), "Hits of a page; brought into range.");
const CURSOR: Parameter =
    Parameter::new("cursor", Form::Text, "The `cursor` of the page before, with all other parameters as they were.");
/// What can be asked with.
pub(crate) const PARAMETERS: [Parameter; 8] = [TOPIC, Q, KINDS, AUTHOR, SINCE, UNTIL, LIMIT, CURSOR];

#[derive(Serialize)]
struct Answer<'f> {
    hits: Vec<Hit<'f>>,
    cursor: Option<String>,
}

#[derive(Serialize)]
struct Hit<'f> {
    event: &'f RawValue,
    topics: Vec<&'f str>,
    /// None: it is too new to be ranked.
    score: Option<f32>,
    snippet: Piece,
}

#[derive(Serialize)]
struct Piece {
    html: String,
    text: String,
}

pub(crate) async fn search(State(api): State<Arc<Served>>, request: Parts) -> Result<Response, Problem> {
    api.admit(&request, Act::Search)?;
    let now = api.now();
    let asked = Asked::read(&request, &PARAMETERS)?;
    let cursor = match asked.one(&CURSOR) {
        Some(text) => SearchCursor::read(text)?,
        None => SearchCursor::first(now.seconds()),
    };
    let search = read(&api, &asked, &cursor)?;
    let finder = api.finder.as_ref().ok_or(Problem::SearchUnavailable)?;
    let findings = finder.find(&search, &Viewer::stranger(), now, |event, _| !cursor.has_shown(&event.id)).await?;
    let hits = findings.found.iter().map(|found| hit(found, &search.query)).collect::<Result<_, Problem>>()?;
    let ids = |is_indexed: bool| {
        findings.found.iter().filter(move |found| found.score.is_some() == is_indexed).map(|found| found.event.id)
    };
    let next = findings.next.and_then(|skip| cursor.next(skip, ids(false), ids(true)));
    json(&Answer { hits, cursor: next.map(|cursor| cursor.to_text()) })
}

/// What is looked for.
fn read(api: &Api, asked: &Asked<'_>, cursor: &SearchCursor) -> Result<Search, Problem> {
    let rules = api.topics();
    let topics: Vec<TopicId> = asked.all(&TOPIC).map(|value| topic(&rules, value)).collect::<Result<_, _>>()?;
    // T-6
    if topics.is_empty() && rules.mode == TopicsMode::Required {
        return Err(invalid("`topic` has to name a topic on this node"));
    }
    let authors = asked.all(&AUTHOR).map(author).collect::<Result<Vec<_>, _>>()?;
    Ok(Search {
        query: query(asked.one(&Q).unwrap_or_default())?,
        topics: some(topics),
        kinds: asked.one(&KINDS).map(kinds).transpose()?,
        authors: some(authors),
        since: asked.number(&SINCE)?.map(Timestamp),
        until: asked.number(&UNTIL)?.map(Timestamp),
        now: cursor.now,
        skip: cursor.skip,
        limit: asked.limit(&LIMIT, PAGE)?,
    })
}

fn some<T>(values: Vec<T>) -> Option<Vec<T>> {
    (!values.is_empty()).then_some(values)
}

fn query(text: &str) -> Result<SearchQuery, Problem> {
    if text.chars().any(|character| character.is_control() && !character.is_whitespace()) {
        return Err(invalid("`q` has control characters in it"));
    }
    SearchQuery::parse(text).map_err(|error| invalid(format!("`q`: {error}")))
}

fn kinds(text: &str) -> Result<Vec<Kind>, Problem> {
    let kind = |kind: &str| kind.trim().parse().map(Kind);
    text.split(',').map(kind).collect::<Result<_, _>>().map_err(|_| {
        invalid(format!("`kinds` has to be numbers up to 65535 with commas between them, not `{}`", short(text)))
    })
}

fn author(text: &str) -> Result<PublicKey, Problem> {
    PublicKey::from_hex(text)
        .map_err(|_| invalid(format!("`author` has to be 64 lower-case hex digits, not `{}`", short(text))))
}

fn hit<'f>(found: &'f Found, query: &SearchQuery) -> Result<Hit<'f>, Problem> {
    let Text { title, body } = Text::of(&found.event);
    let text = if title.is_empty() { body } else { format!("{title}\n{body}") };
    let snippet = Snippet::of(&text, query, SNIPPET);
    Ok(Hit {
        event: raw(&found.stored)?,
        topics: found.topics.iter().map(TopicId::as_str).collect(),
        score: found.score,
        snippet: Piece { html: snippet.to_html(), text: snippet.text },
    })
}
