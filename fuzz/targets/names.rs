//! Short texts that clients hand back or make up: receipts of leases, positions, times, durations, ids, trace contexts. What
//! is accepted has one meaning, which survives being written and read again.

#![no_main]

use hubbub_core::queue::LeaseReceipt;
use hubbub_core::{MessageId, RoomId, Timestamp, TraceContext, UserId, duration, number};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    if let Some((context, _)) = TraceContext::parse(input) {
        let again = TraceContext::parse(context.to_string().as_bytes());
        assert_eq!(again.map(|(context, _)| context), Some(context));
    }
    let Ok(text) = str::from_utf8(input) else { return };
    if let Ok(receipt) = text.parse::<LeaseReceipt>() {
        assert_eq!(receipt.to_string(), text, "a receipt has one spelling");
    }
    if let Some(number) = number::parse_canonical(text) {
        assert_eq!(number.to_string(), text);
    }
    if let Some(number) = number::parse_digits(text) {
        assert_eq!(text.trim_start_matches('0'), number.to_string().trim_start_matches('0'));
    }
    if let Some(time) = Timestamp::parse(text) {
        // What is written has milliseconds at least, whatever was read.
        assert_eq!(Timestamp::parse(&time.to_string()), Some(time), "{text}");
    }
    let _ = duration::parse(text);
    let ids = [RoomId::new(text).is_ok(), UserId::new(text).is_ok(), MessageId::new(text).is_ok()];
    assert!(ids.iter().all(|is_id| *is_id == ids[0]), "ids of all kinds have one rule");
    if ids[0] {
        assert!((1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic()));
    }
});
