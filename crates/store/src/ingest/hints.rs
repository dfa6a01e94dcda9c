//! The procedure by which a store applies floor hints of another node (G-7, D-9).

use kukuri_domain::{
    Reason, TopicId,
    deletion::DeletionTargetKind,
    sharing::{self, FloorHint, Held, HintVerdict, Trace},
};

use super::{Ledger, procedure::retire_id};
use crate::sharing::HintOutcome;

/// Applies hints in order. Returns one outcome per hint.
pub fn apply_hints<L: Ledger>(
    ledger: &mut L,
    topic: &TopicId,
    hints: &[FloorHint],
) -> Result<Vec<HintOutcome>, L::Error> {
    let mut outcomes = Vec::with_capacity(hints.len());
    for hint in hints {
        outcomes.push(apply_hint(ledger, topic, hint)?);
        ledger.update_stages()?;
    }
    Ok(outcomes)
}

fn apply_hint<L: Ledger>(ledger: &mut L, topic: &TopicId, hint: &FloorHint) -> Result<HintOutcome, L::Error> {
    let request = ledger.effective_request(&hint.request)?;
    let target = DeletionTargetKind::EventId(hint.floor.id);
    let tombstone = ledger.tombstone(&target, &hint.key.pubkey())?;
    let held = Held {
        is_known: ledger.known_state(&hint.floor.id)?.is_some(),
        request: request.as_deref(),
        tombstone: tombstone.as_ref(),
        key: ledger.key_state(&hint.key)?,
    };
    let (raises, below, is_passed_on) = match sharing::weigh(hint, &held) {
        HintVerdict::AlreadyKnown => return Ok(HintOutcome::Known),
        HintVerdict::Refused => return Ok(HintOutcome::Refused),
        HintVerdict::Taken { raises, below, is_passed_on } => (raises, below, is_passed_on),
    };
    if let Some(below) = below {
        retire_id(ledger, &below, Reason::Replaced, hint.floor.id)?;
    }
    if raises {
        ledger.raise_floor(&hint.key, hint.floor)?;
    }
    let mut is_new = raises;
    if let Some(request) = request.filter(|_| is_passed_on) {
        let traces = [Trace::of(&request), Trace::Hint(hint.clone())];
        is_new |= ledger.leave_traces(traces.map(|trace| (topic.clone(), trace)).into())?;
    }
    Ok(if is_new { HintOutcome::Taken } else { HintOutcome::Known })
}
