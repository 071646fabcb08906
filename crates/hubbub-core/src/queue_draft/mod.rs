//! From JSON to a checked message of a queue, a take, and a queue's settings; every fault is named at once.

use std::ops::RangeInclusive;
use std::sync::Arc;

use serde::Deserialize;

use crate::draft::{Loose, REQUIRED, STRING, check_loose_id, present};
use crate::error::Fault;
use crate::id::{ID_BYTES_MAX, ID_RULE, is_valid_id};
use crate::limits::Limits;
use crate::queue::{
    Audience, DEAD_LETTER_SUFFIX, DURATION_MS_MAX, Due, QueueSend, QueueSettings, TAKE_MAX, WhenFull,
};
use crate::time::TIMESTAMP_RULE;

/// A message for a queue as somebody wrote it. Unknown fields are ignored; `null` counts as absent.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueSendDraft<'a> {
    /// The client that sends.
    #[serde(borrow, deserialize_with = "present")]
    pub sender: Option<Loose<'a>>,
    /// The client it waits for.
    #[serde(borrow, deserialize_with = "present")]
    pub receiver: Option<Loose<'a>>,
    /// `all`, when it is for everybody.
    #[serde(borrow, deserialize_with = "present")]
    pub audience: Option<Loose<'a>>,
    /// The text.
    #[serde(borrow, deserialize_with = "present")]
    pub message: Option<Loose<'a>>,
    /// The idempotency key.
    #[serde(borrow, deserialize_with = "present")]
    pub message_id: Option<Loose<'a>>,
    /// How long until it may be taken.
    #[serde(borrow, deserialize_with = "present")]
    pub delay_ms: Option<Loose<'a>>,
    /// When it may be taken.
    #[serde(borrow, deserialize_with = "present")]
    pub deliver_at: Option<Loose<'a>>,
    /// Its group.
    #[serde(borrow, deserialize_with = "present")]
    pub group_id: Option<Loose<'a>>,
    /// How long it waits at most.
    #[serde(borrow, deserialize_with = "present")]
    pub ttl_ms: Option<Loose<'a>>,
}

impl QueueSendDraft<'_> {
    /// The id the sender gave, if it gave a usable one.
    pub fn given_id(&self) -> Option<&str> {
        self.message_id.as_ref().and_then(Loose::as_id)
    }

    /// Checks every field and appends what is wrong to `faults`; `Some` when nothing is. `caller` sends if the draft
    /// names no sender, `key` is the id if it has none.
    pub fn check<'a>(
        &'a self,
        queue: &'a str,
        limits: &Limits,
        caller: Option<&'a str>,
        key: Option<&'a str>,
        faults: &mut Vec<Fault>,
    ) -> Option<QueueSend<'a>> {
        let before = faults.len();
        let sender = check_loose_id("sender", self.sender.as_ref(), caller, faults);
        let audience = self.check_audience(faults);
        let text = self.check_text(limits, faults);
        let message_id = optional_id("messageId", self.message_id.as_ref(), key, faults);
        let due = self.check_due(faults);
        let group = optional_id("groupId", self.group_id.as_ref(), None, faults);
        let ttl_ms = number("ttlMs", self.ttl_ms.as_ref(), 1..=DURATION_MS_MAX, faults);
        if faults.len() > before {
            return None;
        }
        let (sender, text) = (sender?, text?);
        Some(QueueSend { queue, sender, audience, text, message_id, due, group, ttl_ms, registers: true })
    }

    fn check_audience(&self, faults: &mut Vec<Fault>) -> Audience<'_> {
        let receiver = optional_id("receiver", self.receiver.as_ref(), None, faults);
        match self.audience.as_ref().map(Loose::as_text) {
            None => receiver.map_or(Audience::Anyone, Audience::One),
            Some(Some("all")) => {
                if self.receiver.is_some() {
                    faults.push(Fault::new("audience", "must not be given together with receiver"));
                }
                Audience::All
            }
            Some(_) => {
                faults.push(Fault::new("audience", "must be all"));
                Audience::All
            }
        }
    }

    fn check_text(&self, limits: &Limits, faults: &mut Vec<Fault>) -> Option<&str> {
        let fault = match self.message.as_ref().map(Loose::as_text) {
            None => Fault::new("message", REQUIRED),
            Some(None) => Fault::new("message", STRING),
            Some(Some("")) => Fault::new("message", "must not be empty"),
            Some(Some(text)) if text.contains('\0') => Fault::new("message", "must not contain U+0000"),
            Some(Some(text)) if text.len() > limits.queue_message_bytes => {
                Fault::new("message", format!("must be at most {} bytes", limits.queue_message_bytes))
            }
            Some(Some(text)) => return Some(text),
        };
        faults.push(fault);
        None
    }

    fn check_due(&self, faults: &mut Vec<Fault>) -> Due {
        let delay = number("delayMs", self.delay_ms.as_ref(), 0..=DURATION_MS_MAX, faults);
        let Some(time) = &self.deliver_at else { return delay.map_or(Due::Now, Due::In) };
        if self.delay_ms.is_some() {
            faults.push(Fault::new("deliverAt", "must not be given together with delayMs"));
        }
        match time.as_time() {
            Some(time) => Due::At(time),
            None => {
                faults.push(Fault::new("deliverAt", TIMESTAMP_RULE));
                Due::Now
            }
        }
    }
}

/// Longest wait for something to take, in milliseconds.
pub const WAIT_MS_MAX: u64 = 20_000;

/// What somebody wants to take or look at, as written. Unknown fields are ignored; `null` counts as absent.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TakeDraft<'a> {
    /// Who takes.
    #[serde(borrow, deserialize_with = "present")]
    pub receiver: Option<Loose<'a>>,
    /// Messages of this client only.
    #[serde(borrow, deserialize_with = "present")]
    pub sender: Option<Loose<'a>>,
    /// At most so many.
    #[serde(borrow, deserialize_with = "present")]
    pub max: Option<Loose<'a>>,
    /// `oldest` or `newest` first.
    #[serde(borrow, deserialize_with = "present")]
    pub order: Option<Loose<'a>>,
    /// How long to wait when there is nothing.
    #[serde(borrow, deserialize_with = "present")]
    pub wait_ms: Option<Loose<'a>>,
    /// How long the lease is.
    #[serde(borrow, deserialize_with = "present")]
    pub lease_ms: Option<Loose<'a>>,
}

/// A checked [`TakeDraft`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckedTake<'a> {
    /// Who takes; `None` = nobody in particular, who gets what is for anybody.
    pub receiver: Option<&'a str>,
    /// Messages of this client only.
    pub sender: Option<&'a str>,
    /// At most so many.
    pub max: usize,
    /// Newest first instead of oldest first.
    pub newest_first: bool,
    /// How long to wait when there is nothing, in milliseconds.
    pub wait_ms: u64,
    /// How long the lease is, in milliseconds; `None` = as the queue has it set.
    pub lease_ms: Option<u64>,
}

impl TakeDraft<'_> {
    /// Checks every field and appends what is wrong to `faults`. `caller` takes if the draft names no receiver.
    pub fn check<'a>(&'a self, caller: Option<&'a str>, faults: &mut Vec<Fault>) -> CheckedTake<'a> {
        let newest_first = match self.order.as_ref().map(Loose::as_text) {
            None | Some(Some("oldest")) => false,
            Some(Some("newest")) => true,
            Some(_) => {
                faults.push(Fault::new("order", "must be oldest or newest"));
                false
            }
        };
        let max = number("max", self.max.as_ref(), 1..=TAKE_MAX as u64, faults);
        CheckedTake {
            receiver: optional_id("receiver", self.receiver.as_ref(), caller, faults),
            sender: optional_id("sender", self.sender.as_ref(), None, faults),
            max: max.map_or(1, |max| usize::try_from(max).unwrap_or(TAKE_MAX)),
            newest_first,
            wait_ms: number("waitMs", self.wait_ms.as_ref(), 0..=WAIT_MS_MAX, faults).unwrap_or(0),
            lease_ms: number("leaseMs", self.lease_ms.as_ref(), 1..=DURATION_MS_MAX, faults),
        }
    }
}

/// Settings of a queue as somebody wrote them. Unknown fields are ignored; what is absent stays as it is.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueSettingsDraft<'a> {
    /// Lease of takers that ask for none.
    #[serde(borrow)]
    pub lease_ms: Option<Loose<'a>>,
    /// Deliveries until a message goes to the dead-letter queue; 0 = it never does.
    #[serde(borrow)]
    pub max_deliveries: Option<Loose<'a>>,
    /// The dead-letter queue; empty = named after the queue.
    #[serde(borrow)]
    pub dead_letter: Option<Loose<'a>>,
    /// How long messages wait at most; 0 = for ever.
    #[serde(borrow)]
    pub ttl_ms: Option<Loose<'a>>,
    /// Messages it may hold; 0 = any number.
    #[serde(borrow)]
    pub max_messages: Option<Loose<'a>>,
    /// Bytes it may hold; 0 = any number.
    #[serde(borrow)]
    pub max_bytes: Option<Loose<'a>>,
    /// `refuse` or `dropOldest`.
    #[serde(borrow)]
    pub on_full: Option<Loose<'a>>,
    /// The first wait of a message given back.
    #[serde(borrow)]
    pub backoff_ms: Option<Loose<'a>>,
    /// The longest such wait.
    #[serde(borrow)]
    pub backoff_max_ms: Option<Loose<'a>>,
}

impl QueueSettingsDraft<'_> {
    /// Checks every field and appends what is wrong to `faults`.
    pub fn check(&self, queue: &str, faults: &mut Vec<Fault>) -> QueueSettings {
        const TIMES: RangeInclusive<u64> = 0..=DURATION_MS_MAX;
        let any_number = 0..=u64::MAX >> 1;
        let deliveries = number("maxDeliveries", self.max_deliveries.as_ref(), 0..=u32::MAX.into(), faults);
        QueueSettings {
            lease_ms: number("leaseMs", self.lease_ms.as_ref(), 1..=DURATION_MS_MAX, faults),
            deliveries_max: deliveries.and_then(|count| u32::try_from(count).ok()),
            dead_letter: self.check_dead_letter(queue, faults),
            ttl_ms: number("ttlMs", self.ttl_ms.as_ref(), TIMES, faults),
            messages_max: number("maxMessages", self.max_messages.as_ref(), any_number.clone(), faults),
            bytes_max: number("maxBytes", self.max_bytes.as_ref(), any_number, faults),
            when_full: self.on_full.as_ref().and_then(|value| {
                let parsed = value.as_text().and_then(WhenFull::parse);
                if parsed.is_none() {
                    faults.push(Fault::new("onFull", "must be refuse or dropOldest"));
                }
                parsed
            }),
            backoff_ms: number("backoffMs", self.backoff_ms.as_ref(), TIMES, faults),
            backoff_max_ms: number("backoffMaxMs", self.backoff_max_ms.as_ref(), TIMES, faults),
        }
    }

    fn check_dead_letter(&self, queue: &str, faults: &mut Vec<Fault>) -> Option<Arc<str>> {
        let name = match self.dead_letter.as_ref()? {
            Loose::Text(text) if text.is_empty() => return Some("".into()),
            other => other.as_id(),
        };
        let rule = match name {
            Some(name) if name == queue => "must not be the queue itself",
            Some(name) if is_valid_id(name) => return Some(name.into()),
            _ => ID_RULE,
        };
        faults.push(Fault::new("deadLetter", rule));
        None
    }
}

impl WhenFull {
    /// From its name on the wire.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Refuse, Self::DropOldest].into_iter().find(|one| one.as_str() == name)
    }

    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::DropOldest => "dropOldest",
        }
    }
}

/// The name of a queue's dead-letter queue, `set` in its settings or not.
pub fn dead_letter_name(queue: &str, set: Option<&str>) -> Result<String, Fault> {
    let name = match set {
        Some(name) if !name.is_empty() => name.to_owned(),
        _ => format!("{queue}{DEAD_LETTER_SUFFIX}"),
    };
    if name.len() > ID_BYTES_MAX {
        let rule = format!(
            "must be given: '{DEAD_LETTER_SUFFIX}' behind the queue's name makes more than {ID_BYTES_MAX} characters"
        );
        return Err(Fault::new("deadLetter", rule));
    }
    Ok(name)
}

fn optional_id<'a>(
    field: &'static str,
    value: Option<&'a Loose<'_>>,
    default: Option<&'a str>,
    faults: &mut Vec<Fault>,
) -> Option<&'a str> {
    if value.is_none() && default.is_none() {
        return None;
    }
    check_loose_id(field, value, default, faults)
}

/// A whole number; out of `range`, or of another type, it is a fault.
pub fn number(
    field: &'static str,
    value: Option<&Loose<'_>>,
    range: RangeInclusive<u64>,
    faults: &mut Vec<Fault>,
) -> Option<u64> {
    let number = match value? {
        Loose::Int(number, _) => u64::try_from(*number).ok().filter(|number| range.contains(number)),
        _ => None,
    };
    if number.is_none() {
        let rule = format!("must be a whole number from {} to {}", range.start(), range.end());
        faults.push(Fault::new(field, rule));
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(faults: &[Fault]) -> Vec<String> {
        faults.iter().map(|fault| format!("{} {}", fault.field, fault.rule)).collect()
    }

    fn send(json: &str) -> Vec<String> {
        let draft: QueueSendDraft<'_> = serde_json::from_str(json).unwrap();
        let mut faults = Vec::new();
        let checked = draft.check("jobs", &Limits::default(), None, None, &mut faults);
        assert_eq!(checked.is_some(), faults.is_empty());
        said(&faults)
    }

    #[test]
    fn a_message_says_whom_it_is_for() {
        let audience = |json: &str| {
            let draft: QueueSendDraft<'_> = serde_json::from_str(json).unwrap();
            let sent = draft.check("jobs", &Limits::default(), Some("ann"), Some("k1"), &mut Vec::new());
            let sent = sent.unwrap();
            assert_eq!((sent.sender, sent.message_id, sent.due), ("ann", Some("k1"), Due::Now));
            format!("{:?}", sent.audience)
        };
        assert_eq!(audience(r#"{"message":"m"}"#), "Anyone");
        assert_eq!(audience(r#"{"message":"m","receiver":7}"#), r#"One("7")"#);
        assert_eq!(audience(r#"{"message":"m","audience":"all","receiver":null}"#), "All");
    }

    #[test]
    fn every_fault_of_a_message_is_named() {
        let all = send(
            r#"{"receiver":"a b","audience":"some","message":5,"messageId":[],"delayMs":-1,"deliverAt":"soon","groupId":"","ttlMs":0}"#,
        );
        let fields: Vec<_> = all.iter().filter_map(|fault| fault.split(' ').next()).collect();
        let wanted = [
            "sender",
            "receiver",
            "audience",
            "message",
            "messageId",
            "delayMs",
            "deliverAt",
            "deliverAt",
            "groupId",
            "ttlMs",
        ];
        assert_eq!(fields, wanted);
        let two = send(r#"{"sender":"a","receiver":"b","audience":"all","message":"m"}"#);
        assert_eq!(two, ["audience must not be given together with receiver"]);
    }

    #[test]
    fn times_say_when_it_is_due() {
        let due = |json: &str| {
            let draft: QueueSendDraft<'_> = serde_json::from_str(json).unwrap();
            draft.check("jobs", &Limits::default(), Some("a"), None, &mut Vec::new()).unwrap().due
        };
        assert_eq!(due(r#"{"message":"m","delayMs":250}"#), Due::In(250));
        let at = due(r#"{"message":"m","deliverAt":"1970-01-01T00:00:01Z"}"#);
        assert_eq!(at, Due::At(crate::Timestamp::from_micros(1_000_000)));
    }

    #[test]
    fn takes_have_defaults_and_limits() {
        let check = |json: &str| {
            let draft: TakeDraft<'_> = serde_json::from_str(json).unwrap();
            let mut faults = Vec::new();
            let take = draft.check(Some("ann"), &mut faults);
            (take.max, take.newest_first, take.wait_ms, take.receiver.map(str::to_owned), said(&faults))
        };
        assert_eq!(check("{}"), (1, false, 0, Some("ann".into()), vec![]));
        let wide = check(r#"{"max":1000,"order":"newest","waitMs":20000,"receiver":"bob"}"#);
        assert_eq!(wide, (1_000, true, 20_000, Some("bob".into()), vec![]));
        let (.., faults) = check(r#"{"max":0,"order":"any","waitMs":20001,"leaseMs":"1s","sender":"?"}"#);
        assert_eq!(faults.len(), 5, "{faults:?}");
        assert_eq!(faults[1], "max must be a whole number from 1 to 1000");
    }

    #[test]
    fn settings_leave_what_they_do_not_name() {
        let check = |json: &str| {
            let draft: QueueSettingsDraft<'_> = serde_json::from_str(json).unwrap();
            let mut faults = Vec::new();
            (draft.check("jobs", &mut faults), said(&faults))
        };
        assert_eq!(check("{}"), (QueueSettings::default(), vec![]));
        let (settings, faults) = check(r#"{"leaseMs":5,"onFull":"dropOldest","deadLetter":"","ttlMs":0}"#);
        assert_eq!(faults, [""; 0]);
        assert_eq!((settings.lease_ms, settings.when_full), (Some(5), Some(WhenFull::DropOldest)));
        assert_eq!((settings.dead_letter.as_deref(), settings.ttl_ms), (Some(""), Some(0)));
        let (_, faults) = check(
            r#"{"leaseMs":0,"maxDeliveries":-1,"deadLetter":"jobs","maxMessages":1.5,"maxBytes":"1k","onFull":"wait","backoffMs":true}"#,
        );
        assert_eq!(faults.len(), 7, "{faults:?}");
        assert!(faults.contains(&"deadLetter must not be the queue itself".to_owned()));
    }

    #[test]
    fn a_dead_letter_queue_needs_a_name_that_fits() {
        assert_eq!(dead_letter_name("jobs", None).unwrap(), "jobs.dead");
        assert_eq!(dead_letter_name("jobs", Some("bad")).unwrap(), "bad");
        let long = "q".repeat(60);
        assert_eq!(dead_letter_name(&long, Some("")).unwrap_err().field, "deadLetter");
        assert_eq!(dead_letter_name(&long, Some("bad")).unwrap(), "bad");
    }
}
