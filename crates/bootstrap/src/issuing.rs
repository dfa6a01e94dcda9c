//! When an event of the node is issued again (B-1): on change or when half of its time is over, never otherwise. The stored version
//! decides, so that a restart, or another process with the same key on the same database, issues nothing twice.

use kukuri_domain::{Event, Timestamp};

use crate::{
    listing::{is_withdrawn, valid_until},
    statement::Statement,
};

/// Why the stored version is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Time has passed. Two processes with one key and different configurations would replace each other's event for ever, if this
    /// were a reason to look at what it says.
    Time,
    /// The node has started, or its configuration or topics have changed.
    Change,
}

/// The next step for one event of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing; there is none, and there is to be none.
    Nothing,
    /// Nothing until then.
    Keep {
        /// Half of the time of the stored version.
        until: Timestamp,
    },
    /// Sign this.
    Issue {
        /// The statement to sign.
        statement: Statement,
        /// The time to sign it with.
        created_at: Timestamp,
    },
}

/// The next step, given the statement that the node wants to make (or none) and the stored version of it.
pub fn next_step(wanted: Option<Statement>, stored: Option<&Event>, cause: Cause, now: Timestamp) -> Step {
    // Versions of one second would be ordered by their ids (E-3).
    let created_at = stored.map_or(now, |stored| now.max(Timestamp(stored.created_at.0 + 1)));
    let issue = |statement| Step::Issue { statement, created_at };
    match (wanted, stored) {
        (None, Some(stored)) if cause == Cause::Change && !is_withdrawn(stored) => issue(Statement::withdrawal(stored)),
        (None, _) => Step::Nothing,
        (Some(wanted), None) => issue(wanted),
        (Some(wanted), Some(stored)) => {
            let until = half_life(stored);
            let has_changed = cause == Cause::Change && !wanted.is_said_by(stored);
            if has_changed || is_withdrawn(stored) || until <= now { issue(wanted) } else { Step::Keep { until } }
        }
    }
}

/// When half of the time of an event is over.
pub fn half_life(event: &Event) -> Timestamp {
    let end = valid_until(event).unwrap_or_default();
    Timestamp(event.created_at.0 + end.0.saturating_sub(event.created_at.0) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        profile::Profile,
        statement::{DESCRIPTOR_TTL, WITHDRAWN_TTL},
        tests::{NOW, key, profile},
    };

    #[test]
    fn event_is_issued_on_change_or_at_half_life_and_never_otherwise() {
        // B-1
        let wanted = || Statement::descriptor(&profile());
        let renamed = || Statement::descriptor(&Profile { name: "another".to_owned(), ..profile() });
        let at = |seconds: u64| Timestamp(NOW.0 + seconds);
        let stored = wanted().sign(&key(), NOW);
        let withdrawn = Statement::withdrawal(&stored).sign(&key(), at(1));
        let half = DESCRIPTOR_TTL / 2;
        let keep = Step::Keep { until: at(half) };
        let issue = |statement, created_at| Step::Issue { statement, created_at };
        let (time, change) = (Cause::Time, Cause::Change);
        for (why, wanted, stored, cause, now, expected) in [
            ("the first start", Some(wanted()), None, change, at(0), issue(wanted(), at(0))),
            ("gone meanwhile: purged, or expired", Some(wanted()), None, time, at(9), issue(wanted(), at(9))),
            ("a restart", Some(wanted()), Some(&stored), change, at(9), keep.clone()),
            ("a moment before half-life", Some(wanted()), Some(&stored), time, at(half - 1), keep.clone()),
            ("half-life", Some(wanted()), Some(&stored), time, at(half), issue(wanted(), at(half))),
            (
                "a start after half-life",
                Some(wanted()),
                Some(&stored),
                change,
                at(half + 9),
                issue(wanted(), at(half + 9)),
            ),
            ("another configuration", Some(renamed()), Some(&stored), change, at(9), issue(renamed(), at(9))),
            (
                "another configuration in the same second",
                Some(renamed()),
                Some(&stored),
                change,
                at(0),
                issue(renamed(), at(1)),
            ),
            ("another process with the key says something else", Some(renamed()), Some(&stored), time, at(9), keep),
            ("nothing to say, nothing said", None, None, change, at(9), Step::Nothing),
            ("a topic has stopped", None, Some(&stored), change, at(9), issue(Statement::withdrawal(&stored), at(9))),
            ("taken back already", None, Some(&withdrawn), change, at(9), Step::Nothing),
            ("a process serves what another does not", None, Some(&stored), time, at(half), Step::Nothing),
            (
                "a topic is back before that is over",
                Some(wanted()),
                Some(&withdrawn),
                change,
                at(1),
                issue(wanted(), at(2)),
            ),
        ] {
            assert_eq!(next_step(wanted, stored, cause, now), expected, "{why}");
        }
        assert_eq!(valid_until(&withdrawn), Some(at(1 + WITHDRAWN_TTL)));
        assert_eq!(withdrawn.address(), stored.address(), "it replaces what it takes back");
    }
}
