//! Which events belong in the lists of nodes and of services (B-3): those of this node, and those of others.

use kukuri_domain::{Event, Kind, Timestamp, TopicId};

use crate::statement::{DESCRIPTOR, WITHDRAWN_TTL, topic_service_prefix};

/// A client asks for a list again after a day at the latest.
const MAX_REFRESH_INTERVAL: u64 = 24 * 3_600;

/// Until when an event about a node is valid. `None`: it does not say, and is no such event. Other nodes may know only one of both tags.
pub fn valid_until(event: &Event) -> Option<Timestamp> {
    let decimal = |value: &str| value.parse().ok().map(Timestamp);
    let exp = event.tags.values("exp").next().and_then(decimal);
    exp.into_iter().chain(event.expiration()).min()
}

/// Whether the event takes back what an earlier version said: it was valid for a moment only.
pub fn is_withdrawn(event: &Event) -> bool {
    valid_until(event).is_none_or(|end| end.0.saturating_sub(event.created_at.0) <= WITHDRAWN_TTL)
}

/// Whether the event is the valid descriptor of a node, and not the metadata of a group (NIP-29), which has the same kind.
pub fn is_descriptor(event: &Event, now: Timestamp) -> bool {
    event.kind == Kind::NODE_DESCRIPTOR && event.identifier() == Some(DESCRIPTOR) && is_listed(event, now)
}

/// Whether the event says that a node serves the topic now.
pub fn is_topic_service(event: &Event, topic: &TopicId, now: Timestamp) -> bool {
    let prefix = topic_service_prefix(topic.as_str());
    event.kind == Kind::TOPIC_SERVICE
        && event.identifier().is_some_and(|identifier| identifier.starts_with(&prefix))
        && event.tags.values("t").any(|value| value == topic.as_str())
        && is_listed(event, now)
}

fn is_listed(event: &Event, now: Timestamp) -> bool {
    event.describes_a_node() && !is_withdrawn(event) && valid_until(event).is_some_and(|end| end > now)
}

/// When a client asks again for a list of these events.
pub fn next_refresh_at<'e>(events: impl IntoIterator<Item = &'e Event>, now: Timestamp) -> Timestamp {
    let latest = Timestamp(now.0 + MAX_REFRESH_INTERVAL);
    events.into_iter().filter_map(valid_until).min().map_or(latest, |end| end.min(latest))
}

#[cfg(test)]
mod tests {
    use kukuri_domain::{Tags, UnsignedEvent};

    use super::*;
    use crate::{
        statement::{DESCRIPTOR_TTL, Role, Statement, TOPIC_SERVICE_TTL},
        tests::{NOW, key, profile, topic},
    };

    fn at(seconds: u64) -> Timestamp {
        Timestamp(NOW.0 + seconds)
    }

    /// A descriptor with other tags.
    fn with_tags(kind: Kind, tags: &[[&str; 2]]) -> Event {
        let tags: Tags = tags.iter().collect();
        UnsignedEvent { kind, tags, content: "{}".to_owned() }.sign(&key(), NOW)
    }

    #[test]
    fn list_has_valid_descriptors_and_no_metadata_of_groups() {
        // B-2, B-3
        let own = Statement::descriptor(&profile()).sign(&key(), NOW);
        let end = at(100).to_string();
        let (d, k, exp, expiration) = (["d", "descriptor"], ["k", "kukuri"], ["exp", &*end], ["expiration", &*end]);
        let kind = Kind::NODE_DESCRIPTOR;
        for (why, event, seconds, expected) in [
            ("its own", own.clone(), DESCRIPTOR_TTL - 1, true),
            ("expired", own.clone(), DESCRIPTOR_TTL, false),
            ("taken back", Statement::withdrawal(&own).sign(&key(), NOW), 1, false),
            ("another node's, with KIP-0001's tag alone", with_tags(kind, &[d, k, exp]), 99, true),
            ("the same, expired", with_tags(kind, &[d, k, exp]), 100, false),
            ("with that of NIP-40 alone", with_tags(kind, &[d, k, expiration]), 99, true),
            ("the earlier one counts", with_tags(kind, &[d, k, ["exp", "9999999999"], expiration]), 100, false),
            ("without an end", with_tags(kind, &[d, k]), 0, false),
            ("with a malformed end", with_tags(kind, &[d, k, ["exp", "soon"]]), 0, false),
            ("of a group", with_tags(kind, &[["d", "group"], exp, expiration]), 0, false),
            ("of a group called descriptor", with_tags(kind, &[d, exp, expiration]), 0, false),
            ("of another kind", with_tags(Kind(39002), &[d, k, exp, expiration]), 0, false),
        ] {
            assert_eq!(is_descriptor(&event, at(seconds)), expected, "{why}");
        }
    }

    #[test]
    fn list_of_services_has_those_of_the_topic() {
        // B-3
        let service = Statement::topic_service(&topic(), Role::Relay).sign(&key(), NOW);
        let other = TopicId::global();
        assert!(is_topic_service(&service, &topic(), at(TOPIC_SERVICE_TTL - 1)));
        assert!(!is_topic_service(&service, &topic(), at(TOPIC_SERVICE_TTL)), "expired");
        assert!(!is_topic_service(&service, &other, at(0)), "another topic");
        let withdrawn = Statement::withdrawal(&service).sign(&key(), at(1));
        assert!(!is_topic_service(&withdrawn, &topic(), at(2)), "taken back");
        let of_group =
            with_tags(Kind::TOPIC_SERVICE, &[["d", "group"], ["t", topic().as_str()], ["exp", "9999999999"]]);
        assert!(!is_topic_service(&of_group, &topic(), at(0)), "admins of a group");
    }

    #[test]
    fn list_is_asked_for_again_when_its_first_event_ends_or_after_a_day() {
        // B-3
        let long = Statement::descriptor(&profile()).sign(&key(), NOW);
        let short = with_tags(Kind::NODE_DESCRIPTOR, &[["exp", &at(90).to_string()]]);
        assert_eq!(next_refresh_at([], NOW), at(86_400));
        assert_eq!(next_refresh_at([&long], NOW), at(86_400));
        assert_eq!(next_refresh_at([&long, &short], NOW), at(90));
    }
}
