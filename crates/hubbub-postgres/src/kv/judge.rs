//! What a batch comes to, judged in memory, one operation after another.

use std::collections::HashMap;

use hubbub_core::kv::{KvChanged, has_expired};
use hubbub_core::{KvOp, KvOutcome, Outcome, Refusal, Timestamp};

/// A key as it stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct State<'a> {
    pub(super) revision: u64,
    pub(super) expires_at: Option<Timestamp>,
    /// `None` = the value is the one in the database.
    pub(super) value: Option<&'a [u8]>,
}

/// A batch while it is judged.
#[derive(Debug)]
pub(super) struct Judging<'a> {
    now: Timestamp,
    /// The last one given.
    pub(super) revision: u64,
    /// Keys that are there, swept or not.
    states: HashMap<&'a [u8], State<'a>>,
    /// What has run out, in the order of its going, and whether there is more of it.
    over: Vec<(&'a [u8], u64)>,
    is_more_over: bool,
    /// What happened, in its order, each a revision further.
    pub(super) changes: Vec<(u64, &'a [u8], KvChanged)>,
}

impl<'a> Judging<'a> {
    /// A batch after `revision`, for keys of which these are there.
    pub(super) fn new(now: Timestamp, revision: u64, states: HashMap<&'a [u8], State<'a>>) -> Self {
        Self { now, revision, states, over: Vec::new(), is_more_over: false, changes: Vec::new() }
    }

    /// What a sweep finds: keys that have run out, and their revisions.
    pub(super) fn is_over(&mut self, key: &'a [u8], state: State<'a>) {
        self.over.push((key, state.revision));
        self.states.insert(key, state);
    }

    /// There is more than was named.
    pub(super) fn is_more_over(&mut self) {
        self.is_more_over = true;
    }

    fn seen(&self, key: &[u8]) -> Option<u64> {
        let state = self.states.get(key)?;
        (!has_expired(state.expires_at, self.now)).then_some(state.revision)
    }

    fn change(&mut self, key: &'a [u8], what: KvChanged) -> u64 {
        self.revision += 1;
        self.changes.push((self.revision, key, what));
        self.revision
    }

    pub(super) fn judge(&mut self, op: &KvOp<'a>) -> Outcome {
        let (key, condition) = match *op {
            KvOp::Put { key, condition, .. } | KvOp::Delete { key, condition } => (key, condition),
            KvOp::Sweep => return self.sweep(),
        };
        let seen = self.seen(key);
        if !condition.holds(seen) {
            return Outcome::Refused(Refusal::Condition { revision: seen });
        }
        Outcome::Kv(match *op {
            KvOp::Put { value, ttl_ms, .. } => {
                let revision = self.change(key, KvChanged::Put);
                let expires_at = ttl_ms.map(|ttl_ms| after(self.now, ttl_ms));
                self.states.insert(key, State { revision, expires_at, value: Some(value) });
                KvOutcome::Put { revision, expires_at, created: seen.is_none() }
            }
            _ if seen.is_none() => KvOutcome::Deleted { revision: None },
            _ => {
                self.states.remove(key);
                KvOutcome::Deleted { revision: Some(self.change(key, KvChanged::Deleted)) }
            }
        })
    }

    fn sweep(&mut self) -> Outcome {
        let mut last = None;
        for (key, revision) in std::mem::take(&mut self.over) {
            // Unless the batch put another value in its place.
            if self.states.get(key).is_some_and(|state| state.revision == revision) {
                self.states.remove(key);
                last = Some(self.change(key, KvChanged::Expired));
            }
        }
        Outcome::Kv(KvOutcome::Swept { revision: last, more: self.is_more_over })
    }

    /// Each key that changed, once, in the order of the changes: its new state, or `None` where it is gone.
    pub(super) fn written(&self) -> impl Iterator<Item = (&'a [u8], Option<State<'a>>)> {
        let last: HashMap<&[u8], u64> =
            self.changes.iter().map(|(revision, key, _)| (*key, *revision)).collect();
        let is_last = move |(revision, key, _): &&(u64, &'a [u8], KvChanged)| last.get(key) == Some(revision);
        self.changes.iter().filter(is_last).map(|(_, key, _)| (*key, self.states.get(key).copied()))
    }
}

/// The end of a time that begins now.
pub(super) fn after(now: Timestamp, ms: u64) -> Timestamp {
    let micros = i64::try_from(ms.saturating_mul(1_000)).unwrap_or(i64::MAX);
    Timestamp::from_micros(now.as_micros().saturating_add(micros))
}
