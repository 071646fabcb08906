//! Rooms in which a socket's messages are refused because an earlier one was, and the client may not know that yet.
//!
//! A retry must not be stored behind what the client had already sent. So the server sends a ping before the refusal, and opens
//! the room again with the pong: whatever arrives before that may have been sent before the client could read the refusal.
//!
//! The ping belongs to the first refused message among those that came since the room was opened last. Earlier ones may be
//! answered late, behind answers of other rooms: the client has sent these again already, and learns nothing from their refusals.

use hubbub_core::RoomId;
use hubbub_ws::write;

/// With so many rooms, the messages of all rooms are refused, and the connection ends.
const ROOMS_MAX: usize = 1_024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Closed, with the number of the ping before the first refusal, once that ping is written.
    Closed(Option<u64>),
    /// Open again, while messages that came before wait for their answers.
    Open,
}

#[derive(Debug)]
struct Room {
    room: RoomId,
    /// Number of the first message or mark of the socket that came after the room was opened last.
    opened_at: u64,
    state: State,
}

impl Room {
    fn close(&mut self) {
        if self.state == State::Open {
            self.state = State::Closed(None);
        }
    }
}

/// Requests are numbered in the order in which they come and are answered.
#[derive(Default)]
pub(super) struct RefusingRooms {
    rooms: Vec<Room>,
    pings: u64,
}

impl RefusingRooms {
    pub(super) fn contains(&self, room: &str) -> bool {
        let is_closed = |known: &Room| known.state != State::Open && known.room.as_str() == room;
        self.is_full() || self.rooms.iter().any(is_closed)
    }

    /// Whether the connection has to end: of a further room that refuses nothing could be remembered.
    pub(super) fn is_full(&self) -> bool {
        self.rooms.len() >= ROOMS_MAX
    }

    /// A room, which is open if nothing was known of it; `None` where nothing more can be remembered.
    fn room(&mut self, room: &RoomId) -> Option<&mut Room> {
        let index = self.rooms.iter().position(|known| known.room == *room);
        if index.is_none() && !self.is_full() {
            self.rooms.push(Room { room: room.clone(), opened_at: 0, state: State::Open });
            return self.rooms.last_mut();
        }
        self.rooms.get_mut(index?)
    }

    /// Refuses what comes for this room from now on.
    pub(super) fn insert(&mut self, room: &RoomId) {
        self.room(room).into_iter().for_each(Room::close);
    }

    /// Appends the ping, if one is due. Must be called before the refusal of a message is written, with the message's number.
    pub(super) fn before_refusal(&mut self, room: &RoomId, number: u64, out: &mut Vec<u8>) {
        let ping = self.pings + 1;
        let Some(known) = self.room(room).filter(|known| number >= known.opened_at) else { return };
        known.close();
        if known.state == State::Closed(None) {
            known.state = State::Closed(Some(ping));
            self.pings = ping;
            write::write_ping(out, &ping.to_be_bytes());
        }
    }

    /// The payload of any other ping, because a client may answer only the last one.
    pub(super) fn ping_payload(&self) -> Option<[u8; 8]> {
        (!self.rooms.is_empty()).then(|| self.pings.to_be_bytes())
    }

    /// Accepts messages again in the rooms whose refusals were written behind the ping that this pong answers, or behind
    /// an earlier one. `next` is the number of the next request.
    pub(super) fn on_pong(&mut self, payload: &[u8], next: u64) {
        let Ok(payload) = payload.try_into() else { return };
        let number = u64::from_be_bytes(payload);
        for room in &mut self.rooms {
            if matches!(room.state, State::Closed(Some(ping)) if ping <= number) {
                (room.state, room.opened_at) = (State::Open, next);
            }
        }
    }

    /// Forgets open rooms once everything that came before is answered. `next` is the number of the next request to answer.
    pub(super) fn forget_answered(&mut self, next: u64) {
        self.rooms.retain(|room| room.state != State::Open || room.opened_at > next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ping(number: u8) -> Vec<u8> {
        [&[0x89, 8][..], &[0; 7], &[number]].concat()
    }

    #[test]
    fn a_pong_ends_the_refusals_behind_its_ping() {
        let (a, b) = (RoomId::new("a").unwrap(), RoomId::new("b").unwrap());
        let (mut refusing, mut out) = (RefusingRooms::default(), Vec::new());
        refusing.insert(&a);
        refusing.before_refusal(&a, 0, &mut out);
        refusing.before_refusal(&a, 1, &mut out);
        assert_eq!(out, ping(1), "once");
        refusing.insert(&b);
        refusing.on_pong(b"", 2);
        refusing.on_pong(&0_u64.to_be_bytes(), 2);
        assert!(refusing.contains("a") && refusing.contains("b"));
        refusing.on_pong(&1_u64.to_be_bytes(), 2);
        assert!(!refusing.contains("a"));
        assert!(refusing.contains("b"), "its refusal is not written yet");
        refusing.before_refusal(&b, 2, &mut out);
        refusing.on_pong(&2_u64.to_be_bytes(), 3);
        assert!(!refusing.contains("b"));
        refusing.forget_answered(3);
        assert!(refusing.rooms.is_empty());
    }

    /// It waited behind the answer of another room, and the client has sent its message again.
    #[test]
    fn an_old_refusal_does_not_tell_of_a_new_one() {
        let a = RoomId::new("a").unwrap();
        let (mut refusing, mut out) = (RefusingRooms::default(), Vec::new());
        // Messages 0 to 2 are refused, and the first one is answered.
        refusing.insert(&a);
        refusing.before_refusal(&a, 0, &mut out);
        refusing.on_pong(&1_u64.to_be_bytes(), 3);
        refusing.forget_answered(1);
        // Message 3 is refused, too.
        refusing.insert(&a);
        out.clear();
        refusing.before_refusal(&a, 1, &mut out);
        refusing.before_refusal(&a, 2, &mut out);
        assert!(out.is_empty());
        assert!(refusing.contains("a"));
        refusing.before_refusal(&a, 3, &mut out);
        assert_eq!(out, ping(2));
        refusing.on_pong(&2_u64.to_be_bytes(), 4);
        assert!(!refusing.contains("a"));
    }

    /// Not because of what came before the room was opened.
    #[test]
    fn a_refusal_by_the_log_closes_the_room() {
        let a = RoomId::new("a").unwrap();
        let (mut refusing, mut out) = (RefusingRooms::default(), Vec::new());
        refusing.before_refusal(&a, 0, &mut out);
        assert!(refusing.contains("a"));
        refusing.on_pong(&1_u64.to_be_bytes(), 2);
        refusing.before_refusal(&a, 1, &mut out);
        assert!(!refusing.contains("a"));
        refusing.before_refusal(&a, 2, &mut out);
        assert_eq!((out, refusing.contains("a")), ([ping(1), ping(2)].concat(), true));
    }

    #[test]
    fn with_very_many_rooms_all_are_refused() {
        let (mut refusing, mut out) = (RefusingRooms::default(), Vec::new());
        for number in 0..ROOMS_MAX + 10 {
            assert_eq!(refusing.contains("another"), number >= ROOMS_MAX, "{number}");
            assert_eq!(refusing.is_full(), number >= ROOMS_MAX, "{number}");
            refusing.before_refusal(&RoomId::new(&number.to_string()).unwrap(), number as u64, &mut out);
        }
        assert_eq!(refusing.rooms.len(), ROOMS_MAX);
    }
}
