//! What is published: messages that differ, made from their number alone.

use hubbub_core::clock::SeededRandom;

use crate::job::{below, random_words};

/// Texts that messages are drawn from; many, so that equal ones stand far apart.
const TEXTS: usize = 20_000;

/// Who write in a room, and how far the next room's people are from them.
const ROOM_USERS: u64 = 50;
const ROOM_STEP: u64 = 10;

#[derive(Debug)]
pub(crate) struct Texts {
    run: u64,
    pub(crate) rooms: u64,
    users: u64,
    texts: Vec<String>,
}

impl Texts {
    /// Messages to `rooms` rooms by `users` users with texts of `bytes` bytes; no two runs share an id.
    pub(crate) fn new(run: u64, rooms: u64, users: u64, bytes: usize) -> Self {
        let random = SeededRandom::new(run);
        let texts = (0..TEXTS).map(|_| random_words(&random, bytes)).collect();
        Self { run, rooms: rooms.max(1), users: users.max(1), texts }
    }

    /// The room of message `index`. Neighbours go to different ones.
    pub(crate) fn room(&self, index: u64) -> String {
        Self::room_name(self.room_number(index))
    }

    pub(crate) fn room_number(&self, index: u64) -> u64 {
        below(scatter(index) >> 32, self.rooms)
    }

    pub(crate) fn room_name(number: u64) -> String {
        format!("bench-{number}")
    }

    /// The id of message `index`, as long as a UUID is.
    pub(crate) fn id(&self, index: u64) -> String {
        format!("{:08x}-{:04x}-7000-8000-{index:012x}", self.run >> 32, self.run & 0xffff)
    }

    /// Who sends message `index`, and what.
    pub(crate) fn user_and_text(&self, index: u64) -> (String, &str) {
        let bits = scatter(index ^ self.run);
        let text = below(bits & 0xffff_ffff, self.texts.len() as u64) as usize;
        // A room has its own people, of whom some are in other rooms, too.
        let user = (self.room_number(index) * ROOM_STEP + below(bits >> 32, ROOM_USERS)) % self.users;
        (format!("user{user}"), self.texts.get(text).map_or("", String::as_str))
    }

    /// Message `index` as a publisher writes it.
    pub(crate) fn body(&self, index: u64, timestamp: &str) -> Vec<u8> {
        let (user, text) = self.user_and_text(index);
        format!(
            "{{\"messageId\":\"{}\",\"roomId\":\"{}\",\"userId\":\"{user}\",\"message\":\"{text}\",\
             \"messageType\":\"TEXT\",\"timestamp\":\"{timestamp}\"}}",
            self.id(index),
            self.room(index)
        )
        .into_bytes()
    }
}

/// 64 bits that look random.
fn scatter(index: u64) -> u64 {
    let mixed = index.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_of_its_room_and_has_its_own_id() {
        let texts = Texts::new(7, 3, 5, 40);
        let bodies: Vec<String> = (0..50)
            .map(|index| String::from_utf8(texts.body(index, "2026-01-01T00:00:00Z")).unwrap())
            .collect();
        for (index, body) in bodies.iter().enumerate() {
            let value: serde_json::Value = serde_json::from_str(body).unwrap();
            assert_eq!(value["roomId"], texts.room(index as u64));
            assert_eq!(value["messageId"].as_str().map(str::len), Some(36));
            assert_eq!(value["message"].as_str().map(str::len), Some(40));
        }
        let ids: std::collections::HashSet<_> = (0..50).map(|index| texts.id(index)).collect();
        assert_eq!(ids.len(), 50);
    }
}
