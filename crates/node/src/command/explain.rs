//! `explain`: why an event is, or is not, visible, and the store's rows about an address.

use clap::Args;
use kukuri_domain::{
    Address, Event, EventId, Reason, Source,
    decision::KeyState,
    deletion::{DeletionTargetKind, Tombstone},
    vanish::VanishMark,
};
use kukuri_store::{IdRecord, Standing, Store};

use super::table::moment;
use crate::{
    config::Settings,
    output,
    wiring::{self, stores},
};

#[derive(Args)]
pub(crate) struct Explain {
    /// An event's id (64 hex digits), or an address: kind:pubkey:d.
    #[arg(value_name = "ID|ADDRESS")]
    what: String,
}

pub(crate) async fn run(settings: &Settings, options: Explain) -> anyhow::Result<()> {
    let store = stores::for_reading(settings).await?;
    let text = if let Ok(id) = options.what.parse::<EventId>() {
        of_event(&*store, &id).await?
    } else if let Ok(address) = options.what.parse::<Address>() {
        of_key(&*store, &address).await?
    } else {
        anyhow::bail!("`{}` is neither an event's id (64 hex digits) nor a key (kind:pubkey:d)", options.what);
    };
    output::print(&text)
}

async fn of_event(store: &dyn Store, id: &EventId) -> anyhow::Result<String> {
    let known = store.explain(id).await?;
    let event = known.row.as_ref().map(|row| Event::from_json(&row.json)).transpose()?;
    let mut lines = vec![format!("event {id}")];
    match &known.record {
        None => lines.push(
            "is not known: it never arrived, was refused before it was stored, or its id is past its retention (P-2)"
                .into(),
        ),
        Some(record) => about_record(record, event.as_ref(), &mut lines),
    }
    if let (Some(row), Some(event)) = (&known.row, event) {
        let topics: Vec<_> = row.topics.iter().map(ToString::to_string).collect();
        lines.push(format!("kind {}, made {} by {}", event.kind.0, moment(event.created_at), event.pubkey));
        lines.push(format!("in {}", topics.join(", ")));
        if let Some(expires) = event.expiration() {
            lines.push(format!("expires {} (NIP-40)", moment(expires)));
        }
    } else if known.record.is_some() {
        lines.push("its content is not stored".into());
    }
    lines.extend(known.tombstones.iter().map(about_tombstone));
    lines.extend(known.vanish_marks.iter().map(about_vanish));
    lines.extend(known.key.as_ref().map(about_key));
    Ok(lines.join("\n") + "\n")
}

fn about_record(record: &IdRecord, event: Option<&Event>, lines: &mut Vec<String>) {
    match record.standing {
        Standing::Effective if event.is_some_and(|event| event.is_expired(wiring::now())) => {
            lines.push("is not visible: its expiration has passed (X-2); the next sweep removes it".into());
        }
        Standing::Effective => lines.push("is visible".into()),
        Standing::Gone { reason, cause, since } => {
            let why = match cause {
                Some(VanishMark::NO_REQUEST) => "its author's account was deleted, with its events (N-2)".to_owned(),
                Some(cause) => format!("{}, by {cause}", because(reason)),
                None => because(reason).to_owned(),
            };
            lines.push(format!("is not visible: {why}, since {}", moment(since.seconds())));
        }
    }
    let from = match record.source {
        Source::Client => "a client",
        Source::Gossip => "a peer, by gossip",
        Source::Sync => "a peer, by catch-up",
        Source::Import => "an import",
        Source::Node => "this node itself",
    };
    lines.push(format!("first arrived {} from {from}", moment(record.first_seen_at.seconds())));
    if record.seen_count > 1 {
        lines.push(format!("arrived {} times, last {}", record.seen_count, moment(record.last_seen_at.seconds())));
    }
}

fn because(reason: Reason) -> &'static str {
    match reason {
        Reason::Nip09 => "its author or its recipient deleted it (NIP-09, D-3)",
        Reason::Expiration => "its expiration has passed (NIP-40, X-3)",
        Reason::Replaced => "a newer version is known (E-3, D-9)",
        Reason::Vanish => "its author or its recipient asked to vanish (NIP-62, D-12)",
        Reason::Retention => "it was purged after its retention (P-5)",
        Reason::Capacity => "it was purged because the store was over its capacity (P-6)",
    }
}

async fn of_key(store: &dyn Store, address: &Address) -> anyhow::Result<String> {
    let known = store.explain_address(address).await?;
    let mut lines = vec![format!("key {address}")];
    match &known.key {
        Some(key) => lines.push(about_key(key)),
        None => lines.push("no version of it is known".into()),
    }
    lines.extend(known.tombstone.as_ref().map(about_tombstone));
    lines.extend(known.vanish_mark.as_ref().map(about_vanish));
    if let Some(current) = known.key.and_then(|key| key.current) {
        lines.push(String::new());
        lines.push(of_event(store, &current).await?.trim_end().to_owned());
    }
    Ok(lines.join("\n") + "\n")
}

fn about_key(key: &KeyState) -> String {
    let current = match key.current {
        Some(current) => format!("its visible version is {current}"),
        None => "none of its versions is visible".to_owned(),
    };
    let floor = format!("the highest version ever known is {} of {}", key.floor.id, moment(key.floor.created_at));
    format!("{current}; {floor}: nothing older comes back (D-9)")
}

fn about_tombstone(tombstone: &Tombstone) -> String {
    let request = &tombstone.target;
    let target = match &request.target {
        DeletionTargetKind::EventId(_) => "this event".to_owned(),
        DeletionTargetKind::Address(address) => format!("{address} up to {}", moment(request.request_created_at)),
    };
    let applied = match tombstone.applied_at {
        Some(at) => format!("applied {}", moment(at.seconds())),
        None => "waits for its target (D-6)".to_owned(),
    };
    format!("deletion {} by {} names {target}; {applied}", tombstone.deletion_id, request.requester_pubkey)
}

fn about_vanish(mark: &VanishMark) -> String {
    if mark.is_local() {
        let until = moment(mark.until);
        return format!("the deletion of the account of {} covers everything up to {until} (N-2)", mark.pubkey);
    }
    format!(
        "vanish request {} by {} covers everything up to {} (D-12)",
        mark.request_id,
        mark.pubkey,
        moment(mark.until)
    )
}
