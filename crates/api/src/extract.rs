//! Input of handlers: query, path and body. Whatever is malformed is a 400 that names the parameter, never a 422 (U-1).

use std::{borrow::Cow, num::IntErrorKind};

use axum::{
    extract::{FromRequest, FromRequestParts, Request},
    http::{StatusCode, header, request::Parts},
};
use bytes::Bytes;
use serde::{Deserialize, de::DeserializeOwned};
use utoipa::{
    IntoParams,
    openapi::{
        Array, ArrayBuilder, Object, ObjectBuilder, RefOr, Required, Schema,
        path::Parameter,
        schema::{SchemaType, Type},
    },
};

use crate::{error::Error, layers::MAX_BODY_BYTES};

/// The most values of a parameter that may be repeated.
const MAX_VALUES: usize = 100;
/// The greatest integer that every JSON reader keeps exactly.
const MAX_EXACT_INTEGER: u64 = (1 << 53) - 1;
/// Characters of a refused value that the message shows.
const MAX_SHOWN_CHARS: usize = 40;
/// Characters of a message about a body, which may repeat a part of it.
const MAX_MESSAGE_CHARS: usize = 200;

/// The query string, as a struct whose description says which parameters there are.
pub struct Query<T>(pub T);

impl<T: DeserializeOwned + IntoParams, S: Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Error> {
        let query = parts.uri.query().unwrap_or_default();
        let pairs: Vec<_> = url::form_urlencoded::parse(query.as_bytes()).collect();
        check_parameters(&pairs, &T::into_params(|| None))?;
        let form = serde_html_form::Deserializer::from_bytes(query.as_bytes());
        serde_path_to_error::deserialize(form).map(Self).map_err(|error| {
            let path = error.path().to_string();
            // One of several values is `name[index]`.
            let name = path.split('[').next().unwrap_or_default();
            Error::invalid_parameter(name, error.inner())
        })
    }
}

/// An unknown parameter is an error: ignoring it would answer another question.
fn check_parameters(pairs: &[(Cow<'_, str>, Cow<'_, str>)], described: &[Parameter]) -> Result<(), Error> {
    for (name, value) in pairs {
        let Some(parameter) = described.iter().find(|parameter| parameter.name == *name) else {
            let names: Vec<&str> = described.iter().map(|parameter| parameter.name.as_str()).collect();
            let message = format!("parameter `{}` is unknown; there are {}", shortened(name), names.join(", "));
            return Err(Error::InvalidRequest { parameter: Some(shortened(name)), message });
        };
        let max = if matches!(parameter.schema, Some(RefOr::T(Schema::Array(_)))) { MAX_VALUES } else { 1 };
        if pairs.iter().filter(|(other, _)| other == name).count() > max {
            return Err(Error::invalid_parameter(name, format_args!("given more than {max} times")));
        }
        if value.is_empty() {
            return Err(Error::invalid_parameter(name, "has no value"));
        }
    }
    let is_given = |parameter: &&Parameter| pairs.iter().any(|(name, _)| *name == parameter.name);
    let mut required = described.iter().filter(|parameter| matches!(parameter.required, Required::True));
    match required.find(|parameter| !is_given(parameter)) {
        Some(parameter) => Err(Error::invalid_parameter(&parameter.name, "is required")),
        None => Ok(()),
    }
}

/// The parameters of a path.
pub struct Path<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Error> {
        let read = axum::extract::Path::from_request_parts(parts, state).await;
        read.map(|path| Self(path.0)).map_err(|rejection| Error::invalid(rejection.body_text()))
    }
}

/// The JSON body of a request.
pub struct Json<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Error;

    async fn from_request(request: Request, state: &S) -> Result<Self, Error> {
        let content_type = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        if !content_type.is_some_and(|kind| kind.starts_with("application/json")) {
            return Err(Error::invalid("the body has to be JSON, with `Content-Type: application/json`"));
        }
        let body = read_body(request, state).await?;
        let mut json = serde_json::Deserializer::from_slice(&body);
        let read = serde_path_to_error::deserialize(&mut json).map_err(|error| {
            let message = first_chars(&error.inner().to_string(), MAX_MESSAGE_CHARS);
            match error.path().to_string() {
                // The error is not in a field.
                path if path == "." || path.contains('?') => Error::invalid(message),
                field => Error::invalid_parameter(&shortened(&field), message),
            }
        })?;
        json.end().map_err(|error| Error::invalid(error.to_string()))?;
        Ok(Self(read))
    }
}

/// The body of a request, if it is not too large.
pub(crate) async fn read_body<S: Send + Sync>(request: Request, state: &S) -> Result<Bytes, Error> {
    Bytes::from_request(request, state).await.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => Error::PayloadTooLarge { max_bytes: MAX_BODY_BYTES },
        _ => Error::invalid("the body ended early"),
    })
}

/// The size of a page. Any integer is taken, and clamped to 1..=MAX.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct PageLimit<const DEFAULT: usize, const MAX: usize>(pub(crate) usize);

impl<const DEFAULT: usize, const MAX: usize> PageLimit<DEFAULT, MAX> {
    pub(crate) fn schema() -> Object {
        let integer = ObjectBuilder::new().schema_type(SchemaType::Type(Type::Integer));
        integer.minimum(Some(1)).maximum(Some(MAX)).default(Some(DEFAULT.into())).build()
    }
}

impl<const DEFAULT: usize, const MAX: usize> Default for PageLimit<DEFAULT, MAX> {
    fn default() -> Self {
        Self(DEFAULT)
    }
}

impl<const DEFAULT: usize, const MAX: usize> TryFrom<String> for PageLimit<DEFAULT, MAX> {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        match text.parse::<i64>() {
            Ok(limit) => Ok(Self(usize::try_from(limit).unwrap_or(0).clamp(1, MAX))),
            Err(error) if *error.kind() == IntErrorKind::PosOverflow => Ok(Self(MAX)),
            Err(error) if *error.kind() == IntErrorKind::NegOverflow => Ok(Self(1)),
            Err(_) => Err(Error::invalid(format!("expected an integer, got `{}`", shortened(&text)))),
        }
    }
}

/// An integer from 0 to 2^53 - 1.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct ExactInteger(pub(crate) u64);

impl ExactInteger {
    pub(crate) fn schema() -> Object {
        let integer = ObjectBuilder::new().schema_type(SchemaType::Type(Type::Integer));
        integer.minimum(Some(0)).maximum(Some(MAX_EXACT_INTEGER as f64)).build()
    }
}

impl TryFrom<String> for ExactInteger {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        let integer = text.parse().ok().filter(|integer| *integer <= MAX_EXACT_INTEGER);
        let refused = || Error::invalid(format!("expected an integer from 0 to 2^53 - 1, got `{}`", shortened(&text)));
        integer.map(Self).ok_or_else(refused)
    }
}

/// The description of a parameter that may be repeated.
pub(crate) fn repeated_text() -> Array {
    let text = ObjectBuilder::new().schema_type(SchemaType::Type(Type::String));
    ArrayBuilder::new().items(text).max_items(Some(MAX_VALUES)).build()
}

/// The beginning of a refused value, in one line.
pub(crate) fn shortened(text: &str) -> String {
    first_chars(text, MAX_SHOWN_CHARS)
}

fn first_chars(text: &str, max: usize) -> String {
    let shown = |character: char| if character.is_control() { char::REPLACEMENT_CHARACTER } else { character };
    text.chars().take(max).map(shown).collect()
}
