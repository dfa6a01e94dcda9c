//! Encodes an event: the JSON that is stored and served, and the text whose hash is the id.
//!
//! Both contain the same tags and content, so these are encoded once and hashed in place. Strings are escaped as by
//! `JSON.stringify`, since every client hashes that text: NIP-01's seven short escapes, and `\u00xx` for the other
//! control characters.
//!
//! [`Number`] reads the numbers of an event.

use std::{fmt, ops::Range};

use bytes::Bytes;
use serde::de::{self, Unexpected};
use sha2::{Digest, Sha256};

use crate::{event::Event, hex, id::EventId};

/// An event's JSON, with the positions of the parts that its id is computed from.
#[derive(Clone, Debug)]
pub(crate) struct Encoded {
    json: Vec<u8>,
    tags: Range<usize>,
    content: Range<usize>,
}

impl Encoded {
    pub(crate) fn of(event: &Event) -> Self {
        // All fields except tags and content take about 340 bytes.
        let items: usize = event.tags.iter().map(|tag| tag.text_bytes() + 3 * tag.items().len() + 3).sum();
        let mut json = Vec::with_capacity(352 + items + event.content.len() + event.content.len() / 16);

        json.extend_from_slice(br#"{"id":""#);
        hex::encode_into(event.id.as_bytes(), &mut json);
        json.extend_from_slice(br#"","pubkey":""#);
        hex::encode_into(event.pubkey.as_bytes(), &mut json);
        json.extend_from_slice(br#"","created_at":"#);
        push_number(event.created_at.0, &mut json);
        json.extend_from_slice(br#","kind":"#);
        push_number(event.kind.0.into(), &mut json);

        json.extend_from_slice(br#","tags":"#);
        let tags_start = json.len();
        push_tags(event, &mut json);
        let tags = tags_start..json.len();

        json.extend_from_slice(br#","content":"#);
        let content_start = json.len();
        push_string(&event.content, &mut json);
        let content = content_start..json.len();

        json.extend_from_slice(br#","sig":""#);
        hex::encode_into(event.sig.as_bytes(), &mut json);
        json.extend_from_slice(br#""}"#);
        Self { json, tags, content }
    }

    /// SHA-256 of `[0,pubkey,created_at,kind,tags,content]` (NIP-01).
    pub(crate) fn id_of(&self, event: &Event) -> EventId {
        let mut head = Vec::with_capacity(112);
        head.extend_from_slice(br#"[0,""#);
        hex::encode_into(event.pubkey.as_bytes(), &mut head);
        head.extend_from_slice(br#"","#);
        push_number(event.created_at.0, &mut head);
        head.push(b',');
        push_number(event.kind.0.into(), &mut head);
        head.push(b',');

        let mut hash = Sha256::new();
        hash.update(&head);
        hash.update(&self.json[self.tags.clone()]);
        hash.update(b",");
        hash.update(&self.json[self.content.clone()]);
        hash.update(b"]");
        EventId::from_bytes(hash.finalize().into())
    }

    pub(crate) fn len(&self) -> usize {
        self.json.len()
    }

    pub(crate) fn into_json(self) -> Bytes {
        self.json.into()
    }
}

fn push_tags(event: &Event, out: &mut Vec<u8>) {
    out.push(b'[');
    for (index, tag) in event.tags.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.push(b'[');
        for (index, item) in tag.items().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            push_string(item, out);
        }
        out.push(b']');
    }
    out.push(b']');
}

/// Writes an escaped string. Copies the runs between characters that must be escaped.
fn push_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut copied = 0;
    for (index, &byte) in bytes.iter().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.extend_from_slice(&bytes[copied..index]);
        copied = index + 1;
        match byte {
            b'"' => out.extend_from_slice(br#"\""#),
            b'\\' => out.extend_from_slice(br"\\"),
            b'\n' => out.extend_from_slice(br"\n"),
            b'\r' => out.extend_from_slice(br"\r"),
            b'\t' => out.extend_from_slice(br"\t"),
            0x08 => out.extend_from_slice(br"\b"),
            0x0c => out.extend_from_slice(br"\f"),
            control => {
                out.extend_from_slice(br"\u00");
                hex::encode_into(&[control], out);
            }
        }
    }
    out.extend_from_slice(&bytes[copied..]);
    out.push(b'"');
}

fn push_number(mut number: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

/// Reads a whole number from 0 to `max`; `expected` describes it in errors.
pub(crate) struct Number {
    pub(crate) max: u64,
    pub(crate) expected: &'static str,
}

impl de::Visitor<'_> for Number {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<u64, E> {
        if number <= self.max { Ok(number) } else { Err(E::invalid_value(Unexpected::Unsigned(number), &self)) }
    }
}
