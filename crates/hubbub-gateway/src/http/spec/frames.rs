//! Every kind of frame over WebSocket, with its schema. Frames are read and written by hand; these types are only their
//! schemas.

use hubbub_core::limits::Limits;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::super::types::{AnyId, AnyTime, Epoch, Id, MessageType, Seq, Time};
use super::schemas::{DraftWithRoom, LineProblem, Message, Position, finish, generator, list_codes};

/// The two dialects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Channel {
    /// `/v1/ws`.
    Api,
    /// `/chat/{room}`.
    Chat,
}

/// One kind of frame.
pub(super) struct Frame {
    /// Unique over both dialects.
    pub(super) name: String,
    pub(super) channel: Channel,
    pub(super) summary: String,
    pub(super) payload: Value,
    /// Names of the frames that may answer it; `None` = the server sends it.
    pub(super) replies: Option<&'static [&'static str]>,
}

/// The frames of clients, and those that may answer them.
const REPLIES: &[(&str, &[&str])] = &[
    ("auth", &["authenticated", "error"]),
    ("subscribe", &["subscribed", "error"]),
    ("subscribeAll", &["subscribedMine", "subscribedAll", "error"]),
    ("unsubscribe", &["unsubscribed", "error"]),
    ("read", &["marked", "error"]),
    ("send", &["ack", "error"]),
    ("typing", &["error"]),
    ("ping", &["pong"]),
    ("chatMessage", &["chatSuccess", "chatError"]),
];

/// What the server sends without a `ref`.
const NO_REF: &[&str] = &["reset", "message", "presence", "somebodyTypes"];
const REF: &str = "Any JSON of at most 256 bytes; the answer repeats it.";

/// The frames of both dialects.
pub(super) fn all(limits: &Limits) -> Vec<Frame> {
    let mut generator = generator(SchemaSettings::draft2020_12().for_deserialize());
    let dialects = [
        (Channel::Api, ApiFrame::json_schema(&mut generator)),
        (Channel::Chat, ChatFrame::json_schema(&mut generator)),
    ];
    let mut all = Vec::new();
    for (channel, mut schema) in dialects {
        let kinds = ["oneOf", "anyOf"].iter().find_map(|key| schema.remove(*key));
        for mut payload in kinds.and_then(|kinds| kinds.as_array().cloned()).unwrap_or_default() {
            finish(&mut payload, limits);
            let mut take = |key| payload.as_object_mut().and_then(|members| members.remove(key));
            let [summary, title] = [take("description"), take("title")];
            let name = title.or_else(|| payload.pointer("/properties/type/const").cloned());
            let [name, summary] = [name, summary]
                .map(|text| text.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned());
            if channel == Channel::Api
                && !NO_REF.contains(&name.as_str())
                && let Some(Value::Object(members)) = payload.get_mut("properties")
            {
                members.insert("ref".to_owned(), json!({"description": REF}));
            }
            let replies = REPLIES.iter().find(|(client, _)| *client == name).map(|(_, replies)| *replies);
            all.push(Frame { name, channel, summary, payload, replies });
        }
    }
    all
}

/// Where to continue after a `reset`: from the oldest (the default), or with the next message.
#[derive(JsonSchema)]
#[schemars(inline, rename_all = "camelCase")]
#[expect(dead_code)]
enum OnReset {
    Replay,
    Live,
}

/// All rooms of the user.
#[derive(JsonSchema)]
#[schemars(inline)]
#[expect(dead_code)]
enum AllRooms {
    #[serde(rename = "*")]
    All,
}

#[derive(JsonSchema)]
#[schemars(inline)]
#[serde(untagged)]
#[expect(dead_code)]
enum OneOrAll<T> {
    One(T),
    All(AllRooms),
}

// The frames of `/v1/ws`, first those of clients. A name that is not the `type` is the title.
#[derive(JsonSchema)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[expect(dead_code)]
enum ApiFrame {
    /// Say who calls, first of all or anew: subscriptions that the token does not allow end
    Auth {
        /// A JSON Web Token or an API key.
        token: String,
    },
    /// Follow a room
    Subscribe {
        room_id: AnyId,
        /// Begin behind this `seq`; 0 = with the oldest. Without it, and without `last`: with the next message.
        after: Option<u64>,
        /// Begin with the last so many; not together with `after`.
        #[schemars(extend("maximum" = "{page_messages}"))]
        last: Option<u64>,
        /// The history `after` belongs to.
        epoch: Option<Epoch>,
        on_reset: Option<OnReset>,
    },
    /// Follow all rooms the user is a member of, present and future
    #[serde(rename = "subscribe")]
    #[schemars(title = "subscribeAll")]
    SubscribeAll {
        room_id: AllRooms,
        /// Where to begin in some of the rooms, as `after` does; in the others at the read mark.
        #[schemars(with = "Option<std::collections::BTreeMap<String, u64>>")]
        cursors: (),
        /// The history the cursors belong to.
        epoch: Option<Epoch>,
        on_reset: Option<OnReset>,
    },
    /// Stop following a room; `"*"` ends all that came through it
    Unsubscribe { room_id: OneOrAll<AnyId> },
    /// Everything up to here is read; answered if it has a `ref`
    Read { room_id: AnyId, seq: u64 },
    /// Send a message
    Send {
        #[serde(flatten)]
        draft: DraftWithRoom,
    },
    /// Notify the others that the caller is typing; passed on at most once a second
    Typing { room_id: AnyId },
    /// Ask for a sign of life
    Ping {},
    /// The token is taken
    Authenticated {
        /// Missing for the administrator.
        user_id: Option<Id>,
        /// When the token ends; missing when it does not.
        expires_at: Option<Time>,
    },
    /// The room is followed from here on
    Subscribed {
        room_id: Id,
        #[serde(flatten)]
        position: Position,
    },
    /// One of all rooms is followed from here on
    #[serde(rename = "subscribed")]
    #[schemars(title = "subscribedMine")]
    SubscribedMine {
        room_id: Id,
        #[serde(flatten)]
        position: Position,
        /// The user's read mark.
        read_seq: u64,
    },
    /// All rooms there are were announced, and what was missed came; others follow as they are joined
    #[serde(rename = "subscribed")]
    #[schemars(title = "subscribedAll")]
    SubscribedAll { room_id: AllRooms, rooms: u64 },
    /// Where a read mark is: the answer to `read`, and without `ref` to all sockets of the user when it moved
    #[serde(rename = "read")]
    #[schemars(title = "marked")]
    Marked {
        room_id: Id,
        user_id: Id,
        /// Everything up to here is read.
        seq: u64,
        /// Messages that are kept and lie behind it, up to `head`.
        unread: u64,
        /// The room's newest message when this was so.
        head: u64,
    },
    /// The cursor cannot be honoured; comes once, after `subscribed`
    Reset {
        room_id: Id,
        #[serde(flatten)]
        position: Position,
    },
    /// A message of a followed room
    Message {
        #[serde(flatten)]
        message: Message,
    },
    /// Nothing of the room follows
    Unsubscribed { room_id: OneOrAll<Id> },
    /// The message is durable. With a broker as the log it has no number yet, and only `messageId` is given
    Ack {
        message_id: Id,
        seq: Option<Seq>,
        epoch: Option<Epoch>,
        received_at: Option<Time>,
        duplicate: Option<bool>,
    },
    /// A user's first subscription of the room began, or the last ended
    Presence { room_id: Id, user_id: Id, online: bool },
    /// A user is typing
    #[serde(rename = "typing")]
    #[schemars(title = "somebodyTypes")]
    SomebodyTypes { room_id: Id, user_id: Id },
    /// The answer to `ping`
    Pong {},
    /// What was wrong; the socket stays open. With `roomId` and without `ref`, of a subscription that ended
    Error {
        #[serde(flatten)]
        problem: LineProblem,
    },
}

#[derive(JsonSchema)]
#[schemars(inline)]
#[serde(untagged)]
#[expect(dead_code)]
enum ChatUser {
    Id(Id),
    Number(#[schemars(range(min = 1, max = 100_000))] u32),
}

// The frames of `/chat/{room}`.
#[derive(JsonSchema)]
#[serde(untagged, rename_all_fields = "camelCase")]
#[expect(dead_code)]
enum ChatFrame {
    /// A message to the room
    #[schemars(title = "chatMessage")]
    Message {
        user_id: ChatUser,
        /// Letters and digits.
        #[schemars(length(min = 3, max = 20))]
        username: String,
        #[schemars(length(min = 1, max = 500))]
        message: String,
        timestamp: AnyTime,
        /// In any case.
        message_type: MessageType,
        message_id: Option<AnyId>,
    },
    /// It is on disk
    #[schemars(title = "chatSuccess")]
    Success {
        #[schemars(extend("enum" = ["success"]))]
        status: String,
        message_id: Id,
        server_receive_time: Time,
        server_send_time: Time,
        /// Left out with a broker as the log.
        seq: Option<Seq>,
        /// The id was stored before; `seq` is the first one's.
        #[schemars(extend("const" = true))]
        duplicate: Option<bool>,
        /// The frame as it came, with `?echo=1`.
        original_message: Option<Value>,
    },
    /// What was wrong; the socket stays open
    #[schemars(title = "chatError")]
    Error {
        #[schemars(extend("enum" = ["error"]))]
        status: String,
        /// Every fault.
        errors: Vec<String>,
        /// Stable: never renamed, never reused.
        #[schemars(transform = list_codes)]
        code: String,
        retryable: bool,
        message_id: Option<Id>,
    },
}
