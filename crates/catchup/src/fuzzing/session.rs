//! A whole session with a hostile peer: a byte for the role of this node, then the peer's frames, each a length of two
//! bytes and a message. With the highest bit of the first byte the rest is sent as it is.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use kukuri_domain::{
    Event, EventId, Filter, Millis, Origin, Refusal, Signature, Timestamp, TopicId, Viewer, sharing::FloorHint,
};
use kukuri_store::{
    HintOutcome, Outcome, Query, StoreError, StoreRules, StoredEvent,
    conformance::build::{NOW, OTHER_TOPIC, TOPIC, admitted, admitted_from, article, bare, deletion, note, topic},
    model::ModelStore,
    port::*,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, duplex},
    time::Instant,
};

use crate::{
    node::{Node, Peer},
    report::{Report, SessionEnd},
    session::{initiate, respond},
    settings::Settings,
};

const PEER: Peer = [9; 32];
/// Content of events that no peer may be sent.
const SECRET: &str = "not for peers";
const RESPONDS: u8 = 1;
const RAW: u8 = 0x80;
/// Small, so that a few events make several parts and batches.
const SETTINGS: Settings = Settings {
    part_items: 4,
    batch_items: 3,
    max_frame_bytes: 1 << 14,
    items_per_second: u32::MAX,
    bytes_per_second: u32::MAX,
    io_timeout: Duration::from_secs(20),
    session_timeout: Duration::from_secs(60),
    max_messages: 200,
};
/// Bytes that this node sends for each message of the peer: a negentropy message, or a batch of items in their frames.
const MAX_ANSWER_BYTES: u64 = 1 << 16;

/// A node with a few events, which notes what is submitted.
struct FuzzNode {
    store: ModelStore,
    submitted: Mutex<Vec<EventId>>,
    hints: AtomicU64,
}

#[async_trait]
impl Node for FuzzNode {
    fn now(&self) -> Millis {
        NOW
    }

    fn store(&self) -> &dyn Store {
        &self.store
    }

    async fn shares(&self, _: &Peer, asked: &TopicId) -> Option<Timestamp> {
        (*asked == topic()).then_some(Timestamp(0))
    }

    fn is_bound(&self, event: &Event, topic: &TopicId) -> bool {
        event.tags.values("t").any(|value| value == topic.as_str())
    }

    fn may_send(&self, json: &Bytes, _: &TopicId) -> bool {
        !contains(json, SECRET)
    }

    async fn submit(&self, _: &Peer, events: Vec<Bytes>) -> Option<Vec<Outcome>> {
        let mut outcomes = Vec::new();
        for json in events {
            let event = Event::from_json(&json).expect("an event");
            assert_eq!(event.true_id(), event.id, "the id is checked");
            assert!(event.kind.is_request() || self.is_bound(&event, &topic()), "the topic is checked");
            assert_eq!(event.to_json(), json, "as this node writes it");
            self.submitted.lock().unwrap().push(event.id);
            // Events built here have a zero signature.
            let is_signed = event.sig == Signature::from_bytes([0; 64]);
            let admission = kukuri_domain::Admission::default();
            let passes = admission.screen(event.clone(), Origin::Sync { peer: PEER }, NOW).is_ok();
            if !is_signed || !passes {
                outcomes.push(Outcome::Refused(Refusal::WrongSignature));
                continue;
            }
            let batch = vec![admitted_from(&event, Origin::Sync { peer: PEER })];
            outcomes.extend(self.store.ingest(batch, NOW).await.expect("a batch").outcomes);
        }
        Some(outcomes)
    }

    async fn raise_floors(&self, topic: &TopicId, hints: Vec<FloorHint>) -> Result<Vec<HintOutcome>, StoreError> {
        self.hints.fetch_add(hints.len() as u64, Relaxed);
        Ok(self.store.raise_floors(topic, hints, NOW).await?.outcomes)
    }
}

impl FuzzNode {
    async fn new() -> Self {
        let store = ModelStore::new(StoreRules::default());
        let deleted = article("b", "deleted").build();
        let events = [
            note("first").build(),
            note("second").at(1).build(),
            note(SECRET).at(2).build(),
            article("a", "article").at(3).build(),
            deletion().of(&deleted).at(4).build(),
            deleted,
            bare(1).tag(["t", OTHER_TOPIC]).content(SECRET).build(),
            bare(4).tag(["t", TOPIC]).content(SECRET).build(),
        ];
        store.ingest(events.iter().map(admitted).collect(), NOW).await.expect("a batch");
        Self { store, submitted: Mutex::default(), hints: AtomicU64::default() }
    }

    async fn effective(&self) -> Vec<StoredEvent> {
        self.store.query(&Query::of(Filter::new(), Viewer::Node, NOW)).await.expect("an answer").events
    }
}

/// Panics if a rule does not hold for these bytes.
pub fn check(bytes: &[u8]) {
    let Some((mode, rest)) = bytes.split_first() else { return };
    let stream = if mode & RAW == 0 { framed(rest) } else { rest.to_vec() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let node = FuzzNode::new().await;
        let (before, began) = (node.effective().await, Instant::now());
        let (report, answer) = talk(&node, mode & RESPONDS != 0, &stream).await;
        assert!(began.elapsed() <= SETTINGS.session_timeout + Duration::from_secs(2), "{:?}", began.elapsed());
        check_report(&report, &stream, &answer);
        check_effects(&node, &report, &before).await;
    });
}

/// The peer sends these bytes, whatever it is answered. Returns how the session ended, and everything that was answered.
async fn talk(node: &FuzzNode, responds: bool, stream: &[u8]) -> (Report, Vec<u8>) {
    let (here, there) = duplex(1 << 16);
    let session = async {
        if responds {
            respond(there, PEER, node, &SETTINGS).await
        } else {
            initiate(there, PEER, &topic(), node, &SETTINGS).await
        }
    };
    let (mut receiver, mut sender) = tokio::io::split(here);
    let sending = async {
        let _ = sender.write_all(stream).await;
        let _ = sender.shutdown().await;
    };
    let mut answer = Vec::new();
    let (report, (), _) = tokio::join!(session, sending, receiver.read_to_end(&mut answer));
    (report, answer)
}

/// A session ends for a reason of the protocol, within its bounds, and sends nothing that is not for peers.
fn check_report(report: &Report, stream: &[u8], answer: &[u8]) {
    assert!(!matches!(report.end, SessionEnd::Store(_)), "{:?}", report.end);
    assert!(report.messages <= SETTINGS.max_messages + 1, "{report:?}");
    assert!(report.bytes_in <= stream.len() as u64, "{report:?}");
    assert!(report.bytes_out <= (report.messages + 3) * MAX_ANSWER_BYTES, "{report:?}");
    // What the peer says itself, as an id that it lacks for instance, may come back to it.
    assert!(!contains(answer, SECRET) || contains(stream, SECRET), "{report:?}");
}

/// Nothing changes but by events that were checked and hints that a request justifies.
async fn check_effects(node: &FuzzNode, report: &Report, before: &[StoredEvent]) {
    let submitted = node.submitted.lock().unwrap().len() as u64;
    assert!(report.events_in <= submitted, "{report:?}");
    assert!(report.hints_in <= node.hints.load(Relaxed), "{report:?}");
    if report.events_in == 0 && report.hints_in == 0 {
        assert_eq!(node.effective().await, before, "{report:?}");
    }
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// Each frame is a length of two bytes and as many bytes of a message, as far as there are any.
fn framed(mut rest: &[u8]) -> Vec<u8> {
    let mut stream = Vec::new();
    while let Some(([high, low], after)) = rest.split_first_chunk() {
        let (frame, after) = after.split_at(usize::from(u16::from_be_bytes([*high, *low])).min(after.len()));
        stream.extend((frame.len() as u32).to_be_bytes());
        stream.extend(frame);
        rest = after;
    }
    stream
}

/// Sessions of a correct peer, and what it might say besides.
#[cfg(test)]
pub(super) fn examples() -> Vec<(&'static str, Vec<u8>)> {
    use kukuri_domain::Rank;
    use kukuri_store::{Shared, Span};

    use crate::message::Message;

    let encode = |mode: u8, messages: &[Message]| {
        let frames = messages.iter().map(Message::encode);
        let framed = frames.flat_map(|frame| [&(frame.len() as u16).to_be_bytes()[..], &frame].concat());
        std::iter::once(mode).chain(framed).collect::<Vec<u8>>()
    };
    let hello = Message::Hello { topic: TOPIC.to_owned(), since: Timestamp(0) };
    let welcome = Message::Welcome { since: Timestamp(0) };
    let bye = Message::Bye { code: 0 };
    let new = note("new").at(9).build();
    let gone = article("b", "deleted").build();
    let request = deletion().of(&gone).at(4).build();
    let item = |event: &Event| (event.id, Shared::Event(event.to_json()));
    let hint = FloorHint {
        key: gone.address().expect("a version"),
        floor: Rank { created_at: gone.created_at, id: gone.id },
        request: request.id,
    };
    // Version, to the end of time, a list of one id.
    let lacking = [&[0x61, 0, 0, 2, 1][..], new.id.as_bytes()].concat();
    let nothing = vec![0x61, 0, 0, 2, 0];
    let part = |message: Vec<u8>| Message::Part { span: Span::default(), message };
    vec![
        ("greeting", encode(RESPONDS, &[hello.clone(), bye.clone()])),
        ("other_topic", encode(RESPONDS, &[Message::Hello { topic: OTHER_TOPIC.to_owned(), since: Timestamp(0) }])),
        ("compare", encode(RESPONDS, &[hello.clone(), part(nothing.clone()), part(nothing.clone()), bye.clone()])),
        (
            "offer",
            encode(
                RESPONDS,
                &[
                    hello.clone(),
                    Message::Offer { ids: vec![new.id] },
                    Message::Items { items: vec![item(&new)] },
                    Message::ItemsEnd,
                    bye.clone(),
                ],
            ),
        ),
        (
            "offer_a_hint",
            encode(
                RESPONDS,
                &[
                    hello.clone(),
                    Message::Offer { ids: vec![EventId::from_bytes([5; 32])] },
                    Message::Items { items: vec![(EventId::from_bytes([5; 32]), Shared::Hint(hint.clone()))] },
                    Message::ItemsEnd,
                    part(nothing.clone()),
                    bye.clone(),
                ],
            ),
        ),
        (
            "want_everything",
            encode(
                RESPONDS,
                &[
                    hello,
                    Message::Want { ids: vec![note(SECRET).at(2).build().id, request.id, gone.id], stop_offers: false },
                    bye.clone(),
                ],
            ),
        ),
        ("answer_nothing", encode(0, &[welcome.clone(), Message::Compare { message: nothing }])),
        (
            "answer_with_an_event",
            encode(
                0,
                &[
                    welcome.clone(),
                    Message::Compare { message: lacking.clone() },
                    Message::Items { items: vec![item(&new)] },
                    Message::ItemsEnd,
                    Message::Want { ids: vec![], stop_offers: true },
                    Message::Compare { message: vec![0x61] },
                ],
            ),
        ),
        (
            "answer_with_another_event",
            encode(
                0,
                &[
                    welcome,
                    Message::Compare { message: lacking },
                    Message::Items { items: vec![item(&gone)] },
                    Message::ItemsEnd,
                    bye,
                ],
            ),
        ),
        ("rubbish", vec![RAW | RESPONDS, 0, 0, 0, 3, 1, 2, 3]),
    ]
}
