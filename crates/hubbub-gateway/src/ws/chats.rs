//! The dialect of `/ws/connect/{user}` ([`crate::http`], the form interface): all messages of the user's rooms and nothing
//! else. What the client says is dropped.

use std::collections::HashMap;
use std::sync::Arc;

use hubbub_core::ReadMark;

use super::all_rooms::AllRoomsRequest;
use super::answers::Responses;
use super::peer::SocketPeer;
use super::protocol::{Dialect, Turn};
use super::request_queue::Request;
use super::subscriptions::Subscriptions;
use crate::Gateway;
use crate::follow::OnReset;
use crate::problem::{Problem, Sent};

pub(super) struct Chats;

impl Dialect for Chats {
    type Responses<'a> = Silence;

    fn on_start(&self, subscriptions: &mut Subscriptions) {
        subscriptions.only_messages();
        subscriptions.open();
        let (reference, cursors) = (Arc::from(""), HashMap::new());
        let request = AllRoomsRequest { reference, cursors, epoch: None, on_reset: OnReset::Replay };
        // The socket has a user, and follows nothing yet.
        let _ = subscriptions.subscribe_all(request);
    }

    fn on_text(&self, _: &mut Turn<'_>, _: &str) {}

    fn responses(&self, _: &Gateway, _: &SocketPeer, _: u64) -> Silence {
        Silence
    }
}

/// Nothing is asked over this socket, so nothing is answered.
pub(super) struct Silence;

impl Responses for Silence {
    fn success(&self, _: &str, _: Request<'_>, _: Sent<'_>, _: &mut Vec<u8>) {}
    fn marked(&self, _: &str, _: Request<'_>, _: &ReadMark, _: &mut Vec<u8>) {}
    fn failure(&self, _: Request<'_>, _: &Problem, _: &mut Vec<u8>) {}
    fn finish(&self, _: usize, _: &mut Vec<u8>) {}
}
