//! Bounds of what waits for the store or a broker: all of it together, and the half that one room, queue or key may hold.

use std::hash::{DefaultHasher, Hash, Hasher};

use hubbub_core::{KvOp, Lane, Op, OpBatch, QueueOp};

/// Bound of the operations that wait. One room, queue or key may hold half of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    /// Operations.
    pub ops: usize,
    /// Bytes of texts and ids.
    pub bytes: usize,
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self { ops: 65_536, bytes: 64 * 1024 * 1024 }
    }
}

impl QueueLimits {
    fn half(self) -> Self {
        Self { ops: self.ops / 2, bytes: self.bytes / 2 }
    }
}

/// Size of the table that counts what waits by the hash of its lane. Lanes with the same hash share their half.
const LANE_BUCKETS: usize = 4_096;

/// A number of operations, and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) ops: usize,
    pub(crate) bytes: usize,
}

impl Load {
    /// Something of any size fits where nothing is, or nobody could ever send it.
    fn has_room_for(self, more: Self, limits: QueueLimits) -> bool {
        (self.ops == 0 || self.ops + more.ops <= limits.ops)
            && (self.bytes == 0 || self.bytes + more.bytes <= limits.bytes)
    }

    fn add(&mut self, more: Self) {
        self.ops += more.ops;
        self.bytes += more.bytes;
    }

    fn remove(&mut self, less: Self) {
        self.ops -= less.ops;
        self.bytes -= less.bytes;
    }
}

/// Consecutive operations of one lane. Their bytes are those of their texts or values.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaneLoad {
    bucket: usize,
    pub(crate) load: Load,
}

/// What waits.
#[derive(Debug)]
pub(crate) struct WaitingLoad {
    limits: QueueLimits,
    total: Load,
    lanes: Vec<Load>,
}

impl WaitingLoad {
    pub(crate) fn new(limits: QueueLimits) -> Self {
        Self { limits, total: Load::default(), lanes: vec![Load::default(); LANE_BUCKETS] }
    }

    pub(crate) fn total(&self) -> Load {
        self.total
    }

    /// Adds all of it, or nothing if it does not fit. Returns whether it does.
    pub(crate) fn admit(&mut self, total: Load, lanes: &[LaneLoad]) -> bool {
        let half = self.limits.half();
        let of_lane = |lane: &LaneLoad| self.lanes.get(lane.bucket).copied().unwrap_or_default();
        let fits = self.total.has_room_for(total, self.limits)
            && lanes.iter().all(|lane| of_lane(lane).has_room_for(lane.load, half));
        if fits {
            self.total.add(total);
            self.each_lane(lanes, Load::add);
        }
        fits
    }

    /// What was admitted waits no longer.
    pub(crate) fn release(&mut self, total: Load, lanes: &[LaneLoad]) {
        self.total.remove(total);
        self.each_lane(lanes, Load::remove);
    }

    fn each_lane(&mut self, lanes: &[LaneLoad], change: fn(&mut Load, Load)) {
        for lane in lanes {
            if let Some(waiting) = self.lanes.get_mut(lane.bucket) {
                change(waiting, lane.load);
            }
        }
    }
}

/// What the operations load each lane with, in their order.
pub(crate) fn lane_loads(ops: &OpBatch) -> Vec<LaneLoad> {
    let mut loads: Vec<LaneLoad> = Vec::with_capacity(1);
    let mut last_lane = None;
    for op in ops.iter() {
        let more = Load { ops: 1, bytes: payload_bytes(&op) };
        match loads.last_mut() {
            Some(last) if last_lane == Some(op.lane()) => last.load.add(more),
            _ => loads.push(LaneLoad { bucket: lane_bucket(op.lane()), load: more }),
        }
        last_lane = Some(op.lane());
    }
    loads
}

fn payload_bytes(op: &Op<'_>) -> usize {
    match op {
        Op::Send(send) => send.text.len(),
        Op::Queue(QueueOp::Send(send)) => send.text.len(),
        Op::Kv(KvOp::Put { value, .. }) => value.len(),
        Op::Change(_) | Op::Queue(_) | Op::Kv(_) => 0,
    }
}

fn lane_bucket(lane: Lane<'_>) -> usize {
    let mut hasher = DefaultHasher::new();
    lane.hash(&mut hasher);
    let [low, high, ..] = hasher.finish().to_le_bytes();
    usize::from(u16::from_le_bytes([low, high])) % LANE_BUCKETS
}
