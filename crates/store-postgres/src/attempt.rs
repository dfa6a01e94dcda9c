//! Attempts to answer a query within its budget (Y-2).
//!
//! The first attempt runs on a session whose statements end soon: most queries are answered by it. A query that takes longer is
//! asked again on one of a few other sessions, with what is left of its deadline. Both need a permit, so that no client holds
//! all sessions (Y-1).

use std::time::{Duration, Instant};

use kukuri_postgres::{Pool, PooledSession, Session};
use kukuri_store::{Budget, ReadStage, StoreError};

use crate::{
    error::{Failure, Result},
    open::SNAPSHOT,
};

/// Time that the first attempt may take. It is also the statement timeout of its sessions.
pub(crate) const QUICK_TIMEOUT: Duration = Duration::from_millis(100);

/// The sessions that answer queries.
pub(crate) struct QueryPools {
    /// For first attempts.
    pub(crate) quick: Pool,
    /// For costly queries. Reads that are no queries use it, too.
    pub(crate) readers: Pool,
    /// Time that a costly query may take, over all its statements.
    pub(crate) query_timeout: Duration,
}

/// A query of some form.
pub(crate) trait Question: Sync {
    type Answer: Send;

    /// Whether it is one statement, which is a snapshot by itself.
    fn is_single_statement(&self) -> bool;

    fn ask(&self, attempt: &Attempt) -> impl Future<Output = Result<Self::Answer>> + Send;
}

/// An attempt in progress.
pub(crate) struct Attempt {
    session: PooledSession,
    until: Instant,
    /// Whether the attempt is a transaction.
    is_transaction: bool,
    /// Whether each statement gets what is left of the time as its timeout; else the session has one.
    sets_timeout: bool,
}

impl Attempt {
    /// The session, for one statement.
    pub(crate) async fn statement(&self) -> Result<&Session> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(StoreError::TooCostly.into());
        }
        if self.sets_timeout {
            let set = format!("SET LOCAL statement_timeout = {}", left.as_millis().max(1));
            self.session.run(set).await?;
        }
        Ok(&self.session)
    }

    /// Gives the session back. It is closed instead if its statement may still be running.
    async fn end<T>(self, answer: Result<T>) -> Result<T> {
        match answer {
            Ok(answer) => {
                if self.is_transaction {
                    self.session.commit().await?;
                } else {
                    self.session.release();
                }
                Ok(answer)
            }
            Err(failure) if failure.is_too_costly() => {
                if self.is_transaction {
                    self.session.rollback().await?;
                } else {
                    self.session.release();
                }
                Err(StoreError::TooCostly.into())
            }
            failed => failed,
        }
    }
}

impl QueryPools {
    /// Answers a question within its budget.
    pub(crate) async fn answer<Q: Question>(&self, budget: &Budget, question: &Q) -> Result<Q::Answer> {
        let permit = budget.enter(ReadStage::Session, sessions(&self.quick)).await?;
        let mut answered = self.attempt_quickly(question).await;
        // After a restart of the server each idle session fails once, and is closed. A new one takes its place.
        for _ in 0..sessions(&self.quick) {
            if !answered.as_ref().is_err_and(Failure::is_disconnected) {
                break;
            }
            answered = self.attempt_quickly(question).await;
        }
        if !answered.as_ref().is_err_and(Failure::is_too_costly) {
            return answered;
        }
        drop(permit);
        // One session is left for reads that are no queries.
        let _permit = budget.enter(ReadStage::Costly, (sessions(&self.readers) - 1).max(1)).await?;
        let session = self.readers.begin(SNAPSHOT).await?;
        let latest = Instant::now() + self.query_timeout;
        let until = budget.deadline.map_or(latest, |deadline| deadline.min(latest));
        let attempt = Attempt { session, until, is_transaction: true, sets_timeout: true };
        let answer = question.ask(&attempt).await;
        attempt.end(answer).await
    }

    async fn attempt_quickly<Q: Question>(&self, question: &Q) -> Result<Q::Answer> {
        let is_transaction = !question.is_single_statement();
        let session = match is_transaction {
            true => self.quick.begin(SNAPSHOT).await?,
            false => self.quick.acquire().await?,
        };
        let until = Instant::now() + QUICK_TIMEOUT;
        let attempt = Attempt { session, until, is_transaction, sets_timeout: false };
        let answer = question.ask(&attempt).await;
        attempt.end(answer).await
    }
}

fn sessions(pool: &Pool) -> usize {
    pool.max_sessions() as usize
}
