//! How evenly a load was spread over rooms, and which of them were slow.

use hubbub_core::invariant::saturate;
use serde::Serialize;

use super::Table;
use crate::job::Shape;
use crate::statistics::Moments;

/// Rooms that are named as the slowest.
const SLOWEST_MAX: usize = 10;

/// The rooms of a run. Of a single room the figures are those of the run.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Rooms {
    pub(crate) count: usize,
    /// Messages of a room, and by how much they scatter: the standard deviation as a share of the mean.
    messages_min: u64,
    messages_mean: f64,
    messages_max: u64,
    messages_variation: f64,
    /// By how much the mean latencies of rooms scatter, as a share of their mean.
    pub(crate) latency_variation: f64,
    /// Those with the longest mean latency.
    pub(crate) slowest: Vec<RoomFigures>,
    #[serde(skip)]
    all: Vec<RoomFigures>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RoomFigures {
    pub(crate) room: String,
    pub(crate) messages: u64,
    pub(crate) mean_ms: f64,
    /// Sample variance, in square milliseconds.
    variance_ms2: f64,
}

impl Rooms {
    /// By the latencies of each room in microseconds. `None` with fewer than two rooms that got a message.
    pub(crate) fn of(by_room: &[Moments], shape: &Shape) -> Option<Self> {
        let figures = |(number, room): (usize, &Moments)| RoomFigures {
            // Samples number rooms with 16 bits.
            room: shape.room_name(saturate(number)),
            messages: room.count,
            mean_ms: room.mean / 1e3,
            variance_ms2: room.variance() / 1e6,
        };
        let all: Vec<RoomFigures> =
            by_room.iter().enumerate().filter(|(_, room)| room.count > 0).map(figures).collect();
        if all.len() < 2 {
            return None;
        }
        let messages: Moments = all.iter().map(|room| room.messages as f64).collect();
        let latencies: Moments = all.iter().map(|room| room.mean_ms).collect();
        let mut slowest: Vec<&RoomFigures> = all.iter().collect();
        slowest.sort_by(|one, other| other.mean_ms.total_cmp(&one.mean_ms));
        Some(Self {
            count: all.len(),
            messages_min: all.iter().map(|room| room.messages).min().unwrap_or(0),
            messages_mean: messages.mean,
            messages_max: all.iter().map(|room| room.messages).max().unwrap_or(0),
            messages_variation: messages.variation(),
            latency_variation: latencies.variation(),
            slowest: slowest.into_iter().take(SLOWEST_MAX).cloned().collect(),
            all,
        })
    }

    /// All rooms, as CSV has them.
    pub(crate) fn table(&self) -> Table {
        let mut table = Table::new(["roomId", "messages", "meanMs", "varianceMs2"]);
        for RoomFigures { room, messages, mean_ms, variance_ms2 } in &self.all {
            table.row([room.clone(), messages.to_string(), mean_ms.to_string(), variance_ms2.to_string()]);
        }
        table
    }
}

impl std::fmt::Display for Rooms {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            count, messages_min, messages_max, messages_variation, latency_variation, slowest, ..
        } = self;
        let [messages, latency] = [messages_variation, latency_variation].map(|share| 100.0 * share);
        write!(
            out,
            "{count} with {messages_min} to {messages_max} messages (variation {messages:.1} %), mean latencies vary by \
             {latency:.1} %"
        )?;
        slowest
            .first()
            .map_or(Ok(()), |slow| write!(out, ", the slowest is {}: {:.3} ms", slow.room, slow.mean_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_are_compared() {
        let shape = Shape::new(1, 10, None, "r-");
        let room = |latencies: &[f64]| latencies.iter().map(|ms| ms * 1e3).collect::<Moments>();
        let by_room = [room(&[]), room(&[1.0, 3.0]), room(&[]), room(&[4.0, 4.0, 4.0, 4.0])];
        let rooms = Rooms::of(&by_room, &shape).unwrap();
        assert_eq!((rooms.count, rooms.messages_min, rooms.messages_max), (2, 2, 4), "0 is no room");
        assert_eq!(rooms.messages_mean, 3.0);
        // 2 and 4, 2 and 4 ms: the deviation is √2, the mean 3.
        let variation = 2.0_f64.sqrt() / 3.0;
        assert!((rooms.messages_variation - variation).abs() < 1e-9, "{rooms:?}");
        assert!((rooms.latency_variation - variation).abs() < 1e-9, "{rooms:?}");
        assert_eq!(rooms.slowest[0].room, "r-3");
        assert_eq!(rooms.table().csv(), "roomId,messages,meanMs,varianceMs2\nr-1,2,2,2\nr-3,4,4,0\n");
        let said = "2 with 2 to 4 messages (variation 47.1 %), mean latencies vary by 47.1 %, the slowest is r-3: 4.000 ms";
        assert_eq!(rooms.to_string(), said);
        assert!(Rooms::of(&by_room[..3], &shape).is_none());
    }
}
