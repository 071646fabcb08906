//! Wakes everybody who waits at a queue, some at a time, so that nobody else's answer waits for hundreds of thousands of
//! wake-ups.

use std::collections::VecDeque;
use std::sync::Arc;

use hubbub_core::queue::Freed;

use super::{Call, State, Takers, takes_from};

/// Waiting consumers that are woken at once.
const WOKEN_AT_ONCE: usize = 256;

/// Those who are still to be woken for one queue. Whoever registers later takes after what they are woken for was
/// stored, and finds it.
#[derive(Debug)]
struct WakeAll {
    queue: Arc<str>,
    /// Only those who take messages of this sender; empty = of any.
    sender: Arc<str>,
    /// The last that was woken, and the last there was.
    after: u64,
    upto: u64,
}

/// All of these, at most one for each queue.
#[derive(Debug, Default)]
pub(super) struct WakeAlls(VecDeque<WakeAll>);

impl WakeAlls {
    /// Who is woken for one message more begins anew; for messages of several senders all are.
    fn add(&mut self, new: WakeAll) {
        match self.0.iter_mut().find(|known| known.queue == new.queue) {
            Some(known) => {
                (known.after, known.upto) = (known.after.min(new.after), new.upto);
                if known.sender != new.sender {
                    known.sender = "".into();
                    known.after = 0;
                }
            }
            None => self.0.push_back(new),
        }
    }
}

impl State {
    /// Wakes all who wait at a queue; with a sender those alone who take its messages. Returns false when some are left
    /// for [`Self::wake_more`].
    pub(super) fn wake_all(&mut self, queue: &str, sender: &str) -> bool {
        let all = WakeAll { queue: queue.into(), sender: sender.into(), after: 0, upto: self.next };
        match self.wake_some(all) {
            Some(rest) => {
                self.wake_alls.add(rest);
                false
            }
            None => true,
        }
    }

    /// Wakes some of those who are left, and returns whether there are more.
    fn wake_more(&mut self) -> bool {
        if let Some(all) = self.wake_alls.0.pop_front()
            && let Some(rest) = self.wake_some(all)
        {
            self.wake_alls.add(rest);
        }
        !self.wake_alls.0.is_empty()
    }

    fn wake_some(&mut self, mut all: WakeAll) -> Option<WakeAll> {
        let some = self.lines.some(&all.queue, (all.after, all.upto), WOKEN_AT_ONCE);
        let message = Freed { queue: all.queue.clone(), id: 0, sender: all.sender.clone(), receiver: None };
        for number in &some {
            let wants = self.waiting.get(number).map(|waiting| &waiting.wants);
            if all.sender.is_empty() || wants.is_some_and(|wants| takes_from(wants, &all.sender)) {
                self.call(*number, Call { message: message.clone(), is_for_all: true });
            }
        }
        all.after = some.last().copied().filter(|_| some.len() == WOKEN_AT_ONCE)?;
        (all.after < all.upto).then_some(all)
    }
}

/// Wakes those who are left over, until it is stopped.
pub(crate) async fn wake_rest(takers: Arc<Takers>) {
    loop {
        while takers.wake_more() {
            tokio::task::yield_now().await;
        }
        takers.left_over.notified().await;
    }
}

impl Takers {
    fn wake_more(&self) -> bool {
        self.state.lock().wake_more()
    }
}

#[cfg(test)]
mod tests {
    use hubbub_core::queue::Audience;

    use super::super::tests::{called, line_up, send};
    use super::*;

    #[test]
    fn many_are_woken_some_at_a_time_and_nobody_is_left_out() {
        let takers = Arc::new(Takers::default());
        let many = 2 * WOKEN_AT_ONCE + 10;
        let wants = |number| if number % 3 == 0 { ("", "a", "") } else { ("jobs", "a", "") };
        let mut places = line_up(&takers, &(0..many).map(wants).collect::<Vec<_>>());
        send(&takers, 1, Audience::All);
        assert_eq!(called(&places).len(), WOKEN_AT_ONCE);
        // Whoever was woken tries, waits again, and need not be woken again; another message begins anew.
        places[0].begin();
        places[0].found_nothing();
        assert!(takers.wake_more());
        assert_eq!(called(&places).len(), 2 * WOKEN_AT_ONCE - 1);
        drop(places.pop());
        send(&takers, 2, Audience::All);
        while takers.wake_more() {}
        assert_eq!(called(&places).len(), many - 1);
        assert!(!takers.wake_more() && takers.state.lock().wake_alls.0.is_empty());
    }
}
