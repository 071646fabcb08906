//! A store for tests of joins.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64};

use hubbub_core::MessageId;
use hubbub_core::store::{
    HistoryPage, HistoryQuery, LastMessages, Member, Membership, ReadError, RoomInfo, RoomStore, UserRooms,
};

use super::*;

/// A store that knows the rooms of ada, who has read 7 messages of each, and more later.
#[derive(Default)]
pub(super) struct RoomsOfAda {
    /// Whether ada is a member, and the version of what is listed.
    rooms: Mutex<BTreeMap<&'static str, (bool, Option<u64>)>>,
    pub(super) is_mute: AtomicBool,
    pub(super) read_later: AtomicU64,
}

impl RoomsOfAda {
    pub(super) fn set(&self, room: &'static str, is_member: bool, version: Option<u64>) {
        self.rooms.lock().insert(room, (is_member, version));
    }

    fn answer<T: std::marker::Send + 'static>(&self, answer: T) -> Read<'_, T> {
        let is_mute = self.is_mute.load(Ordering::SeqCst);
        let failed = || ReadError::Unavailable { reason: "mute".into() };
        Box::pin(std::future::ready(if is_mute { Err(failed()) } else { Ok(answer) }))
    }
}

impl RoomStore for RoomsOfAda {
    fn epoch(&self) -> Arc<str> {
        "e".into()
    }

    fn access(&self, room: RoomId, user: UserId) -> Read<'_, Access> {
        let is_member = self.rooms.lock().get(room.as_str()).is_some_and(|(is_member, _)| *is_member);
        let is_member = is_member && user.as_str() == "ada";
        let read_seq = 7 + self.read_later.load(Ordering::SeqCst);
        self.answer(if is_member { Access::Member { read_seq } } else { Access::Closed })
    }

    fn memberships(&self, users: Vec<UserId>) -> Read<'_, Vec<Option<Vec<Membership>>>> {
        if users.iter().any(|user| user.as_str() == "unreadable") {
            return Box::pin(std::future::ready(Err(ReadError::Unavailable { reason: "unreadable".into() })));
        }
        let rooms = self.rooms.lock();
        let listed = rooms.iter().filter(|(_, (is_member, version))| *is_member || version.is_some());
        let listed = listed
            .map(|(room, (_, version))| Membership { room: RoomId::new(room).unwrap(), version: *version });
        let listed: Vec<Membership> = listed.collect();
        let of = |user: &UserId| Some(if user.as_str() == "ada" { listed.clone() } else { Vec::new() });
        self.answer(users.iter().map(of).collect())
    }

    fn history(&self, _: RoomId, _: HistoryQuery) -> Read<'_, HistoryPage> {
        panic!("the hub does not ask for it")
    }

    fn seq_of(&self, _: RoomId, _: MessageId) -> Read<'_, Option<u64>> {
        panic!("the hub does not ask for it")
    }

    fn room(&self, _: RoomId) -> Read<'_, Option<RoomInfo>> {
        panic!("the hub does not ask for it")
    }

    fn rooms(&self, _: Option<RoomId>, _: usize) -> Read<'_, Vec<RoomInfo>> {
        panic!("the hub does not ask for it")
    }

    fn members(&self, _: RoomId, _: Option<UserId>, _: usize) -> Read<'_, Vec<Member>> {
        panic!("the hub does not ask for it")
    }

    fn user_rooms(&self, _: UserId, _: Option<RoomId>, _: usize, _: LastMessages) -> Read<'_, UserRooms> {
        panic!("the hub does not ask for it")
    }

    fn user_room_count(&self, _: UserId, _: usize) -> Read<'_, usize> {
        panic!("the hub does not ask for it")
    }
}
