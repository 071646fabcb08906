//! Statements that read, all with types spelled out.
//!
//! None leaves it to the planner in which order tables are gone through: while a snapshot stays open, tables and indexes are
//! full of what is gone, which statistics do not count, and a plan that begins at the wrong end walks over all of it. What
//! is looked up for each element of an array is therefore a lateral subquery behind `offset 0`, which is never pulled up;
//! names are scalar subqueries; rows to be changed are found first, and changed by their `ctid`, which nobody else moves as
//! long as the queue is locked.

use hubbub_core::Timestamp;

use super::states::{queue_statements, with_states};
use crate::db::{PgTime, Sql, walking};

/// A time as a parameter.
pub(super) fn time(micros: i64) -> PgTime {
    PgTime(Timestamp::from_micros(micros))
}

/// Plans for tables whose size nobody has counted yet must not read them whole. And they are the same for all parameters:
/// otherwise the database plans again whatever it expects to be cheaper for few elements of an array than for ten, which
/// costs more than to run it.
pub(super) const PLANNING: &str = concat!(
    walking!(),
    "; set local enable_hashjoin = off; set local enable_mergejoin = off; set local enable_sort = off; \
     set local jit = off; set local plan_cache_mode = force_generic_plan"
);

/// Whether what `$alias` names has not outlived its time by `$now`.
macro_rules! unexpired {
    ($alias:literal, $now:literal) => {
        concat!("(", $alias, ".expires_at is null or ", $alias, ".expires_at > ", $now, ")")
    };
}

pub(super) use unexpired;

/// A message with the names of sender and receiver; `$text` is its text or null.
macro_rules! message_of {
    ($text:literal, $($from:expr),+) => {
        concat! {
            "select m.queue, m.id, m.sender, m.receiver, m.state, m.behind, m.is_copy, m.deliveries, \
             m.earlier_deliveries, m.sent_at, m.due_at, m.begun_at, m.expires_at, m.known_as, m.group_id, octet_length(m.body)::int8 as bytes, ",
            $text, " as text, m.dead_origin, m.dead_reason, m.dead_deliveries, \
             (select id from clients where no = m.sender) as sender_name, \
             (select id from clients where no = m.receiver) as receiver_name ", $($from),+
        }
    };
}

/// The numbers of queues, in their order, and those of their dead-letter queues. `$3` is the suffix of these.
macro_rules! numbers_named {
    () => {
        "(select distinct w.no from ( \
            select no from queues where not deleted and id = any($1) \
            union all select unnest($2) \
            union all select (select d.no from queues d where not d.deleted \
                and d.id = coalesce(nullif(n.dead_letter, ''), n.id || $3)) \
              from queues n where not n.deleted and n.deliveries_max > 0 and n.id = any($1) \
            union all select (select d.no from queues d where not d.deleted \
                and d.id = coalesce(nullif(n.dead_letter, ''), n.id || $3)) \
              from queues n where not n.deleted and n.deliveries_max > 0 and n.no = any($2)) w \
          order by w.no offset 0) k"
    };
}

/// What is read of a row `q` of `queues`. Spelled out, here and elsewhere: a column that a later version adds would change the
/// type of the rows, and the database refuses to run a prepared statement with another one.
macro_rules! queue_columns {
    () => {
        "q.no, q.id, q.is_dead_letter, q.lease_ms, q.deliveries_max, q.dead_letter, q.ttl_ms, q.messages_max, q.bytes_max, \
         q.drops_oldest, q.backoff_ms, q.backoff_max_ms"
    };
}

pub(super) use queue_columns;

macro_rules! queues_named {
    ($lock:literal) => {
        concat! {
            "select ", queue_columns!(), " from ", numbers_named!(),
            " cross join lateral (select * from queues where no = k.no and not deleted ", $lock,
            " offset 0) q"
        }
    };
}

queue_statements! {
    pub(super) LOCK_QUEUES("locking queues") = queues_named!("for no key update");
    pub(super) READ_QUEUES("reading queues") = queues_named!("");

    pub(super) LOCK_ALL("locking all queues") = concat!(
        "select ", queue_columns!(), " from queues q where not q.deleted order by q.no for no key update"
    );

    pub(super) READ_ALL("reading all queues") =
        concat!("select ", queue_columns!(), " from queues q where not q.deleted order by q.no");

    /// Up to when queues were seen to. Whoever locks them reads it afterwards, since it stands in another row than the lock.
    pub(super) SEEN_NAMED("reading up to when queues were seen to") = concat!(
        "select t.queue, t.seen_to from ", numbers_named!(),
        " cross join lateral (select * from queue_totals where queue = k.no offset 0) t"
    );

    /// The same of all queues.
    pub(super) SEEN_ALL("reading up to when all queues were seen to") =
        "select queue, seen_to from queue_totals";

    pub(super) READ_CLIENTS("reading clients") =
        "select no, id, registered from clients where id = any($1) and no > 0";

    pub(super) HOLD_CLIENTS("holding registrations") = "select clients from queue_head for no key update";

    pub(super) REGISTERED("reading who is registered") =
        "select chunk, members from client_chunks order by chunk";

    pub(super) HIGHEST_NAMED("reading the highest number of a queue") =
        "select highest_named from queue_head for no key update";

    pub(super) QUEUES_DUE("finding what is due in queues") =
        "select distinct queue from ( \
           (select m.queue from queue_messages m where m.state in ({delayed}, {leased}) \
            and m.due_at > $1 and m.due_at <= $2 \
            and not (select deleted from queues where no = m.queue) order by m.due_at limit 1000) \
           union all \
           (select m.queue from queue_messages m where m.expires_at is not null and m.state in ({ready}, {delayed}) \
            and m.expires_at > $1 and m.expires_at <= $3 \
            and not (select deleted from queues where no = m.queue) order by m.expires_at limit 1000) \
           union all \
           (select m.queue from queue_messages m where m.state in ({exhausted}, {expired}) \
            and not (select deleted from queues where no = m.queue) limit 1000) \
           union all \
           (select p.queue from queue_pending p where (p.state = {delayed} and p.due_at <= $2 \
            or p.expires_at <= $3 or p.state = {expired}) \
            and not (select deleted from queues where no = p.queue))) due";

    /// When there is something to sweep next, up to some time.
    pub(super) NEXT_DUE("finding when something in queues is due") =
        "select \
           (select m.due_at from queue_messages m where m.state in ({delayed}, {leased}) \
            and m.due_at > $1 and m.due_at <= $2 \
            and not (select deleted from queues where no = m.queue) order by m.due_at limit 1) as due, \
           (select m.expires_at from queue_messages m where m.expires_at is not null and m.state <> {expired} \
            and m.state in ({ready}, {delayed}) and m.expires_at > $1 and m.expires_at <= $2 \
            and not (select deleted from queues where no = m.queue) order by m.expires_at limit 1) as expires, \
           exists (select from queue_messages m where m.state in ({exhausted}, {expired}) \
            and not (select deleted from queues where no = m.queue)) \
           or exists (select from queue_pending p where p.state = {expired} \
            and not (select deleted from queues where no = p.queue)) as over, \
           (select min(p.due_at) from queue_pending p \
            where p.state = {delayed} and not (select deleted from queues where no = p.queue)) as pending_due, \
           (select min(p.expires_at) from queue_pending p \
            where p.state <> {expired} and not (select deleted from queues where no = p.queue)) as pending_expires";

    pub(super) MESSAGES_DUE("reading what is due in queues") = message_of!(
        "null::text",
        "from ((select * from queue_messages where state in ({delayed}, {leased}) \
                and due_at > $2 and due_at <= $3 and queue = any($1) order by due_at limit $4) \
               union all \
               (select * from queue_messages where expires_at is not null and state <> {expired} \
                and state in ({ready}, {delayed}) and expires_at >= $5 and expires_at <= $6 \
                and queue = any($1) order by expires_at limit $4)) m"
    );

    /// Messages that wait to be cleared away or moved to dead-letter queues.
    pub(super) MESSAGES_OVER("reading what is over in queues") = message_of!(
        "null::text",
        "from (select * from queue_messages where state in ({exhausted}, {expired}) and queue = any($1) limit $2) m"
    );

    pub(super) MESSAGES_BY_ID("reading messages of queues") = message_of!(
        "null::text", "from unnest($1, $2) as k (queue, id) \
         cross join lateral (select * from queue_messages where queue = k.queue and id = k.id offset 0) m"
    );

    pub(super) TEXTS("reading texts of messages") =
        "select m.id, m.body from unnest($1, $2) as k (queue, id) \
         cross join lateral (select id, body from queue_messages where queue = k.queue and id = k.id offset 0) m";
}

/// The cast of `queue` names the indexes of what may be taken, and no other. What has expired by `$6` is left out: there may
/// be any number of it. `$7` is how many bytes of texts are read of a place; others are read once it is known which are taken.
macro_rules! places {
    ($wanted:literal, $order:literal) => {
        with_states!(message_of!(
            "case when m.upto <= k.texts then m.body end",
            "from (select a.*, coalesce((select l.low from queue_lines l \
                 where l.queue = a.queue and l.receiver = a.receiver), 0) as low \
               from unnest($1, $2, $3, $4, $5, $7) as a (queue, receiver, sender, behind, most, texts) offset 0) k \
             cross join lateral ( \
               select f.*, sum(octet_length(f.body)) over (order by ",
            $order,
            " rows unbounded preceding) as upto from ( \
                 select * from queue_messages where queue::bigint = k.queue and receiver = k.receiver \
                 and state = {ready} and not behind and ", unexpired!("queue_messages", "$6"), " and ",
            $wanted,
            " order by ",
            $order,
            " limit k.most) f) m"
        ))
    };
}

const fn place(text: &'static str) -> Sql {
    Sql { what: "reading what may be taken from queues", text }
}

/// What may be taken: whether it is of one sender, whether the newest comes first, and the statement.
pub(super) static PLACES: [(bool, bool, Sql); 4] = [
    (false, false, place(places!("id > greatest(k.behind, k.low - 1)", "id"))),
    (false, true, place(places!("id < k.behind and id >= k.low", "id desc"))),
    (true, false, place(places!("sender = k.sender and id > greatest(k.behind, k.low - 1)", "id"))),
    (true, true, place(places!("sender = k.sender and id < k.behind and id >= k.low", "id desc"))),
];

queue_statements! {
    pub(super) LOW_WATER_MARKS("reading where queues begin") =
        "select l.queue, l.receiver, l.low from unnest($1, $2) as k (queue, receiver) \
         cross join lateral (select * from queue_lines where queue = k.queue and receiver = k.receiver offset 0) l";

    /// Messages of groups that are not over.
    pub(super) GROUPS("reading groups of messages") = message_of!(
        "null::text",
        "from unnest($1, $2, $3, $4, $5) as k (queue, receiver, group_id, behind, most) cross join lateral ( \
           select * from queue_messages where queue = k.queue and receiver = k.receiver \
           and group_id is not null and group_id = k.group_id and state <> {expired} and id > k.behind \
           order by id limit k.most) m"
    );

    /// The oldest of a queue that are not on lease.
    pub(super) OLDEST("reading the oldest messages of a queue") = message_of!(
        "null::text",
        "from (select * from queue_messages where queue = $1 and id > $2 and id <= $4 and state <> {leased} \
           order by id limit $3) m"
    );

    pub(super) COPIES("reading a client's copies") = message_of!(
        "null::text", "from queue_messages m where m.is_copy and m.receiver = $1 and m.state <> {leased} \
         and not (select deleted from queues where no = m.queue)"
    );

    /// Messages of a queue that may have been delivered too often, or may not.
    pub(super) RETURNED("reading messages that were delivered before") = message_of!(
        "null::text",
        "from ((select * from queue_messages where queue = $1 and state = {ready} and deliveries > 0) \
         union all (select * from queue_messages where queue = $1 and state in ({exhausted}, {expired}) \
           and state = {exhausted})) m"
    );

    /// Dead letters with ids from `$2` to `$3` whose queues are there; the one of an id in any case.
    pub(super) DEAD_LETTERS("reading dead letters") = message_of!(
        "null::text", "from (select * from queue_messages where queue = $1 and dead_origin is not null \
         and state not in ({leased}, {expired}) and id >= $2 and id <= $3 \
         and ($2 = $3 or (select true from queues where id = dead_origin and not deleted)) order by id limit $4) m"
    );

    /// Ids of senders that are not forgotten.
    pub(super) KNOWN("reading ids of senders") =
        "select k.first, k.queue, k.message_id, k.content, k.sent_at, k.copies \
         from unnest($1, $2) as a (queue, message_id) cross join lateral ( \
           select * from queue_known where queue = a.queue and message_id = a.message_id \
           and (forget_at is null or forget_at > $3) offset 0) k";

    pub(super) NEXT_IDS("numbering messages of queues") = "select next_queue_message_ids($1)";

    pub(super) HELD("counting messages of queues") =
        "select t.queue as no, (t.messages + c.messages)::int8 as messages, (t.bytes + c.bytes)::int8 as bytes \
         from queue_totals t cross join lateral ( \
           select coalesce(sum(messages), 0) as messages, coalesce(sum(bytes), 0) as bytes \
           from queue_counts where queue = t.queue and no > t.counted) c where t.queue = any($1)";

    /// Everything of a queue, in the order of ids. `found` are those that there were, before they were cut at `$4` bytes.
    pub(super) WAITING("reading messages of a queue") = concat!(
        message_of!(
            "m.found, m.body", "from (select * from (select f.*, count(*) over () as found, \
               sum(octet_length(f.body)) over (order by id rows unbounded preceding) as upto, \
               row_number() over (order by id) as place \
               from (select * from queue_messages where queue = $1 and id > $2 order by id limit $3) f) g \
             where g.upto <= $4 or g.place = 1) m"
        ),
        // The joins keep no order of their own.
        " order by m.id"
    );
}

/// Messages to everybody as templates of their copies, each with some of its receivers.
macro_rules! pending {
    ($from:literal) => {
        pending!("s.chunk, s.low, s.receivers, s.unmade as members ", $from)
    };
    ($chunk:literal, $from:literal) => {
        message_of!(
            "m.unmade_copies, m.chunk, m.low, m.receivers, m.members, null::text",
            "from (select p.first as id, p.queue, p.sender, 0 as receiver, p.state, false as behind, true as is_copy, \
               0::int8 as deliveries, 0::int8 as earlier_deliveries, p.sent_at, p.due_at, p.begun_at, p.expires_at, \
               p.known_as, null::text as group_id, p.body, null::text as dead_origin, null::int2 as dead_reason, \
               null::int8 as dead_deliveries, p.unmade as unmade_copies, ", $chunk, $from
        )
    };
}

queue_statements! {
    pub(super) PENDING_COUNT("counting messages to everybody") =
        "select count(*) as messages, coalesce(sum(unmade), 0)::int8 as copies from queue_pending";

    /// Those with copies for some clients that are not made.
    pub(super) PENDING_FOR("reading messages to everybody") = pending!(
        "from (select * from queue_pending where queue = any($2) offset 0) p \
         cross join (select distinct r / 1024 as no from unnest($1) r offset 0) c \
         cross join lateral (select * from queue_pending_chunks where first = p.first and chunk = c.no offset 0) s \
         where exists (select from unnest($1) r where r / 1024 = s.chunk and get_bit(s.unmade, r % 1024) = 1)) m"
    );

    /// Those whose copies of these ids may not be made.
    pub(super) PENDING_OF_IDS("reading messages to everybody") = pending!(
        "from unnest($1, $2) as k (queue, id) \
         cross join lateral (select * from queue_pending where queue = k.queue and first <= k.id \
           order by first desc limit 1) p \
         cross join lateral (select * from queue_pending_chunks where first = p.first \
           and low <= k.id and high >= k.id offset 0) s) m"
    );

    /// The oldest copies of a queue that are not made, behind an id.
    pub(super) PENDING_OLDEST("reading messages to everybody") = pending!(
        "from (select * from queue_pending where queue = $1 order by first offset 0) p \
         cross join lateral (select * from queue_pending_chunks where first = p.first and low > $2 \
           order by chunk limit 1) s order by p.first limit 1) m"
    );

    /// The next copies of a queue to be made.
    pub(super) PENDING_NEXT("reading messages to everybody") = pending!(
        "from (select * from queue_pending where queue = $1 and state <> {expired} order by first limit 1) p \
         cross join lateral (select * from queue_pending_chunks where first = p.first order by chunk limit 1) s) m"
    );

    pub(super) PENDING_DUE("reading messages to everybody that are due") = pending!(
        "null::int4 as chunk, null::int8 as low, null::bytea as receivers, null::bytea as members ",
        "from queue_pending p where p.queue = any($1) \
         and ((p.state = {delayed} and p.due_at <= $2) or p.expires_at <= $3 or p.state = {expired})) m"
    );

    /// Copies of a queue that are not made, behind an id, by chunks of receivers.
    pub(super) PENDING_WAITING("reading messages to everybody") = pending!(
        "from (select * from queue_pending where queue = $1 order by first offset 0) p \
         cross join lateral (select * from queue_pending_chunks where first = p.first and high > $2 \
           order by chunk limit $3) s order by p.first, s.chunk limit $3) m"
    );

    pub(super) PENDING_TEXTS("reading texts of messages to everybody") =
        "select first, body from queue_pending where first = any($1)";

    pub(super) CLIENT_NAMES("reading names of clients") =
        "select no, id from clients where no = any($1)";
}
