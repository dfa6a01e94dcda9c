//! The messages of a session and their encoding: a byte for the type, then the fields, integers big-endian.

use bytes::Bytes;
use kukuri_domain::{Address, EventId, Rank, Timestamp, sharing::FloorHint};
use kukuri_store::{Item, Shared, Span};

use crate::report::SessionEnd;

/// The version of the protocol.
pub(crate) const VERSION: u8 = 1;
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
    /// The end of the session, and why.
    Bye { reason: ByeReason },
}

/// Why the sender ends the session. The discriminant is the byte on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ByeReason {
    Finished,
    NotShared,
    NoHistory,
    LimitReached,
    Misbehaved,
    Failed,
}

impl ByeReason {
    const ALL: [Self; 6] =
        [Self::Finished, Self::NotShared, Self::NoHistory, Self::LimitReached, Self::Misbehaved, Self::Failed];

    pub(crate) fn of_end(end: &SessionEnd) -> Self {
        match end {
            SessionEnd::Finished => Self::Finished,
            SessionEnd::NotShared => Self::NotShared,
            SessionEnd::NoHistory => Self::NoHistory,
            SessionEnd::LimitReached => Self::LimitReached,
            SessionEnd::Misbehaved(_) | SessionEnd::OtherVersion(_) => Self::Misbehaved,
            SessionEnd::PeerTimeout
            | SessionEnd::StreamBroken(_)
            | SessionEnd::EndedByPeer(_)
            | SessionEnd::Store(_) => Self::Failed,
        }
    }

    /// The end of the session for the receiver.
    pub(crate) fn to_end(self) -> SessionEnd {
        match self {
            Self::Finished => SessionEnd::Finished,
            Self::NotShared => SessionEnd::NotShared,
            Self::NoHistory => SessionEnd::NoHistory,
            Self::LimitReached => SessionEnd::LimitReached,
            Self::Misbehaved => SessionEnd::EndedByPeer("it reports that this node broke the protocol"),
            Self::Failed => SessionEnd::EndedByPeer("it reports a failure"),
        }
    }
}

impl Message {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Encoder(Vec::with_capacity(64));
        match self {
            Self::Hello { topic, since } => out.byte(1).bytes(MAGIC).byte(VERSION).time(*since).bytes(topic.as_bytes()),
            Self::Welcome { since } => out.byte(2).byte(VERSION).time(*since),
            Self::Part { span, message } => {
                out.byte(3).optional_item(span.from).optional_item(span.before).bytes(message)
            }
            Self::Cut { before } => out.byte(4).item(before),
            Self::Compare { message } => out.byte(5).bytes(message),
            Self::Offer { ids } => out.byte(6).ids(ids),
            Self::Want { ids, stop_offers } => out.byte(7).byte((*stop_offers).into()).ids(ids),
            Self::Items { items } => {
                out.byte(8);
                items.iter().fold(&mut out, |out, (id, shared)| out.shared(id, shared))
            }
            Self::ItemsEnd => out.byte(9),
            Self::Bye { reason } => out.byte(10).byte(*reason as u8),
        };
        out.0
    }

    pub(crate) fn decode(frame: &[u8]) -> Result<Self, SessionEnd> {
        let mut rest = Decoder(frame);
        let message = match rest.byte()? {
            1 => {
                if rest.take(MAGIC.len())? != MAGIC {
                    return Err(SessionEnd::Misbehaved("the session does not begin with a Hello"));
                }
                rest.version()?;
                Self::Hello { since: rest.time()?, topic: rest.text()? }
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
            10 => {
                let reason = ByeReason::ALL.get(usize::from(rest.byte()?)).copied();
                Self::Bye { reason: reason.ok_or(MALFORMED)? }
            }
            _ => return Err(SessionEnd::Misbehaved("an unknown message")),
        };
        if rest.0.is_empty() { Ok(message) } else { Err(MALFORMED) }
    }
}

/// Upper bound of an item's size in a frame, in bytes.
pub(crate) fn max_item_len(shared: &Shared) -> usize {
    37 + match shared {
        Shared::Event(json) => json.len(),
        Shared::Hint(hint) => 40 + hint.key.identifier().len() + 75,
    }
}

const MALFORMED: SessionEnd = SessionEnd::Misbehaved("a malformed message");

struct Encoder(Vec<u8>);

impl Encoder {
    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn byte(&mut self, byte: u8) -> &mut Self {
        self.bytes(&[byte])
    }

    fn time(&mut self, time: Timestamp) -> &mut Self {
        self.bytes(&time.0.to_be_bytes())
    }

    fn item(&mut self, item: &Item) -> &mut Self {
        self.time(item.created_at).bytes(item.id.as_bytes())
    }

    fn optional_item(&mut self, item: Option<Item>) -> &mut Self {
        match item {
            Some(item) => self.byte(1).item(&item),
            None => self.byte(0),
        }
    }

    fn ids(&mut self, ids: &[EventId]) -> &mut Self {
        ids.iter().fold(self, |out, id| out.bytes(id.as_bytes()))
    }

    fn length_prefixed(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes(&(bytes.len() as u32).to_be_bytes()).bytes(bytes)
    }

    fn shared(&mut self, id: &EventId, shared: &Shared) -> &mut Self {
        match shared {
            Shared::Event(json) => self.byte(0).bytes(id.as_bytes()).length_prefixed(json),
            Shared::Hint(hint) => self
                .byte(1)
                .bytes(id.as_bytes())
                .time(hint.floor.created_at)
                .bytes(hint.request.as_bytes())
                .length_prefixed(hint.key.to_string().as_bytes()),
        }
    }
}

struct Decoder<'f>(&'f [u8]);

impl<'f> Decoder<'f> {
    fn take(&mut self, count: usize) -> Result<&'f [u8], SessionEnd> {
        let (front, rest) = self.0.split_at_checked(count).ok_or(MALFORMED)?;
        self.0 = rest;
        Ok(front)
    }

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

    fn text(&mut self) -> Result<String, SessionEnd> {
        String::from_utf8(self.remaining()).map_err(|_| MALFORMED)
    }

    fn ids(&mut self) -> Result<Vec<EventId>, SessionEnd> {
        let (ids, rest) = std::mem::take(&mut self.0).as_chunks();
        if rest.is_empty() { Ok(ids.iter().map(|id| EventId::from_bytes(*id)).collect()) } else { Err(MALFORMED) }
    }

    fn length_prefixed(&mut self) -> Result<&'f [u8], SessionEnd> {
        let length = u32::from_be_bytes(self.array()?);
        self.take(usize::try_from(length).map_err(|_| MALFORMED)?)
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

#[cfg(test)]
mod tests {
    use kukuri_domain::{Kind, PublicKey};

    use super::*;

    fn id(byte: u8) -> EventId {
        EventId::from_bytes([byte; 32])
    }

    fn messages() -> Vec<Message> {
        let item = |second| Item { created_at: Timestamp(second), id: id(3) };
        let key = Address::addressable(Kind(30_023), PublicKey::from_bytes([5; 32]), "a:b\u{e9}");
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
            Message::Bye { reason: ByeReason::LimitReached },
        ]
    }

    #[test]
    fn every_message_decodes_to_itself() {
        for message in messages() {
            assert_eq!(Message::decode(&message.encode()).unwrap(), message);
        }
        for reason in ByeReason::ALL {
            let bye = Message::Bye { reason };
            assert_eq!(Message::decode(&bye.encode()).unwrap(), bye);
        }
    }

    #[test]
    fn truncated_or_changed_messages_never_panic() {
        for message in messages() {
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
        for message in messages() {
            if let Message::Items { items } = &message {
                let counted: usize = items.iter().map(|(_, shared)| max_item_len(shared)).sum();
                assert!(message.encode().len() <= 1 + counted);
            }
        }
    }
}
