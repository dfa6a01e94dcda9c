//! What the relay does with messages: reading them, finding who listens, writing frames.

use kukuri_domain::{Filter, Kind, Letter};
use kukuri_relay::counting::{Listeners, Outbound, read_event, read_request};
use kukuri_store::StoredEvent;

use crate::{
    count, count_each,
    samples::{TOPICS, admitted, author, note, topic},
};

const TIMES: usize = 100;

/// From the text of a message to an event.
pub(crate) fn parse_event() -> anyhow::Result<u32> {
    let event = note(1);
    let text = format!(r#"["EVENT",{}]"#, String::from_utf8(event.to_json().to_vec())?);
    count(TIMES, || read_event(&text).is_some_and(|read| read.id == event.id))
}

/// A timeline, as a client asks for it.
pub(crate) fn parse_request() -> anyhow::Result<u32> {
    let authors: Vec<String> = (0..10).map(|number| format!(r#""{}""#, author(number))).collect();
    let text = format!(
        r##"["REQ","timeline",{{"kinds":[1,6,7],"authors":[{}],"#t":["{}"],"since":1760000000,"limit":50}}]"##,
        authors.join(","),
        topic(1)
    );
    count(TIMES, || read_request(&text).is_some_and(|filters| filters.len() == 1 && filters[0].value_count() == 14))
}

/// Live events, with so many who asked for their topic and so many who asked for others; and all of it so many times: where
/// keys stand in a hash table is left to chance, which has to even out where little else is done.
pub(crate) fn publish(who_match: u64, others: u64, times: u32) -> anyhow::Result<u32> {
    const EVENTS: u64 = 20;
    let of_topic = |number| Filter::new().with_kinds([Kind(1), Kind(7)]).with_tag(Letter::T, [topic(number).as_str()]);
    let mut counted = 0;
    for _ in 0..times {
        let elsewhere = (0..others).map(|number| of_topic(1 + number % (TOPICS - 1)));
        let mut listeners = Listeners::new((0..who_match).map(|_| of_topic(0)).chain(elsewhere));
        for number in 0..EVENTS {
            let event = admitted(note(number * TOPICS))?;
            counted += count(1, || listeners.publish(&event) as u64 == who_match)?;
            // Queues that are full would be another thing.
            listeners.drain();
        }
    }
    Ok(counted)
}

/// The answer to an event.
pub(crate) fn encode_ok() -> anyhow::Result<u32> {
    let (id, mut outbound) = (note(1).id, Outbound::new("timeline"));
    count(TIMES, || {
        outbound.stored(id);
        outbound.sent() > 0
    })
}

/// A live event for one client.
pub(crate) fn encode_live() -> anyhow::Result<u32> {
    let (json, mut outbound) = (note(1).to_json(), Outbound::new("timeline"));
    count(TIMES, || {
        outbound.live(&json);
        outbound.sent() > 0
    })
}

/// Fifty stored events and the end of them.
pub(crate) fn encode_answer() -> anyhow::Result<u32> {
    let stored = |number| {
        let event = note(number);
        StoredEvent { id: event.id, created_at: event.created_at, json: event.to_json() }
    };
    let events: Vec<StoredEvent> = (0..50).map(stored).collect();
    let buffers: Vec<Outbound> = (0..TIMES).map(|_| Outbound::new("timeline")).collect();
    count_each(buffers, |mut outbound| {
        outbound.answer(&events);
        outbound.sent() > 50 * 750
    })
}
