//! Delivery of encoded messages to the subscribers of a room.

use super::Hub;
use super::channel::{Channel, Subscriber};
use super::encoded::{ChunkEncoder, EncodedChunk};
use super::membership_checks::PausedBatch;
use crate::timeline::Source;

impl Hub {
    /// Delivers messages that this server or another one committed in the store's epoch of this number.
    pub(super) fn deliver(
        &self,
        room: &str,
        encoder: Option<ChunkEncoder>,
        source: Source,
        epoch_number: u64,
    ) {
        let Some(mut encoder) = encoder else { return };
        let predecessors = encoder.take_predecessors();
        let Some(batch) = self.finish(encoder) else { return };
        let Some(behind) = self.behind.get() else {
            self.with_channel(room, |channel| self.push(channel, room, &batch, source));
            return;
        };
        let has_gap = self.with_channel(room, |channel| {
            if self.epoch_number() != epoch_number {
                return None;
            }
            let held = PausedBatch { batch, predecessors, source };
            let held = channel.hold_back(held, self.memory.is_half_full())?;
            Some(self.deliver_held(channel, room, held))
        });
        if has_gap.flatten() == Some(true) {
            behind.insert(room);
        }
    }

    /// Delivers what continues the room. Returns whether the rest lies behind a gap, or may not be delivered yet.
    pub(super) fn deliver_held(&self, channel: &mut Channel, room: &str, held: PausedBatch) -> bool {
        let PausedBatch { batch, predecessors, source } = held;
        if !channel.is_compared {
            channel.published.begin(predecessors.first);
            return true;
        }
        let (next, has_gap) = channel.published.continuation(&batch, &predecessors);
        self.push(channel, room, &next, source);
        has_gap
    }

    pub(super) fn finish(&self, encoder: ChunkEncoder) -> Option<EncodedChunk> {
        encoder.finish(&self.memory, self.timeline.deliveries())
    }

    pub(super) fn push(&self, channel: &mut Channel, room: &str, chunk: &EncodedChunk, source: Source) {
        let Some(seqs) = chunk.seqs() else { return };
        if let Some(deliveries) = chunk.deliveries() {
            // Before anybody has them, so that nothing is delivered before it is published.
            self.timeline.record_publication(room, seqs, source, deliveries);
        }
        let mut live = 0;
        let is_full = |subscriber: &mut Subscriber| !subscriber.push(room, chunk, &mut live);
        let cut: Vec<Subscriber> = channel.subscribers.extract_if(.., is_full).collect();
        for gone in cut {
            self.metrics.slow_subscribers.inc();
            self.release(channel, room, &gone);
        }
        if let Some(deliveries) = chunk.deliveries() {
            deliveries.add_subscribers(live);
        }
        channel.published.advance(chunk);
    }
}
