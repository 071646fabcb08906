//! Messages in a broker: bodies in the one JSON shape, written by this server or by any other program, and what becomes of
//! those that cannot be stored.

use hubbub_core::draft::{Defaults, MessageDraft, Rules};
use hubbub_core::limits::Limits;
use hubbub_core::store::ApplyError;
use hubbub_core::text::json_fault;
use hubbub_core::{ErrorCode, Outcome, Refusal, Send, Timestamp};

use crate::batcher::Ticket;
use crate::committer::refusal_code;

/// A message as delivered by the broker.
#[derive(Debug, Clone, Copy)]
pub(super) struct Envelope<'a> {
    pub(super) body: &'a [u8],
    /// The room, if the body names none.
    pub(super) room: Option<&'a str>,
    pub(super) message_id: Option<&'a str>,
}

/// Why a message can never be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rejection {
    pub(super) code: ErrorCode,
    pub(super) reason: String,
}

/// Parses and checks a message, and passes it to `take`, with whether it had no id and got `made_id`. What a server acknowledged is
/// stored whatever `limits.message_bytes` says by now, and elsewhere: `text_bytes_max` is what the store takes.
pub(super) fn read<R>(
    envelope: &Envelope<'_>,
    text_bytes_max: usize,
    now: Timestamp,
    made_id: &str,
    take: impl FnOnce(&Send<'_>, bool) -> R,
) -> Result<R, Rejection> {
    let malformed = |reason: String| Rejection { code: ErrorCode::Malformed, reason };
    // The parser would accept an array as the fields in their order.
    if envelope.body.trim_ascii_start().first() != Some(&b'{') {
        return Err(malformed("the body is no JSON object".to_owned()));
    }
    let draft: MessageDraft<'_> = serde_json::from_slice(envelope.body)
        .map_err(|error| malformed(format!("the body is not the expected JSON: {}", json_fault(&error))))?;
    let room = if draft.room_id.is_some() { None } else { envelope.room };
    let is_nameless = draft.message_id.is_none() && envelope.message_id.is_none();
    let id = envelope.message_id.unwrap_or(made_id);
    let limits = Limits { message_bytes: text_bytes_max, ..Limits::default() };
    let defaults = Defaults { room, user: None, id, now };
    let mut faults = Vec::new();
    match draft.check(Rules::Api, &limits, &defaults, &mut faults) {
        Some(send) => Ok(take(&send, is_nameless)),
        None => {
            let faults: Vec<_> = faults.iter().map(|f| format!("{} {}", f.field, f.rule)).collect();
            Err(Rejection { code: ErrorCode::Invalid, reason: faults.join("; ") })
        }
    }
}

pub(super) fn write(send: &Send<'_>, out: &mut Vec<u8>) {
    out.push(b'{');
    send.write_json_members(out);
    out.push(b'}');
}

/// The outcomes of a submission that was waited for.
pub(super) fn answer(ticket: &Ticket) -> Result<&[Outcome], String> {
    match ticket.outcomes() {
        Some(Ok(outcomes)) => Ok(outcomes),
        Some(Err(error)) => Err(ApplyError::to_string(error)),
        None => Err("there is no answer".to_owned()),
    }
}

/// Why the store refused a message.
pub(super) fn rejection_of(refusal: Refusal) -> Rejection {
    let reason = match refusal {
        Refusal::IdReused { seq } => {
            format!("messageId belongs to message {seq} of the room, whose user, text or type differs")
        }
        Refusal::NotMember => "the sender is no member of the room, which is for members only".to_owned(),
        Refusal::UnknownRoom => "there is no such room, and rooms.autocreate is off".to_owned(),
        // Retrying would block all later messages for as long as the file is damaged.
        Refusal::Unreadable => {
            "what is stored under its messageId cannot be read; the server's health names the file".to_owned()
        }
        other => format!("the store refused it: {other:?}"),
    };
    Rejection { code: refusal_code(refusal), reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hubbub_core::MessageType;
    use hubbub_core::limits::MESSAGE_BYTES_MAX;
    use proptest::prelude::*;

    const NOW: Timestamp = Timestamp::from_micros(7_000_000);

    fn message(body: &str, room: &str, message_id: Option<&str>) -> Result<String, Rejection> {
        let room = (!room.is_empty()).then_some(room);
        let envelope = Envelope { body: body.as_bytes(), room, message_id };
        read(&envelope, MESSAGE_BYTES_MAX, NOW, "made", |send, is_nameless| {
            assert_eq!(is_nameless, send.id == "made");
            format!(
                "{} {} {} {} {} {}",
                send.room,
                send.user,
                send.id,
                send.text,
                send.kind.as_str(),
                send.timestamp.as_micros()
            )
        })
    }

    #[test]
    fn messages_of_other_programs_are_read() {
        for (body, key, id, expected) in [
            (r#"{"userId":7,"message":"hi"}"#, "42", None, "42 7 made hi TEXT 7000000"),
            (r#"{"userId":"u","message":"hi","roomId":9}"#, "42", Some("p"), "9 u p hi TEXT 7000000"),
            (
                r#"{"userId":"u","message":"hi","messageId":"b","messageType":"chat","timestamp":"1.5","x":[{}]}"#,
                "a.b",
                Some("p"),
                "a.b u b hi TEXT 1500000",
            ),
            (
                r#" {"userId":"u","message":"hi","messageType":"leave","timestamp":1769860800.25,"messageId":null}"#,
                "r",
                None,
                "r u made hi LEAVE 1769860800250000",
            ),
        ] {
            assert_eq!(message(body, key, id).unwrap(), expected, "{body}");
        }
    }

    #[test]
    fn a_rejection_names_its_reason() {
        for (body, key, id, code, part) in [
            ("", "r", None, ErrorCode::Malformed, "no JSON object"),
            (r#"["m","r","u"]"#, "r", None, ErrorCode::Malformed, "no JSON object"),
            (r#"{"userId":"u""#, "r", None, ErrorCode::Malformed, "EOF"),
            (r#"{"message":"hi"}"#, "r", None, ErrorCode::Invalid, "userId is required"),
            (r#"{"userId":"u","message":"hi"}"#, "", None, ErrorCode::Invalid, "roomId is required"),
            (r#"{"userId":"u","message":"hi"}"#, "a b", None, ErrorCode::Invalid, "roomId must be"),
            (r#"{"userId":"u","message":"hi"}"#, "r", Some("a b"), ErrorCode::Invalid, "messageId must be"),
        ] {
            let rejection = message(body, key, id).unwrap_err();
            assert!(rejection.code == code && rejection.reason.contains(part), "{body}: {rejection:?}");
        }
    }

    #[test]
    fn a_text_may_be_as_large_as_the_store_takes() {
        let text = "x".repeat(70_000);
        let body = format!(r#"{{"userId":"u","message":"{text}"}}"#);
        let envelope = Envelope { body: body.as_bytes(), room: Some("r"), message_id: None };
        assert_eq!(read(&envelope, MESSAGE_BYTES_MAX, NOW, "made", |send, _| send.text.len()), Ok(70_000));
        let refused = read(&envelope, 69_999, NOW, "made", |_, _| ()).unwrap_err();
        assert!(refused.code == ErrorCode::Invalid && refused.reason.contains("69999"), "{refused:?}");
    }

    proptest! {
        #[test]
        fn a_body_survives_a_round_trip(
            (room, user, id) in ("[A-Za-z0-9_.:@-]{1,64}", "[A-Za-z0-9_.:@-]{1,64}", "[A-Za-z0-9_.:@-]{1,64}"),
            name in proptest::option::of("[^\\p{Cc}]{1,60}"),
            text in "[^\0]{1,99}",
            kind in 0_u8..3,
            micros in -62_135_596_800_000_000_i64..253_402_300_799_999_999,
        ) {
            let kind = MessageType::from_u8(kind).unwrap();
            let timestamp = Timestamp::from_micros(micros);
            let send = Send { room: &room, user: &user, id: &id, username: name.as_deref(), text: &text, kind, timestamp };
            let mut body = Vec::new();
            write(&send, &mut body);
            let envelope = Envelope { body: &body, room: None, message_id: None };
            read(&envelope, MESSAGE_BYTES_MAX, NOW, "made", |read, is_nameless| assert!(*read == send && !is_nameless)).unwrap();
        }

        #[test]
        fn no_body_panics(body in proptest::collection::vec(any::<u8>(), 0..99), key in "\\PC{0,20}", id in proptest::option::of("\\PC{0,20}")) {
            let envelope = Envelope { body: &body, room: Some(&key), message_id: id.as_deref() };
            let _ = read(&envelope, MESSAGE_BYTES_MAX, NOW, "made", |_, _| ());
        }

        #[test]
        fn no_json_panics(fields in proptest::collection::vec(("(messageId|roomId|userId|username|message|messageType|timestamp|x)", "(null|true|-1|1e99|1.5|\"a\"|\"\\\\u0000\"|\\{\\}|\\[1\\])"), 0..6)) {
            let fields: Vec<_> = fields.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
            let body = format!("{{{}}}", fields.join(","));
            let envelope = Envelope { body: body.as_bytes(), room: Some("r"), message_id: None };
            let _ = read(&envelope, MESSAGE_BYTES_MAX, NOW, "made", |_, _| ());
        }
    }
}
