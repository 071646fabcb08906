//! How evenly a load was spread over rooms, and which of them were slow.

use std::path::Path;

use serde::Serialize;

use super::{Table, write_files};
use crate::load::message_plan::Shape;
use crate::statistics::Moments;

/// Rooms that are named as the slowest.
const SLOWEST_MAX: usize = 10;

/// The rooms of a run. Of a single room the figures are those of the run.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Rooms {
    pub(crate) count: usize,
    /// Messages of a room, of those that got none too, and by how much they scatter: the standard deviation as a share of the
    /// mean.
    messages_min: u64,
    messages_mean: f64,
    messages_max: u64,
    messages_variation: f64,
    /// By how much the mean latencies of rooms that got messages scatter, as a share of their mean.
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
    /// Mean latency in milliseconds; `None` where there was no message.
    pub(crate) mean_ms: Option<f64>,
    /// Sample variance of the latencies, in square milliseconds; `None` where there was no message.
    variance_ms2: Option<f64>,
}

impl RoomFigures {
    /// By the latencies in microseconds.
    fn new(room: String, latencies: &Moments) -> Self {
        let of_some = |value: f64| (latencies.count > 0).then_some(value);
        Self {
            room,
            messages: latencies.count,
            mean_ms: of_some(latencies.mean / 1e3),
            variance_ms2: of_some(latencies.variance() / 1e6),
        }
    }
}

impl Rooms {
    /// By the latencies of each room in microseconds, at its number. `None` with a single room, and without any message.
    pub(crate) fn of(by_room: &[Moments], shape: &Shape) -> Option<Self> {
        if shape.rooms < 2 || by_room.iter().all(|room| room.count == 0) {
            return None;
        }
        let figures = |number: u16| {
            let latencies = by_room.get(usize::from(number)).copied().unwrap_or_default();
            RoomFigures::new(shape.room_name(number), &latencies)
        };
        let all: Vec<RoomFigures> = (1..=shape.rooms).map(figures).collect();
        let messages: Moments = all.iter().map(|room| room.messages as f64).collect();
        let latencies: Moments = all.iter().filter_map(|room| room.mean_ms).collect();
        let mut slowest: Vec<(f64, &RoomFigures)> =
            all.iter().filter_map(|room| Some((room.mean_ms?, room))).collect();
        slowest.sort_by(|one, other| other.0.total_cmp(&one.0));
        Some(Self {
            count: all.len(),
            messages_min: all.iter().map(|room| room.messages).min().unwrap_or(0),
            messages_mean: messages.mean,
            messages_max: all.iter().map(|room| room.messages).max().unwrap_or(0),
            messages_variation: messages.variation(),
            latency_variation: latencies.variation(),
            slowest: slowest.into_iter().take(SLOWEST_MAX).map(|(_, room)| room.clone()).collect(),
            all,
        })
    }

    /// Writes `rooms.csv` into `dir`, if there are several rooms.
    pub(crate) fn write_files(rooms: Option<&Self>, dir: &Path) -> anyhow::Result<()> {
        rooms.map_or(Ok(()), |rooms| write_files(dir, [("rooms.csv", rooms.table().csv())]))
    }

    /// All rooms, as CSV has them.
    fn table(&self) -> Table {
        let mut table = Table::new(["roomId", "messages", "meanMs", "varianceMs2"]);
        for RoomFigures { room, messages, mean_ms, variance_ms2 } in &self.all {
            let [mean_ms, variance_ms2] =
                [mean_ms, variance_ms2].map(|figure| figure.map_or_else(String::new, |it| it.to_string()));
            table.row([room.clone(), messages.to_string(), mean_ms, variance_ms2]);
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
        let slow = slowest.first().and_then(|slow| Some((&slow.room, slow.mean_ms?)));
        slow.map_or(Ok(()), |(room, mean_ms)| write!(out, ", the slowest is {room}: {mean_ms:.3} ms"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_are_compared() {
        let shape = Shape::new(1, 10, None, "r-").of_rooms(3);
        let room = |latencies: &[f64]| latencies.iter().map(|ms| ms * 1e3).collect::<Moments>();
        let by_room = [room(&[]), room(&[1.0, 3.0]), room(&[]), room(&[4.0, 4.0, 4.0, 4.0])];
        let rooms = Rooms::of(&by_room, &shape).unwrap();
        assert_eq!((rooms.count, rooms.messages_min, rooms.messages_max), (3, 0, 4), "0 is no room");
        assert_eq!(rooms.messages_mean, 2.0);
        // 2, 0 and 4 messages: the deviation is 2, the mean as well.
        assert!((rooms.messages_variation - 1.0).abs() < 1e-9, "{rooms:?}");
        // 2 and 4 ms: the deviation is √2, the mean 3.
        assert!((rooms.latency_variation - 2.0_f64.sqrt() / 3.0).abs() < 1e-9, "{rooms:?}");
        assert_eq!(rooms.slowest[0].room, "r-3");
        assert_eq!(
            rooms.table().csv(),
            "roomId,messages,meanMs,varianceMs2\nr-1,2,2,2\nr-2,0,,\nr-3,4,4,0\n"
        );
        let said = "3 with 0 to 4 messages (variation 100.0 %), mean latencies vary by 47.1 %, the slowest is r-3: 4.000 ms";
        assert_eq!(rooms.to_string(), said);
    }

    #[test]
    fn rooms_without_a_message_are_listed() {
        let shape = Shape::new(1, 10, None, "r-").of_rooms(3);
        // Only the first room got messages, so the record ends with it.
        let by_room = [Moments::default(), [2e3].into_iter().collect()];
        let rooms = Rooms::of(&by_room, &shape).unwrap();
        let csv = rooms.table().csv();
        assert_eq!(csv, "roomId,messages,meanMs,varianceMs2\nr-1,1,2,0\nr-2,0,,\nr-3,0,,\n");
        assert_eq!(rooms.slowest.len(), 1);
        assert!(Rooms::of(&by_room, &shape.clone().of_rooms(1)).is_none(), "the figures of the run");
        assert!(Rooms::of(&[], &shape).is_none(), "nothing was sent");
    }
}
