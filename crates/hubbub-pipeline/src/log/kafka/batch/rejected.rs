//! Where records go that cannot be stored: to the topic of dead letters with the reason, or, messages of another partition, to
//! that one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use hubbub_core::ErrorCode;
use rdkafka::message::{Header, Headers, OwnedHeaders};
use tokio::sync::watch;

use super::{Batch, Record, RecordKind};
use crate::batcher::Waiter;
use crate::log::backoff::Backoff;
use crate::log::body::{Rejection, answer};
use crate::log::kafka::Core;
use crate::log::kafka::producer::OwnRecord;
use crate::log::kafka::unconfirmed::Origin;

/// Header of a record that was written again: the partition and the offset of the first one.
const FORWARDED: &str = "hubbub-forwarded";
/// Header of a dead letter that would be too large with its value and all its headers: the bytes of the value.
const TRUNCATED: &str = "hubbub-truncated";
/// What a header, and a record and the batch that it is written in, take besides their contents, at most.
const HEADER_OVERHEAD: usize = 10;
pub(super) const RECORD_OVERHEAD: usize = 1_024;
/// Of a key that a truncated dead letter keeps, and of any reason.
const KEY_MAX: usize = 1_024;
const REASON_MAX: usize = 4_096;
/// How long a server that stops tries on to write what the store refused, and the pauses between.
const STOP_PATIENCE: Duration = Duration::from_secs(5);
const STOP_PAUSE: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Destination {
    Dead,
    Partition(u32),
}

impl Batch {
    /// Writes what cannot be stored elsewhere. What was written is not written again when the rest is tried once more.
    pub(super) async fn write_elsewhere(&mut self, core: &Core, partition: u32) -> Result<(), String> {
        let mut destinations: BTreeMap<Destination, (Vec<usize>, Vec<OwnRecord<'_>>)> = BTreeMap::new();
        let mut failure = None;
        // One that is refused may be ready a moment later: what follows in it must not come before.
        let mut refused = BTreeSet::new();
        for (index, record) in self.records.iter().enumerate() {
            let at = format!("{partition}/{}", record.offset);
            let (place, own) = match &record.kind {
                RecordKind::Message | RecordKind::Change(_) | RecordKind::WrittenElsewhere => continue,
                RecordKind::Rejected(rejection) => {
                    (Destination::Dead, self.letter(core, record, rejection, &at))
                }
                RecordKind::Misplaced(target, room, body) => {
                    if refused.contains(target) {
                        continue;
                    }
                    // Its own partition goes on, so it cannot wait for a restart.
                    if let Some(reason) = core.faults.stop_of(*target) {
                        let rejection = Rejection { code: ErrorCode::Unavailable, reason };
                        (Destination::Dead, self.letter(core, record, &rejection, &at))
                    } else if let Some(reason) = core.faults.refusal(std::iter::once(*target)) {
                        failure = Some(reason);
                        refused.insert(*target);
                        continue;
                    } else {
                        let header = Header { key: FORWARDED, value: Some(at.as_str()) };
                        let (topic, key) = (core.topics.messages.as_str(), Some(room.as_bytes()));
                        let headers = Some(OwnedHeaders::new().insert(header));
                        let own = OwnRecord { topic, partition: *target, key, value: body, headers };
                        (Destination::Partition(*target), own)
                    }
                }
            };
            let (indexes, records) = destinations.entry(place).or_default();
            indexes.push(index);
            records.push(own);
        }
        let mut submitted = Vec::new();
        for (place, (indexes, records)) in destinations {
            let waiter = Arc::new(Waiter::default());
            match core.producer.submit_own(records, &waiter, Origin::Server) {
                Ok(ticket) => submitted.push((place, indexes, waiter, ticket)),
                Err(error) => failure = Some(error.to_string()),
            }
        }
        for (place, indexes, waiter, ticket) in submitted {
            waiter.wait(&ticket).await;
            if let Err(reason) = answer(&ticket) {
                failure = Some(reason);
                continue;
            }
            self.note_written(core, place, &indexes);
        }
        failure.map_or(Ok(()), Err)
    }

    fn note_written(&mut self, core: &Core, place: Destination, indexes: &[usize]) {
        let count = indexes.len() as u64;
        if place == Destination::Dead {
            core.metrics.log_dead.inc_by(count);
            let topic = core.topics.dead.as_str();
            tracing::warn!(
                records = count,
                "records of Kafka cannot be stored; they are in the topic {topic}"
            );
        } else {
            core.metrics.log_forwarded.inc_by(count);
        }
        for index in indexes {
            if let Some(record) = self.records.get_mut(*index) {
                record.kind = RecordKind::WrittenElsewhere;
            }
        }
    }

    /// Writes what the store refused, with retries until it succeeds: nobody else learns of it. A server that stops tries on for
    /// a moment, and then tells which ones are missing among the dead letters.
    pub(super) async fn dead_letter_rejected(
        &mut self,
        core: &Core,
        partition: u32,
        stop: &watch::Receiver<bool>,
    ) {
        let mut stopped = stop.clone();
        let trying = async {
            let mut backoff = Backoff::new(core.random.clone());
            while let Err(reason) = self.write_elsewhere(core, partition).await {
                core.metrics.log_retried.inc();
                tracing::warn!(partition, %reason, "writing dead letters failed; retrying");
                if backoff.pause_unless(stop).await.is_none() {
                    tokio::time::sleep(STOP_PAUSE).await;
                }
            }
        };
        let giving_up = async {
            let _ = stopped.wait_for(|is_stopping| *is_stopping).await;
            tokio::time::sleep(STOP_PATIENCE).await;
        };
        let is_done = tokio::select! {
            () = trying => true,
            () = giving_up => false,
        };
        if is_done {
            return;
        }
        let rejected = self.records.iter().filter(|record| matches!(record.kind, RecordKind::Rejected(_)));
        let offsets: Vec<String> = rejected.map(|record| record.offset.to_string()).collect();
        let (topic, dead, offsets) = (&core.topics.messages, &core.topics.dead, offsets.join(" "));
        tracing::error!(
            topic,
            partition,
            offsets,
            "the server stops, and these records, which cannot be stored, may be missing in {dead}"
        );
    }

    fn letter<'a>(
        &'a self,
        core: &'a Core,
        record: &Record,
        rejection: &Rejection,
        at: &str,
    ) -> OwnRecord<'a> {
        let letter = OwnRecord {
            topic: &core.topics.dead,
            partition: 0,
            key: record.key.clone().and_then(|key| self.bytes.get(key)),
            value: self.bytes.get(record.value.clone()).unwrap_or_default(),
            headers: Some(describe(core, record.headers.clone(), rejection, at)),
        };
        shorten(letter, core.options.record_bytes_max(), || describe(core, None, rejection, at))
    }
}

/// A dead letter of at most `bytes_max`. What is too large has only `headers` that say why it is dead, and where it is.
fn shorten(letter: OwnRecord<'_>, bytes_max: usize, headers: impl FnOnce() -> OwnedHeaders) -> OwnRecord<'_> {
    let of_headers = letter.headers.as_ref().map_or(0, header_bytes);
    let bytes = RECORD_OVERHEAD + letter.key.map_or(0, <[u8]>::len) + letter.value.len() + of_headers;
    if bytes <= bytes_max {
        return letter;
    }
    let cut = letter.value.len().to_string();
    let headers = headers().insert(Header { key: TRUNCATED, value: Some(cut.as_str()) });
    let key = letter.key.filter(|key| key.len() <= KEY_MAX);
    OwnRecord { key, value: &[], headers: Some(headers), ..letter }
}

/// What headers take in memory and in a record, about.
pub(super) fn header_bytes(headers: &impl Headers) -> usize {
    headers
        .iter()
        .map(|header| HEADER_OVERHEAD + header.key.len() + header.value.map_or(0, <[u8]>::len))
        .sum()
}

fn describe(core: &Core, headers: Option<OwnedHeaders>, rejection: &Rejection, at: &str) -> OwnedHeaders {
    let mut headers = headers.unwrap_or_default();
    for (key, value) in [
        ("hubbub-code", rejection.code.as_str()),
        ("hubbub-reason", beginning(&rejection.reason)),
        ("hubbub-record", at),
        ("hubbub-rejected-at", &core.clock.now().to_string()),
    ] {
        headers = headers.insert(Header { key, value: Some(value) });
    }
    headers
}

/// The reason as far as a header may have it: it may quote the record.
fn beginning(reason: &str) -> &str {
    let ends = (0..=reason.len().min(REASON_MAX)).rev();
    ends.filter_map(|end| reason.get(..end)).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header<'a>(letter: &'a OwnRecord<'_>, name: &str) -> Option<&'a [u8]> {
        letter.headers.as_ref()?.iter().find(|header| header.key == name)?.value
    }

    #[test]
    fn a_letter_that_is_too_large_keeps_the_reason_only() {
        let headers = |own: &str| OwnedHeaders::new().insert(Header { key: "own", value: Some(own) });
        let (value, key) = (vec![b'x'; 5_000], [b'k'; 3_000]);
        let letter = |key, own: &str| OwnRecord {
            topic: "dead",
            partition: 0,
            key,
            value: &value,
            headers: Some(headers(own)),
        };
        let whole = shorten(letter(Some(&key[..]), "o"), 10_000, || panic!("it fits"));
        assert_eq!((whole.value.len(), whole.key.map(<[u8]>::len)), (5_000, Some(3_000)));
        let reason = || OwnedHeaders::new().insert(Header { key: "hubbub-code", value: Some("invalid") });
        let wide = "o".repeat(9_000);
        for (key, own, bytes_max) in
            [(Some(&key[..]), "o", 9_000), (Some(&key[..1]), "o", 6_000), (None, wide.as_str(), 10_000)]
        {
            let short = shorten(letter(key, own), bytes_max, reason);
            assert_eq!((short.value, short.key), (&[][..], key.filter(|key| key.len() == 1)));
            assert_eq!(header(&short, "own"), None);
            assert_eq!(header(&short, "hubbub-code"), Some(&b"invalid"[..]));
            assert_eq!(header(&short, TRUNCATED), Some(&b"5000"[..]));
        }
    }

    #[test]
    fn a_reason_is_cut_between_characters() {
        assert_eq!(beginning("short"), "short");
        let long = "ä".repeat(REASON_MAX);
        assert_eq!(beginning(&long).len(), REASON_MAX);
        let odd = format!("a{long}");
        assert_eq!(beginning(&odd).len(), REASON_MAX - 1);
    }
}
