//! A relay's messages, scanned and not parsed: the first word, and the id. White space may stand between the parts.

/// A message of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message<'t> {
    /// An event of a subscription. The id is empty if there is none.
    Event { id: &'t [u8] },
    /// The answer to an event.
    Ok { id: &'t [u8], is_accepted: bool },
    /// The end of stored events.
    Eose,
    /// A subscription is refused or ended.
    Closed { subscription: &'t [u8] },
    /// Talk: AUTH and NOTICE come at any time.
    Other,
}

impl<'t> Message<'t> {
    pub(crate) fn read(text: &'t [u8]) -> Self {
        let Some((word, rest)) = quoted(text.strip_prefix(b"[").unwrap_or_default()) else { return Self::Other };
        match word {
            b"EVENT" => Self::Event { id: id_in(rest) },
            b"EOSE" => Self::Eose,
            b"OK" => {
                let (id, rest) = quoted(rest).unwrap_or_default();
                Self::Ok { id, is_accepted: skip(rest).starts_with(b"true") }
            }
            b"CLOSED" => Self::Closed { subscription: quoted(rest).unwrap_or_default().0 },
            _ => Self::Other,
        }
    }
}

fn skip(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|byte| !matches!(byte, b' ' | b',' | b'\n' | b'\t')).unwrap_or(text.len());
    &text[start..]
}

/// The next string, and the text after it.
fn quoted(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = skip(text).strip_prefix(b"\"")?;
    let end = text.iter().position(|byte| *byte == b'"')?;
    Some((&text[..end], &text[end + 1..]))
}

/// The id of the event in a message. In a string of JSON these bytes can't stand, so they are the field.
fn id_in(text: &[u8]) -> &[u8] {
    let key = br#""id":"#;
    // Usually it is the first field of the event.
    let Some(start) = text.windows(key.len()).position(|part| part == key) else { return &[] };
    quoted(&text[start + key.len()..]).unwrap_or_default().0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_recognised_with_any_white_space() {
        for (text, message) in [
            (r#"["OK","ab",true,""]"#, Message::Ok { id: b"ab", is_accepted: true }),
            (r#"["OK", "ab", false, "true"]"#, Message::Ok { id: b"ab", is_accepted: false }),
            (r#"["EVENT","q",{"content":"\"id\":\"no\"","id":"ab"}]"#, Message::Event { id: b"ab" }),
            (r#"["EVENT", "q", {"id": "ab"}]"#, Message::Event { id: b"ab" }),
            (r#"["EOSE","q"]"#, Message::Eose),
            (r#"["CLOSED","q","invalid: no"]"#, Message::Closed { subscription: b"q" }),
            (r#"["AUTH","challenge"]"#, Message::Other),
            (r#"["NOTICE","hello"]"#, Message::Other),
            ("", Message::Other),
        ] {
            assert_eq!(Message::read(text.as_bytes()), message, "{text}");
        }
    }
}
