//! Applies records of other servers, and requests what is missing.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use hubbub_core::id::is_valid_id;
use hubbub_core::{ReadMark, RoomId};

use super::super::{Hub, Notice};
use super::record::{Entry, Record};
use super::{NODE_TTL, Relay};

/// Servers that are known, counted for each partition.
const SERVERS_MAX: usize = 100_000;
/// How long the number of a server's last record is kept. A server without users is silent, and nothing of it is missing.
const NUMBER_TTL: Duration = Duration::from_secs(600);

/// A server in one partition.
type Origin = (u64, u32);

struct LastRecord {
    n: u64,
    at: Duration,
    /// Whether it had entries. If it had none, nothing is missing while the server is silent.
    has_entries: bool,
    /// Whether its users are forgotten.
    is_silent: bool,
}

/// The last record of each server.
#[derive(Default)]
pub(super) struct PeerCursors {
    servers: HashMap<Origin, LastRecord>,
    /// Partitions in which records are missing.
    gaps: HashSet<u32>,
}

impl PeerCursors {
    /// Advances to this record. Returns false if it is a repetition.
    fn advance(&mut self, partition: u32, record: &Record<'_>, now: Duration) -> bool {
        let origin = (record.node, partition);
        let before = self.servers.get(&origin).map_or(0, |last| last.n);
        if record.n <= before || before == 0 && self.servers.len() >= SERVERS_MAX {
            return false;
        }
        // Nothing is missing of an unknown server that stops.
        if record.n != before + 1 && (before > 0 || !record.bye) {
            self.gaps.insert(partition);
        }
        if record.bye {
            self.servers.remove(&origin);
            return true;
        }
        let has_entries = !record.rooms.is_empty();
        self.servers.insert(origin, LastRecord { n: record.n, at: now, has_entries, is_silent: false });
        true
    }

    /// Servers that have become silent, and whether the last record of each had entries.
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
    /// Applies a record of another server. Malformed ones are ignored.
    pub(crate) fn apply_record(&self, partition: u32, text: &[u8], now: Duration) {
        let Some(relay) = self.relay.get() else { return };
        let record = match serde_json::from_slice::<Record<'_>>(text) {
            Ok(record) if record.node != relay.node => record,
            Ok(_) => return,
            Err(error) => return tracing::debug!(%error, "a record about presence is malformed"),
        };
        if !relay.cursors.lock().advance(partition, &record, now) {
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
            self.apply_entry(relay, (record.node, partition), entry);
            self.memory.enforce_bound();
        }
    }

    fn apply_entry(&self, relay: &Relay, (node, partition): Origin, entry: &Entry<'_>) {
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
            channel.apply_presence(self, node, entry);
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
        let mut silent = relay.cursors.lock().take_silent(now);
        if !silent.is_empty() {
            // If one of these comes back, its earlier records are missing here.
            let forgotten = self.forget(relay, &silent.keys().copied().collect());
            relay.cursors.lock().servers.retain(|origin, _| !forgotten.contains(origin));
            silent.retain(|origin, has_entries| *has_entries || forgotten.contains(origin));
        }
        let mut affected: HashSet<u32> = silent.keys().map(|(_, partition)| *partition).collect();
        let gaps = std::mem::take(&mut relay.cursors.lock().gaps);
        self.request_snapshots(relay, &gaps, true);
        affected.extend(gaps);
        self.may_have_missed_joins_of(relay, &affected);
    }

    /// Hints in these partitions may be missing.
    fn may_have_missed_joins_of(&self, relay: &Relay, partitions: &HashSet<u32>) {
        if !partitions.is_empty() {
            self.may_have_missed_joins(|user| partitions.contains(&relay.bus.partition_of(user.as_str())));
        }
    }

    /// Requests snapshots of the followed rooms of these partitions, whose records arrive from now on. Earlier ones are missing.
    #[cfg(feature = "kafka")]
    pub(crate) fn begin_partitions(&self, partitions: &HashSet<u32>) {
        if let Some(relay) = self.relay.get() {
            self.request_snapshots(relay, partitions, false);
            self.may_have_missed_joins_of(relay, partitions);
        }
    }

    /// Requests snapshots of the followed rooms of these partitions, and sends those of this server, if it `answers`, too.
    fn request_snapshots(&self, relay: &Relay, partitions: &HashSet<u32>, answers: bool) {
        if partitions.is_empty() {
            return;
        }
        for shard in &self.shards {
            let mut rooms: Vec<(RoomId, bool)> = Vec::new();
            for (room, channel) in &*shard.lock() {
                if partitions.contains(&relay.bus.partition_of(room.as_str())) {
                    rooms.push((room.clone(), answers && !channel.present.is_empty()));
                }
            }
            for (room, answers) in rooms {
                relay.change(&room, |changes| {
                    changes.asks = true;
                    changes.is_full |= answers;
                });
            }
        }
    }

    /// Forgets the users of servers that are gone. Returns those that had any here.
    fn forget(&self, relay: &Relay, gone: &HashSet<Origin>) -> HashSet<Origin> {
        let mut forgotten = HashSet::new();
        for shard in &self.shards {
            for (room, channel) in shard.lock().iter_mut() {
                let nodes = channel.remote.nodes();
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
