//! The lease of a consumer: one instance of a name runs at a time (O-6).

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    consumer::{Consumer, Halt, Step},
    status::State,
};

/// Another instance takes over from a silent one after this time.
pub(crate) const LEASE_TTL: Duration = Duration::from_secs(30);

impl Consumer {
    pub(crate) async fn take_lease(&mut self) -> Step {
        while !self.renew_lease().await? {
            // The backlog counts on every node (O-9).
            if let Some(offset) = self.stored_offset().await? {
                self.show_offset(offset);
            }
            self.set_state(State::Standby);
            self.sleep_or_command(LEASE_TTL / 10).await?;
        }
        Ok(())
    }

    pub(crate) async fn keep_lease(&mut self) -> Step {
        let is_fresh = self.leased_at.is_some_and(|at| at.elapsed() < LEASE_TTL / 3);
        // Another process may have set the pause flag.
        if is_fresh || (self.renew_lease().await? && !self.is_paused().await?) { Ok(()) } else { Err(Halt::Restart) }
    }

    pub(crate) async fn renew_lease(&mut self) -> Step<bool> {
        let now = self.now();
        let asked = Instant::now();
        let is_own = self.store.lease(&self.name, self.holder, now.after(LEASE_TTL), now).await?;
        self.leased_at = is_own.then_some(asked);
        Ok(is_own)
    }

    pub(crate) async fn release_lease(&self) {
        if self.leased_at.is_some()
            && let Err(error) = self.store.release(&self.name, self.holder).await
        {
            tracing::warn!(consumer = self.name, %error, "can't release the lease; it runs out by itself");
        }
    }
}
