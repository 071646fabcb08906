//! What other servers say, and what of it is missing.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use hubbub_core::id::is_valid_id;
use hubbub_core::{ReadMark, RoomId};

use super::super::{Hub, Notice};
use super::record::{Entry, Record};
use super::{NODE_TTL, Relay};

/// Servers that are known, counted for each partition.
const SERVERS_MAX: usize = 100_000;
/// How long the number of a server's last record is known. Whoever has nobody to tell of is silent and misses nothing.
const NUMBER_TTL: Duration = Duration::from_secs(600);

/// A server in one partition.
type Origin = (u64, u32);

struct LastRecord {
    n: u64,
    at: Duration,
    /// Whether it said something. Otherwise it had nothing more to say, and nothing is missing if it is silent.
    has_entries: bool,
    /// Whether its users are forgotten.
    is_silent: bool,
}

/// The last record of each server.
#[derive(Default)]
pub(super) struct Heard {
    servers: HashMap<Origin, LastRecord>,
    /// Partitions in which records are missing.
    lacking: HashSet<u32>,
}

impl Heard {
    /// Notes that a record came. Returns whether it is news, and not a repetition.
    fn note(&mut self, partition: u32, record: &Record<'_>, now: Duration) -> bool {
        let origin = (record.node, partition);
        let before = self.servers.get(&origin).map_or(0, |last| last.n);
        if record.n <= before || before == 0 && self.servers.len() >= SERVERS_MAX {
            return false;
        }
        // Of whoever ends and was never heard of, nothing is missing.
        if record.n != before + 1 && (before > 0 || !record.bye) {
            self.lacking.insert(partition);
        }
        if record.bye {
            self.servers.remove(&origin);
            return true;
        }
        let has_entries = !record.rooms.is_empty();
        self.servers.insert(origin, LastRecord { n: record.n, at: now, has_entries, is_silent: false });
        true
    }

    /// Servers that have become silent, and whether each said something in its last record.
    fn take_silent(&mut self, now: Duration) -> HashMap<Origin, bool> {
        self.servers.retain(|_, last| now.saturating_sub(last.at) <= NUMBER_TTL);
        let silent = self
            .servers
            .iter_mut()
            .filter(|(_, last)| !last.is_silent && now.saturating_sub(last.at) > NODE_TTL);
        silent
            .map(|(origin, last)| {
                last.is_silent = true;
                (*origin, last.has_entries)
            })
            .collect()
    }
}

impl Hub {
    /// Applies a record of another server. What is malformed is passed over.
    pub(crate) fn hear(&self, partition: u32, text: &[u8], now: Duration) {
        let Some(relay) = self.relay.get() else { return };
        let record = match serde_json::from_slice::<Record<'_>>(text) {
            Ok(record) if record.node != relay.node => record,
            Ok(_) => return,
            Err(error) => return tracing::debug!(%error, "a record about presence is malformed"),
        };
        if !relay.heard.lock().note(partition, &record, now) {
            return;
        }
        self.metrics.presence_records.inc();
        if record.bye {
            self.forget(relay, &HashSet::from([(record.node, partition)]));
            if record.rooms.iter().any(|entry| entry.lost_joins) {
                self.may_have_missed_joins_of(relay, &HashSet::from([partition]));
            }
            return;
        }
        for entry in &record.rooms {
            self.hear_entry(relay, (record.node, partition), entry);
            self.memory.enforce_bound();
        }
    }

    fn hear_entry(&self, relay: &Relay, (node, partition): Origin, entry: &Entry<'_>) {
        if entry.lost_joins {
            self.may_have_missed_joins_of(relay, &HashSet::from([partition]));
        }
        let Ok(room) = RoomId::new(&entry.room) else { return };
        entry.left.iter().for_each(|user| self.sockets.forget_membership(user, room.as_str()));
        entry.joined.iter().for_each(|(user, mark)| self.hint_join(&room, user, *mark));
        for (user, seq, unread, head) in &entry.marks {
            let mark = ReadMark { seq: *seq, unread: *unread, head: *head, moved: true };
            self.notify_marked(&room, user, mark);
        }
        let is_anybody_here = self.with_channel(room.as_str(), |channel| {
            channel.hear(self, node, entry);
            for user in entry.typing.iter().filter(|user| is_valid_id(user)) {
                channel.notify(self, &Notice::Typing { room: room.as_str(), user }, None);
            }
            !channel.present.is_empty()
        });
        if let Some(answering) = &entry.ask
            && (is_anybody_here == Some(true) || answering.contains(&relay.node))
        {
            relay.change(&room, |changes| changes.is_full = true);
        }
    }

    /// Forgets servers that are gone, and makes up for records that are missing.
    pub(super) fn repair(&self, relay: &Relay, now: Duration) {
        let mut silent = relay.heard.lock().take_silent(now);
        if !silent.is_empty() {
            // If one of these comes again, what it said is missing here.
            let forgotten = self.forget(relay, &silent.keys().copied().collect());
            relay.heard.lock().servers.retain(|origin, _| !forgotten.contains(origin));
            silent.retain(|origin, has_entries| *has_entries || forgotten.contains(origin));
        }
        let mut doubtful: HashSet<u32> = silent.keys().map(|(_, partition)| *partition).collect();
        let lacking = std::mem::take(&mut relay.heard.lock().lacking);
        self.ask(relay, &lacking, true);
        doubtful.extend(lacking);
        self.may_have_missed_joins_of(relay, &doubtful);
    }

    /// Hints in these partitions may be missing.
    fn may_have_missed_joins_of(&self, relay: &Relay, partitions: &HashSet<u32>) {
        if !partitions.is_empty() {
            self.may_have_missed_joins(|user| partitions.contains(&relay.bus.partition_of(user.as_str())));
        }
    }

    /// Asks the others who is in the followed rooms of these partitions, which have not been heard before. What was told in
    /// them before is missing.
    #[cfg(feature = "kafka")]
    pub(crate) fn ask_about(&self, partitions: &HashSet<u32>) {
        if let Some(relay) = self.relay.get() {
            self.ask(relay, partitions, false);
            self.may_have_missed_joins_of(relay, partitions);
        }
    }

    /// Asks about the followed rooms of these partitions. If it `tells`, too, everybody hears who is there.
    fn ask(&self, relay: &Relay, partitions: &HashSet<u32>, tells: bool) {
        if partitions.is_empty() {
            return;
        }
        for shard in &self.shards {
            let mut rooms: Vec<(RoomId, bool)> = Vec::new();
            for (room, channel) in &*shard.lock() {
                if partitions.contains(&relay.bus.partition_of(room.as_str())) {
                    rooms.push((room.clone(), tells && !channel.present.is_empty()));
                }
            }
            for (room, tells) in rooms {
                relay.change(&room, |changes| {
                    changes.asks = true;
                    changes.is_full |= tells;
                });
            }
        }
    }

    /// Forgets the users of servers that are gone. Returns those that had any here.
    fn forget(&self, relay: &Relay, gone: &HashSet<Origin>) -> HashSet<Origin> {
        let mut forgotten = HashSet::new();
        for shard in &self.shards {
            for (room, channel) in shard.lock().iter_mut() {
                let nodes = channel.elsewhere.nodes();
                if nodes.is_empty() {
                    continue;
                }
                let partition = relay.bus.partition_of(room.as_str());
                let gone = nodes.into_iter().filter(|node| gone.contains(&(*node, partition)));
                let gone: HashSet<u64> = gone.collect();
                channel.forget(self, room.as_str(), &gone);
                forgotten.extend(gone.into_iter().map(|node| (node, partition)));
            }
            self.memory.enforce_bound();
        }
        forgotten
    }
}
