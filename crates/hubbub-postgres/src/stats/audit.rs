//! Recounts everything and compares it with the kept counts.
//!
//! One snapshot is used throughout. In it, the counted messages are exactly those in `messages` up to the last counted number
//! of their room, except those marked as uncounted.

use hubbub_core::invariant::saturate;
use hubbub_core::stats::{AUDIT_DIFFERENCES_MAX, Audit};

use super::pending_deletes::matches_pending_delete;
use crate::db::sql::non_negative;
use crate::db::{Db, Result, Sql};

/// All messages that are counted.
macro_rules! all {
    () => {
        concat!(
            "with m as (select m.room, m.sender, m.kind::int4 as kind, m.received_at, \
                 date_bin('1 hour', m.received_at, 'epoch') as hour \
             from messages m join counted c on c.room = m.room and c.seq >= m.seq \
             where not exists (select from takeouts t where t.counted_out and ",
            matches_pending_delete!(),
            ")) "
        )
    };
}

const MESSAGES: Sql = Sql { what: "recounting messages", text: concat!(all!(), "select count(*) from m") };

/// Differences between kept and found counts, as text.
macro_rules! compare {
    ($what:literal, $kept:literal, $found:literal) => {
        Sql {
            what: concat!("recounting: ", $what),
            text: concat!(
                all!(), ", kept as (", $kept, "), found as (", $found, ") \
                select '", $what, " ' || coalesce(kept.name, found.name) || ': counted ' \
                    || coalesce(kept.sums, 'nothing') || ', there is ' || coalesce(found.sums, 'nothing') \
                from kept full join found on kept.name = found.name \
                where kept.sums is distinct from found.sums order by 1 limit $1"
            ),
        }
    };
}

const ALL: [Sql; 6] = [
    compare!(
        "user and room",
        "select sender || ' ' || room as name, format('%s from %s to %s', messages, first, last) as sums \
         from pair_counts",
        "select sender || ' ' || room as name, \
             format('%s from %s to %s', count(*), min(received_at), max(received_at)) as sums \
         from m group by sender, room"
    ),
    compare!(
        "room",
        "select room::text as name, format('%s of %s users from %s to %s', messages, users, first, last) as sums \
         from room_counts",
        "select room::text as name, format('%s of %s users from %s to %s', count(*), count(distinct sender), \
             min(received_at), max(received_at)) as sums from m group by room"
    ),
    compare!(
        "user",
        "select sender::text as name, format('%s in %s rooms from %s to %s', messages, rooms, first, last) as sums \
         from user_counts",
        "select sender::text as name, format('%s in %s rooms from %s to %s', count(*), count(distinct room), \
             min(received_at), max(received_at)) as sums from m group by sender"
    ),
    compare!(
        "hour",
        "select hour::text as name, format('%s, %s, %s', texts, joins, leaves) as sums from hour_counts",
        "select hour::text as name, format('%s, %s, %s', count(*) filter (where kind = 0), \
             count(*) filter (where kind = 1), count(*) filter (where kind = 2)) as sums from m group by hour"
    ),
    compare!(
        "room in the hour",
        "select room || ' ' || hour as name, messages::text as sums from hour_room_counts",
        "select room || ' ' || hour as name, count(*)::text as sums from m group by room, hour"
    ),
    compare!(
        "users in the hour",
        "select hour || ' block ' || block as name, users::text as sums from hour_users \
         where bit_count(users) > 0",
        "select hour || ' block ' || sender / 1024 as name, \
             bit_or(set_bit(B'0'::bit(1024), sender % 1024, 1))::text as sums from m group by hour, sender / 1024"
    ),
];

pub(super) async fn run(db: &Db) -> Result<Audit> {
    // It may take long.
    let recounting = db.long_snapshot(async |tx| {
        let messages: i64 = tx.query_one(&MESSAGES, &[]).await?.get(0);
        let mut differences: Vec<String> = Vec::new();
        for sql in &ALL {
            let most: i64 = saturate(AUDIT_DIFFERENCES_MAX.saturating_sub(differences.len()));
            differences.extend(tx.query(sql, &[&most]).await?.iter().map(|row| row.get::<_, String>(0)));
        }
        Ok(Audit { messages: non_negative(messages, MESSAGES.what)?, differences })
    });
    recounting.await
}
