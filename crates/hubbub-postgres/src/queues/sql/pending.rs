//! Statements that read messages to everybody whose copies are not all made.

use crate::db::{Sql, statements};

pub(in crate::queues) const PENDING_COUNT: Sql = Sql {
    what: "counting messages to everybody",
    text: "select count(*) as messages, coalesce(sum(unmade), 0)::int8 as copies from queue_pending",
};

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

statements! {
    /// Those with copies for some clients that are not made.
    pub(in crate::queues) PENDING_FOR("reading messages to everybody") = pending!(
        "from (select * from queue_pending where queue = any($2) offset 0) p \
         cross join (select distinct r / 1024 as no from unnest($1) r offset 0) c \
         cross join lateral (select * from queue_pending_chunks where first = p.first and chunk = c.no offset 0) s \
         where exists (select from unnest($1) r where r / 1024 = s.chunk and get_bit(s.unmade, r % 1024) = 1)) m"
    );

    /// Those whose copies of these ids may not be made.
    pub(in crate::queues) PENDING_OF_IDS("reading messages to everybody") = pending!(
        "from unnest($1, $2) as k (queue, id) \
         cross join lateral (select * from queue_pending where queue = k.queue and first <= k.id \
           order by first desc limit 1) p \
         cross join lateral (select * from queue_pending_chunks where first = p.first \
           and low <= k.id and high >= k.id offset 0) s) m"
    );

    /// The oldest copies of a queue that are not made, behind an id.
    pub(in crate::queues) PENDING_OLDEST("reading messages to everybody") = pending!(
        "from (select * from queue_pending where queue = $1 order by first offset 0) p \
         cross join lateral (select * from queue_pending_chunks where first = p.first and low > $2 \
           order by chunk limit 1) s order by p.first limit 1) m"
    );

    /// The next copies of a queue to be made.
    pub(in crate::queues) PENDING_NEXT("reading messages to everybody") = pending!(
        "from (select * from queue_pending where queue = $1 and state <> 4 order by first limit 1) p \
         cross join lateral (select * from queue_pending_chunks where first = p.first order by chunk limit 1) s) m"
    );

    pub(in crate::queues) PENDING_DUE("reading messages to everybody that are due") = pending!(
        "null::int4 as chunk, null::int8 as low, null::bytea as receivers, null::bytea as members ",
        "from queue_pending p where p.queue = any($1) \
         and ((p.state = 1 and p.due_at <= $2) or p.expires_at <= $3 or p.state = 4)) m"
    );

    /// Copies of a queue that are not made, behind an id, by chunks of receivers.
    pub(in crate::queues) PENDING_WAITING("reading messages to everybody") = pending!(
        "from (select * from queue_pending where queue = $1 order by first offset 0) p \
         cross join lateral (select * from queue_pending_chunks where first = p.first and high > $2 \
           order by chunk limit $3) s order by p.first, s.chunk limit $3) m"
    );

    pub(in crate::queues) PENDING_TEXTS("reading texts of messages to everybody") =
        "select first, body from queue_pending where first = any($1)";

    pub(in crate::queues) CLIENT_NAMES("reading names of clients") =
        "select no, id from clients where no = any($1)";
}
