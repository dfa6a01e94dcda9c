//! Follows commits of other processes: notifications wake it, and a poll every second covers lost ones (O-4).

use std::{sync::Arc, time::Duration};

use sqlx::{PgPool, postgres::PgListener};
use tokio::time::{sleep, timeout};

use kukuri_postgres::Asking;

use crate::{batch::read_node, error::Result, writer::Writer};

/// Longest time that a lost notification goes unnoticed.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
const CHANNELS: [&str; 2] = ["cn_relay_outbox", "cn_relay_subscriptions"];

/// Runs until it is aborted, across restarts of the server.
pub(crate) async fn follow(pool: PgPool, listening: PgPool, writer: Arc<Writer>) {
    loop {
        if let Err(error) = listen(&pool, &listening, &writer).await {
            tracing::warn!(%error, "the database can't be listened to; trying again");
        }
        sleep(POLL_INTERVAL).await;
    }
}

async fn listen(pool: &PgPool, listening: &PgPool, writer: &Writer) -> Result<()> {
    let mut listener = PgListener::connect_with(listening).await?;
    listener.listen_all(CHANNELS).await?;
    loop {
        look(pool, writer).await?;
        // The payload is ignored: the node's row is read instead, which also covers notifications still in the queue.
        if let Ok(heard) = timeout(POLL_INTERVAL, listener.recv()).await {
            heard?;
            while listener.next_buffered().is_some() {}
        }
    }
}

async fn look(pool: &PgPool, writer: &Writer) -> Result<()> {
    let mut asking = Asking::of(pool).await?;
    let node = read_node(&mut asking).await?;
    asking.done();
    writer.note_head(node.head);
    writer.subscription_version.send_if_modified(|version| {
        let is_new = *version < node.subscriptions_version;
        *version = node.subscriptions_version.max(*version);
        is_new
    });
    Ok(())
}
