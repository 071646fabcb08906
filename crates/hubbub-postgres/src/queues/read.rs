//! Reads queues as they are by now: what time has come for is taken into account, though no batch has written it yet.

use std::sync::Arc;
use std::time::Duration;

use hubbub_core::invariant::saturate;
use hubbub_core::queue::{
    Delivery, MessageState, QueueInfo, TAKE_BYTES_MAX, Take, TakeFilter, TakeMode, WaitFilter, Waiting,
};
use hubbub_core::store::{QueueStore, Read};
use hubbub_core::{ClientId, QueueId, QueueOp, Refusal, Timestamp};
use tokio_postgres::Row;

use super::load::{Loader, rules_of};
use super::sql::{queue_columns, time, unexpired};
use super::states::{queue_statements, with_states};
use super::working_set::{ANYBODY, Message, State, Stop, WorkingSet, unsigned};
use super::{Queues, pending_copies, sql};
use crate::db::{Param, PgTime, Result, Sql, Tx, column};
use crate::store::Postgres;

macro_rules! info {
    ($which:literal) => {
        concat! {
            "select ", queue_columns!(), ", t.messages, t.delayed, t.leased, t.bytes, t.sent, t.done, t.dropped, t.dead, c.*, \
               case when b.first is null or o.id < b.first then o.sent_at else b.sent_at end as oldest, \
               d.leased_over, d.delayed_over + e.delayed_over as delayed_over from queues q \
             cross join lateral (select * from queue_totals where queue = q.no offset 0) t \
             cross join lateral (select coalesce(sum(messages), 0)::int8 as messages_added, \
               coalesce(sum(delayed), 0)::int8 as delayed_added, coalesce(sum(leased), 0)::int8 as leased_added, \
               coalesce(sum(bytes), 0)::int8 as bytes_added, coalesce(sum(sent), 0)::int8 as sent_added, \
               coalesce(sum(done), 0)::int8 as done_added, coalesce(sum(dropped), 0)::int8 as dropped_added, \
               coalesce(sum(dead), 0)::int8 as dead_added \
               from queue_counts where queue = t.queue and no > t.counted) c \
             cross join lateral (select count(*) filter (where state = {delayed}) as delayed_over, \
               count(*) filter (where state = {leased}) as leased_over \
               from queue_messages where state in ({delayed}, {leased}) and due_at > t.seen_to and due_at <= $1 \
               and queue = q.no) d \
             cross join lateral (select coalesce(sum(unmade), 0)::int8 as delayed_over from queue_pending \
               where queue = q.no and state = {delayed} and due_at <= $1) e \
             left join lateral (select id, sent_at from queue_messages where queue = q.no order by id limit 1) o on true \
             left join lateral (select first, sent_at from queue_pending where queue = q.no order by first limit 1) b \
               on true \
             where not q.deleted and ", $which
        }
    };
}

queue_statements! {
    QUEUE("reading a queue") = info!("q.id = $2");
    QUEUES("reading queues") = info!("q.id > $2 order by q.id limit $3");
}

/// Whether the message `m` of the queue `q` has not outlived its time by `$1`, and may be delivered once more.
macro_rules! deliverable {
    () => {
        concat!(unexpired!("m", "$1"), " and (q.deliveries_max = 0 or m.deliveries < q.deliveries_max)")
    };
}

macro_rules! open_for {
    ($receiver:literal) => {
        concat!(
            "exists (select from queue_messages m where m.queue::bigint = q.no and m.receiver = ",
            $receiver,
            " and m.state = {ready} and not m.behind and m.id >= coalesce((select low from queue_lines l \
                where l.queue = q.no and l.receiver = ",
            $receiver,
            "), 0) and ",
            deliverable!(),
            ")"
        )
    };
}

/// Whether a receiver has a copy that is not made.
macro_rules! unmade_for {
    ($receiver:literal, $wanted:literal) => {
        concat! {
            "exists (select from queue_pending p join queue_pending_chunks s on s.first = p.first \
and s.chunk = ", $receiver, " / 1024 and get_bit(s.unmade, ", $receiver,
            " % 1024) = 1 where p.queue = q.no and ", $wanted,
            " and (p.state = {ready} or p.state = {delayed} and p.due_at <= $1) and ", unexpired!("p", "$1"), ")"
        }
    };
}

/// In the queue `q`, whether a message has ended by `$1`, though no batch has written it yet: it holds back none of its group.
macro_rules! has_ended {
    ($message:literal) => {
        concat!(
            "(",
            $message,
            ".expires_at is not null and ",
            $message,
            ".expires_at <= $1 and ",
            $message,
            ".state <> {exhausted} \
                and (",
            $message,
            ".state <> {leased} or ",
            $message,
            ".due_at <= $1) \
                and (q.deliveries_max = 0 or ",
            $message,
            ".deliveries < q.deliveries_max))"
        )
    };
}

/// `opened` = queues with a message that is the first of its group since all before it have ended.
const HOLDING: Sql = Sql {
    what: "finding queues that hold something",
    text: with_states!(concat! {
        "with opened as materialized ( \
           select h.queue from queue_messages h join queues q on q.no = h.queue cross join lateral ( \
               select * from queue_messages m where m.queue = h.queue and m.receiver = h.receiver \
               and m.group_id is not null and m.group_id = h.group_id and m.state <> {expired} and m.id > h.id and not ",
        has_ended!("m"), " order by m.id limit 1) m \
           where h.expires_at is not null and h.expires_at <= $1 and h.state <> {expired} and not h.behind \
             and h.group_id is not null \
             and (h.receiver = 0 or h.receiver = (select no from clients where id = $3)) and ", has_ended!("h"),
        " and (m.state = {ready} or m.state in ({delayed}, {leased}) and m.due_at <= $1) and ", deliverable!(), ") \
         select q.id from queues q where not q.deleted and q.id > $2 and (", open_for!("0"), " or ",
        open_for!("(select no from clients where id = $3)"),
        " or exists (select from queue_messages m where m.state in ({delayed}, {leased}) \
            and m.due_at > (select seen_to from queue_totals where queue = q.no) and m.due_at <= $1 and m.queue = q.no and not m.behind \
            and (m.receiver = 0 or m.receiver = (select no from clients where id = $3)) and ", deliverable!(), ") or \
            q.no in (select queue from opened) or ",
        unmade_for!("(select no from clients where id = $3)", "true"), ") \
         order by q.id limit $4"
    }),
};

macro_rules! one_open {
    ($wanted:literal) => {
        concat! {
            "(select 1 from queue_messages m where m.queue::bigint = q.no and m.receiver = v.receiver",
            " and m.state = {ready} and not m.behind and m.id >= coalesce(l.low, 0) and ", $wanted,
            " and ", deliverable!(), " limit 1)"
        }
    };
}

queue_statements! {
    MATCHING_FILTERS("looking for those who wait") = concat!(
        "select k.place from unnest($2, $3, $4) with ordinality as k (queue, receiver, sender, place) \
         left join clients r on r.id = k.receiver left join clients s on s.id = k.sender \
         where (k.queue is not null and not exists (select from queues where id = k.queue and not deleted)) \
         or exists (select from lateral ( \
             select * from queues where id = k.queue and not deleted \
             union all select * from queues where k.queue is null and not deleted) q \
           cross join lateral (values (0), (r.no)) as v (receiver) \
           left join queue_lines l on l.queue = q.no and l.receiver = v.receiver \
           cross join lateral (", one_open!("k.sender is null"), " union all ",
        one_open!("m.sender = s.no"), ") m) or (r.no is not null and exists (select from lateral ( \
             select * from queues where id = k.queue and not deleted \
             union all select * from queues where k.queue is null and not deleted) q where ",
        unmade_for!("r.no", "(k.sender is null or p.sender = (select no from clients where id = k.sender))"),
        ")) order by k.place"
    );

    CLIENTS("reading clients") = "select id from clients where registered and id > $1 order by id limit $2";
    QUEUE_NUMBER("reading a queue") = "select no from queues where id = $1 and not deleted";
}

fn signed(number: usize) -> i64 {
    saturate(number)
}

fn info(row: &Row) -> QueueInfo {
    let count = |column: &str| row.get::<_, i64>(column);
    let total = |name: &str| count(name) + count(&format!("{name}_added"));
    let figure = |number: i64| saturate::<_, u64>(number);
    let (delayed, leased) =
        (total("delayed") - count("delayed_over"), total("leased") - count("leased_over"));
    QueueInfo {
        queue: row.get::<_, &str>("id").into(),
        settings: rules_of(row),
        ready: figure(total("messages") - delayed - leased),
        delayed: figure(delayed),
        leased: figure(leased),
        bytes: figure(total("bytes")),
        oldest_sent_at: row.get::<_, Option<PgTime>>("oldest").map(|time| time.0),
        sent: figure(total("sent")),
        done: figure(total("done")),
        dropped: figure(total("dropped")),
        dead: figure(total("dead")),
        is_dead_letter: row.get("is_dead_letter"),
    }
}

fn waiting(row: &Row, queue: &Arc<str>, now: i64) -> Result<Waiting> {
    let name = |column: &str| Arc::from(row.get::<_, &str>(column));
    let message = Message::of_row(row)?;
    Ok(waiting_message(message, name("sender_name"), name("receiver_name"), queue, now))
}

/// A message as it is listed.
pub(super) fn waiting_message(
    message: Message,
    sender: Arc<str>,
    receiver: Arc<str>,
    queue: &Arc<str>,
    now: i64,
) -> Waiting {
    let time = Timestamp::from_micros;
    let (state, leased_until) = match (message.state, message.due_at) {
        (State::Leased, Some(until)) if until > now => (MessageState::Leased(time(until)), Some(time(until))),
        (State::Delayed, Some(until)) if until > now => (MessageState::Delayed(time(until)), None),
        (State::Expired, Some(until)) => (MessageState::Delayed(time(until)), None),
        _ => (MessageState::Ready, None),
    };
    let expires_at = message.expires_at.map(time);
    let receiver = (message.receiver != ANYBODY).then_some(receiver);
    let delivery = message.into_delivery(Arc::clone(queue), sender, receiver);
    Waiting { delivery: Delivery { leased_until, ..delivery }, state, expires_at }
}

impl Queues {
    async fn rows(&self, statement: &Sql, params: &[Param<'_>]) -> Result<Vec<Row>> {
        self.snapshot(statement.what, async |tx| tx.query(statement, params).await).await
    }

    async fn list(&self, tx: &Tx<'_>, queue: &str, after: i64, limit: usize) -> Result<Option<Vec<Waiting>>> {
        let Some(row) = tx.query_opt(&QUEUE_NUMBER, &[&queue]).await? else { return Ok(None) };
        let (no, bytes_max): (i32, _) = (row.get(0), signed(TAKE_BYTES_MAX));
        let (pending, pending_to) = pending_copies::read(tx, no, after, limit).await?;
        let rows = tx.query(&sql::WAITING, &[&no, &after, &signed(limit), &bytes_max]).await?;
        let is_cut = |last: &&Row| rows.len() >= limit || signed(rows.len()) < last.get::<_, i64>("found");
        let rows_to = rows.last().filter(is_cut).map(|last| unsigned(last.get("id")));
        let (queue, now) = (Arc::from(queue), self.now());
        let listed = rows.iter().map(|row| Ok((waiting(row, &queue, now)?, row.get("bytes"))));
        let mut listed: Vec<(Waiting, i64)> = listed.collect::<Result<_>>()?;
        if !pending.is_empty() {
            listed.extend(pending_copies::complete(tx, pending, &queue, now).await?);
            // Where either ends because there is too much of it, what is behind in the other is for the next page.
            let upto = rows_to.into_iter().chain(pending_to).min().unwrap_or(u64::MAX);
            listed.retain(|(one, _)| one.delivery.id <= upto);
            listed.sort_by_key(|(one, _)| one.delivery.id);
            listed.dedup_by_key(|(one, _)| one.delivery.id);
            listed.truncate(limit);
            truncate_to_page(&mut listed, |(_, bytes)| *bytes);
        }
        Ok(Some(listed.into_iter().map(|(one, _)| one).collect()))
    }

    /// A take that is decided and not done.
    async fn peek(&self, tx: &Tx<'_>, wanted: TakeFilter<'_>, max: usize) -> Result<Option<Vec<Delivery>>> {
        let loader = Loader { tx, clock: &*self.context.clock, locks: false };
        let mut set = WorkingSet::default();
        let take = QueueOp::Take(Take { wanted, max, how: TakeMode::Away, registers: false });
        Box::pin(loader.begin(&mut set, &[take], 0)).await?;
        while let Err(need) = set.advance() {
            Box::pin(loader.more(&mut set, need)).await?;
        }
        loop {
            match set.peek(&wanted, max) {
                Ok(found) => return Ok(Some(found)),
                Err(Stop::LoadRequest(need)) => Box::pin(loader.more(&mut set, need)).await?,
                Err(Stop::Refused(Refusal::UnknownQueue)) => return Ok(None),
                Err(Stop::Refused(_)) => return Ok(Some(Vec::new())),
            }
        }
    }
}

/// Cuts a list where it has more bytes than a page may have; the first message always fits.
pub(super) fn truncate_to_page<T>(list: &mut Vec<T>, bytes_of: impl Fn(&T) -> i64) {
    let mut bytes = 0_i64;
    let fits = list.iter().take_while(|one| {
        let is_first = bytes == 0;
        bytes += bytes_of(one).max(1);
        is_first || bytes <= signed(TAKE_BYTES_MAX)
    });
    let fits = fits.count();
    list.truncate(fits);
}

impl QueueStore for Postgres {
    fn queue(&self, queue: QueueId) -> Read<'_, Option<QueueInfo>> {
        Box::pin(async move {
            let params: [Param<'_>; 2] = [&time(self.queues.now()), &queue.as_str()];
            Ok(self.queues.rows(&QUEUE, &params).await?.first().map(info))
        })
    }

    fn queues(&self, after: Option<QueueId>, limit: usize) -> Read<'_, Vec<QueueInfo>> {
        Box::pin(async move {
            let after = after.as_ref().map_or("", QueueId::as_str);
            let params: [Param<'_>; 3] = [&time(self.queues.now()), &after, &signed(limit)];
            Ok(self.queues.rows(&QUEUES, &params).await?.iter().map(info).collect())
        })
    }

    fn queues_holding(
        &self,
        receiver: ClientId,
        after: Option<QueueId>,
        limit: usize,
    ) -> Read<'_, Vec<Arc<str>>> {
        Box::pin(async move {
            let (now, after) = (time(self.queues.now()), after.as_ref().map_or("", QueueId::as_str));
            let params: [Param<'_>; 4] = [&now, &after, &receiver.as_str(), &signed(limit)];
            let rows = self.queues.rows(&HOLDING, &params).await?;
            Ok(rows.iter().map(|row| row.get::<_, &str>(0).into()).collect())
        })
    }

    fn clients(&self, after: Option<ClientId>, limit: usize) -> Read<'_, Vec<ClientId>> {
        Box::pin(async move {
            let after = after.as_ref().map_or("", ClientId::as_str);
            let rows = self.queues.rows(&CLIENTS, &[&after, &signed(limit)]).await?;
            // Whoever registered was checked then.
            Ok(rows.iter().filter_map(|row| ClientId::new(row.get(0)).ok()).collect())
        })
    }

    fn is_client(&self, client: &str) -> bool {
        self.queues.memory.is_registered(client)
    }

    fn peek(&self, wanted: TakeFilter<'_>, max: usize) -> Read<'_, Option<Vec<Delivery>>> {
        let [queue, receiver, sender] =
            [wanted.queue, wanted.receiver, wanted.sender].map(|name| name.map(str::to_owned));
        let (queues, newest_first) = (&self.queues, wanted.newest_first);
        Box::pin(async move {
            let (queue, receiver, sender) = (queue.as_deref(), receiver.as_deref(), sender.as_deref());
            let wanted = TakeFilter { queue, receiver, sender, newest_first };
            let peeking =
                queues.context.db.snapshot("peeking", async |tx| queues.peek(tx, wanted, max).await);
            Ok(peeking.await?)
        })
    }

    fn matching_filters(&self, filters: Vec<WaitFilter>) -> Read<'_, Vec<usize>> {
        Box::pin(async move {
            let params: [Param<'_>; 4] = [
                &time(self.queues.now()),
                &column(&filters, |one| one.queue.as_ref().map(QueueId::as_str)),
                &column(&filters, |one| one.receiver.as_ref().map(ClientId::as_str)),
                &column(&filters, |one| one.sender.as_ref().map(ClientId::as_str)),
            ];
            let rows = self.queues.rows(&MATCHING_FILTERS, &params).await?;
            Ok(rows.iter().map(|row| saturate(row.get::<_, i64>(0) - 1)).collect())
        })
    }

    fn waiting(&self, queue: QueueId, after: u64, limit: usize) -> Read<'_, Option<Vec<Waiting>>> {
        Box::pin(async move {
            let (queues, after) = (&self.queues, saturate(after));
            let listing = queues
                .snapshot("listing messages", async |tx| queues.list(tx, queue.as_str(), after, limit).await);
            Ok(listing.await?)
        })
    }

    fn queue_due_in(&self) -> Option<Duration> {
        let left = self.queues.memory.due_at()?.saturating_sub(self.queues.now());
        Some(Duration::from_micros(saturate(left)))
    }
}
