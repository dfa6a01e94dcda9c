//! What a connection waits for is asked only after it has called.
//!
//! A connection waits for live events, its client, a timer and the relay itself, and is woken by any of them. To ask all four
//! each time would cost as much as a live event does, so who seldom has something has a waker of its own, that notes the call.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

/// Something that is waited for.
pub(super) struct Caller {
    call: Arc<Call>,
    waker: Waker,
}

struct Call {
    has_called: AtomicBool,
    /// Who waits.
    task: Waker,
}

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.has_called.store(true, Ordering::Release);
        self.task.wake_by_ref();
    }
}

impl Caller {
    /// It has not been asked yet.
    pub(super) fn new() -> Self {
        Self::of(Waker::noop())
    }

    fn of(task: &Waker) -> Self {
        let call = Arc::new(Call { has_called: AtomicBool::new(true), task: task.clone() });
        let waker = Waker::from(Arc::clone(&call));
        Self { call, waker }
    }

    /// Asks, if it has called since it was asked last, or had something then.
    pub(super) fn poll<T>(&mut self, context: &Context<'_>, ask: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
        if !self.call.task.will_wake(context.waker()) {
            *self = Self::of(context.waker());
        }
        if !self.call.has_called.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        // Before it is asked, for it may call again meanwhile; and with what led to a call that came just now.
        self.call.has_called.swap(false, Ordering::AcqRel);
        let polled = ask(&mut Context::from_waker(&self.waker));
        if polled.is_ready() {
            self.ask_again();
        }
        polled
    }

    /// What is waited for has changed.
    pub(super) fn ask_again(&self) {
        self.call.has_called.store(true, Ordering::Release);
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
    fn who_has_not_called_is_not_asked_and_no_call_is_missed() {
        let task = Arc::new(Task::default());
        let waker = Waker::from(Arc::clone(&task));
        let context = Context::from_waker(&waker);
        let mut caller = Caller::new();
        let mut known = None;
        // Nothing is known of it yet.
        assert_eq!(
            caller.poll(&context, |context| {
                known = Some(context.waker().clone());
                Poll::<()>::Pending
            }),
            Poll::Pending
        );
        assert_eq!(caller.poll(&context, |_| Poll::Ready(())), Poll::Pending, "it has not called");
        known.clone().unwrap().wake();
        assert_eq!(task.0.load(Ordering::Relaxed), 1);
        assert_eq!(caller.poll(&context, |_| Poll::Ready(())), Poll::Ready(()));
        // Who had something may have more. A call that comes while it is asked counts.
        let called_meanwhile = |context: &mut Context<'_>| {
            context.waker().wake_by_ref();
            Poll::<()>::Pending
        };
        assert_eq!(caller.poll(&context, called_meanwhile), Poll::Pending);
        assert_eq!(caller.poll(&context, |_| Poll::Ready(())), Poll::Ready(()));
        assert_eq!(caller.poll(&context, |_| Poll::<()>::Pending), Poll::Pending);
        // Somebody else waits from now on.
        let other = Arc::new(Task::default());
        let waker = Waker::from(Arc::clone(&other));
        let mut wake = None;
        let asked = caller.poll(&Context::from_waker(&waker), |context| {
            wake = Some(context.waker().clone());
            Poll::<()>::Pending
        });
        assert_eq!(asked, Poll::Pending);
        wake.unwrap().wake();
        assert_eq!(other.0.load(Ordering::Relaxed), 1);
    }
}
