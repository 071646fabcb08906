//! What RabbitMQ and Kafka deliver: bodies of any program, changes, the bus, headers. The first line of an input is `message`,
//! then come the key, the id of the message (either may be empty) and the body; or `change` or `bus` and the value. What is
//! accepted and written to the broker again is the same when it comes back.

#![no_main]

use hubbub_core::Timestamp;
use hubbub_pipeline::log::fuzzing;
use libfuzzer_sys::fuzz_target;

const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

fn some(text: &[u8]) -> Option<&str> {
    str::from_utf8(text).ok().filter(|text| !text.is_empty())
}

fn message(input: &[u8]) {
    let mut parts = input.splitn(3, |byte| *byte == b'\n');
    let (Some(key), Some(id), Some(body)) = (parts.next(), parts.next(), parts.next()) else { return };
    if let Ok((ops, written)) = fuzzing::message(body, some(key), some(id), NOW) {
        let (again, _) = fuzzing::message(&written, None, None, NOW).expect("what is written is valid");
        assert_eq!(again.get(0), ops.get(0));
    }
}

fuzz_target!(|input: &[u8]| {
    let Some(end) = input.iter().position(|byte| *byte == b'\n') else { return };
    let (kind, rest) = (&input[..end], &input[end + 1..]);
    match kind {
        b"message" => message(rest),
        b"change" => {
            if let Ok((ops, written)) = fuzzing::change(rest) {
                let (again, _) = fuzzing::change(&written).expect("what is written is valid");
                assert_eq!(again.get(0), ops.get(0));
            }
        }
        b"bus" => fuzzing::bus(rest),
        _ => {}
    }
});
