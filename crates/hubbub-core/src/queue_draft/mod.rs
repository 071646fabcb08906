//! From JSON to checked parts of queue operations: a message, a take, settings. Every wrong field is named at once.

mod send;
mod settings;
mod take;

use std::ops::RangeInclusive;

use crate::draft::{Loose, check_loose_id};
use crate::error::FieldError;
pub use send::QueueSendDraft;
pub use settings::{QueueSettingsDraft, dead_letter_name};
pub use take::{CheckedTake, TakeDraft, WAIT_MS_MAX};

/// An id that may be absent.
fn optional_id<'a>(
    field: &'static str,
    value: Option<&'a Loose<'_>>,
    default: Option<&'a str>,
    faults: &mut Vec<FieldError>,
) -> Option<&'a str> {
    if value.is_none() && default.is_none() {
        return None;
    }
    check_loose_id(field, value, default, faults)
}

/// A whole number within `range`; everything else is an error.
pub fn number(
    field: &'static str,
    value: Option<&Loose<'_>>,
    range: RangeInclusive<u64>,
    faults: &mut Vec<FieldError>,
) -> Option<u64> {
    let number = value?.as_u64().filter(|number| range.contains(number));
    if number.is_none() {
        let rule = format!("must be a whole number from {} to {}", range.start(), range.end());
        faults.push(FieldError::new(field, rule));
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;
    use crate::queue::{Due, QueueSettings, WhenFull};

    fn said(faults: &[FieldError]) -> Vec<String> {
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
