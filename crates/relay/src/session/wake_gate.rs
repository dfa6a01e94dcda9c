//! Polls a future only after its own waker fired.
//!
//! A connection waits for live events, its client, a timer and signals of the engine, and is woken by any of them. Polling
//! all four each time would cost as much as delivering a live event, so the three that are seldom ready sit behind gates.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

/// The gate in front of one future.
pub(super) struct WakeGate {
    state: Arc<GateState>,
    waker: Waker,
}

struct GateState {
    /// Whether the future has to be polled.
    is_open: AtomicBool,
    /// The task that polls it.
    task: Waker,
}

impl Wake for GateState {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_open.store(true, Ordering::Release);
        self.task.wake_by_ref();
    }
}

impl WakeGate {
    /// An open gate: the future has not been polled yet.
    pub(super) fn new() -> Self {
        Self::for_task(Waker::noop())
    }

    fn for_task(task: &Waker) -> Self {
        let state = Arc::new(GateState { is_open: AtomicBool::new(true), task: task.clone() });
        let waker = Waker::from(Arc::clone(&state));
        Self { state, waker }
    }

    /// Polls if the waker fired since the last poll, or if the last poll was ready.
    pub(super) fn poll<T>(&mut self, context: &Context<'_>, poll: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
        if !self.state.task.will_wake(context.waker()) {
            *self = Self::for_task(context.waker());
        }
        if !self.state.is_open.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        // Closed before polling, for the waker may fire meanwhile. A swap, to see what happened before it fired.
        self.state.is_open.swap(false, Ordering::AcqRel);
        let polled = poll(&mut Context::from_waker(&self.waker));
        if polled.is_ready() {
            self.open();
        }
        polled
    }

    /// Polls next time: the future has changed.
    pub(super) fn open(&self) {
        self.state.is_open.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_future_is_polled_only_after_its_waker_fired_and_no_wake_is_missed() {
        let task = Arc::new(Task::default());
        let waker = Waker::from(Arc::clone(&task));
        let context = Context::from_waker(&waker);
        let mut gate = WakeGate::new();
        let mut registered = None;
        let first = gate.poll(&context, |context| {
            registered = Some(context.waker().clone());
            Poll::<()>::Pending
        });
        assert_eq!(first, Poll::Pending);
        assert_eq!(gate.poll(&context, |_| Poll::Ready(())), Poll::Pending, "the waker has not fired");
        registered.clone().unwrap().wake();
        assert_eq!(task.0.load(Ordering::Relaxed), 1);
        assert_eq!(gate.poll(&context, |_| Poll::Ready(())), Poll::Ready(()));
        // A future that was ready is polled again. A wake during a poll counts.
        let wake_meanwhile = |context: &mut Context<'_>| {
            context.waker().wake_by_ref();
            Poll::<()>::Pending
        };
        assert_eq!(gate.poll(&context, wake_meanwhile), Poll::Pending);
        assert_eq!(gate.poll(&context, |_| Poll::Ready(())), Poll::Ready(()));
        assert_eq!(gate.poll(&context, |_| Poll::<()>::Pending), Poll::Pending);
        // Another task polls from now on.
        let other = Arc::new(Task::default());
        let waker = Waker::from(Arc::clone(&other));
        let mut wake = None;
        let polled = gate.poll(&Context::from_waker(&waker), |context| {
            wake = Some(context.waker().clone());
            Poll::<()>::Pending
        });
        assert_eq!(polled, Poll::Pending);
        wake.unwrap().wake();
        assert_eq!(other.0.load(Ordering::Relaxed), 1);
    }
}
