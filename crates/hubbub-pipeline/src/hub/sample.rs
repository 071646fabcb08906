//! Measures how long live messages wait in outboxes: of one delivery in [`EVERY`], and of the first one of each outbox.

use std::fmt::{Debug, Formatter};
use std::sync::Arc;
use std::time::Duration;

use hubbub_core::clock::Clock;

use super::Hub;
use super::memory::LiveMemory;

/// So many deliveries of an outbox share the price of one measurement: the clock is read twice.
const EVERY: u64 = 32;

/// The delivery of an outbox that is measured now, by its number, and when it was queued.
#[derive(Debug, Default)]
pub(super) struct Sample(Option<(u64, Duration)>);

impl Sample {
    /// The outbox queues its delivery with this number.
    pub(super) fn queued(&mut self, number: u64, memory: &LiveMemory) {
        if number.is_multiple_of(EVERY) && self.0.is_none() {
            self.0 = memory.clock().map(|clock| (number, clock.monotonic()));
        }
    }

    /// The connection takes the delivery with this number.
    pub(super) fn taken(&mut self, number: u64, memory: &LiveMemory) {
        if let Some((_, queued_at)) = self.0.take_if(|(sampled, _)| *sampled == number)
            && let Some(clock) = memory.clock()
        {
            memory.record_wait(clock.monotonic().saturating_sub(queued_at));
        }
    }
}

impl Hub {
    /// From now on measures, by this clock, how long some of the live messages wait for their subscribers' connections.
    pub(crate) fn measure_waits(&self, clock: Arc<dyn Clock>) {
        self.memory.measure_waits(clock);
    }
}

/// Measures the waits.
pub(super) struct Timer(pub(super) Arc<dyn Clock>);

impl Debug for Timer {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("Timer")
    }
}

#[cfg(test)]
mod tests {
    use hubbub_core::RoomId;
    use hubbub_core::clock::ManualClock;

    use super::*;
    use crate::hub::{Delivery, Outbox, OutboxLimits};
    use crate::metrics::{Metrics, Readable as _};

    #[test]
    fn one_delivery_in_many_is_measured_with_what_it_waited() {
        let (metrics, clock) = (Arc::new(Metrics::default()), Arc::new(ManualClock::default()));
        let before = metrics.delivery_time.read();
        let memory = LiveMemory::new(1 << 20, metrics.clone());
        let outbox = Outbox::new(OutboxLimits::default(), memory.clone(), Arc::default());
        let delivery = || Delivery::Joined { room: RoomId::new("r").unwrap(), start: 0, read_seq: 0 };
        outbox.push(delivery());
        outbox.pop().unwrap();
        assert_eq!(metrics.delivery_time.read().count_since(&before), 0, "there is no clock yet");
        memory.measure_waits(clock.clone());
        for _ in 1..=2 * EVERY {
            outbox.push(delivery());
        }
        clock.advance_micros(3_000_000);
        for _ in 1..EVERY {
            outbox.pop().unwrap();
        }
        assert_eq!(metrics.delivery_time.read().count_since(&before), 0);
        outbox.pop().unwrap();
        let read = metrics.delivery_time.read();
        assert_eq!((read.count_since(&before), read.mean_since(&before)), (1, Some(3.0)));
        // While one was measured, another one that would have been came and is passed over.
        while outbox.pop().is_some() {}
        assert_eq!(metrics.delivery_time.read().count_since(&before), 1);
        // A measurement that an outbox took along when it was cut is none.
        assert!((0..EVERY).all(|_| outbox.push(delivery())));
        outbox.cut();
        assert!(outbox.pop().is_none());
        assert_eq!(metrics.delivery_time.read().count_since(&before), 1);
    }
}
