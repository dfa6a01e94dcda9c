//! Conditional requests (RFC 9110, section 13): a client that has the answer already is told so.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::{
    Json,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use data_encoding::HEXLOWER;
use kukuri_domain::Timestamp;
use serde::Serialize;
use sha2::{Digest, Sha256};

/// Bytes of the hash in a tag.
const TAG_BYTES: usize = 16;
/// The last second that a date of HTTP can name: the end of the year 9999.
const MAX_DATE: u64 = 253_402_300_799;

/// The validators of an answer: entity tag and time of the last change.
#[derive(Clone, Debug)]
pub(crate) struct Validators {
    /// A strong entity tag, with its quotes.
    pub(crate) etag: String,
    /// `None`: the answer does not say.
    pub(crate) modified_at: Option<Timestamp>,
}

impl Validators {
    /// A strong tag of these parts.
    pub(crate) fn etag_of(parts: impl IntoIterator<Item = impl AsRef<[u8]>>) -> String {
        let mut hash = Sha256::new();
        parts.into_iter().for_each(|part| hash.update(part));
        format!("\"{}\"", HEXLOWER.encode(&hash.finalize()[..TAG_BYTES]))
    }

    /// Whether the client that sent these headers has this state.
    fn are_held_by(&self, headers: &HeaderMap) -> bool {
        if headers.contains_key(header::IF_NONE_MATCH) {
            let mut lists = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|list| list.to_str().ok());
            return lists.any(|list| names_tag(list, &self.etag));
        }
        let mut dates = headers.get_all(header::IF_MODIFIED_SINCE).iter();
        let (date, modified_at) = match (dates.next(), dates.next(), self.modified_at) {
            (Some(date), None, Some(modified_at)) => (date, modified_at),
            _ => return false,
        };
        let date = date.to_str().ok().and_then(|date| httpdate::parse_http_date(date).ok());
        date.is_some_and(|date| system_time(modified_at) <= date)
    }
}

/// Answers with a body, or with 304 if the client has it.
pub(crate) fn respond(
    request: &HeaderMap,
    validators: &Validators,
    cache_control: &'static str,
    body: &impl Serialize,
) -> Response {
    let mut response = if validators.are_held_by(request) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        Json(body).into_response()
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache_control));
    let modified_at = validators.modified_at.map(|time| httpdate::fmt_http_date(system_time(time)));
    for (name, value) in [(header::ETAG, Some(validators.etag.clone())), (header::LAST_MODIFIED, modified_at)] {
        if let Some(value) = value.and_then(|value| HeaderValue::try_from(value).ok()) {
            headers.insert(name, value);
        }
    }
    response
}

/// Whether a value of `If-None-Match` names the tag: by weak comparison, or with `*`. What follows a syntax error is ignored.
fn names_tag(list: &str, etag: &str) -> bool {
    let is_separator = |character: char| character == ',' || character.is_ascii_whitespace();
    let mut rest = list.trim_matches(is_separator);
    if rest == "*" {
        return true;
    }
    while !rest.is_empty() {
        let opaque = rest.strip_prefix("W/").unwrap_or(rest);
        let Some(length) = opaque.strip_prefix('"').and_then(|inner| inner.find('"')) else { return false };
        let (tag, after) = opaque.split_at(length + 2);
        if tag == etag {
            return true;
        }
        if !after.is_empty() && !after.starts_with(is_separator) {
            return false;
        }
        rest = after.trim_start_matches(is_separator);
    }
    false
}

fn system_time(time: Timestamp) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(time.0.min(MAX_DATE))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may stop where it is surprised")]
mod tests {
    use super::*;

    const MODIFIED: Timestamp = Timestamp(1_000_000_000);
    const DATE: &str = "Sun, 09 Sep 2001 01:46:40 GMT";

    fn answer(sent: &[(&str, &str)]) -> Response {
        let mut headers = HeaderMap::new();
        for (name, value) in sent {
            headers.append(header::HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        let validators = Validators { etag: "\"a,b\"".to_owned(), modified_at: Some(MODIFIED) };
        respond(&headers, &validators, "public", &"body")
    }

    #[test]
    fn client_that_has_the_answer_gets_304() {
        // RFC 9110: 13.1.2, 13.1.3, 13.2.2
        let (none_match, since) = ("if-none-match", "if-modified-since");
        for (why, sent, status) in [
            ("an unconditional request", &[][..], 200),
            ("its tag", &[(none_match, "\"a,b\"")], 304),
            ("weakly", &[(none_match, "W/\"a,b\"")], 304),
            ("in a list", &[(none_match, "\"x\" , W/\"y\",\t\"a,b\"")], 304),
            ("in a list with empty elements", &[(none_match, ", ,\"x\",, \"a,b\",")], 304),
            ("in a second header", &[(none_match, "\"x\""), (none_match, "\"a,b\"")], 304),
            ("any tag", &[(none_match, "*")], 304),
            ("another tag", &[(none_match, "\"a\"")], 200),
            ("a part of a tag", &[(none_match, "\"xa,b\", \"a,bx\"")], 200),
            ("a tag without quotes", &[(none_match, "a,b")], 200),
            ("a tag without an end", &[(none_match, "\"a,b")], 200),
            ("two tags without a comma", &[(none_match, "\"x\"\"a,b\"")], 200),
            ("weak in lower case, which is no tag", &[(none_match, "w/\"a,b\"")], 200),
            ("nothing", &[(none_match, "")], 200),
            ("the date", &[(since, DATE)], 304),
            ("a later date", &[(since, "Sun, 09 Sep 2001 01:46:41 GMT")], 304),
            ("an earlier date", &[(since, "Sun, 09 Sep 2001 01:46:39 GMT")], 200),
            ("as RFC 850 wrote it", &[(since, "Sunday, 09-Sep-01 01:46:40 GMT")], 304),
            ("as C writes it", &[(since, "Sun Sep  9 01:46:40 2001")], 304),
            ("no date", &[(since, "yesterday")], 200),
            ("two dates", &[(since, DATE), (since, DATE)], 200),
            ("another tag and the date: the tag alone counts", &[(none_match, "\"x\""), (since, DATE)], 200),
            ("its tag and an earlier date", &[(none_match, "\"a,b\""), (since, "Sun, 09 Sep 1999 01:46:40 GMT")], 304),
        ] {
            let response = answer(sent);
            assert_eq!(response.status(), status, "{why}");
            let headers = response.headers();
            let of = |name| headers[name].to_str().unwrap();
            assert_eq!((of("etag"), of("last-modified"), of("cache-control")), ("\"a,b\"", DATE, "public"), "{why}");
            assert_eq!(headers.contains_key(header::CONTENT_TYPE), status == 200, "{why}");
        }
    }

    #[test]
    fn time_that_no_date_can_name_is_cut() {
        let validators = Validators { etag: "\"x\"".to_owned(), modified_at: Some(Timestamp(u64::MAX)) };
        let response = respond(&HeaderMap::new(), &validators, "public", &());
        assert_eq!(response.headers()["last-modified"], "Fri, 31 Dec 9999 23:59:59 GMT");
    }
}
