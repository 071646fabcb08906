//! Reading queues, as they are by now: what time has come for is taken into account, though no batch has written it yet.

use std::sync::Arc;

use hubbub_core::invariant::saturate;
use hubbub_core::queue::{
    DeadLetter, Delivery, MessageState, QueueInfo, TAKE_BYTES_MAX, Take, TakeFilter, TakeHow, WaitFilter,
    Waiting,
};
use hubbub_core::store::ReadError;
use hubbub_core::{ClientId, QueueId, QueueOp, Refusal, Timestamp};
use tokio_postgres::Row;

use super::load::Loader;
use super::settings::rules_of;
use super::sql::time;
use super::working_set::{Message, State, Stop, WorkingSet, unsigned};
use super::{Queues, sql, unmade};
use crate::db::{DbError, Param, PgTime, Sql};

macro_rules! info {
    ($which:literal) => {
        concat!(
            "select q.*, t.*, c.*, case when b.first is null or o.id < b.first then o.sent_at else b.sent_at end as oldest, \
               d.leased_over, d.delayed_over + e.delayed_over as delayed_over from queues q \
             cross join lateral (select * from queue_totals where queue = q.no offset 0) t \
             cross join lateral (select coalesce(sum(messages), 0)::int8 as messages_added, \
               coalesce(sum(delayed), 0)::int8 as delayed_added, coalesce(sum(leased), 0)::int8 as leased_added, \
               coalesce(sum(bytes), 0)::int8 as bytes_added, coalesce(sum(sent), 0)::int8 as sent_added, \
               coalesce(sum(done), 0)::int8 as done_added, coalesce(sum(dropped), 0)::int8 as dropped_added, \
               coalesce(sum(dead), 0)::int8 as dead_added \
               from queue_counts where queue = t.queue and no > t.counted) c \
             cross join lateral (select count(*) filter (where state = 1) as delayed_over, \
               count(*) filter (where state = 2) as leased_over \
               from queue_messages where state in (1, 2) and due_at > t.seen_to and due_at <= $1 and queue = q.no) d \
             cross join lateral (select coalesce(sum(unmade), 0)::int8 as delayed_over from queue_pending \
               where queue = q.no and state = 1 and due_at <= $1) e \
             left join lateral (select id, sent_at from queue_messages where queue = q.no order by id limit 1) o on true \
             left join lateral (select first, sent_at from queue_pending where queue = q.no order by first limit 1) b \
               on true \
             where not q.deleted and ",
            $which
        )
    };
}

const QUEUE: Sql = Sql { what: "reading a queue", text: info!("q.id = $2") };

const QUEUES: Sql = Sql { what: "reading queues", text: info!("q.id > $2 order by q.id limit $3") };

macro_rules! open_for {
    ($receiver:literal) => {
        concat!(
            "exists (select from queue_messages m where m.queue::bigint = q.no and m.receiver = ",
            $receiver,
            " and m.state = 0 and not m.behind and m.id >= coalesce((select low from queue_lines l \
                where l.queue = q.no and l.receiver = ",
            $receiver,
            "), 0) and (m.expires_at is null or m.expires_at > $1) \
              and (q.deliveries_max = 0 or m.deliveries < q.deliveries_max))"
        )
    };
}

/// Whether a receiver has a copy that is not made.
macro_rules! unmade_for {
    ($receiver:literal, $wanted:literal) => {
        concat!(
            "exists (select from queue_pending p join queue_pending_chunks s on s.first = p.first \
              and s.chunk = ",
            $receiver,
            " / 1024 and get_bit(s.unmade, ",
            $receiver,
            " % 1024) = 1 where p.queue = q.no and ",
            $wanted,
            " and (p.state = 0 or p.state = 1 and p.due_at <= $1) and (p.expires_at is null or p.expires_at > $1))"
        )
    };
}

const HOLDING: Sql = Sql {
    what: "finding queues that hold something",
    text: concat!(
        "select q.id from queues q where not q.deleted and q.id > $2 and (",
        open_for!("0"),
        " or ",
        open_for!("(select no from clients where id = $3)"),
        " or exists (select from queue_messages m where m.state in (1, 2) \
            and m.due_at > (select seen_to from queue_totals where queue = q.no) and m.due_at <= $1 and m.queue = q.no and not m.behind \
            and (m.receiver = 0 or m.receiver = (select no from clients where id = $3)) \
            and (m.expires_at is null or m.expires_at > $1) \
            and (q.deliveries_max = 0 or m.deliveries < q.deliveries_max)) or ",
        unmade_for!("(select no from clients where id = $3)", "true"),
        ") \
         order by q.id limit $4"
    ),
};

macro_rules! one_open {
    ($wanted:literal) => {
        concat!(
            "(select 1 from queue_messages m where m.queue::bigint = q.no and m.receiver = v.receiver and m.state = 0 \
              and not m.behind and m.id >= coalesce(l.low, 0) and ",
            $wanted,
            " and (m.expires_at is null or m.expires_at > $1) \
              and (q.deliveries_max = 0 or m.deliveries < q.deliveries_max) limit 1)"
        )
    };
}

const FOUND_FOR: Sql = Sql {
    what: "looking for those who wait",
    text: concat!(
        "select k.place from unnest($2, $3, $4) with ordinality as k (queue, receiver, sender, place) \
         left join clients r on r.id = k.receiver left join clients s on s.id = k.sender \
         where (k.queue is not null and not exists (select from queues where id = k.queue and not deleted)) \
         or exists (select from lateral ( \
             select * from queues where id = k.queue and not deleted \
             union all select * from queues where k.queue is null and not deleted) q \
           cross join lateral (values (0), (r.no)) as v (receiver) \
           left join queue_lines l on l.queue = q.no and l.receiver = v.receiver \
           cross join lateral (",
        one_open!("k.sender is null"),
        " union all ",
        one_open!("m.sender = s.no"),
        ") m) or (r.no is not null and exists (select from lateral ( \
             select * from queues where id = k.queue and not deleted \
             union all select * from queues where k.queue is null and not deleted) q where ",
        unmade_for!("r.no", "(k.sender is null or p.sender = (select no from clients where id = k.sender))"),
        ")) order by k.place"
    ),
};

const CLIENTS: Sql = Sql {
    what: "reading clients",
    text: "select id from clients where registered and id > $1 order by id limit $2",
};

const QUEUE_NUMBER: Sql =
    Sql { what: "reading a queue", text: "select no from queues where id = $1 and not deleted" };

fn signed(number: usize) -> i64 {
    saturate::<_, i64>(number)
}

fn info(row: &Row) -> QueueInfo {
    let count = |column: &str| row.get::<_, i64>(column);
    let total = |name: &str| count(name) + count(&format!("{name}_added"));
    let told = |number: i64| saturate::<_, u64>(number);
    let (delayed, leased) =
        (total("delayed") - count("delayed_over"), total("leased") - count("leased_over"));
    QueueInfo {
        queue: row.get::<_, &str>("id").into(),
        settings: rules_of(row).to_settings(),
        ready: told(total("messages") - delayed - leased),
        delayed: told(delayed),
        leased: told(leased),
        bytes: told(total("bytes")),
        oldest_sent_at: row.get::<_, Option<PgTime>>("oldest").map(|time| time.0),
        sent: told(total("sent")),
        done: told(total("done")),
        dropped: told(total("dropped")),
        dead: told(total("dead")),
        is_dead_letter: row.get("is_dead_letter"),
    }
}

fn waiting(row: &Row, queue: &Arc<str>, now: i64) -> Waiting {
    let name = |column: &str| Arc::from(row.get::<_, &str>(column));
    let message = Message::of_row(row);
    waiting_message(message, name("sender_name"), name("receiver_name"), queue, now)
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
    let state = match (message.state, message.due_at) {
        (State::Leased, Some(until)) if until > now => MessageState::Leased(time(until)),
        (State::Delayed, Some(until)) if until > now => MessageState::Delayed(time(until)),
        (State::Expired, Some(until)) => MessageState::Delayed(time(until)),
        _ => MessageState::Ready,
    };
    let delivery = Delivery {
        id: unsigned(message.id),
        queue: Arc::clone(queue),
        sender,
        receiver: (message.receiver != super::working_set::ANYBODY).then_some(receiver),
        text: message.text.unwrap_or_default(),
        group: message.group,
        sent_at: time(message.sent_at),
        deliveries: message.deliveries,
        receipt: None,
        leased_until: match state {
            MessageState::Leased(until) => Some(until),
            _ => None,
        },
        dead: message.dead.map(|dead| DeadLetter {
            origin: dead.origin,
            reason: dead.reason,
            deliveries: dead.deliveries,
        }),
    };
    Waiting { delivery, state, expires_at: message.expires_at.map(time) }
}

impl Queues {
    /// One statement that sees one moment.
    async fn rows(&self, statement: &Sql, params: &[Param<'_>]) -> Result<Vec<Row>, DbError> {
        let mut conn = self.context.db.get().await?;
        let tx = conn.begin_reading().await?;
        let planning = tx.batch("preparing", sql::PLANNING);
        let (_, rows) = tokio::try_join!(biased; planning, tx.query(statement, params))?;
        tx.commit().await?;
        Ok(rows)
    }

    pub(super) async fn queue(&self, queue: &str) -> Result<Option<QueueInfo>, ReadError> {
        let rows = self.rows(&QUEUE, &[&time(self.now()), &queue]).await?;
        Ok(rows.first().map(info))
    }

    pub(super) async fn page(&self, after: &str, limit: usize) -> Result<Vec<QueueInfo>, ReadError> {
        let rows = self.rows(&QUEUES, &[&time(self.now()), &after, &signed(limit)]).await?;
        Ok(rows.iter().map(info).collect())
    }

    pub(super) async fn holding(
        &self,
        receiver: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<Arc<str>>, ReadError> {
        let params: [Param<'_>; 4] = [&time(self.now()), &after, &receiver, &signed(limit)];
        let rows = self.rows(&HOLDING, &params).await?;
        Ok(rows.iter().map(|row| row.get::<_, &str>(0).into()).collect())
    }

    pub(super) async fn matching_filters(&self, wants: &[WaitFilter]) -> Result<Vec<usize>, ReadError> {
        let queues: Vec<_> = wants.iter().map(|one| one.queue.as_ref().map(QueueId::as_str)).collect();
        let receivers: Vec<_> = wants.iter().map(|one| one.receiver.as_ref().map(ClientId::as_str)).collect();
        let senders: Vec<_> = wants.iter().map(|one| one.sender.as_ref().map(ClientId::as_str)).collect();
        let rows = self.rows(&FOUND_FOR, &[&time(self.now()), &queues, &receivers, &senders]).await?;
        let place = |row: &Row| usize::try_from(row.get::<_, i64>(0)).ok()?.checked_sub(1);
        Ok(rows.iter().filter_map(place).collect())
    }

    pub(super) async fn clients(&self, after: &str, limit: usize) -> Result<Vec<ClientId>, ReadError> {
        let rows = self.rows(&CLIENTS, &[&after, &signed(limit)]).await?;
        // Whoever registered was checked then.
        Ok(rows.iter().filter_map(|row| ClientId::new(row.get(0)).ok()).collect())
    }

    pub(super) async fn waiting(
        &self,
        queue: &str,
        after: u64,
        limit: usize,
    ) -> Result<Option<Vec<Waiting>>, ReadError> {
        let mut conn = self.context.db.get().await?;
        let tx = conn.begin_reading().await?;
        tx.batch("preparing", sql::PLANNING).await?;
        let Some(row) = tx.query_opt(&QUEUE_NUMBER, &[&queue]).await? else { return Ok(None) };
        let (no, after): (i32, _) = (row.get(0), saturate::<_, i64>(after));
        let bytes_max = signed(TAKE_BYTES_MAX);
        let unmade = unmade::read(&tx, no, after, limit).await?;
        let rows = tx.query(&sql::WAITING, &[&no, &after, &signed(limit), &bytes_max]).await?;
        let (queue, now) = (Arc::from(queue), self.now());
        let mut listed: Vec<(Waiting, i64)> =
            rows.iter().map(|row| (waiting(row, &queue, now), row.get("bytes"))).collect();
        if !unmade.is_empty() {
            // Where rows end because of their bytes, copies behind them are for the next page.
            let unmade = unmade::told(&tx, unmade, &queue, now).await?;
            listed.extend(unmade);
            listed.sort_by_key(|(one, _)| one.delivery.id);
            listed.dedup_by_key(|(one, _)| one.delivery.id);
            listed.truncate(limit);
            let mut upto = 0;
            let fits = listed.iter().take_while(|(_, bytes)| {
                let is_first = upto == 0;
                upto += bytes.max(&1);
                is_first || upto <= bytes_max
            });
            let fits = fits.count();
            listed.truncate(fits);
        }
        tx.commit().await?;
        Ok(Some(listed.into_iter().map(|(one, _)| one).collect()))
    }

    /// A take that is decided and not done.
    pub(super) async fn look(
        &self,
        wanted: TakeFilter<'_>,
        max: usize,
    ) -> Result<Option<Vec<Delivery>>, ReadError> {
        let mut conn = self.context.db.get().await?;
        let tx = conn.begin_reading().await?;
        let loader = Loader { tx: &tx, clock: &*self.context.clock, locks: false };
        let mut set = WorkingSet::default();
        let take = QueueOp::Take(Take { wanted, max, how: TakeHow::Away, registers: false });
        Box::pin(loader.begin(&mut set, &[take], 0)).await?;
        while let Err(need) = set.advance() {
            Box::pin(loader.more(&mut set, need)).await?;
        }
        let found = loop {
            match set.look(&wanted, max) {
                Ok(found) => break Some(found),
                Err(Stop::Need(need)) => Box::pin(loader.more(&mut set, need)).await?,
                Err(Stop::Refused(Refusal::UnknownQueue)) => break None,
                Err(Stop::Refused(_)) => break Some(Vec::new()),
            }
        };
        tx.commit().await?;
        Ok(found)
    }
}
