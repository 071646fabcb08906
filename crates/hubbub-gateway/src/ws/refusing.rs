//! Rooms in which a socket's messages are refused because an earlier one was, and the client may not know that yet.
//!
//! A retry must not be stored behind what the client had already sent. So the server sends a ping before the refusal.
//! Whatever arrives before the pong may have been sent before the client could read the refusal.

use hubbub_core::RoomId;
use hubbub_ws::write;

/// With so many rooms, the messages of all rooms are refused.
const ROOMS_MAX: usize = 1_024;

#[derive(Default)]
pub(super) struct RefusingRooms {
    /// Each with the number of the ping before its refusal, once that ping is written.
    rooms: Vec<(RoomId, Option<u64>)>,
    pings: u64,
}

impl RefusingRooms {
    pub(super) fn contains(&self, room: &str) -> bool {
        self.rooms.len() >= ROOMS_MAX || self.rooms.iter().any(|(refusing, _)| refusing.as_str() == room)
    }

    /// Refuses what comes for this room from now on.
    pub(super) fn insert(&mut self, room: &RoomId) {
        if !self.contains(room.as_str()) {
            self.rooms.push((room.clone(), None));
        }
    }

    /// Appends the ping. Must be called before the first refusal in this room is written.
    pub(super) fn write_ping(&mut self, room: &RoomId, out: &mut Vec<u8>) {
        let refusing = self.rooms.iter_mut().find(|(refusing, _)| refusing == room);
        if let Some((_, ping @ None)) = refusing {
            self.pings += 1;
            *ping = Some(self.pings);
            write::write_ping(out, &self.pings.to_be_bytes());
        }
    }

    /// The payload of any other ping, because a client may answer only the last one.
    pub(super) fn ping_payload(&self) -> Option<[u8; 8]> {
        (!self.rooms.is_empty()).then(|| self.pings.to_be_bytes())
    }

    /// Accepts messages again in the rooms whose refusals were written behind the ping that this pong answers, or behind
    /// an earlier one.
    pub(super) fn on_pong(&mut self, payload: &[u8]) {
        if let Ok(payload) = payload.try_into() {
            let number = u64::from_be_bytes(payload);
            self.rooms.retain(|(_, ping)| ping.is_none_or(|ping| ping > number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pong_ends_the_refusals_behind_its_ping() {
        let (a, b) = (RoomId::new("a").unwrap(), RoomId::new("b").unwrap());
        let (mut refusing, mut out) = (RefusingRooms::default(), Vec::new());
        refusing.insert(&a);
        refusing.write_ping(&a, &mut out);
        refusing.write_ping(&a, &mut out);
        assert_eq!(out, [0x89, 8, 0, 0, 0, 0, 0, 0, 0, 1], "once");
        refusing.insert(&b);
        refusing.on_pong(b"");
        refusing.on_pong(&0_u64.to_be_bytes());
        assert!(refusing.contains("a") && refusing.contains("b"));
        refusing.on_pong(&1_u64.to_be_bytes());
        assert!(!refusing.contains("a"));
        assert!(refusing.contains("b"), "its refusal is not written yet");
        refusing.write_ping(&b, &mut out);
        refusing.on_pong(&2_u64.to_be_bytes());
        assert!(!refusing.contains("b"));
    }

    #[test]
    fn with_very_many_rooms_all_are_refused() {
        let (mut refusing, mut out) = (RefusingRooms::default(), Vec::new());
        for number in 0..ROOMS_MAX + 10 {
            assert_eq!(refusing.contains("another"), number >= ROOMS_MAX, "{number}");
            let room = RoomId::new(&number.to_string()).unwrap();
            refusing.insert(&room);
            refusing.write_ping(&room, &mut out);
        }
        assert_eq!(refusing.rooms.len(), ROOMS_MAX);
        refusing.on_pong(&1_u64.to_be_bytes());
        assert!(!refusing.contains("another") && refusing.contains("1"));
    }
}
