//! What frames say. A frame is a byte for the kind of message and its fields, integers big-endian.

use bytes::Bytes;
use kukuri_domain::{Address, EventId, Rank, Timestamp, sharing::FloorHint};
use kukuri_store::{Item, Shared, Span};

use crate::report::End;

/// The protocol that is spoken here.
pub(crate) const VERSION: u8 = 1;
const GREETING: &[u8] = b"kukuri-catchup";

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// The first: a topic, and from when on regular events of it are kept.
    Hello { topic: String, since: Timestamp },
    /// The answer: from when on the other keeps them.
    Welcome { since: Timestamp },
    /// A part of the set, and the first message about what is in it.
    Part { span: Span, message: Vec<u8> },
    /// The answer if that is too much at a time: only what comes before this.
    Cut { before: Item },
    /// A message about what is in the part.
    Compare { message: Vec<u8> },
    /// Ids that the other lacks.
    Offer { ids: Vec<EventId> },
    /// Ids that are asked for; and whether more may be offered.
    Want { ids: Vec<EventId>, enough: bool },
    /// Some of what was asked for.
    Items { items: Vec<(EventId, Shared)> },
    /// There is no more of it.
    Given,
    /// The end, and why.
    Bye { why: Why },
}

/// Why a side ends a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    Finished,
    NotShared,
    NoHistory,
    Over,
    Misbehaved,
    Failed,
}

impl Why {
    const ALL: [Self; 6] =
        [Self::Finished, Self::NotShared, Self::NoHistory, Self::Over, Self::Misbehaved, Self::Failed];

    pub(crate) fn of(end: &End) -> Self {
        match end {
            End::Finished => Self::Finished,
            End::NotShared => Self::NotShared,
            End::NoHistory => Self::NoHistory,
            End::Over => Self::Over,
            End::Misbehaved(_) | End::OtherVersion(_) => Self::Misbehaved,
            End::Silent | End::Lost(_) | End::Ended(_) | End::Store(_) => Self::Failed,
        }
    }

    /// What it means to the one who is told.
    pub(crate) fn end(self) -> End {
        match self {
            Self::Finished => End::Finished,
            Self::NotShared => End::NotShared,
            Self::NoHistory => End::NoHistory,
            Self::Over => End::Over,
            Self::Misbehaved => End::Ended("we broke the protocol".to_owned()),
            Self::Failed => End::Ended("it failed".to_owned()),
        }
    }
}

impl Message {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Out(Vec::with_capacity(64));
        match self {
            Self::Hello { topic, since } => {
                out.byte(1).bytes(GREETING).byte(VERSION).time(*since).bytes(topic.as_bytes())
            }
            Self::Welcome { since } => out.byte(2).byte(VERSION).time(*since),
            Self::Part { span, message } => out.byte(3).item_or(span.from).item_or(span.before).bytes(message),
            Self::Cut { before } => out.byte(4).item(before),
            Self::Compare { message } => out.byte(5).bytes(message),
            Self::Offer { ids } => out.byte(6).ids(ids),
            Self::Want { ids, enough } => out.byte(7).byte((*enough).into()).ids(ids),
            Self::Items { items } => {
                out.byte(8);
                items.iter().fold(&mut out, |out, (id, shared)| out.shared(id, shared))
            }
            Self::Given => out.byte(9),
            Self::Bye { why } => out.byte(10).byte(*why as u8),
        };
        out.0
    }

    /// `Err`: this is no message of ours.
    pub(crate) fn decode(frame: &[u8]) -> Result<Self, End> {
        let mut rest = In(frame);
        let message = match rest.byte()? {
            1 => {
                if rest.take(GREETING.len())? != GREETING {
                    return Err(End::Misbehaved("it does not begin with a greeting"));
                }
                rest.version()?;
                Self::Hello { since: rest.time()?, topic: rest.text()? }
            }
            2 => {
                rest.version()?;
                Self::Welcome { since: rest.time()? }
            }
            3 => Self::Part { span: Span { from: rest.item_or()?, before: rest.item_or()? }, message: rest.all() },
            4 => Self::Cut { before: rest.item()? },
            5 => Self::Compare { message: rest.all() },
            6 => Self::Offer { ids: rest.ids()? },
            7 => Self::Want { enough: rest.byte()? != 0, ids: rest.ids()? },
            8 => Self::Items { items: rest.items()? },
            9 => Self::Given,
            10 => {
                let why = Why::ALL.get(usize::from(rest.byte()?)).copied();
                Self::Bye { why: why.ok_or(MALFORMED)? }
            }
            _ => return Err(End::Misbehaved("an unknown message")),
        };
        if rest.0.is_empty() { Ok(message) } else { Err(MALFORMED) }
    }
}

/// How long an item is in a frame, at most.
pub(crate) fn length_of(shared: &Shared) -> usize {
    37 + match shared {
        Shared::Event(json) => json.len(),
        Shared::Hint(hint) => 40 + hint.key.identifier().len() + 75,
    }
}

const MALFORMED: End = End::Misbehaved("a malformed message");

struct Out(Vec<u8>);

impl Out {
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

    fn item_or(&mut self, item: Option<Item>) -> &mut Self {
        match item {
            Some(item) => self.byte(1).item(&item),
            None => self.byte(0),
        }
    }

    fn ids(&mut self, ids: &[EventId]) -> &mut Self {
        ids.iter().fold(self, |out, id| out.bytes(id.as_bytes()))
    }

    fn sized(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes(&(bytes.len() as u32).to_be_bytes()).bytes(bytes)
    }

    fn shared(&mut self, id: &EventId, shared: &Shared) -> &mut Self {
        match shared {
            Shared::Event(json) => self.byte(0).bytes(id.as_bytes()).sized(json),
            Shared::Hint(hint) => self
                .byte(1)
                .bytes(id.as_bytes())
                .time(hint.floor.created_at)
                .bytes(hint.request.as_bytes())
                .sized(hint.key.to_string().as_bytes()),
        }
    }
}

struct In<'f>(&'f [u8]);

impl<'f> In<'f> {
    fn take(&mut self, count: usize) -> Result<&'f [u8], End> {
        let (front, rest) = self.0.split_at_checked(count).ok_or(MALFORMED)?;
        self.0 = rest;
        Ok(front)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], End> {
        let (front, rest) = self.0.split_first_chunk().ok_or(MALFORMED)?;
        self.0 = rest;
        Ok(*front)
    }

    fn byte(&mut self) -> Result<u8, End> {
        self.array().map(|[byte]| byte)
    }

    fn version(&mut self) -> Result<(), End> {
        let version = self.byte()?;
        if version == VERSION { Ok(()) } else { Err(End::OtherVersion(version)) }
    }

    fn time(&mut self) -> Result<Timestamp, End> {
        let time = Timestamp(u64::from_be_bytes(self.array()?));
        if time <= Timestamp::MAX_IN_EVENT { Ok(time) } else { Err(MALFORMED) }
    }

    fn id(&mut self) -> Result<EventId, End> {
        self.array().map(EventId::from_bytes)
    }

    fn item(&mut self) -> Result<Item, End> {
        Ok(Item { created_at: self.time()?, id: self.id()? })
    }

    fn item_or(&mut self) -> Result<Option<Item>, End> {
        match self.byte()? {
            0 => Ok(None),
            1 => self.item().map(Some),
            _ => Err(MALFORMED),
        }
    }

    fn all(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0).to_vec()
    }

    fn text(&mut self) -> Result<String, End> {
        String::from_utf8(self.all()).map_err(|_| MALFORMED)
    }

    fn ids(&mut self) -> Result<Vec<EventId>, End> {
        let (ids, rest) = std::mem::take(&mut self.0).as_chunks();
        if rest.is_empty() { Ok(ids.iter().map(|id| EventId::from_bytes(*id)).collect()) } else { Err(MALFORMED) }
    }

    fn sized(&mut self) -> Result<&'f [u8], End> {
        let length = u32::from_be_bytes(self.array()?);
        self.take(usize::try_from(length).map_err(|_| MALFORMED)?)
    }

    fn items(&mut self) -> Result<Vec<(EventId, Shared)>, End> {
        let mut items = Vec::new();
        while !self.0.is_empty() {
            let kind = self.byte()?;
            let id = self.id()?;
            let shared = match kind {
                0 => Shared::Event(Bytes::copy_from_slice(self.sized()?)),
                1 => Shared::Hint(self.hint(id)?),
                _ => return Err(MALFORMED),
            };
            items.push((id, shared));
        }
        Ok(items)
    }

    fn hint(&mut self, id: EventId) -> Result<FloorHint, End> {
        let (created_at, request) = (self.time()?, self.id()?);
        let key = std::str::from_utf8(self.sized()?).ok().and_then(|key| key.parse::<Address>().ok());
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
            Message::Want { ids: vec![], enough: true },
            Message::Items {
                items: vec![
                    (id(7), Shared::Event("{}".into())),
                    (id(4), Shared::Hint(hint)),
                    (id(8), Shared::Event("".into())),
                ],
            },
            Message::Given,
            Message::Bye { why: Why::Over },
        ]
    }

    #[test]
    fn every_message_is_read_as_it_was_written() {
        for message in messages() {
            assert_eq!(Message::decode(&message.encode()).unwrap(), message);
        }
        for why in Why::ALL {
            let bye = Message::Bye { why };
            assert_eq!(Message::decode(&bye.encode()).unwrap(), bye);
        }
    }

    #[test]
    fn a_message_that_was_cut_or_changed_is_refused_or_another_one_and_never_a_panic() {
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
    fn an_item_is_no_longer_than_it_is_counted() {
        for message in messages() {
            if let Message::Items { items } = &message {
                let counted: usize = items.iter().map(|(_, shared)| length_of(shared)).sum();
                assert!(message.encode().len() <= 1 + counted);
            }
        }
    }
}
