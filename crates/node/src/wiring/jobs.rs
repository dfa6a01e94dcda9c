//! Jobs of the control database (N-3): their handlers, and the workers of this node.

use std::{path::Path, sync::Arc};

use async_trait::async_trait;
use kukuri_control::{
    Control,
    job::{
        JobError,
        worker::{Clock, Handler, Worker, WorkerSettings},
    },
    personal_data::{
        EventCursor, EventPage, PersonEvents,
        deletion::{self, DeletionHandler},
        deletion_list::DeletionList,
        export::{self, ExportHandler, RemoveExportHandler},
    },
    retention::{self, RetentionHandler},
};
use kukuri_domain::{Filter, PublicKey, Timestamp, Viewer};
use kukuri_engine::Engine;
use kukuri_store::{Query, StoreError};
use tokio::{sync::watch, task::JoinHandle};

/// The list of completed deletions, in the data directory. No backup has it.
const DELETIONS_FILE: &str = "deletions.log";
/// Jobs that one node runs at the same time: a long one does not hold up the next.
const WORKERS: usize = 2;
/// Events of a person that are read at a time.
const EVENTS_PAGE: usize = 100;

/// The events of people, through the engine.
struct EngineEvents(Arc<Engine>);

#[async_trait]
impl PersonEvents for EngineEvents {
    async fn page(&self, author: &PublicKey, from: EventCursor) -> Result<EventPage, JobError> {
        // Events of the second at which the page begins are read again, and skipped by id.
        let limit = EVENTS_PAGE + from.seen.len();
        let filter = Filter::new().with_authors([*author]).with_until(from.until).with_limit(limit);
        let query = Query::of(filter, Viewer::Node, super::now());
        let found = self.0.store().query(&query).await.map_err(error_of)?.events;
        let is_new = |event: &&kukuri_store::StoredEvent| !from.seen.contains(&event.id);
        let events = found.iter().filter(is_new).map(|event| event.json.to_vec()).collect();
        let last = found.last().filter(|_| found.len() == limit).map(|last| last.created_at);
        let next = last.map(|until| EventCursor {
            until,
            seen: found.iter().filter(|event| event.created_at == until).map(|event| event.id).collect(),
        });
        Ok(EventPage { events, next })
    }

    async fn vanish(&self, author: &PublicKey, until: Timestamp) -> Result<(), JobError> {
        self.0.leave_vanish_mark(author, until).await.map_err(error_of)
    }
}

fn error_of(error: StoreError) -> JobError {
    JobError::Events(error.into())
}

/// Deletes again the accounts that a restored backup has brought back.
pub(crate) async fn repeat_deletions(control: &Control, data: &Path) -> anyhow::Result<()> {
    let now = super::now().seconds();
    let begun = deletion::repeat_listed(control, &deletions_of(data), now).await?;
    if begun > 0 {
        tracing::warn!(accounts = begun, "a backup has brought back deleted accounts; they are deleted again");
    }
    Ok(())
}

fn deletions_of(data: &Path) -> DeletionList {
    DeletionList::new(data.join(DELETIONS_FILE))
}

/// Starts the workers of this node. They end when the node stops, and give back what they have not finished.
pub(crate) fn start(
    control: &Arc<Control>,
    engine: &Arc<Engine>,
    data: &Path,
    stopping: &watch::Receiver<bool>,
) -> Vec<JoinHandle<()>> {
    let events: Arc<dyn PersonEvents> = Arc::new(EngineEvents(Arc::clone(engine)));
    let control = || Arc::clone(control);
    let of_clock = Arc::clone(engine);
    let is_clock_held = Box::new(move || of_clock.is_clock_held());
    let handlers: [(&'static str, Arc<dyn Handler>); 4] = [
        (export::KIND, Arc::new(ExportHandler { control: control(), events: Arc::clone(&events) })),
        (export::REMOVE_KIND, Arc::new(RemoveExportHandler { control: control() })),
        (deletion::KIND, Arc::new(DeletionHandler { control: control(), events, list: deletions_of(data) })),
        (retention::KIND, Arc::new(RetentionHandler { control: control(), is_clock_held })),
    ];
    let clock: Clock = Arc::new(|| super::now().seconds());
    let worker = Worker::new(control().database().clone(), handlers, WorkerSettings::default(), clock);
    let start = |_| tokio::spawn(worker.clone().run(stopping.clone()));
    (0..WORKERS).map(start).collect()
}
