//! Who is at the other end of a socket: known from the handshake, or since the first frame.

use std::net::IpAddr;
use std::sync::Arc;
use std::task::Context;

use hubbub_core::{ErrorCode, Timestamp, UserId};

use crate::Gateway;
use crate::auth::caller::{Caller, Identity};
use crate::auth::open_connections::{ConnectionKind, Listed};
use crate::auth::session::{Ended, Session};
use crate::problem::Problem;

/// What the handshake said of the caller.
pub(super) enum Opening {
    Known(Caller),
    /// There is no token yet; the first frame has one. Perhaps a name to act by.
    Unknown(Option<UserId>),
    /// The token came where browsers cannot read why it is refused, unless in a close frame.
    Refused(Problem),
}

pub(super) struct SocketPeer {
    gateway: Arc<Gateway>,
    opening: Opening,
    listed: Arc<Listed>,
    /// Ends with the token.
    session: Option<Session>,
    /// Whether the session began after the task registered.
    is_new: bool,
}

impl SocketPeer {
    pub(super) fn new(gateway: Arc<Gateway>, opening: Opening, address: IpAddr) -> Self {
        let listed = Listed::new(&gateway.auth, ConnectionKind::WebSocket, address);
        let mut peer = Self { gateway, opening, listed, session: None, is_new: false };
        peer.watch();
        peer
    }

    fn watch(&mut self) {
        if let Opening::Known(caller) = &self.opening {
            self.session = Some(Session::listed(&self.gateway.auth, caller, &self.listed));
            self.is_new = true;
        }
    }

    pub(super) fn listed(&self) -> &Listed {
        &self.listed
    }

    /// `None` = it is not known who it is, and nothing is allowed but to say it.
    pub(super) fn caller(&self) -> Option<&Caller> {
        match &self.opening {
            Opening::Known(caller) => Some(caller),
            Opening::Unknown(_) | Opening::Refused(_) => None,
        }
    }

    pub(super) fn refusal(&self) -> Option<&Problem> {
        match &self.opening {
            Opening::Refused(problem) => Some(problem),
            Opening::Known(_) | Opening::Unknown(_) => None,
        }
    }

    /// Has the task woken when the right to the socket ends. To be called after each token.
    pub(super) fn register_anew(&mut self, context: &Context<'_>) {
        if std::mem::take(&mut self.is_new)
            && let Some(session) = &self.session
        {
            session.register(context);
        }
    }

    pub(super) fn ended(&self) -> Option<Ended> {
        self.session.as_ref()?.ended()
    }

    pub(super) fn ended_at(&self, now: Timestamp) -> Option<Ended> {
        self.session.as_ref()?.ended_at(|| now)
    }

    /// Takes a token: the first one, or another one for the same caller. After a refusal everything is as before.
    pub(super) fn authenticate(&mut self, token: &str) -> Result<(), Problem> {
        let auth = &self.gateway.auth;
        if !auth.is_on() {
            return Ok(());
        }
        let access = auth.verify_at_once(token)?;
        let caller = match &self.opening {
            Opening::Known(caller) => caller.renewed(access).ok_or_else(|| {
                Problem::new(
                    ErrorCode::Forbidden,
                    "the token is for somebody else; open another socket for it",
                )
            })?,
            Opening::Unknown(name) => Caller::named(Identity::Somebody(access), name.clone())?,
            Opening::Refused(problem) => return Err(problem.clone()),
        };
        self.opening = Opening::Known(caller);
        self.watch();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use hubbub_core::clock::ManualClock;
    use serde_json::json;

    use super::*;
    use crate::fixture::{self, caller, token};

    /// Whoever closes a socket does not know of the token that comes at the same moment.
    #[tokio::test]
    async fn a_newer_token_does_not_reopen_a_socket_that_was_closed() {
        let gateway = fixture::gateway(Arc::new(ManualClock::at(fixture::now()))).await;
        let claims = |id: &str| json!({"sub": "ada", "jti": id, "rooms": {"*": "r"}});
        let opening = Opening::Known(caller(&gateway, claims("t-1")));
        let mut peer = SocketPeer::new(gateway.clone(), opening, Ipv4Addr::LOCALHOST.into());
        peer.authenticate(&token(claims("t-2"))).unwrap();
        let listed: Vec<u64> =
            gateway.auth.connections(None, 10).iter().map(|connection| connection.number).collect();
        assert_eq!((peer.ended(), listed.len()), (None, 1), "one session takes the place of the other");
        assert!(gateway.auth.close_connection(listed[0]));
        peer.authenticate(&token(claims("t-3"))).unwrap();
        assert_eq!(peer.ended(), Some(Ended::Closed));
        drop(peer);
        assert!(gateway.auth.connections(None, 10).is_empty());
    }
}
