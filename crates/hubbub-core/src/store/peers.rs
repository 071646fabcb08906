//! Short texts between the servers of a shared store.

use std::pin::Pin;

/// Passes texts to the other servers of the store. Each may be lost or come late; those of one server that come are in
/// their order.
pub trait PeerMessages: Send + Sync {
    /// Largest text in bytes.
    fn text_bytes(&self) -> usize;

    /// Queues a text for all others. It is dropped when too many wait.
    fn broadcast(&self, text: String);

    /// Waits for a text of another server. Nothing is lost when the wait is given up.
    fn receive(&self) -> Pin<Box<dyn Future<Output = String> + Send + '_>>;
}
