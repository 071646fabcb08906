//! What each index is worth: times with and without it, its size, and what it costs to write.

use std::time::Instant;

use tokio_postgres::Client;

use crate::{Failure, SPAN_MICROS, START_MICROS, Workload};

/// Rows that are written to learn what that costs.
const WRITTEN: i64 = 200_000;
const TIMES: usize = 15;

/// Statements like those of the store, with places for a room, a user and two times.
const QUERIES: [(&str, &str); 4] = [
    (
        "room by time",
        "select * from messages where room = ROOM and received_at >= FROM and received_at < TO \
         order by seq desc limit 1001",
    ),
    (
        "user history",
        "select m.* from messages m join rooms r on r.no = m.room and r.oldest <= m.seq where m.sender = USER \
         order by m.received_at desc, r.id desc, m.seq desc limit 101",
    ),
    (
        "active users",
        "select count(*) from (select distinct sender from messages where received_at >= FROM \
         and received_at < FROM + interval '50 minutes') m",
    ),
    (
        "user's rooms",
        "select room, count(*), min(received_at), max(received_at) from messages where sender = USER group by room",
    ),
];

/// An index of its own for each query, with everything in it that is asked for.
const COVERING: [&str; 4] = [
    "(room, received_at, seq) include (sender, sent_at, kind, message_id, username, body)",
    "(sender, received_at) include (room, seq, sent_at, kind, message_id, username, body)",
    "(received_at, sender)",
    "(sender, room, received_at)",
];

/// Sets of indexes to write to: what they are called, and what is in them besides the primary key.
const SETS: [(&str, &[&str]); 6] = [
    ("primary key only", &[]),
    ("+ (sender, received_at)", &["using btree (sender, received_at)"]),
    ("+ brin (received_at)", &["using brin (received_at) with (pages_per_range = 32)"]),
    (
        "as it is: both",
        &["using btree (sender, received_at)", "using brin (received_at) with (pages_per_range = 32)"],
    ),
    (
        "partial: (sender, received_at) of texts only",
        &["using btree (sender, received_at) where kind = '\\000'::\"char\""],
    ),
    (
        "a covering index for each query",
        &[
            "using btree (room, received_at, seq) include (sender, sent_at, kind, message_id, username, body)",
            "using btree (sender, received_at) include (room, seq, sent_at, kind, message_id, username, body)",
            "using btree (received_at, sender)",
            "using btree (sender, room, received_at)",
        ],
    ),
];

/// Prints all of it. Everything tried is rolled back.
pub(crate) async fn weigh(client: &Client, workload: &Workload) -> Result<(), Failure> {
    println!("\nmilliseconds, median of {TIMES}, in the database alone");
    print!("{:<36}", "indexes of messages");
    QUERIES.iter().for_each(|(name, _)| print!(" {name:>13}"));
    println!();
    time("as it is", &[], client, workload).await?;
    time("without (sender, received_at)", &["drop index messages_of_user"], client, workload).await?;
    time("without brin (received_at)", &["drop index messages_by_time"], client, workload).await?;
    time(
        "without the primary key",
        &["do $$ declare part name; begin \
               for part in select name from partitions loop \
                   execute format('alter table %s drop constraint %s', part, part || '_pkey'); \
               end loop; end $$"],
        client,
        workload,
    )
    .await?;
    let middle =
        format!("timestamptz 'epoch' + interval '{} seconds'", (START_MICROS + SPAN_MICROS / 2) / 1_000_000);
    let fewer_on_old = format!(
        "drop index messages_of_user; \
         do $$ declare part name; begin \
             for part in select name from partitions where ends >= {middle} loop \
                 execute format('create index on %s (sender, received_at)', part); \
             end loop; end $$; \
         analyze messages"
    );
    time("(sender, received_at) on newer half", &[&fewer_on_old], client, workload).await?;
    let without_old = format!(
        "do $$ declare part name; begin \
             for part in select name from partitions where ends < {middle} loop \
                 execute format('alter table messages detach partition %s', part); \
             end loop; end $$"
    );
    time("the newer half of the time only", &[&without_old], client, workload).await?;
    let covering = COVERING.map(|columns| format!("create index on messages {columns}"));
    let covering: Vec<&str> = covering.iter().map(String::as_str).chain(["analyze messages"]).collect();
    time("a covering index for each query", &covering, client, workload).await?;

    println!("\n{:<46} {:>12} {:>16} {:>12}", "written to", "rows/s", "µs/row more", "bytes/row");
    let mut bare = None;
    for (name, indexes) in SETS {
        let (seconds, bytes) = write(client, indexes).await?;
        let per_row = |seconds: f64| seconds * 1e6 / 2e5;
        let more = per_row(seconds) - per_row(*bare.get_or_insert(seconds));
        println!("{name:<46} {:>12.0} {more:>16.2} {:>12}", 2e5 / seconds, bytes / WRITTEN);
    }
    Ok(())
}

async fn time(name: &str, first: &[&str], client: &Client, workload: &Workload) -> Result<(), Failure> {
    client.batch_execute("begin").await?;
    for statement in first {
        client.batch_execute(statement).await?;
    }
    print!("{name:<36}");
    for (_, text) in QUERIES {
        let mut times = Vec::new();
        for n in 0..TIMES {
            let text = fill_in(text, n, workload);
            let begin = Instant::now();
            client.simple_query(&text).await?;
            times.push(begin.elapsed());
        }
        times.sort_unstable();
        let median = times.get(TIMES / 2).map_or(0.0, |time| time.as_secs_f64() * 1e3);
        print!(" {median:>13.2}");
    }
    println!();
    client.batch_execute("rollback").await?;
    Ok(())
}

fn fill_in(text: &str, n: usize, workload: &Workload) -> String {
    let (room, user) = (n as u64 % workload.rooms + 1, n as u64 * 997 % workload.users + 1);
    let from = START_MICROS / 1_000_000 + i64::try_from(n).unwrap_or(0) * 150_000;
    let at = |seconds: i64| format!("(timestamptz 'epoch' + interval '{seconds} seconds')");
    text.replace("ROOM", &room.to_string())
        .replace("USER", &user.to_string())
        .replace("FROM", &at(from))
        .replace("TO", &at(from + 86_400))
}

/// Seconds and bytes that rows take in a table with these indexes, in batches as the store writes them.
async fn write(client: &Client, indexes: &[&str]) -> Result<(f64, i64), Failure> {
    client.batch_execute("begin; create table weighed (like messages, primary key (room, seq))").await?;
    for index in indexes {
        client.batch_execute(&format!("create index on weighed {index}")).await?;
    }
    client
        .batch_execute(&format!(
            "create temp table source on commit drop as \
             select *, row_number() over (order by received_at, room, seq) as n from messages limit {WRITTEN}; \
             create index on source (n); analyze source"
        ))
        .await?;
    let begin = Instant::now();
    for batch in 0..WRITTEN / 1_000 {
        let columns = "room, sender, seq, received_at, sent_at, kind, message_id, username, body";
        let (from, to) = (batch * 1_000, batch * 1_000 + 1_000);
        client
            .batch_execute(&format!(
                "insert into weighed ({columns}) select {columns} from source where n > {from} and n <= {to}"
            ))
            .await?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    let row = client.query_one("select pg_total_relation_size('weighed')", &[]).await?;
    let bytes = row.get(0);
    client.batch_execute("rollback").await?;
    Ok((seconds, bytes))
}
