//! The messages of a session and their encoding: a byte for the type, then the fields, integers big-endian.

use bytes::Bytes;
use kukuri_domain::{Address, EventId, Rank, Timestamp, sharing::FloorHint};
use kukuri_store::{Item, Shared, Span};

use crate::report::SessionEnd;

const VERSION: u8 = 1;
const MAGIC: &[u8] = b"kukuri-catchup";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// First message of the initiator: a topic, and since when the initiator keeps regular events of it.
    Hello { topic: String, since: Timestamp },
    /// The responder's answer: since when it keeps them.
    Welcome { since: Timestamp },
    /// A part of the set, and the first negentropy message about it.
    Part { span: Span, message: Vec<u8> },
    /// The responder has too many items in the part: it ends before this item.
    Cut { before: Item },
    /// A negentropy message about the part.
    Compare { message: Vec<u8> },
    /// Ids that the receiver lacks.
    Offer { ids: Vec<EventId> },
    /// Ids that the sender asks for, and whether it accepts no further offers.
    Want { ids: Vec<EventId>, stop_offers: bool },
    /// Some of the wanted items.
    Items { items: Vec<(EventId, Shared)> },
    /// The end of the wanted items.
    ItemsEnd,
    /// The end of the session, and why: a code of [`SessionEnd`].
    Bye { code: u8 },
}

impl Message {
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Hello { topic, since } => {
                [&[1], MAGIC, &[VERSION], &since.0.to_be_bytes(), topic.as_bytes()].concat()
            }
            Self::Welcome { since } => [&[2, VERSION], since.0.to_be_bytes().as_slice()].concat(),
            Self::Part { span, message } => {
                [&[3], encode_optional(span.from).as_slice(), &encode_optional(span.before), message].concat()
            }
            Self::Cut { before } => [&[4], encode_item(before).as_slice()].concat(),
            Self::Compare { message } => [&[5], message.as_slice()].concat(),
            Self::Offer { ids } => [&[6], encode_ids(ids).as_slice()].concat(),
            Self::Want { ids, stop_offers } => [&[7, (*stop_offers).into()], encode_ids(ids).as_slice()].concat(),
            Self::Items { items } => {
                let mut out = vec![8];
                items.iter().for_each(|(id, shared)| out.extend(encode_shared(id, shared)));
                out
            }
            Self::ItemsEnd => vec![9],
            Self::Bye { code } => vec![10, *code],
        }
    }

    pub(crate) fn decode(frame: &[u8]) -> Result<Self, SessionEnd> {
        let mut rest = Decoder(frame);
        let message = match rest.byte()? {
            1 => {
                let no_hello = SessionEnd::Misbehaved("the session does not begin with a Hello");
                rest.0 = rest.0.strip_prefix(MAGIC).ok_or(no_hello)?;
                rest.version()?;
                let since = rest.time()?;
                Self::Hello { topic: String::from_utf8(rest.remaining()).map_err(|_| MALFORMED)?, since }
            }
            2 => {
                rest.version()?;
                Self::Welcome { since: rest.time()? }
            }
            3 => Self::Part {
                span: Span { from: rest.optional_item()?, before: rest.optional_item()? },
                message: rest.remaining(),
            },
            4 => Self::Cut { before: rest.item()? },
            5 => Self::Compare { message: rest.remaining() },
            6 => Self::Offer { ids: rest.ids()? },
            7 => Self::Want { stop_offers: rest.byte()? != 0, ids: rest.ids()? },
            8 => Self::Items { items: rest.items()? },
            9 => Self::ItemsEnd,
            10 => match rest.byte()? {
                code @ 0..=SessionEnd::MAX_CODE => Self::Bye { code },
                _ => return Err(MALFORMED),
            },
            _ => return Err(SessionEnd::Misbehaved("an unknown message")),
        };
        if rest.0.is_empty() { Ok(message) } else { Err(MALFORMED) }
    }
}

/// Upper bound of an item's size in a frame, in bytes.
pub(crate) fn max_item_len(shared: &Shared) -> usize {
    37 + match shared {
        Shared::Event(json) => json.len(),
        Shared::Hint(hint) => max_hint_len(hint),
    }
}

/// Upper bound of a hint's size in an item, in bytes.
pub(crate) fn max_hint_len(hint: &FloorHint) -> usize {
    40 + hint.key.identifier().len() + 75
}

const MALFORMED: SessionEnd = SessionEnd::Misbehaved("a malformed message");

fn encode_item(item: &Item) -> Vec<u8> {
    [item.created_at.0.to_be_bytes().as_slice(), item.id.as_bytes()].concat()
}

fn encode_optional(item: Option<Item>) -> Vec<u8> {
    item.map_or_else(|| vec![0], |item| [&[1], encode_item(&item).as_slice()].concat())
}

fn encode_ids(ids: &[EventId]) -> Vec<u8> {
    ids.iter().flat_map(|id| *id.as_bytes()).collect()
}

fn encode_shared(id: &EventId, shared: &Shared) -> Vec<u8> {
    let id = id.as_bytes().as_slice();
    let length = |bytes: &[u8]| (bytes.len() as u32).to_be_bytes();
    match shared {
        Shared::Event(json) => [&[0], id, &length(json), json].concat(),
        Shared::Hint(FloorHint { key, floor, request }) => {
            let (time, key) = (floor.created_at.0.to_be_bytes(), key.to_string().into_bytes());
            [&[1], id, &time, request.as_bytes(), &length(&key), &key].concat()
        }
    }
}

struct Decoder<'f>(&'f [u8]);

impl<'f> Decoder<'f> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], SessionEnd> {
        let (front, rest) = self.0.split_first_chunk().ok_or(MALFORMED)?;
        self.0 = rest;
        Ok(*front)
    }

    fn byte(&mut self) -> Result<u8, SessionEnd> {
        self.array().map(|[byte]| byte)
    }

    fn version(&mut self) -> Result<(), SessionEnd> {
        let version = self.byte()?;
        if version == VERSION { Ok(()) } else { Err(SessionEnd::OtherVersion(version)) }
    }

    fn time(&mut self) -> Result<Timestamp, SessionEnd> {
        let time = Timestamp(u64::from_be_bytes(self.array()?));
        if time <= Timestamp::MAX_IN_EVENT { Ok(time) } else { Err(MALFORMED) }
    }

    fn id(&mut self) -> Result<EventId, SessionEnd> {
        self.array().map(EventId::from_bytes)
    }

    fn item(&mut self) -> Result<Item, SessionEnd> {
        Ok(Item { created_at: self.time()?, id: self.id()? })
    }

    fn optional_item(&mut self) -> Result<Option<Item>, SessionEnd> {
        match self.byte()? {
            0 => Ok(None),
            1 => self.item().map(Some),
            _ => Err(MALFORMED),
        }
    }

    fn remaining(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0).to_vec()
    }

    fn ids(&mut self) -> Result<Vec<EventId>, SessionEnd> {
        let (ids, rest) = std::mem::take(&mut self.0).as_chunks();
        if rest.is_empty() { Ok(ids.iter().map(|id| EventId::from_bytes(*id)).collect()) } else { Err(MALFORMED) }
    }

    fn length_prefixed(&mut self) -> Result<&'f [u8], SessionEnd> {
        let length = u32::from_be_bytes(self.array()?) as usize;
        let (front, rest) = self.0.split_at_checked(length).ok_or(MALFORMED)?;
        self.0 = rest;
        Ok(front)
    }

    fn items(&mut self) -> Result<Vec<(EventId, Shared)>, SessionEnd> {
        let mut items = Vec::new();
        while !self.0.is_empty() {
            let kind = self.byte()?;
            let id = self.id()?;
            let shared = match kind {
                0 => Shared::Event(Bytes::copy_from_slice(self.length_prefixed()?)),
                1 => Shared::Hint(self.hint(id)?),
                _ => return Err(MALFORMED),
            };
            items.push((id, shared));
        }
        Ok(items)
    }

    fn hint(&mut self, id: EventId) -> Result<FloorHint, SessionEnd> {
        let (created_at, request) = (self.time()?, self.id()?);
        let key = std::str::from_utf8(self.length_prefixed()?).ok().and_then(|key| key.parse::<Address>().ok());
        Ok(FloorHint { key: key.ok_or(MALFORMED)?, floor: Rank { created_at, id }, request })
    }
}

/// One message of each type.
#[cfg(test)]
pub(crate) fn examples() -> Vec<Message> {
    let id = |byte: u8| EventId::from_bytes([byte; 32]);
    let item = |second| Item { created_at: Timestamp(second), id: id(3) };
    let key =
        Address::addressable(kukuri_domain::Kind(30_023), kukuri_domain::PublicKey::from_bytes([5; 32]), "a:b\u{e9}");
    let hint = FloorHint { key, floor: Rank { created_at: Timestamp(9), id: id(4) }, request: id(6) };
    vec![
        Message::Hello { topic: "kukuri:global".to_owned(), since: Timestamp(7) },
        Message::Welcome { since: Timestamp(0) },
        Message::Part { span: Span::default(), message: vec![] },
        Message::Part { span: Span { from: Some(item(1)), before: Some(item(2)) }, message: vec![1, 2] },
        Message::Cut { before: item(8) },
        Message::Compare { message: vec![97; 300] },
        Message::Offer { ids: vec![id(1), id(2)] },
        Message::Want { ids: vec![], stop_offers: true },
        Message::Items {
            items: vec![
                (id(7), Shared::Event("{}".into())),
                (id(4), Shared::Hint(hint)),
                (id(8), Shared::Event("".into())),
            ],
        },
        Message::ItemsEnd,
        Message::Bye { code: 3 },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_decodes_to_itself() {
        for message in examples() {
            assert_eq!(Message::decode(&message.encode()).unwrap(), message);
        }
        for code in 0..=SessionEnd::MAX_CODE {
            assert_eq!(SessionEnd::from_code(code).code(), if code == 4 { 5 } else { code });
            assert_eq!(Message::decode(&[10, code]).unwrap(), Message::Bye { code });
        }
        assert!(Message::decode(&[10, SessionEnd::MAX_CODE + 1]).is_err());
    }

    #[test]
    fn truncated_or_changed_messages_never_panic() {
        for message in examples() {
            let frame = message.encode();
            for end in 0..frame.len() {
                if let Ok(other) = Message::decode(&frame[..end]) {
                    assert_ne!(other, message);
                }
            }
            for place in 0..frame.len() {
                for byte in [0, 1, 0x7f, 0xff] {
                    let mut changed = frame.clone();
                    changed[place] = byte;
                    let _ = Message::decode(&changed);
                }
            }
        }
    }

    #[test]
    fn an_encoded_item_is_within_its_upper_bound() {
        for message in examples() {
            if let Message::Items { items } = &message {
                let counted: usize = items.iter().map(|(_, shared)| max_item_len(shared)).sum();
                assert!(message.encode().len() <= 1 + counted);
            }
        }
    }
}
