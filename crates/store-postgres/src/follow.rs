//! Follows commits of other processes: notifications wake it, and a poll every second covers lost ones (O-4). It also notices a
//! store that went back (Y-5).

use std::{sync::Arc, time::Duration};

use kukuri_postgres::{Listener, Pool, Session};
use kukuri_store::Epoch;
use tokio::time::{Instant, sleep, timeout};

use crate::{batch::read_node, columns::query, error::Result, writer::Writer};

/// Longest time that a lost notification goes unnoticed.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
const CHANNELS: [&str; 2] = ["cn_relay_outbox", "cn_relay_subscriptions"];

/// What makes a history of sequences (Y-5): the column, and whatever changes if commits are lost. The number of the table is
/// another one after a restored dump; the server has another timeline after a fail-over or a recovery to a point in time.
const EPOCH: &str = "SELECT concat_ws('/', n.epoch, n.tableoid::bigint, s.system_identifier, \
     CASE WHEN pg_is_in_recovery() THEN '' ELSE substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END) \
     FROM cn_relay.node n, pg_control_system() s";
/// For servers that do not offer these functions: a fail-over is not noticed there.
const EPOCH_OF_TABLE: &str = "SELECT concat_ws('/', epoch, tableoid::bigint) FROM cn_relay.node";
/// SQLSTATE of a function that is missing, not supported, or not allowed.
const NOT_OFFERED: [&str; 3] = ["42883", "0A000", "42501"];

/// Runs until it is aborted, across restarts of the server.
pub(crate) async fn follow(pool: Pool, listener: Listener, writer: Arc<Writer>) {
    loop {
        if let Err(error) = listen(&pool, &listener, &writer).await {
            tracing::warn!(%error, "LISTEN failed: commits of other processes are delivered late; retrying");
        }
        sleep(POLL_INTERVAL).await;
    }
}

async fn listen(pool: &Pool, listener: &Listener, writer: &Writer) -> Result<()> {
    let (session, mut notifications) = listener.listen(&CHANNELS).await?;
    let mut epoch_due = Instant::now();
    loop {
        // A fail-over ends this session, or is seen by a new one of the pool: not each notification has to ask for the epoch.
        let is_due = Instant::now() >= epoch_due;
        if is_due {
            epoch_due = Instant::now() + POLL_INTERVAL;
        }
        observe(pool, writer, is_due).await?;
        // The payload is ignored: the node's row is read instead, which also covers notifications still in the queue.
        if let Ok(None) = timeout(POLL_INTERVAL, notifications.next()).await {
            return Err(session.ended().into());
        }
    }
}

/// Reads the epoch if it is due, then the head: a head is never told with a newer epoch than its own.
pub(crate) async fn observe(pool: &Pool, writer: &Writer, with_epoch: bool) -> Result<()> {
    let known_head = *writer.head.borrow();
    let session = pool.acquire().await?;
    let epoch = if with_epoch { Some(read_epoch(&session).await?) } else { None };
    let node = read_node(&session).await?;
    session.release();
    let is_other = writer.note_standing(epoch, &node);
    if !is_other && node.head < known_head {
        // Files of the server were put back by hand: neither its timeline nor the column has changed.
        writer.begin_epoch().await?;
    }
    Ok(())
}

async fn read_epoch(session: &Session) -> Result<Epoch> {
    let parts: String = match query(EPOCH).fetch_value(session).await {
        Err(error) if error.has_code(&NOT_OFFERED) => query(EPOCH_OF_TABLE).fetch_value(session).await?,
        parts => parts?,
    };
    let mut digest = [0; 8];
    digest.copy_from_slice(&blake3::hash(parts.as_bytes()).as_bytes()[..8]);
    Ok(Epoch(u64::from_be_bytes(digest)))
}
