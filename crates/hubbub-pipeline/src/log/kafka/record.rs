//! Records: changes of rooms, answers to them, and committed messages on the bus. Messages have the shape of
//! [`body`](crate::log::body).

use std::borrow::Cow;

use hubbub_core::change::{RETENTION_S_MAX, TITLE_RULE, is_valid_title};
use hubbub_core::id::{ID_RULE, is_valid_id};
use hubbub_core::text::json_fault;
use hubbub_core::{
    Change, ErrorCode, Outcome, ReadMark, Receipt, Refusal, RoomChange, RoomSettings, Send, Timestamp,
    TraceContext,
};
use serde::{Deserialize, Serialize};

use crate::log::body::Rejection;

/// Header of a change. Its value names who waits for the outcome: `NODE/NUMBER`, or nothing.
pub(super) const CHANGE: &str = "hubbub-change";
/// Header of a change on the bus: who waits for the outcome, if it is another node, in the same way.
pub(super) const REQUEST: &str = "hubbub-request";
/// Header of committed messages on the bus: the node that committed them.
pub(super) const NODE: &str = "hubbub-node";
/// Header of records on the bus: how many changes the node had written to the partition, this record included.
pub(super) const CHANGES: &str = "hubbub-changes";
/// Header of a message that belongs to a trace, as W3C Trace Context has it.
pub(super) const TRACEPARENT: &str = "traceparent";
/// Header of committed messages on the bus that belong to traces: `SEQ=TRACEPARENT`, separated by commas.
pub(super) const TRACES: &str = "hubbub-traces";
/// Begins the key of an answer on the bus; the node that waits for it follows. No room begins so.
pub(super) const REPLY_KEY: &str = "/reply/";

/// Who waits for the outcome of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) node: String,
    pub(super) number: u64,
}

impl Request {
    pub(super) fn header(&self) -> String {
        format!("{}/{}", self.node, self.number)
    }

    pub(super) fn parse(header: &[u8]) -> Option<Self> {
        let (node, number) = str::from_utf8(header).ok()?.split_once('/')?;
        (node.len() <= 64).then_some(Self { node: node.to_owned(), number: number.parse().ok()? })
    }
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum ChangeKind {
    PutRoom,
    DeleteRoom,
    AddMember,
    RemoveMember,
    MarkRead,
    EraseUser,
    ExpireMessages,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ChangeRecord<'a> {
    change: ChangeKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    room_id: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_id: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    members_only: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retention_s: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    /// In microseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    before_us: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    is_own: Option<bool>,
}

pub(super) fn write_change(change: &Change<'_>, out: &mut Vec<u8>) {
    let (kind, user, settings, seq) = match change.what {
        RoomChange::PutRoom { settings, .. } => (ChangeKind::PutRoom, None, settings, None),
        RoomChange::DeleteRoom { .. } => (ChangeKind::DeleteRoom, None, RoomSettings::default(), None),
        RoomChange::AddMember { user, .. } => {
            (ChangeKind::AddMember, Some(user), RoomSettings::default(), None)
        }
        RoomChange::RemoveMember { user, .. } => {
            (ChangeKind::RemoveMember, Some(user), RoomSettings::default(), None)
        }
        RoomChange::MarkRead { user, seq, .. } => {
            (ChangeKind::MarkRead, Some(user), RoomSettings::default(), Some(seq))
        }
        RoomChange::EraseUser { user } => (ChangeKind::EraseUser, Some(user), RoomSettings::default(), None),
        RoomChange::ExpireMessages { retention_s, .. } => {
            let settings = RoomSettings { retention_s: Some(retention_s), ..RoomSettings::default() };
            (ChangeKind::ExpireMessages, None, settings, None)
        }
    };
    let expiry = match change.what {
        RoomChange::ExpireMessages { before, is_own, .. } => Some((before.as_micros(), is_own)),
        _ => None,
    };
    let record = ChangeRecord {
        change: kind,
        by: change.by.map(Cow::Borrowed),
        room_id: change.room().map(Cow::Borrowed),
        user_id: user.map(Cow::Borrowed),
        title: settings.title.map(Cow::Borrowed),
        members_only: settings.members_only,
        retention_s: settings.retention_s,
        seq,
        before_us: expiry.map(|(before, _)| before),
        is_own: expiry.map(|(_, is_own)| is_own),
    };
    // Writing into memory cannot fail.
    let _ = serde_json::to_writer(out, &record);
}

/// Parses and checks a change, and passes it to `take`.
pub(super) fn read_change<R>(body: &[u8], take: impl FnOnce(&Change<'_>) -> R) -> Result<R, Rejection> {
    let record: ChangeRecord<'_> = serde_json::from_slice(body).map_err(|error| Rejection {
        code: ErrorCode::Malformed,
        reason: format!("the change is not the expected JSON: {}", json_fault(&error)),
    })?;
    let invalid = |reason: String| Rejection { code: ErrorCode::Invalid, reason };
    let id = |field: &str, value: &Option<Cow<'_, str>>| match value {
        None => Err(invalid(format!("{field} is required"))),
        Some(id) if !is_valid_id(id) => Err(invalid(format!("{field} {ID_RULE}"))),
        Some(_) => Ok(()),
    };
    let title = record.title.as_deref();
    if title.is_some_and(|title| !is_valid_title(title)) {
        return Err(invalid(format!("title must be {TITLE_RULE}")));
    }
    if record.retention_s.is_some_and(|retention| retention > RETENTION_S_MAX) {
        return Err(invalid(format!("retentionS must be at most {RETENTION_S_MAX}")));
    }
    if record.by.is_some() {
        id("by", &record.by)?;
    }
    let needs_user =
        !matches!(record.change, ChangeKind::PutRoom | ChangeKind::DeleteRoom | ChangeKind::ExpireMessages);
    if needs_user {
        id("userId", &record.user_id)?;
    }
    if !matches!(record.change, ChangeKind::EraseUser) {
        id("roomId", &record.room_id)?;
    }
    let room = record.room_id.as_deref().unwrap_or_default();
    let user = record.user_id.as_deref().unwrap_or_default();
    let what = match record.change {
        ChangeKind::PutRoom => {
            let (members_only, retention_s) = (record.members_only, record.retention_s);
            RoomChange::PutRoom { room, settings: RoomSettings { title, members_only, retention_s } }
        }
        ChangeKind::DeleteRoom => RoomChange::DeleteRoom { room },
        ChangeKind::AddMember => RoomChange::AddMember { room, user },
        ChangeKind::RemoveMember => RoomChange::RemoveMember { room, user },
        ChangeKind::MarkRead => {
            let seq = record.seq.ok_or_else(|| invalid("seq is required".to_owned()))?;
            RoomChange::MarkRead { room, user, seq }
        }
        ChangeKind::EraseUser => RoomChange::EraseUser { user },
        ChangeKind::ExpireMessages => {
            let required = |field| invalid(format!("{field} is required"));
            let before = Timestamp::from_micros(record.before_us.ok_or_else(|| required("beforeUs"))?);
            let retention_s = record.retention_s.ok_or_else(|| required("retentionS"))?;
            let is_own = record.is_own.ok_or_else(|| required("isOwn"))?;
            RoomChange::ExpireMessages { room, before, retention_s, is_own }
        }
    };
    Ok(take(&Change { by: record.by.as_deref(), what }))
}

/// The outcome of a change, as far as another node can know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum ChangeOutcome {
    Room {
        created: bool,
    },
    Changed {
        changed: bool,
    },
    Read {
        seq: u64,
        unread: u64,
        head: u64,
        moved: bool,
    },
    Erased {
        messages: u64,
        more: bool,
    },
    UnknownRoom,
    NotMember,
    Unreadable,
    /// It was executed before, by a committer that did not come to answer.
    Executed,
    Internal,
}

impl ChangeOutcome {
    pub(super) fn of(outcome: &Outcome) -> Self {
        match *outcome {
            Outcome::Room { created } => Self::Room { created },
            Outcome::Changed { changed } => Self::Changed { changed },
            Outcome::Read(ReadMark { seq, unread, head, moved }) => Self::Read { seq, unread, head, moved },
            Outcome::Erased { messages, more } => Self::Erased { messages, more },
            Outcome::Accepted => Self::Executed,
            Outcome::Refused(Refusal::UnknownRoom) => Self::UnknownRoom,
            Outcome::Refused(Refusal::NotMember) => Self::NotMember,
            Outcome::Refused(Refusal::Unreadable) => Self::Unreadable,
            _ => Self::Internal,
        }
    }

    /// `None` = it is not known.
    pub(super) fn outcome(self) -> Option<Outcome> {
        Some(match self {
            Self::Room { created } => Outcome::Room { created },
            Self::Changed { changed } => Outcome::Changed { changed },
            Self::Read { seq, unread, head, moved } => Outcome::Read(ReadMark { seq, unread, head, moved }),
            Self::Erased { messages, more } => Outcome::Erased { messages, more },
            Self::UnknownRoom => Outcome::Refused(Refusal::UnknownRoom),
            Self::NotMember => Outcome::Refused(Refusal::NotMember),
            Self::Unreadable => Outcome::Refused(Refusal::Unreadable),
            Self::Internal => Outcome::Refused(Refusal::Internal),
            Self::Executed => return None,
        })
    }
}

/// An answer to a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Reply {
    pub(super) number: u64,
    pub(super) outcome: ChangeOutcome,
}

pub(super) fn write_traces(traces: &[(u64, TraceContext)]) -> String {
    let traces: Vec<String> = traces.iter().map(|(seq, context)| format!("{seq}={context}")).collect();
    traces.join(",")
}

/// The messages of a header that belong to traces; what is malformed is left out.
pub(super) fn read_traces(header: &[u8]) -> impl Iterator<Item = (u64, TraceContext)> {
    let traces = str::from_utf8(header).unwrap_or_default().split(',');
    traces.filter_map(|trace| {
        let (seq, context) = trace.split_once('=')?;
        let (context, _) = TraceContext::parse(context.as_bytes())?;
        Some((seq.parse().ok()?, context))
    })
}

/// A committed message on the bus.
#[derive(Debug, Deserialize)]
pub(super) struct Committed<'a> {
    pub(super) seq: u64,
    /// Numbers right before it that no message of the room has.
    #[serde(default)]
    pub(super) gap: u64,
    /// When it was received, in microseconds since 1970.
    pub(super) us: i64,
    /// The JSON of the message.
    #[serde(borrow)]
    pub(super) message: &'a serde_json::value::RawValue,
}

/// Appends a committed message; a record is an array of them.
pub(super) fn write_committed(sent: &Send<'_>, receipt: Receipt, out: &mut Vec<u8>) {
    let Receipt { seq, received_at, gap } = receipt;
    out.push(if out.is_empty() { b'[' } else { b',' });
    out.extend_from_slice(
        format!(r#"{{"seq":{seq},"gap":{gap},"us":{},"message":"#, received_at.as_micros()).as_bytes(),
    );
    crate::log::body::write(sent, out);
    out.push(b'}');
}

/// What a record that is passed over is for the store: a read mark that cannot move. So each record of the log is an
/// operation of the store, and its next offset never stands still.
pub(super) const NOTHING: Change<'static> =
    Change { by: None, what: RoomChange::MarkRead { room: "-", user: "-", seq: 0 } };

#[cfg(test)]
mod tests {
    use super::*;
    use hubbub_core::MessageType;

    fn at(micros: i64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    fn changes() -> Vec<Change<'static>> {
        let settings =
            RoomSettings { title: Some("a \"b\""), members_only: Some(true), retention_s: Some(7) };
        let (room, user) = ("r", "u");
        [
            RoomChange::PutRoom { room, settings },
            RoomChange::PutRoom { room, settings: RoomSettings::default() },
            RoomChange::DeleteRoom { room },
            RoomChange::AddMember { room, user },
            RoomChange::RemoveMember { room, user },
            RoomChange::MarkRead { room, user, seq: u64::MAX },
            RoomChange::EraseUser { user },
            RoomChange::ExpireMessages { room, before: at(-5), retention_s: 0, is_own: false },
            RoomChange::ExpireMessages { room, before: at(5), retention_s: 7, is_own: true },
        ]
        .into_iter()
        .flat_map(|what| [Change { by: None, what }, Change { by: Some("ada"), what }])
        .chain([NOTHING])
        .collect()
    }

    #[test]
    fn changes_survive_a_round_trip() {
        for change in changes() {
            let mut body = Vec::new();
            write_change(&change, &mut body);
            let same = read_change(&body, |read| *read == change);
            assert_eq!(same, Ok(true), "{}", String::from_utf8_lossy(&body));
        }
    }

    #[test]
    fn wrong_changes_are_rejected() {
        for (body, part) in [
            ("", "expected JSON"),
            ("{}", "expected JSON"),
            (r#"{"change":"addMember","roomId":"r"}"#, "userId is required"),
            (r#"{"change":"addMember","roomId":"a b","userId":"u"}"#, "roomId must"),
            (r#"{"change":"deleteRoom"}"#, "roomId is required"),
            (r#"{"change":"deleteRoom","roomId":"r","by":""}"#, "by must"),
            (r#"{"change":"markRead","roomId":"r","userId":"u"}"#, "seq is required"),
            (r#"{"change":"expireMessages","roomId":"r"}"#, "beforeUs is required"),
            (r#"{"change":"expireMessages","roomId":"r","beforeUs":1}"#, "retentionS is required"),
            (r#"{"change":"expireMessages","roomId":"r","beforeUs":1,"retentionS":1}"#, "isOwn is required"),
            (r#"{"change":"putRoom","roomId":"r","title":"\u0000"}"#, "title must"),
            (r#"{"change":"putRoom","roomId":"r","retentionS":9999999999}"#, "retentionS must"),
        ] {
            let rejection = read_change(body.as_bytes(), |_| ()).unwrap_err();
            assert!(rejection.reason.contains(part), "{body}: {}", rejection.reason);
        }
    }

    #[test]
    fn outcomes_survive_a_round_trip() {
        let mark = ReadMark { seq: 1, unread: 2, head: 4, moved: true };
        for outcome in [
            Outcome::Room { created: true },
            Outcome::Changed { changed: false },
            Outcome::Read(mark),
            Outcome::Erased { messages: 3, more: true },
            Outcome::Refused(Refusal::UnknownRoom),
            Outcome::Refused(Refusal::NotMember),
        ] {
            let reply = Reply { number: 7, outcome: ChangeOutcome::of(&outcome) };
            let json = serde_json::to_vec(&reply).unwrap();
            assert_eq!(serde_json::from_slice::<Reply>(&json).unwrap().outcome.outcome(), Some(outcome));
        }
        assert_eq!(ChangeOutcome::of(&Outcome::Accepted).outcome(), None);
        let request = Request { node: "n".into(), number: 5 };
        assert_eq!(Request::parse(request.header().as_bytes()), Some(request));
        assert_eq!((Request::parse(b""), Request::parse(b"n/x")), (None, None));
    }

    #[test]
    fn traces_survive_a_round_trip() {
        let traces: Vec<(u64, TraceContext)> =
            (1..4).map(|seq| (seq, TraceContext { trace: seq.into(), span: 7 * seq })).collect();
        let header = write_traces(&traces);
        assert_eq!(read_traces(header.as_bytes()).collect::<Vec<_>>(), traces);
        let damaged = format!("x=1,,5=00-1-2-01,{header}");
        assert_eq!(read_traces(damaged.as_bytes()).collect::<Vec<_>>(), traces);
        assert_eq!(read_traces(b"\xff").count(), 0);
    }

    #[test]
    fn committed_messages_survive_a_round_trip() {
        let sent = Send {
            room: "r",
            user: "u",
            id: "m",
            username: Some("n"),
            text: "a\n\"",
            kind: MessageType::Join,
            timestamp: Timestamp::from_micros(5),
        };
        let mut out = Vec::new();
        for (seq, gap) in [(3, 0), (9, 5)] {
            write_committed(&sent, Receipt { seq, received_at: Timestamp::from_micros(-4), gap }, &mut out);
        }
        out.push(b']');
        let read: Vec<Committed<'_>> = serde_json::from_slice(&out).unwrap();
        let seen = read.iter().map(|one| (one.seq, one.gap, one.us)).collect::<Vec<_>>();
        assert_eq!(seen, [(3, 0, -4), (9, 5, -4)]);
        assert!(read[1].message.get().contains(r#""messageId":"m""#));
    }
}
