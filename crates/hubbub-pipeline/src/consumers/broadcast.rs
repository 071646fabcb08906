//! Wakes all consumers of a queue in bounded steps, so that hundreds of thousands of wakeups do not delay other senders'
//! answers.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{State, WaitingConsumers, Wakeup, accepts_sender};

const STEP_CONSUMERS: usize = 256;

/// The consumers of one queue that are still to be woken. Those that register later need no wakeup: their take begins
/// after the message was stored, and finds it.
#[derive(Debug)]
struct Broadcast {
    queue: Arc<str>,
    /// Only consumers that accept this sender; empty = all.
    sender: Arc<str>,
    after: u64,
    upto: u64,
}

/// Unfinished broadcasts, at most one for each queue.
#[derive(Debug, Default)]
pub(super) struct PendingBroadcasts(VecDeque<Broadcast>);

impl PendingBroadcasts {
    /// Merges into the queue's pending broadcast, which starts again from the first consumer that lacks a wakeup for
    /// either. Two senders merge into a broadcast to all.
    fn insert(&mut self, new: Broadcast) {
        match self.0.iter_mut().find(|pending| pending.queue == new.queue) {
            Some(pending) => {
                (pending.after, pending.upto) = (pending.after.min(new.after), new.upto);
                if pending.sender != new.sender {
                    pending.sender = "".into();
                    pending.after = 0;
                }
            }
            None => self.0.push_back(new),
        }
    }
}

impl State {
    /// Wakes all consumers of a queue, or those that accept `sender` if one is given. Returns false when some are left
    /// to [`Self::wake_more`].
    pub(super) fn wake_all(&mut self, queue: &str, sender: &str) -> bool {
        let upto = self.last_number;
        self.step(Broadcast { queue: queue.into(), sender: sender.into(), after: 0, upto })
    }

    fn wake_more(&mut self) -> bool {
        if let Some(broadcast) = self.broadcasts.0.pop_front() {
            self.step(broadcast);
        }
        !self.broadcasts.0.is_empty()
    }

    /// Wakes the next consumers of a broadcast, and keeps the rest of it. Returns whether it is finished.
    fn step(&mut self, mut broadcast: Broadcast) -> bool {
        let Broadcast { queue, sender, after, upto } = &broadcast;
        let numbers = self.idle.range(queue, (*after, *upto), STEP_CONSUMERS);
        for number in &numbers {
            let filter = self.waiting.get(number).map(|consumer| &consumer.filter);
            if sender.is_empty() || filter.is_some_and(|filter| accepts_sender(filter, sender)) {
                self.wake(*number, Wakeup::Broadcast);
            }
        }
        match numbers.last() {
            Some(last) if numbers.len() == STEP_CONSUMERS && last < upto => {
                broadcast.after = *last;
                self.broadcasts.insert(broadcast);
                false
            }
            _ => true,
        }
    }
}

/// Advances pending broadcasts until the task is aborted.
pub(crate) async fn wake_remaining(consumers: Arc<WaitingConsumers>) {
    loop {
        while consumers.wake_more() {
            tokio::task::yield_now().await;
        }
        consumers.broadcast_pending.notified().await;
    }
}

impl WaitingConsumers {
    fn wake_more(&self) -> bool {
        self.state.lock().wake_more()
    }
}

#[cfg(test)]
mod tests {
    use hubbub_core::queue::Audience;

    use super::super::tests::{register, send, woken};
    use super::*;

    #[test]
    fn a_broadcast_wakes_everybody_in_steps() {
        let consumers = Arc::new(WaitingConsumers::default());
        let many = 2 * STEP_CONSUMERS + 10;
        let filter = |number| if number % 3 == 0 { ("", "a", "") } else { ("jobs", "a", "") };
        let mut handles = register(&consumers, &(0..many).map(filter).collect::<Vec<_>>());
        send(&consumers, 1, Audience::All);
        assert_eq!(woken(&handles).len(), STEP_CONSUMERS);
        // A consumer that was woken, tried and waits again is not woken twice; another message starts from the front.
        handles[0].begin_attempt();
        handles[0].end_empty_attempt();
        assert!(consumers.wake_more());
        assert_eq!(woken(&handles).len(), 2 * STEP_CONSUMERS - 1);
        drop(handles.pop());
        send(&consumers, 2, Audience::All);
        while consumers.wake_more() {}
        assert_eq!(woken(&handles).len(), many - 1);
        assert!(!consumers.wake_more() && consumers.state.lock().broadcasts.0.is_empty());
    }
}
