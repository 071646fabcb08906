//! How often others are notified that the user of a socket is typing. It is remembered apart from subscriptions: whoever
//! subscribes anew is not told of more often.

use std::collections::HashMap;
use std::time::Duration;

use hubbub_core::RoomId;
use tokio::time::Instant;

/// Followers of a room are notified at most this often.
const INTERVAL: Duration = Duration::from_secs(1);
/// Rooms of a socket whose followers are notified within this time; nobody types in more.
const ROOMS_MAX: usize = 1_000;

/// The rooms whose followers were notified within the last moments.
#[derive(Default)]
pub(super) struct Typed {
    rooms: HashMap<RoomId, Instant>,
    /// When those were dropped whose time was over.
    swept_at: Option<Instant>,
}

impl Typed {
    pub(super) fn may_be_told(&mut self, room: &RoomId, now: Instant) -> bool {
        let is_over = |at: &Instant| now.duration_since(*at) >= INTERVAL;
        if self.swept_at.as_ref().is_none_or(is_over) {
            self.swept_at = Some(now);
            self.rooms.retain(|_, at| !is_over(at));
        }
        match self.rooms.get(room) {
            Some(at) => is_over(at),
            None => self.rooms.len() < ROOMS_MAX,
        }
    }

    pub(super) fn told(&mut self, room: &RoomId, now: Instant) {
        self.rooms.insert(room.clone(), now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_room_is_told_once_a_second_and_few_are_remembered() {
        let (mut typed, begin) = (Typed::default(), Instant::now());
        let room = |number: usize| RoomId::new(&format!("r-{number}")).unwrap();
        let mut tell = |number: usize, millis: u64| {
            let (room, now) = (room(number), begin + Duration::from_millis(millis));
            let may = typed.may_be_told(&room, now);
            if may {
                typed.told(&room, now);
            }
            (may, typed.rooms.len())
        };
        assert_eq!(tell(0, 0), (true, 1));
        assert_eq!((tell(0, 999), tell(1, 999)), ((false, 1), (true, 2)));
        assert_eq!((tell(0, 1_000), tell(1, 1_500)), ((true, 2), (false, 2)));
        assert_eq!(tell(2, 2_500), (true, 1), "what is over is dropped");
        let told = (0..2_000).filter(|number| tell(*number, 2_600).0).count();
        assert_eq!((told, tell(5_000, 2_600)), (999, (false, 1_000)));
        assert_eq!(tell(5_000, 3_600), (true, 1));
    }
}
