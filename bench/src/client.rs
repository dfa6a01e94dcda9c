//! Clients: publishing at a pace, asking, subscribing. They do little, as they share the machine with the relay: messages
//! are made beforehand, and answers are scanned, not parsed.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use futures_util::future::try_join_all;
use kukuri_testing::{Connection, connection::excerpt};

use crate::{
    corpus::{SignedEvent, has_versions},
    timings::Timings,
};

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
    /// AUTH and NOTICE come at any time.
    Other,
}

impl<'t> Message<'t> {
    /// Reads the first word and the id. White space may stand between the parts.
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

/// The id of the event in a message. A string of JSON can't contain these bytes, so they are the field.
fn id_in(text: &[u8]) -> &[u8] {
    let key = br#""id":"#;
    let Some(start) = text.windows(key.len()).position(|part| part == key) else { return &[] };
    quoted(&text[start + key.len()..]).unwrap_or_default().0
}

/// When a client sends its next events.
#[derive(Clone, Copy)]
pub(crate) enum Pace {
    /// As soon as fewer than this many wait for their OK.
    InFlight(usize),
    PerSecond(u32),
}

/// Publishes events on several connections, each its share. Returns how long each OK took.
pub(crate) async fn publish_all(
    address: SocketAddr,
    events: &[SignedEvent],
    connections: usize,
    pace: Pace,
) -> anyhow::Result<Timings> {
    let clients = try_join_all((0..connections).map(|_| Connection::open(address))).await?;
    let shares = clients.into_iter().enumerate();
    let publishing =
        shares.map(|(first, client)| publish(client, events.iter().skip(first).step_by(connections), pace));
    Ok(Timings(try_join_all(publishing).await?.into_iter().flat_map(|timings| timings.0).collect()))
}

/// Publishes events on one connection.
async fn publish<'e>(
    mut client: Connection,
    events: impl Iterator<Item = &'e SignedEvent>,
    pace: Pace,
) -> anyhow::Result<Timings> {
    let (mut events, mut frames, mut timings) = (events.peekable(), Vec::new(), Timings::default());
    let mut waiting: VecDeque<&SignedEvent> = VecDeque::new();
    let (begun, mut sent) = (Instant::now(), 0);
    loop {
        let due = match pace {
            Pace::InFlight(max) => max - waiting.len(),
            Pace::PerSecond(rate) => {
                (1 + (begun.elapsed().as_secs_f64() * f64::from(rate)) as usize).saturating_sub(sent as usize)
            }
        };
        // All that is due is sent at once, as a client with a backlog does.
        frames.clear();
        let now = Instant::now();
        for event in events.by_ref().take(due) {
            frames.extend_from_slice(&event.frame);
            event.sent.get_or_init(|| now);
            waiting.push_back(event);
            sent += 1;
        }
        let has_more = events.peek().is_some();
        if waiting.is_empty() && !has_more {
            return Ok(timings);
        }
        client.send(&frames).await?;
        match pace {
            Pace::PerSecond(rate) if has_more => {
                let next = begun + Duration::from_secs(1) * sent / rate;
                if let Ok(filled) = tokio::time::timeout_at(next.into(), client.fill()).await {
                    filled?;
                }
            }
            _ => client.fill().await?,
        }
        let now = Instant::now();
        while let Some(text) = client.next_buffered()? {
            let Message::Ok { id, is_accepted } = Message::read(text) else { continue };
            // Answers usually come in order, but need not.
            let index = waiting.iter().position(|event| event.id_hex.as_bytes() == id);
            let event = index.and_then(|index| waiting.remove(index)).context("an OK for no event")?;
            if !is_accepted && !has_versions(event.facts.kind) {
                bail!("an event is refused: {}", excerpt(text));
            }
            timings.push(now - *event.sent.get_or_init(|| now));
        }
    }
}

/// Opens a subscription and receives its stored events, up to EOSE. Returns how many there were.
pub(crate) async fn request(
    client: &mut Connection,
    (subscription, frames): (&str, &[u8]),
    mut on_event: impl FnMut(&[u8]),
) -> anyhow::Result<usize> {
    client.send(frames).await?;
    let mut count = 0;
    loop {
        let text = client.receive().await?;
        match Message::read(text) {
            Message::Event { id } => {
                on_event(id);
                count += 1;
            }
            Message::Eose => return Ok(count),
            Message::Closed { subscription: closed } if closed == subscription.as_bytes() => {
                bail!("a request is refused: {}", excerpt(text));
            }
            Message::Closed { .. } | Message::Ok { .. } | Message::Other => {}
        }
    }
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
