//! Short texts to the other servers of the database, over the connection of the notifications.
//!
//! All queues are bounded, and what does not fit is dropped: whoever uses them notices that something is missing.

use std::collections::VecDeque;
use std::pin::Pin;

use hubbub_core::store::PeerMessages;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::notifications::Notifications;

/// A notification may have 7,999 bytes.
const TEXT_BYTES: usize = 7_900;
/// Texts that wait to be sent: some seconds' worth.
const OUTGOING_MAX: usize = 100;
/// Texts of all other servers that wait to be taken.
const INCOMING_MAX: usize = 2_000;

/// Texts in their order, and a signal when there are some.
#[derive(Debug, Default)]
pub(crate) struct TextQueue {
    texts: Mutex<VecDeque<String>>,
    signal: Notify,
}

impl TextQueue {
    fn push(&self, text: String, max: usize) {
        let mut texts = self.texts.lock();
        if texts.len() < max {
            texts.push_back(text);
            self.signal.notify_one();
        }
    }

    /// Takes the next text. Nothing is lost when the wait is given up.
    pub(crate) async fn next(&self) -> String {
        loop {
            if let Some(text) = self.texts.lock().pop_front() {
                return text;
            }
            self.signal.notified().await;
        }
    }
}

/// What waits on both ways.
#[derive(Debug, Default)]
pub(crate) struct PeerQueues {
    pub(crate) outgoing: TextQueue,
    incoming: TextQueue,
}

impl PeerQueues {
    pub(crate) fn push_incoming(&self, text: &str) {
        self.incoming.push(text.to_owned(), INCOMING_MAX);
    }
}

impl PeerMessages for Notifications {
    fn text_bytes(&self) -> usize {
        TEXT_BYTES
    }

    fn broadcast(&self, text: String) {
        self.peers().outgoing.push(text, OUTGOING_MAX);
    }

    fn receive(&self) -> Pin<Box<dyn Future<Output = String> + Send + '_>> {
        Box::pin(self.peers().incoming.next())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn texts_keep_their_order_and_are_bounded() {
        let queue = TextQueue::default();
        assert_eq!(queue.next().now_or_never(), None);
        for text in ["a", "b", "c"] {
            queue.push(text.to_owned(), 2);
        }
        let next = || queue.next().now_or_never();
        assert_eq!([next(), next(), next()], [Some("a".to_owned()), Some("b".to_owned()), None]);
    }
}
