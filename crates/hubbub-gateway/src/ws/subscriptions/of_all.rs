//! Following all rooms of a user (`"*"`): those the user is a member of, each from its read mark on.

use std::task::{Context, Poll, ready};

use hubbub_core::{ErrorCode, RoomId};

use super::{Announce, Subscriptions, subscribed_already};
use crate::connection::socket::Socket;
use crate::problem::Problem;
use crate::ws::all_rooms::{AllRooms, AllRoomsRequest, AllRoomsStep};
use crate::ws::frames::{write_all_live, write_error};

impl Subscriptions {
    pub(in crate::ws) fn subscribe_all(&mut self, request: AllRoomsRequest) -> Result<(), Problem> {
        let Some(user) = self.user().cloned() else { return Err(Problem::no_user()) };
        if self.all.is_some() {
            return Err(subscribed_already());
        }
        // Before the first page is read, so that no room is missed that the user joins meanwhile.
        let outbox = self.outbox();
        self.gateway.hub.follow_all(&user, &outbox, true);
        self.all = Some(AllRooms::new(request));
        Ok(())
    }

    /// Ends the subscription to all rooms; `false` when there is none.
    pub(in crate::ws) fn unsubscribe_all(&mut self) -> bool {
        if self.all.take().is_none() {
            return false;
        }
        if let (Some(user), Some(outbox)) = (self.user(), &self.outbox) {
            self.gateway.hub.follow_all(user, outbox, false);
        }
        self.rooms.retain(|_, subscription| !subscription.announce.is_one_of_all());
        self.catching_up.retain(|room| self.rooms.contains_key(room));
        self.rooms.values_mut().for_each(|subscription| subscription.joined = None);
        self.of_all = 0;
        self.is_unlisted = true;
        true
    }

    /// Follows a room as one of all, behind the message `start` if no cursor says otherwise, unless it is followed by name
    /// already. One that the token may not read waits for a token that may.
    pub(super) fn follow_as_one_of_all(&mut self, room: RoomId, start: u64, read_seq: u64) {
        let may_read = self.may_read(&room);
        let Some(all) = self.all.as_mut() else { return };
        if !may_read {
            all.has_left_out = true;
            return;
        }
        match self.rooms.get_mut(&room) {
            Some(known) if known.announce.is_one_of_all() => {}
            Some(named) => named.joined = Some((start, read_seq)),
            None => {
                let announce = Announce::AsOneOfAll(all.request.reference.clone(), read_seq);
                let request = all.begin(&room, start);
                self.follow(room, request, announce);
            }
        }
    }

    /// The user turned out not to be a member of a room that was to be followed as one of all.
    pub(super) fn drop_one_of_all(&mut self, room: &RoomId) {
        self.remove(room);
        if let (Some(user), Some(outbox)) = (self.user(), &self.outbox) {
            self.gateway.hub.forget_rooms(user, outbox, [room]);
        }
    }

    pub(super) fn poll_all(&mut self, context: &mut Context<'_>, socket: &mut Socket) -> Poll<()> {
        let user = self.caller.as_ref().and_then(|caller| caller.user.as_ref());
        let (Some(all), Some(user), Some(outbox)) = (&mut self.all, user, &self.outbox) else {
            return Poll::Pending;
        };
        let most = self.gateway.limits.all_rooms;
        if self.of_all > most {
            let detail = format!("\"*\" may be at most {most} rooms, and the user is a member of more");
            self.fail_all(&Problem::new(ErrorCode::TooManySubscriptions, detail), socket);
            return Poll::Ready(());
        }
        match ready!(all.poll_next(&self.gateway, (user, outbox), context)) {
            AllRoomsStep::Rooms(rooms) => {
                for (room, read_seq) in rooms {
                    self.follow_as_one_of_all(room, read_seq, read_seq);
                }
            }
            AllRoomsStep::Announce if self.has_only_messages => {}
            AllRoomsStep::Announce => write_all_live(&all.request.reference, self.of_all, socket.out()),
            AllRoomsStep::Failed(error) => self.fail_all(&error.into(), socket),
        }
        Poll::Ready(())
    }

    pub(super) fn fail_all(&mut self, problem: &Problem, socket: &mut Socket) {
        let reference = self.all.as_ref().map(|all| all.request.reference.clone());
        self.gateway.metrics.reject(problem.code, 1);
        write_error(reference.as_deref().unwrap_or_default(), None, problem, socket.out());
        self.unsubscribe_all();
    }
}

#[cfg(test)]
#[path = "of_all_tests.rs"]
mod tests;
