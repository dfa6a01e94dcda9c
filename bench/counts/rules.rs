//! The steps of `kukuri_domain` for an event.

use kukuri_domain::{
    Admission, Event, Filter, Kind, Letter, Origin, State, Timestamp,
    decision::{Decision, KeyState, Row, StoreFacts, Verdict, decide},
};

use crate::{
    TIMES, count, count_each,
    samples::{NOW, admitted, author, deletion, note, profile, topic},
};

/// Every check of an event but its id and signature.
pub(crate) fn screen() {
    let admission = Admission::default();
    count_each(vec![note(1); TIMES as usize + 1], |event| {
        admission.screen(event, Origin::unauthenticated_client(), NOW).is_ok()
    });
}

/// The JSON that is kept, and its hash.
pub(crate) fn hash_id() {
    let event = note(1);
    count(TIMES, || event.true_id() == event.id);
}

/// An event that nothing is known about.
pub(crate) fn decide_regular() {
    count_decisions(note(1), &StoreFacts::default(), |decision| decision.against.is_none());
}

/// A version that replaces another.
pub(crate) fn decide_version() {
    let before = profile(1);
    let known =
        StoreFacts { key: Some(KeyState { floor: before.rank(), current: Some(before.id) }), ..StoreFacts::default() };
    count_decisions(profile(2), &known, |decision| decision.taken.len() == 1);
}

/// A request that takes ten events away.
pub(crate) fn decide_deletion() {
    let request = deletion(2, &[]);
    let targets: Vec<Event> = (0..10).map(|number| Event { pubkey: request.pubkey, ..note(number) }).collect();
    let rows: Vec<Row<'_>> = targets.iter().map(|event| Row { event, state: State::Effective }).collect();
    let known = StoreFacts { targets: &rows, ..StoreFacts::default() };
    count_decisions(deletion(2, &targets), &known, |decision| decision.taken.len() == 10);
}

fn count_decisions(event: Event, known: &StoreFacts<'_>, is_right: impl Fn(&Decision) -> bool) {
    let admitted = admitted(event);
    count(TIMES, || matches!(decide(&admitted, known, NOW), Verdict::Apply(decision) if is_right(&decision)));
}

/// A timeline, which an event matches, and the same of another topic, which it does not.
pub(crate) fn match_filter() {
    let event = note(1);
    let admitted = admitted(event.clone());
    let timeline = |number| {
        Filter::new()
            .with_kinds([Kind(1), Kind(6)])
            .with_authors((0..50).map(author).chain([event.pubkey]))
            .with_tag(Letter::T, [topic(number).as_str()])
            .with_since(Timestamp(event.created_at.0 - 1))
    };
    let (its_own, another) = (timeline(1), timeline(2));
    let topics = admitted.topics();
    count(TIMES, || its_own.matches(&event, topics) && !another.matches(&event, topics));
}
