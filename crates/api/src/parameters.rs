//! Parameters of a query string: told once, for reading and for the description.

use std::{borrow::Cow, num::IntErrorKind};

use axum::http::request::Parts;
use kukuri_domain::{
    TopicId,
    topic::{TopicRules, TopicValue},
};
use serde_json::{Value, json};

use crate::error::Problem;

/// The most values a parameter that may be repeated has.
const MOST_VALUES: usize = 100;

/// What a parameter looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A text.
    Text,
    /// A whole number, not negative.
    Number,
    /// A number that is brought into this range.
    Limit(Limit),
    /// It may be there several times.
    Repeated,
}

/// The size of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) most: usize,
    pub(crate) default: usize,
}

/// A parameter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) form: Form,
    pub(crate) about: &'static str,
    pub(crate) is_required: bool,
}

impl Parameter {
    /// One that may be left out.
    pub(crate) const fn new(name: &'static str, form: Form, about: &'static str) -> Self {
        Self { name, form, about, is_required: false }
    }

    /// One that may not.
    pub(crate) const fn required(name: &'static str, form: Form, about: &'static str) -> Self {
        Self { name, form, about, is_required: true }
    }

    /// As OpenAPI has it.
    pub(crate) fn schema(&self) -> Value {
        match self.form {
            Form::Text => json!({ "type": "string" }),
            Form::Number => json!({ "type": "integer", "minimum": 0 }),
            Form::Limit(Limit { most, default }) => {
                json!({ "type": "integer", "minimum": 1, "maximum": most, "default": default })
            }
            Form::Repeated => json!({ "type": "array", "items": { "type": "string" }, "maxItems": MOST_VALUES }),
        }
    }
}

/// What was asked: parameters and their values, all of them known.
pub(crate) struct Asked<'r> {
    values: Vec<(Cow<'r, str>, Cow<'r, str>)>,
}

impl<'r> Asked<'r> {
    /// Reads the query string of a request that may have these parameters. One that is unknown is an error: passing it
    /// over would answer another question.
    pub(crate) fn read(request: &'r Parts, known: &[Parameter]) -> Result<Self, Problem> {
        let text = request.uri.query().unwrap_or_default();
        let values: Vec<_> = url::form_urlencoded::parse(text.as_bytes()).collect();
        for (name, _) in &values {
            let Some(parameter) = known.iter().find(|parameter| parameter.name == name) else {
                let names: Vec<&str> = known.iter().map(|parameter| parameter.name).collect();
                return Err(invalid(format!("parameter `{}` is unknown; there are {}", short(name), names.join(", "))));
            };
            let most = if parameter.form == Form::Repeated { MOST_VALUES } else { 1 };
            if values.iter().filter(|(other, _)| other == name).count() > most {
                return Err(invalid(format!("`{name}` may be there {most} times at most")));
            }
        }
        Ok(Self { values })
    }

    /// All values of a parameter.
    pub(crate) fn all(&self, parameter: &Parameter) -> impl Iterator<Item = &str> {
        self.values.iter().filter(|(name, _)| name == parameter.name).map(|(_, value)| value.as_ref())
    }

    /// The value of a parameter.
    pub(crate) fn one(&self, parameter: &Parameter) -> Option<&str> {
        self.all(parameter).next()
    }

    /// A whole number.
    pub(crate) fn number(&self, parameter: &Parameter) -> Result<Option<u64>, Problem> {
        self.one(parameter).map(|value| number(parameter.name, value)).transpose()
    }

    /// The size of a page. Any number will do: it is brought into range.
    pub(crate) fn limit(&self, parameter: &Parameter, Limit { most, default }: Limit) -> Result<usize, Problem> {
        let Some(text) = self.one(parameter) else { return Ok(default) };
        match text.parse::<i64>() {
            Ok(limit) => Ok(usize::try_from(limit).unwrap_or(0).clamp(1, most)),
            Err(error) if *error.kind() == IntErrorKind::PosOverflow => Ok(most),
            Err(error) if *error.kind() == IntErrorKind::NegOverflow => Ok(1),
            Err(_) => Err(invalid(format!("`{}` has to be a number, not `{}`", parameter.name, short(text)))),
        }
    }
}

/// A whole number that every JSON reader keeps exactly.
pub(crate) fn number(name: &str, text: &str) -> Result<u64, Problem> {
    let is_exact = |number: &u64| *number < 1 << 53;
    let read = text.parse().ok().filter(is_exact);
    read.ok_or_else(|| invalid(format!("`{name}` has to be a whole number from 0 to 2^53 - 1, not `{}`", short(text))))
}

/// A topic (T-1).
pub(crate) fn topic(rules: &TopicRules, text: &str) -> Result<TopicId, Problem> {
    match rules.read(text) {
        TopicValue::Topic(topic) => Ok(topic),
        TopicValue::Hashtag | TopicValue::Malformed => Err(Problem::InvalidTopic),
    }
}

pub(crate) fn invalid(why: impl Into<String>) -> Problem {
    Problem::InvalidQuery(why.into())
}

/// Enough of a text to know which one is meant.
pub(crate) fn short(text: &str) -> String {
    text.chars().take(40).collect()
}
