//! The one deadline of a connection.

use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// A deadline that can be moved. Costs nothing while it is not set.
#[derive(Default)]
pub(crate) struct Timer {
    sleep: Option<Pin<Box<Sleep>>>,
    is_set: bool,
    /// Whether it was polled at the start of a turn, where the task's budget lets it register its waker.
    is_registered: bool,
}

impl Timer {
    /// Has the task woken after `time`, whatever was set before.
    pub(crate) fn set(&mut self, context: &mut Context<'_>, time: Duration) {
        match &mut self.sleep {
            Some(sleep) => sleep.as_mut().reset(Instant::now() + time),
            None => self.sleep = Some(Box::pin(tokio::time::sleep(time))),
        }
        self.is_set = true;
        self.poll(context);
        self.is_registered = false;
    }

    /// Forgets the deadline, and gives its memory back.
    pub(crate) fn stop(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn is_set(&self) -> bool {
        self.is_set
    }

    /// Whether the deadline has passed; said once. To be called at the start of each turn.
    pub(crate) fn has_ended(&mut self, context: &mut Context<'_>) -> bool {
        if self.is_set && !self.is_registered {
            self.poll(context);
            self.is_registered = true;
        }
        let has_ended = self.is_set && self.sleep.as_ref().is_some_and(|sleep| sleep.is_elapsed());
        self.is_set &= !has_ended;
        has_ended
    }

    /// A task's waker stays the same, so being polled once is enough to be woken.
    fn poll(&mut self, context: &mut Context<'_>) {
        if let Some(sleep) = &mut self.sleep {
            let _ = sleep.as_mut().poll(context);
        }
    }
}
