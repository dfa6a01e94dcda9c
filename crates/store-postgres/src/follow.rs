//! Follows commits of other processes: notifications wake it, and a poll every second covers lost ones (O-4).

use std::{sync::Arc, time::Duration};

use kukuri_postgres::QuerySession;
use sqlx::{PgPool, postgres::PgListener};
use tokio::time::{sleep, timeout};

use crate::{
    batch::read_node,
    error::Result,
    writer::{Writer, raise},
};

/// Longest time that a lost notification goes unnoticed.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
const CHANNELS: [&str; 2] = ["cn_relay_outbox", "cn_relay_subscriptions"];

/// Runs until it is aborted, across restarts of the server.
pub(crate) async fn follow(pool: PgPool, listener_pool: PgPool, writer: Arc<Writer>) {
    loop {
        if let Err(error) = listen(&pool, &listener_pool, &writer).await {
            tracing::warn!(%error, "LISTEN failed: commits of other processes are delivered late; retrying");
        }
        sleep(POLL_INTERVAL).await;
    }
}

async fn listen(pool: &PgPool, listener_pool: &PgPool, writer: &Writer) -> Result<()> {
    let mut listener = PgListener::connect_with(listener_pool).await?;
    listener.listen_all(CHANNELS).await?;
    loop {
        let mut session = QuerySession::acquire(pool).await?;
        let node = read_node(&mut session).await?;
        session.release();
        raise(&writer.head, node.head);
        raise(&writer.subscription_version, node.subscriptions_version);
        // The payload is ignored: the node's row is read instead, which also covers notifications still in the queue.
        if let Ok(heard) = timeout(POLL_INTERVAL, listener.recv()).await {
            heard?;
            while listener.next_buffered().is_some() {}
        }
    }
}
