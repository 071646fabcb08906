//! The engine without threads of its own: whoever has it decides when background work is done.

#[cfg(test)]
mod service_tests;
#[cfg(test)]
mod tests;
pub(crate) mod wakeup;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hubbub_core::invariant::saturate;
use hubbub_core::store::{ApplyError, BatchCap, StoreFigures, StoreHealth};
use hubbub_core::{Clock, OpBatch, Outcome, RandomSource, Timestamp};
use parking_lot::Mutex;

use crate::embedded::backup::Backups;
use crate::embedded::disk::Disk;
use crate::embedded::error::{DoingOn, MaintainError, OpenError};
use crate::embedded::journal::end::JournalEnd;
use crate::embedded::journal::slot_path;
use crate::embedded::kv::KeyRun;
use crate::embedded::merge::segments::RETENTION_PARTS;
use crate::embedded::options::{Durability, EngineOptions, WAITING_SLOTS_SLOW};
use crate::embedded::recovery;
use crate::embedded::seal::NAMED_IN;
use crate::embedded::shared::Shared;
use crate::embedded::writer::Writer;

/// Batches while syncs are fast, and while they are slow.
const CAP_FAST: BatchCap = BatchCap { ops: 2_000, bytes: 512 * 1024 };
const CAP_SLOW: BatchCap = BatchCap { ops: 8_192, bytes: 4 * 1024 * 1024 };

/// Without batches the proven time is recorded as often as this.
const TIME_EVERY: Duration = Duration::from_secs(600);

/// Longest time one batch is held back when seals are behind.
const DELAY_MAX: Duration = Duration::from_millis(50);

/// An open data directory.
#[derive(Debug)]
pub struct Engine {
    pub(crate) shared: Shared,
    pub(crate) writer: Mutex<Writer>,
    pub(crate) backups: Backups,
    /// When the proven time is recorded next if nothing else does so, on the monotonic clock.
    record_time_at: Mutex<Duration>,
}

impl Engine {
    /// Opens the data directory that `disk` is, or makes one in it.
    ///
    /// Everything acknowledged before is there when this returns, and on the disk. The caller sees to it that no
    /// other engine has the directory open.
    pub fn open(
        options: EngineOptions,
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        random: &dyn RandomSource,
    ) -> Result<Self, OpenError> {
        let (shared, mut writer) = recovery::open(options, disk, clock, random)?;
        shared.status.set_trouble(shared.reserve_is_touched().map(StoreHealth::DiskFull));
        if let Some(warning) = shared.little_space() {
            tracing::warn!("{warning}");
        }
        // What became too old meanwhile is not in sight for a moment either.
        if let Err(error) = shared.hide_expired(shared.retentions(), |expired| writer.hide(&shared, expired))
        {
            tracing::warn!("hiding what is too old failed and is tried again: {error}");
        }
        Ok(Self {
            shared,
            writer: Mutex::new(writer),
            backups: Backups::default(),
            record_time_at: Mutex::default(),
        })
    }

    /// Makes a batch durable; see [`hubbub_core::Store::apply`].
    pub fn apply(&self, batch: &OpBatch) -> Result<Vec<Outcome>, ApplyError> {
        let delay = self.delay(batch.bytes());
        if !delay.is_zero() {
            std::thread::sleep(delay);
        }
        self.writer.lock().apply(&self.shared, batch)
    }

    /// How long to hold a batch back so that seals keep up: in proportion to how far they are behind.
    fn delay(&self, bytes: usize) -> Duration {
        let behind = self.shared.waiting_slots().saturating_sub(WAITING_SLOTS_SLOW - 1);
        let rate = self.shared.status.seal_bytes_per_s.load(Ordering::Relaxed);
        if behind == 0 || rate == 0 {
            return Duration::ZERO;
        }
        let micros = (bytes as u64).saturating_mul(behind as u64).saturating_mul(1_000_000) / rate;
        Duration::from_micros(micros).min(DELAY_MAX)
    }

    /// How large a batch is wanted now.
    pub fn batch_cap(&self) -> BatchCap {
        let slow = self.shared.status.slow_syncs.load(Ordering::Relaxed);
        let cap = if slow { CAP_SLOW } else { CAP_FAST };
        let slot = saturate(self.shared.options.slot_bytes / 8);
        BatchCap { bytes: cap.bytes.min(slot), ..cap }
    }

    /// The id of this history.
    pub fn epoch(&self) -> Arc<str> {
        Arc::clone(&self.shared.epoch)
    }

    /// Whether it takes writes.
    pub fn health(&self) -> StoreHealth {
        let Shared { status, clock, .. } = &self.shared;
        status.health_at(clock.monotonic(), self.shared.without_slot_for())
    }

    /// What it holds and does.
    pub fn figures(&self) -> StoreFigures {
        let view = self.shared.view();
        let (sync_us_last, sync_us_max) = self.shared.status.sync_us(self.shared.clock.monotonic());
        let runs: u64 =
            view.runs.iter().map(KeyRun::bytes).chain(view.key_log.iter().map(|log| log.bytes)).sum();
        let sealed: u64 = runs + view.segments.iter().map(|segment| segment.bytes()).sum::<u64>();
        let (messages, rooms) = {
            let rooms = self.shared.rooms.read();
            (rooms.messages, rooms.known)
        };
        let mut figures = StoreFigures {
            messages,
            rooms,
            keys: self.shared.keys.count(),
            disk_bytes: sealed + self.shared.slots.bytes(),
            segments: view.segments.len() as u64,
            unsealed_slots: self.shared.waiting_slots() as u64,
            sync_us_last,
            sync_us_max,
            unreadable: self.shared.status.damage.reads(),
            ..StoreFigures::default()
        };
        self.shared.queues.figures(&*self.shared.clock, &mut figures);
        figures
    }

    /// Prepares the next slot, if there is none. Says whether it did.
    pub fn prepare_step(&self) -> Result<bool, MaintainError> {
        let wanted = self.shared.slots.wants_one() && !self.shared.dirs.keeps_all();
        if wanted {
            self.shared.slots.prepare()?;
        }
        Ok(wanted)
    }

    /// Does the most urgent piece of journal work: prepare the next slot, else seal the oldest full one, else begin a
    /// new slot because what stands in this one grows too old. Says whether there was any. Also sees whether the
    /// disk is full, or not any more, and whether a directory cannot be synced.
    pub fn seal_step(&self) -> Result<bool, MaintainError> {
        let result = self.journal_work();
        let unsyncable = self.shared.dirs.check(&NAMED_IN).err();
        let trouble = match &result {
            // Nothing is sealed any more, so what is written would only wait.
            _ if unsyncable.is_some() => unsyncable.map(|error| StoreHealth::Failed(error.to_string())),
            Err(error) if error.is_disk_full() => Some(StoreHealth::DiskFull(error.to_string())),
            // Trying again may help, or a restart; until then every write would be told that too much is waiting.
            Err(error) if self.shared.without_slot_for().is_some() => {
                Some(StoreHealth::Failed(error.to_string()))
            }
            _ => self.shared.reserve_is_touched().map(StoreHealth::DiskFull),
        };
        self.shared.status.set_trouble(trouble);
        result
    }

    fn journal_work(&self) -> Result<bool, MaintainError> {
        self.shared.renew_manifest()?;
        match self.prepare_step() {
            Ok(prepared) => Ok(prepared || self.shared.seal_one()? || self.retire_old_slot()),
            // A slot that is sealed is free again, so that no further one is needed.
            Err(error) => self.shared.seal_one()?.then_some(true).ok_or(error),
        }
    }

    /// Begins a new slot when the seal of the present one, with its checkpoint of queues, must not wait for it to fill up. Or when
    /// messages of it would be kept too long if they did: that goes by the slot's age, not by the messages' times, which may lie
    /// ahead.
    fn retire_old_slot(&self) -> bool {
        if self.shared.queues.lacks_checkpoint(&*self.shared.clock) {
            return self.writer.lock().next_slot(&self.shared).is_ok();
        }
        let Some(retention) = self.shared.retention_micros() else { return false };
        let part = Duration::from_micros(saturate(retention / RETENTION_PARTS));
        let mut writer = self.writer.lock();
        let age = self.shared.clock.monotonic().saturating_sub(writer.place.begun);
        writer.place.tail.messages() > 0 && age > part && writer.next_slot(&self.shared).is_ok()
    }

    /// Hides and drops what is too old, else merges small segments where there are too many, else runs of keys, else removes what is
    /// hidden from a segment, else builds a new filter. Says whether there was anything to do. Also releases backups that nobody
    /// reads any more.
    pub fn merge_step(&self) -> Result<bool, MaintainError> {
        let shared = &self.shared;
        self.backups.forget_unused(shared.clock.monotonic());
        Ok(shared.expire(|expired| self.writer.lock().hide(shared, expired))?
            || shared.merge_one()?
            || shared.merge_keys()?
            || shared.scrub_one()?
            || shared.rebuild_filter()?)
    }

    /// Counts what is not counted yet, so that questions about statistics find little to do. Says whether there was a
    /// lot.
    pub fn count_step(&self) -> Result<bool, MaintainError> {
        self.shared.count_some()
    }

    /// Records where the journal ends if that is not recorded and nothing was written for a moment, and the proven time if
    /// neither journal nor manifest have a recent one. Never says that there is more to do.
    pub fn record_end_step(&self) -> Result<bool, MaintainError> {
        // Whoever has the lock is writing.
        let Some((end, of_journal)) = self.writer.try_lock().map(|writer| (writer.end, writer.proven)) else {
            return Ok(false);
        };
        let now = self.shared.clock.monotonic();
        if self.shared.end.is_due(end, now) {
            self.record(end)?;
        }
        self.record_time(of_journal, now)?;
        Ok(false)
    }

    /// Writes the proven time down in the manifest where nothing else does, so that a start after a long time without batches takes
    /// that for no time out of service. An attempt that fails is made again as late as one that does not.
    fn record_time(&self, of_journal: Option<i64>, now: Duration) -> Result<(), MaintainError> {
        let mut next = self.record_time_at.lock();
        if now < *next || self.shared.status.is_failed() || self.shared.keeps_all().is_some() {
            return Ok(());
        }
        *next = now.saturating_add(TIME_EVERY);
        let of_manifest = self.shared.catalog.lock().proven.map(Timestamp::as_micros);
        let proven = self.shared.clock.proven().as_micros();
        let is_recent = |time: i64| Duration::from_micros(proven.abs_diff(time)) < TIME_EVERY / 2;
        if of_journal.into_iter().chain(of_manifest).any(is_recent) {
            return Ok(());
        }
        self.shared.change_manifest(|_| {})
    }

    /// Records where the journal ends now, so that the next start knows what must be there.
    pub fn record_end(&self) -> Result<(), MaintainError> {
        let end = self.writer.lock().end;
        self.record(end)
    }

    /// Records a batch as the last one that must be there. After a failed write or sync nothing is recorded: the next
    /// start finds out what there is.
    fn record(&self, end: JournalEnd) -> Result<(), MaintainError> {
        if self.shared.options.durability == Durability::Os {
            self.sync_journal()?;
        }
        if self.shared.status.is_failed() { Ok(()) } else { self.shared.end.record(end) }
    }

    /// Makes durable what was written without waiting. When that fails, what is not on the disk would pass for durable
    /// at the next attempt, so there is none before a restart.
    fn sync_journal(&self) -> Result<(), MaintainError> {
        for tail in &self.shared.view().tails {
            let path = slot_path(tail.slot.number);
            if let Err(error) = tail.slot.file.sync_data() {
                self.shared
                    .status
                    .fail(format!("syncing {path} failed: {error}; see to the disk, then restart"));
                return Err(error).doing("syncing", &path);
            }
        }
        Ok(())
    }

    /// File and offset of the last block of the journal that is recorded as durable; `None` when the journal holds
    /// nothing that is recorded and not sealed.
    pub fn recorded_end(&self) -> Option<(String, u64)> {
        let end = self.shared.end.recorded()?;
        let is_sealed = end.journal <= self.shared.status.sealed_through.load(Ordering::Acquire);
        (end.batch > 0 && !is_sealed).then(|| (slot_path(end.slot), end.offset))
    }

    /// Lets go of the data in order: the journal is synced and its end recorded, so that the next start knows what must
    /// be there, and so is the time. Nothing acknowledged depends on it, except under [`Durability::Os`], where it makes the end a
    /// clean one.
    pub fn close(&self) -> Result<(), MaintainError> {
        let writer = self.writer.lock();
        if self.shared.status.is_failed() {
            return Ok(());
        }
        self.record(writer.end)?;
        // With the time, for a start that comes soon.
        match self.shared.change_manifest(|manifest| manifest.unsynced = false) {
            Err(error) if self.shared.options.durability == Durability::Fsync => {
                tracing::warn!("recording the time of this stop failed: {error}");
                Ok(())
            }
            changed => changed,
        }
    }
}
