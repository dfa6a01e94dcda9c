//! The description of what is served, for programs: made from the tables that the routes read by.

use std::sync::LazyLock;

use axum::response::Response;
use serde_json::{Map, Value, json};

use crate::{
    answer,
    error::Problem,
    feed,
    parameters::{Form, Parameter},
    search, snapshot,
};

/// Where searches go.
pub(crate) const SEARCH: &str = "/v1/search";
/// Where changes are.
pub(crate) const CHANGES: &str = "/v1/topics/{id}/changes";
/// Where a follower begins.
pub(crate) const SNAPSHOT: &str = "/v1/topics/{id}/snapshot";
/// Where this is.
pub(crate) const DESCRIPTION: &str = "/v1/openapi.json";

pub(crate) async fn description() -> Result<Response, Problem> {
    static DOCUMENT: LazyLock<Value> = LazyLock::new(document);
    answer::json(&*DOCUMENT)
}

fn document() -> Value {
    let search_answers = [answered("SearchAnswer"), INVALID, AUTH, DENIED, TOO_FAST, AWAY];
    let changes_answers = [changes_answered(), INVALID, AUTH, DENIED, TOO_FAST, GONE, AWAY];
    let snapshot_answers = [answered("SnapshotPage"), INVALID, AUTH, DENIED, TOO_FAST, AWAY];
    let resume = header(feed::LAST_EVENT_ID, "Resumes a stream after this seq; counts more than `after`.");
    let accept = header("accept", "`text/event-stream` for a stream, which has no `limit`.");
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "kukuri-node",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Search, and the changes of a topic, beside a Nostr relay.",
        },
        "paths": {
            SEARCH: get("Finds events by words, the best first.", query(&search::PARAMETERS), search_answers),
            CHANGES: get(
                "What has become visible in a topic and what is no more, in order.",
                [vec![topic(), accept, resume], query(&feed::PARAMETERS)].concat(),
                changes_answers,
            ),
            SNAPSHOT: get(
                "All that is visible in a topic, to begin with before following its changes.",
                [vec![topic()], query(&snapshot::PARAMETERS)].concat(),
                snapshot_answers,
            ),
            DESCRIPTION: get("This description.", Vec::new(), [Answer(200, "The description.", Content::Any)]),
        },
        "components": { "schemas": schemas() },
    })
}

/// A status, what it means, and what comes with it.
struct Answer(u16, &'static str, Content);

enum Content {
    Any,
    Json(&'static str),
    /// Pages of changes, or a stream of single ones.
    Changes,
}

const ERROR: Content = Content::Json("Error");
const INVALID: Answer = Answer(400, "The request can't be understood; the message says why.", ERROR);
const AUTH: Answer = Answer(401, "This node answers only those who have authenticated, over WebSocket.", ERROR);
const DENIED: Answer = Answer(403, "This address is denied.", ERROR);
const GONE: Answer = Answer(410, "These rows are gone, or never were here: take a snapshot.", ERROR);
const TOO_FAST: Answer = Answer(429, "Too many requests; `Retry-After` says when to come again.", ERROR);
const AWAY: Answer = Answer(503, "Search is switched off, the store is away, or there are too many streams.", ERROR);

fn answered(schema: &'static str) -> Answer {
    Answer(200, "A page.", Content::Json(schema))
}

fn changes_answered() -> Answer {
    Answer(200, "A page, or a stream whose `data` is one change and whose `id` is its seq.", Content::Changes)
}

fn get<const N: usize>(summary: &str, parameters: Vec<Value>, answers: [Answer; N]) -> Value {
    let described = |Answer(status, about, content): Answer| {
        let content = match content {
            Content::Any => json!({ "application/json": {} }),
            Content::Json(name) => json!({ "application/json": { "schema": schema(name) } }),
            Content::Changes => json!({
                "application/json": { "schema": schema("ChangesPage") },
                "text/event-stream": { "schema": schema("Change") },
            }),
        };
        (status.to_string(), json!({ "description": about, "content": content }))
    };
    let responses: Map<String, Value> = answers.into_iter().map(described).collect();
    json!({ "get": { "summary": summary, "parameters": parameters, "responses": responses } })
}

fn query(parameters: &[Parameter]) -> Vec<Value> {
    let described = |parameter: &Parameter| {
        let mut value = json!({
            "name": parameter.name,
            "in": "query",
            "description": parameter.about,
            "required": parameter.is_required,
            "schema": parameter.schema(),
        });
        if parameter.form == Form::Repeated {
            value["explode"] = true.into();
        }
        value
    };
    parameters.iter().map(described).collect()
}

fn header(name: &str, about: &str) -> Value {
    json!({ "name": name, "in": "header", "description": about, "required": false, "schema": { "type": "string" } })
}

fn topic() -> Value {
    let about = "A topic, such as `kukuri:global` or `kukuri:<64 lower-case hex digits>`.";
    json!({ "name": "id", "in": "path", "description": about, "required": true, "schema": { "type": "string" } })
}

fn schema(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// An object that has these fields and no others; names that end in `?` may be missing.
fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let required: Vec<&str> = fields.iter().map(|(name, _)| *name).filter(|name| !name.ends_with('?')).collect();
    let required = json!(required);
    let named = |(name, value): (&str, Value)| (name.trim_end_matches('?').to_owned(), value);
    let properties: Map<String, Value> = fields.into_iter().map(named).collect();
    json!({ "type": "object", "additionalProperties": false, "required": required, "properties": properties })
}

fn list(items: Value) -> Value {
    json!({ "type": "array", "items": items })
}

fn one_of(texts: &[&str]) -> Value {
    json!({ "type": "string", "enum": texts })
}

fn schemas() -> Value {
    let text = || json!({ "type": "string" });
    let number = || json!({ "type": "integer" });
    let cursor = || json!({ "type": ["string", "null"] });
    json!({
        "Event": object([
            ("id", text()),
            ("pubkey", text()),
            ("created_at", number()),
            ("kind", number()),
            ("tags", list(list(text()))),
            ("content", text()),
            ("sig", text()),
        ]),
        "Hit": object([
            ("event", schema("Event")),
            ("topics", list(text())),
            ("score", json!({ "type": ["number", "null"], "description": "null: too new to be ranked" })),
            ("snippet", object([("html", text()), ("text", text())])),
        ]),
        "SearchAnswer": object([("hits", list(schema("Hit"))), ("cursor", cursor())]),
        "Change": object([
            ("seq", number()),
            ("op", one_of(&["upsert", "delete"])),
            ("event_id", text()),
            ("kind", number()),
            ("created_at", number()),
            ("reason?", one_of(&["nip09", "expiration", "replaced", "vanish", "retention", "capacity"])),
            ("event?", schema("Event")),
        ]),
        "ChangesPage": object([("changes", list(schema("Change"))), ("next", number()), ("head", number())]),
        "SnapshotPage": object([("events", list(schema("Event"))), ("seq", number()), ("cursor", cursor())]),
        "Error": object([("error", object([
            ("code", one_of(Problem::CODES)),
            ("message", text()),
            ("first?", number()),
            ("head?", number()),
        ]))]),
    })
}
