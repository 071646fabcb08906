//! Following over one connection after another, as a person wants to hear of it.

use anyhow::bail;
use hubbub_client::ConnectionState;
use tokio::sync::watch;

use crate::output::notice;

/// Says what becomes of the connection while a command waits for what it brings.
pub(super) struct Attention {
    connection: watch::Receiver<ConnectionState>,
    /// It brought something.
    is_proven: bool,
}

impl Attention {
    pub(super) fn new(connection: watch::Receiver<ConnectionState>) -> Self {
        Self { connection, is_proven: false }
    }

    /// What `next` brings.
    ///
    /// # Errors
    /// The first connection was lost before it brought anything: the address may be wrong.
    pub(super) async fn until<T>(&mut self, next: impl Future<Output = T>) -> anyhow::Result<T> {
        tokio::pin!(next);
        loop {
            tokio::select! {
                biased;
                value = &mut next => {
                    self.is_proven = true;
                    return Ok(value);
                }
                Ok(()) = self.connection.changed() => {
                    if let ConnectionState::Lost { reason } = &*self.connection.borrow_and_update() {
                        if !self.is_proven {
                            bail!("{reason}");
                        }
                        notice(&format!("{reason}; reconnecting"));
                    }
                }
            }
        }
    }
}
