//! Following over one connection after another, as a person wants to hear of it.

use anyhow::anyhow;
use hubbub_client::ConnectionState;
use tokio::sync::watch;

use super::connection::advised;
use crate::output::{Refusal, notice};

/// Says what becomes of the connection while a command waits for what it brings.
pub(super) struct Attention {
    connection: watch::Receiver<ConnectionState>,
    /// It brought something.
    is_proven: bool,
    /// Why the connection was lost, as it was reported last.
    reported: String,
}

impl Attention {
    pub(super) fn new(connection: watch::Receiver<ConnectionState>) -> Self {
        Self { connection, is_proven: false, reported: String::new() }
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
                    let state = self.connection.borrow_and_update().clone();
                    self.report(&state)?;
                }
            }
        }
    }

    /// Says why the connection was lost; each reason once until it is open again.
    fn report(&mut self, state: &ConnectionState) -> anyhow::Result<()> {
        let ConnectionState::Lost { reason, code, status } = state else {
            self.reported.clear();
            return Ok(());
        };
        if !self.is_proven {
            return Err(match *status {
                0 => anyhow!(advised(reason)),
                // The code stands behind a refusal anyway.
                status => {
                    let detail = reason.trim_end_matches(&format!(" ({code})")).to_owned();
                    anyhow!(Refusal { status, code: code.clone(), detail })
                }
            });
        }
        if self.reported != *reason {
            notice(&format!("{reason}; reconnecting"));
            self.reported.clone_from(reason);
        }
        Ok(())
    }
}
