//! The relay and messages: parsing them, finding subscriptions for live events, writing frames.

use kukuri_domain::{Filter, Kind, Letter};
use kukuri_relay::counting::{Listeners, Outbound, read_event, read_request};
use kukuri_store::StoredEvent;

use crate::{
    TIMES, count, count_each,
    samples::{TOPICS, admitted, author, note, topic},
};

/// From the text of a message to an event.
pub(crate) fn parse_event() {
    let event = note(1);
    let text = format!(r#"["EVENT",{}]"#, String::from_utf8(event.to_json().to_vec()).unwrap());
    count(TIMES, || read_event(&text).is_some_and(|read| read.id == event.id));
}

/// A timeline, as a client asks for it.
pub(crate) fn parse_request() {
    let authors: Vec<String> = (0..10).map(|number| format!(r#""{}""#, author(number))).collect();
    let text = format!(
        r##"["REQ","timeline",{{"kinds":[1,6,7],"authors":[{}],"#t":["{}"],"since":1760000000,"limit":50}}]"##,
        authors.join(","),
        topic(1)
    );
    count(TIMES, || read_request(&text).is_some_and(|filters| filters.len() == 1 && filters[0].value_count() == 14));
}

/// Publishes 20 events to `matching` clients that asked for their topic, beside `others` that asked for other topics;
/// all of it `times` times: the order of a hash table is random, which has to even out where little else is done.
pub(crate) fn publish(matching: u64, others: u64, times: u32) {
    const EVENTS: u64 = 20;
    let of_topic = |number| Filter::new().with_kinds([Kind(1), Kind(7)]).with_tag(Letter::T, [topic(number).as_str()]);
    for _ in 0..times {
        let elsewhere = (0..others).map(|number| of_topic(1 + number % (TOPICS - 1)));
        let mut listeners = Listeners::new((0..matching).map(|_| of_topic(0)).chain(elsewhere));
        for number in 0..EVENTS {
            let event = admitted(note(number * TOPICS));
            count(1, || listeners.publish(&event) as u64 == matching);
            // Full queues would cost something else.
            listeners.drain();
        }
    }
}

/// The answer to an event.
pub(crate) fn encode_ok() {
    let (id, mut outbound) = (note(1).id, Outbound::new("timeline"));
    count(TIMES, || {
        outbound.stored(id);
        outbound.sent() > 0
    });
}

/// A live event for one client.
pub(crate) fn encode_live() {
    let (json, mut outbound) = (note(1).to_json(), Outbound::new("timeline"));
    count(TIMES, || {
        outbound.live(&json);
        outbound.sent() > 0
    });
}

/// Fifty stored events and the end of them.
pub(crate) fn encode_answer() {
    let stored = |number| {
        let event = note(number);
        StoredEvent { id: event.id, created_at: event.created_at, json: event.to_json() }
    };
    let events: Vec<StoredEvent> = (0..50).map(stored).collect();
    let buffers: Vec<Outbound> = (0..=TIMES).map(|_| Outbound::new("timeline")).collect();
    count_each(buffers, |mut outbound| {
        outbound.answer(&events);
        outbound.sent() > 50 * 750
    });
}
