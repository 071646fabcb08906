//! All statements. They are prepared once, and all may be repeated: a write carries its timestamp, but for properties
//! ([`crate::properties`]). None is conditional: not every cluster can execute lightweight transactions.

use scylla::client::session::Session;
use scylla::statement::prepared::PreparedStatement;

use crate::db::{OpenError, wrong};
use crate::schema::Settling;

macro_rules! statements {
    ($($(#[doc = $doc:literal])* $name:ident = $cql:literal;)*) => {
        /// Prepared statements.
        pub(crate) struct Statements { $($(#[doc = $doc])* pub(crate) $name: PreparedStatement,)* }

        impl Statements {
            pub(crate) async fn prepare(session: &Session) -> Result<Self, OpenError> {
                Ok(Self { $($name: prepare(session, $cql).await?,)* })
            }
        }
    };
}

async fn prepare(session: &Session, cql: &str) -> Result<PreparedStatement, OpenError> {
    let settling = Settling::begin();
    loop {
        match session.prepare(cql).await {
            Ok(mut statement) => {
                statement.set_is_idempotent(true);
                return Ok(statement);
            }
            // What another server adds to the schema at this moment is listed before it can be used.
            Err(error) if !settling.goes_on().await => return Err(wrong("preparing a statement")(error)),
            Err(_) => {}
        }
    }
}

statements! {
    property = "select value from properties where name = ?";
    set_property = "insert into properties (name, value) values (?, ?)";

    /// A table that is created again, elsewhere or from a copy, has another id.
    place = "select id from system_schema.tables where keyspace_name = ? and table_name = 'properties'";

    position = "select next_offset, version from positions where part = ?";
    set_position = "insert into positions (part, next_offset, version) values (?, ?, ?) using timestamp ?";

    room = "select distinct state from rooms where room = ?";
    /// All columns: what is not read is not brought to other replicas.
    whole_room = "select kind, number, name, state, seq, kept, texts, joins, leaves, first_at, last_at, counts from rooms \
        where room = ?";
    set_room = "update rooms using timestamp ? set state = ? where room = ?";
    member = "select state, seq, kept from rooms where room = ? and kind = 1 and number = 0 and name = ?";
    members_of = "select name, seq, kept from rooms where room = ? and kind = 1 and number = 0 and name in ?";
    members = "select name, seq, kept from rooms where room = ? and kind = 1 and number = 0 and name > ? limit ?";
    /// With the numbers of the records that wrote the ranks.
    ranks = "select name, seq, kept, writetime(kept) from rooms where room = ? and kind = 1 and number = 0";
    set_member = "insert into rooms (room, kind, number, name, seq, kept) values (?, 1, 0, ?, ?, ?) using timestamp ?";
    remove_member = "delete from rooms using timestamp ? where room = ? and kind = 1 and number = 0 and name = ?";
    senders_of = "select name, counts, texts, joins, leaves, first_at, last_at from rooms \
        where room = ? and kind = 2 and number = 0 and name in ?";
    all_rows = "select room, kind, name, counts, texts, joins, leaves, first_at, last_at from rooms";
    all_rooms = "select distinct room, state from rooms";
    set_sender = "insert into rooms (room, kind, number, name, counts) values (?, 2, 0, ?, ?) using timestamp ?";
    remove_sender = "delete from rooms using timestamp ? where room = ? and kind = 2 and number = 0 and name = ?";
    /// The bucket that has a number, if any has.
    bucket_of = "select number, kept, first_at from rooms where room = ? and kind = 0 and number <= ? \
        order by kind desc, number desc, name desc limit 1";
    buckets_before = "select number, kept, first_at from rooms where room = ? and kind = 0 and number < ? \
        order by kind desc, number desc, name desc limit ?";
    buckets_after = "select number, kept, first_at from rooms where room = ? and kind = 0 and number > ? limit ?";
    set_bucket = "insert into rooms (room, kind, number, name, kept, first_at) values (?, 0, ?, '', ?, ?) \
        using timestamp ?";
    remove_bucket_rows = "delete from rooms using timestamp ? where room = ? and kind = 0 and number <= ?";
    room_hours = "select number from rooms where room = ? and kind = 3";
    set_room_hour = "insert into rooms (room, kind, number, name) values (?, 3, ?, '') using timestamp ?";
    remove_room_hours = "delete from rooms using timestamp ? where room = ? and kind = 3 and number < ?";
    remove_kind = "delete from rooms using timestamp ? where room = ? and kind = ?";

    set_message = "insert into messages (room, bucket, seq, id, user, username, body, chunks, kind, sent_at, \
        received_at) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) using timestamp ?";
    remove_message = "delete from messages using timestamp ? where room = ? and bucket = ? and seq = ?";
    remove_bucket = "delete from messages using timestamp ? where room = ? and bucket = ?";
    messages_after = "select seq, id, user, username, body, chunks, kind, sent_at, received_at from messages \
        where room = ? and bucket = ? and seq >= ? and seq <= ? order by seq asc limit ?";
    messages_before = "select seq, id, user, username, body, chunks, kind, sent_at, received_at from messages \
        where room = ? and bucket = ? and seq >= ? and seq <= ? order by seq desc limit ?";
    messages_at = "select seq, id, user, username, body, chunks, kind, sent_at, received_at from messages \
        where room = ? and bucket = ? and seq in ?";
    message_ids_at = "select seq, id from messages where room = ? and bucket = ? and seq in ?";
    message_owners = "select seq, user, received_at from messages where room = ? and bucket = ?";
    message_counts = "select seq, user, kind, received_at from messages where room = ? and bucket = ? and seq > ? \
        and seq <= ?";
    /// The first message from a number on.
    message_from = "select seq, received_at from messages where room = ? and bucket = ? and seq >= ? limit 1";
    message_until = "select seq, received_at from messages where room = ? and bucket = ? and seq <= ? \
        order by seq desc limit 1";
    count_between = "select count(*) from messages where room = ? and bucket = ? and seq > ? and seq <= ?";
    set_large_text = "insert into large_texts (room, bucket, seq, chunk, body) values (?, ?, ?, ?, ?) using timestamp ?";
    large_text = "select body from large_texts where room = ? and bucket = ? and seq = ?";
    remove_large_text = "delete from large_texts using timestamp ? where room = ? and bucket = ? and seq = ?";
    remove_large_texts = "delete from large_texts using timestamp ? where room = ? and bucket = ?";

    ids = "select id, seq, received_at, digest from message_ids where room = ? and shard = ? and id in ?";
    first_ids = "select id from message_ids where room = ? and shard = ? limit ?";
    set_id = "insert into message_ids (room, shard, id, seq, received_at, digest) values (?, ?, ?, ?, ?, ?) \
        using timestamp ?";
    remove_id = "delete from message_ids using timestamp ? where room = ? and shard = ? and id = ?";
    remove_ids = "delete from message_ids using timestamp ? where room = ? and shard = ?";

    set_user_message = "insert into user_messages (user, slot, received_at, room, seq, bucket, id) \
        values (?, ?, ?, ?, ?, ?, ?) using timestamp ?";
    /// A deleted message: readers that lag behind still need to know that it was there.
    expire_user_message = "insert into user_messages (user, slot, received_at, room, seq, bucket, id, erased) \
        values (?, ?, ?, ?, ?, ?, ?, ?) using timestamp ? and ttl 600";
    remove_user_message = "delete from user_messages using timestamp ? \
        where user = ? and slot = ? and received_at = ? and room = ? and seq = ?";
    user_messages = "select received_at, room, seq, bucket, erased from user_messages \
        where user = ? and slot = ? and received_at >= ? and received_at <= ? \
        order by received_at desc, room desc, seq desc";
    user_messages_from = "select received_at, room, seq, bucket, erased from user_messages \
        where user = ? and slot = ? and received_at >= ?";
    user_message_ids = "select received_at, room, seq, bucket, id, erased from user_messages where user = ? and slot = ?";
    set_user_first = "insert into user_firsts (user, received_at, room, seq, bucket, id, part) \
        values (?, ?, ?, ?, ?, ?, ?) using timestamp ?";
    /// Writes every column that the place had: one that stays would outlive the others, and keep the row.
    expire_user_first = "insert into user_firsts (user, received_at, room, seq, bucket, id, part, erased) \
        values (?, ?, ?, ?, ?, ?, ?, ?) using timestamp ? and ttl 600";
    remove_user_first = "delete from user_firsts using timestamp ? \
        where user = ? and received_at = ? and room = ? and seq = ?";
    user_firsts = "select received_at, room, seq, bucket, erased from user_firsts \
        where user = ? and received_at >= ? and received_at <= ? \
        order by received_at desc, room desc, seq desc";
    user_firsts_from = "select received_at, room, seq, bucket, erased from user_firsts \
        where user = ? and received_at >= ?";
    user_first_ids = "select received_at, room, seq, bucket, id, erased, part from user_firsts where user = ?";
    user_first_rooms = "select room from user_firsts where user = ?";
    set_user_slot = "insert into user_slots (user, slot, part) values (?, ?, ?) using timestamp ?";
    expire_user_slot = "insert into user_slots (user, slot, part) values (?, ?, ?) using timestamp ? and ttl 600";
    user_slots = "select slot, part from user_slots where user = ? and slot >= ? and slot <= ? \
        order by slot desc, part desc";
    user_slots_from = "select slot, part from user_slots where user = ? and slot >= ?";
    set_user_room = "insert into user_rooms (user, room, part) values (?, ?, ?) using timestamp ?";
    expire_user_room = "insert into user_rooms (user, room, part) values (?, ?, ?) using timestamp ? and ttl 600";
    user_rooms = "select room, part from user_rooms where user = ? and room > ?";
    memberships = "select room, writetime(part) from user_rooms where user = ?";

    set_hour_user = "insert into hour_users (hour, part, room, user, counts) values (?, ?, ?, ?, ?) using timestamp ?";
    hour_users_of = "select user, counts, texts, joins, leaves, first_at, last_at, seq from hour_users \
        where hour = ? and part = ? and room = ? and user in ?";
    hour_users = "select room, user, counts, texts, joins, leaves, first_at, last_at from hour_users \
        where hour = ? and part = ?";
    remove_hour_user = "delete from hour_users using timestamp ? where hour = ? and part = ? and room = ? and user = ?";
    remove_hour_room = "delete from hour_users using timestamp ? where hour = ? and part = ? and room = ?";
    set_hour = "insert into hours (part, hour) values (?, ?) using timestamp ?";
    hours = "select hour from hours where part = ? and hour >= ? and hour < ? limit ?";

    set_room_name = "insert into room_names (part, room) values (?, ?) using timestamp ?";
    room_names = "select room from room_names where part = ? and room > ? limit ?";

    set_deleted_room = "insert into deleted_rooms (part, room, seq) values (?, ?, ?) using timestamp ?";
    deleted_rooms = "select room, seq from deleted_rooms where part = ?";
    remove_deleted_room = "delete from deleted_rooms using timestamp ? where part = ? and room = ? and seq = ?";
}
