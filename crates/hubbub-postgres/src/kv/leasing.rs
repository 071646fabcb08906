//! The task that gets, renews and ends the lease. The protocol is in [`super::lease`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::try_join;
use tokio_postgres::Row;

use super::apply::LOCK;
use super::lease::{GenerationState, Lease};
use crate::db::{Db, DbError, Param, Result, Sql, Tx, statements};
use crate::options::Exclusive;
use crate::store::Context;

/// Time between two looks at the lease and the servers.
pub(super) const LEASE_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Time between two beats.
pub(super) const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(500);
/// How long a holder's beat has stood still when others end its lease.
pub(super) const HOLDER_TIMEOUT: Duration = Duration::from_secs(2);
/// The same for the row of a server without a lease.
const SERVER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a look or a beat may take; neither waits for a lock. A connection that is silent for longer is lost.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(2);
/// Steps at the start, until nothing is left to do at once.
const FIRST_STEPS: usize = 4;
/// How long a server that stops tries to say so.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);

/// Revisions that a history may have lost were given, to clients who may come with them. So those of the next one begin far
/// behind, as [`hubbub_core::kv::first_revision`] says, at a deletion of the empty key, which no key is. The head, wherever it is read, is then this one's; nobody has to
/// know of the jump. Needs the writers' lock.
macro_rules! jump {
    ($from:literal) => {
        concat!(
            "insert into kv_changes (revision, key, what, knows_lease) \
             select case when clock.us >= far.revision then clock.us else far.revision + clock.us % (1::bigint << 32) end, \
                 '', 'D', true from \
                 (select least((extract(epoch from clock_timestamp()) * 1000000)::bigint, 1::bigint << 52)) clock (us), \
                 (select coalesce(max(revision), 0) + (1::bigint << 32) from kv_changes) far (revision), ",
            $from
        )
    };
}

statements! {
    READ_LEASE("looking who may change keys") =
        "select generation, holder, epoch, id, beat from kv_lease left join kv_servers on true";

    HEARTBEAT("telling that this server is there") =
        "update kv_servers set beat = beat + 1 where id = $1 \
         returning (select generation from kv_lease), (select holder from kv_lease)";

    REGISTER("telling that this server has come") =
        "insert into kv_servers (id, beat) values ($1, 0) on conflict do nothing";

    REMOVE_SERVER("forgetting a server that is gone") = "delete from kv_servers where id = $1 and beat = $2";

    // The beat moves, so that whoever saw it stand still for a while begins anew.
    ACQUIRE("becoming the only one that may change keys") =
        "with beating as (update kv_servers set beat = beat + 1 where id = $2 returning id) \
         update kv_lease set generation = generation + 1, holder = beating.id from beating \
         where generation = $1 and holder is null and not exists (select from kv_servers where id <> $2) \
         returning generation";

    RELEASE("letting others change keys") =
        "update kv_lease set generation = generation + 1, holder = null where generation = $1 and holder = $2 \
         returning generation";

    END("ending the lease of a server that is gone") =
        "with gone as (delete from kv_servers where id = $2 and beat = $3 returning id) \
         update kv_lease set generation = generation + 1, holder = null where generation = $1 and holder = $2 \
         and (exists (select from gone) or not exists (select from kv_servers where id = $2)) returning generation";

    // All parts see the row as it was before. The first history of a database follows none.
    BEGIN_HISTORY("beginning a new history of keys") = concat!(
        "with begun as (update kv_lease set generation = generation + 1, holder = null, epoch = $2 where generation = $1 \
             returning generation), \
         jumped as (",
        jump!("begun, kv_lease before where before.epoch <> ''"),
        ") select generation from begun"
    );

    // No generation of before comes again: those count from 1. Which history the row was of, nobody knows.
    RESTORE("putting back the row of the lease of keys") = concat!(
        "with restored as (insert into kv_lease (generation, epoch) \
             values ((extract(epoch from clock_timestamp()) * 1000000)::bigint, $1) on conflict do nothing \
             returning generation), \
         jumped as (",
        jump!("restored"),
        ") select generation from restored"
    );

    GOODBYE("telling that this server goes") =
        "with gone as (delete from kv_servers where id = $1) \
         update kv_lease set generation = generation + 1, holder = null where holder = $1 returning generation";
}

/// The lease and the other servers, as they were read.
#[derive(Debug, Clone, PartialEq, Eq)]
struct View {
    generation: i64,
    holder: Option<i64>,
    epoch: String,
    /// With their beats.
    servers: Vec<(i64, i64)>,
}

/// The beat of a holder without a row. No server has it.
const NO_BEAT: i64 = -1;

impl View {
    fn of(rows: &[Row]) -> Option<Self> {
        let first = rows.first()?;
        let server = |row: &Row| Some((row.get::<_, Option<i64>>(3)?, row.get::<_, Option<i64>>(4)?));
        let (holder, mut servers): (_, Vec<_>) = (first.get(1), rows.iter().filter_map(server).collect());
        if let Some(holder) = holder
            && servers.iter().all(|(id, _)| *id != holder)
        {
            servers.push((holder, NO_BEAT));
        }
        Some(Self { generation: first.get(0), holder, epoch: first.get(2), servers })
    }
}

/// What is to be done next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    BeginHistory,
    Take,
    GiveBack,
    /// Ends the lease of this holder, if its beat is still the same.
    End(i64, i64),
    Forget(i64, i64),
}

/// What decides besides the view.
struct Own<'a> {
    id: i64,
    epoch: &'a str,
    wants: bool,
    is_uncertain: bool,
}

/// `still` says how long the beat of a server has stood still, `open` how long this history was watched.
fn next_action(view: &View, me: &Own<'_>, still: impl Fn(i64) -> Duration, open: Duration) -> Option<Action> {
    let others = || view.servers.iter().filter(|(id, _)| *id != me.id);
    if view.epoch != me.epoch {
        return (open >= HOLDER_TIMEOUT).then_some(Action::BeginHistory);
    }
    match view.holder {
        Some(holder) if holder == me.id => {
            (!me.wants || me.is_uncertain || others().next().is_some()).then_some(Action::GiveBack)
        }
        Some(holder) => {
            let (_, beat) = view.servers.iter().find(|(id, _)| *id == holder)?;
            (still(holder) >= HOLDER_TIMEOUT).then_some(Action::End(holder, *beat))
        }
        None => match others().find(|(id, _)| still(*id) >= SERVER_TIMEOUT) {
            Some((id, beat)) => Some(Action::Forget(*id, *beat)),
            None => (me.wants && others().next().is_none()).then_some(Action::Take),
        },
    }
}

/// The task of one server.
pub(super) struct Leasing {
    pub(super) context: Arc<Context>,
    pub(super) lease: Arc<Lease>,
    /// The beats of others, and since when they are known.
    seen: HashMap<i64, (i64, Instant)>,
    opened: Option<Instant>,
    heartbeat_at: Option<Instant>,
    /// Since when the row of the lease is missing: somebody deleted it.
    missing_since: Option<Instant>,
}

impl Leasing {
    pub(super) fn new(context: Arc<Context>, lease: Arc<Lease>) -> Self {
        // In a history that begins with this server, nobody can have had a lease before.
        let opened = (!context.history.is_new).then(Instant::now);
        Self { context, lease, seen: HashMap::new(), opened, heartbeat_at: None, missing_since: None }
    }

    /// Registers this server, and takes the lease if it is the only one.
    pub(super) async fn begin(&mut self) -> Result<()> {
        for _ in 0..FIRST_STEPS {
            if !self.step().await? {
                break;
            }
        }
        Ok(())
    }

    /// Until the task is aborted.
    pub(super) async fn run(mut self) {
        loop {
            match self.step().await {
                // There is more to do at once.
                Ok(true) => {}
                // Maintenance meets the same fault, and logs it.
                Ok(false) | Err(_) => {
                    let looking = self.lease.looking.notified();
                    // Whoever calls has time for one look, or a lost connection would be looked at in a hot loop.
                    tokio::select! {
                        () = tokio::time::sleep(LEASE_CHECK_INTERVAL) => {}
                        () = looking => tokio::time::sleep(LEASE_CHECK_INTERVAL / 20).await,
                    }
                }
            }
        }
    }

    /// Beats if it is time, looks, and does what is to be done. Returns whether something was done.
    async fn step(&mut self) -> Result<bool> {
        if self.heartbeat_at.is_none_or(|at| at.elapsed() >= HEARTBEAT_INTERVAL) {
            within(HEARTBEAT.what, self.beat()).await?;
        }
        let rows = within(READ_LEASE.what, self.context.db.read(&READ_LEASE, &[])).await?;
        let Some(view) = View::of(&rows) else { return self.restore().await };
        self.missing_since = None;
        self.observe(&view);
        let now = Instant::now();
        let me = Own {
            id: self.lease.own(),
            epoch: &self.context.history.epoch,
            wants: self.context.options.exclusive == Exclusive::Auto,
            is_uncertain: self.lease.is_uncertain(view.generation),
        };
        let still = |id| self.seen.get(&id).map_or(Duration::ZERO, |(_, since)| now.duration_since(*since));
        let open = self.opened.map_or(Duration::MAX, |opened| now.duration_since(opened));
        match next_action(&view, &me, still, open) {
            Some(action) => self.act(&view, action).await,
            None => Ok(false),
        }
    }

    /// Renews the lease, if this server has it; or registers the server.
    async fn beat(&mut self) -> Result<()> {
        let (since, own) = (self.lease.now(), self.lease.own());
        let rows = self.execute(&HEARTBEAT, &[&own]).await?;
        if let Some(row) = rows.first() {
            if let (Some(generation), Some(holder)) = (row.get(0), row.get::<_, Option<i64>>(1))
                && holder == own
            {
                self.lease.hold(generation, since);
            }
        } else {
            self.execute(&REGISTER, &[&self.lease.rename()]).await?;
        }
        self.heartbeat_at = Some(Instant::now());
        Ok(())
    }

    fn observe(&mut self, view: &View) {
        let now = Instant::now();
        let seen = view.servers.iter().map(|(id, beat)| {
            let before = self.seen.get(id).filter(|(before, _)| before == beat);
            (*id, (*beat, before.map_or(now, |(_, since)| *since)))
        });
        self.seen = seen.collect();
        let is_own = view.holder == Some(self.lease.own());
        if !is_own {
            self.lease.lose();
        }
        let is_free = is_own || view.holder.is_none();
        let may_write = is_free && view.epoch == *self.context.history.epoch;
        self.lease.learn(GenerationState { generation: view.generation, may_write });
    }

    /// Nobody changes keys without the row. Who had the lease has let go of it before another row is there.
    async fn restore(&mut self) -> Result<bool> {
        self.lease.lose();
        let since = *self.missing_since.get_or_insert_with(Instant::now);
        if since.elapsed() < HOLDER_TIMEOUT {
            return Ok(false);
        }
        let epoch: &str = &self.context.history.epoch;
        self.locked(&RESTORE, &[&epoch]).await?;
        tracing::error!("the row of kv_lease was deleted; it is put back, and keys can be changed again");
        Ok(true)
    }

    async fn act(&mut self, view: &View, action: Action) -> Result<bool> {
        let (own, before, since) = (self.lease.own(), view.generation, self.lease.now());
        let rows = match action {
            Action::BeginHistory => {
                let epoch: &str = &self.context.history.epoch;
                self.locked(&BEGIN_HISTORY, &[&before, &epoch]).await?
            }
            Action::Take => self.locked(&ACQUIRE, &[&before, &own]).await?,
            Action::GiveBack => {
                self.lease.finish(before);
                self.locked(&RELEASE, &[&before, &own]).await?
            }
            Action::End(holder, beat) => self.locked(&END, &[&before, &holder, &beat]).await?,
            Action::Forget(id, beat) => {
                self.execute(&REMOVE_SERVER, &[&id, &beat]).await?;
                return Ok(true);
            }
        };
        let Some(row) = rows.first() else { return Ok(false) };
        let generation = row.get(0);
        match action {
            Action::Take => {
                self.heartbeat_at = Some(Instant::now());
                self.lease.hold(generation, since);
                tracing::debug!(generation, "this server is the only one that may change keys");
            }
            Action::End(..) => {
                tracing::warn!(generation, "ended the lease of keys of a server that does not answer");
            }
            _ => tracing::debug!(generation, ?action, "all servers may change keys"),
        }
        self.lease.learn(GenerationState { generation, may_write: true });
        Ok(true)
    }

    /// With the lock of all who change keys.
    async fn locked(&self, sql: &Sql, params: &[Param<'_>]) -> Result<Vec<Row>> {
        locked(&self.context.db, sql, params).await
    }

    async fn execute(&self, sql: &Sql, params: &[Param<'_>]) -> Result<Vec<Row>> {
        self.context.db.run(sql.what, async |tx| tx.query(sql, params).await).await
    }
}

async fn within<T>(what: &'static str, work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(STATEMENT_TIMEOUT, work).await.unwrap_or(Err(DbError::Timeout { what }))
}

async fn locked(db: &Db, sql: &Sql, params: &[Param<'_>]) -> Result<Vec<Row>> {
    // What is sent behind the lock sees all that others did who had it.
    let work = async |tx: &Tx<'_>| try_join(tx.batch(sql.what, LOCK), tx.query(sql, params)).await;
    db.run(sql.what, work).await.map(|((), rows)| rows)
}

/// Lets others go on at once when this server stops.
pub(super) async fn say_goodbye(context: &Context, lease: &Lease) {
    lease.close();
    let own = lease.own();
    let params: [Param<'_>; 1] = [&own];
    let going = locked(&context.db, &GOODBYE, &params);
    // Otherwise others wait until its beat has stood still.
    let _ = tokio::time::timeout(RELEASE_TIMEOUT, going).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: i64 = 1;

    fn view(holder: Option<i64>, servers: &[i64]) -> View {
        let servers = servers.iter().map(|id| (*id, id * 10)).collect();
        View { generation: 5, holder, epoch: "now".into(), servers }
    }

    fn next(view: &View, still: Duration) -> Option<Action> {
        let me = Own { id: ME, epoch: "now", wants: true, is_uncertain: false };
        next_action(view, &me, |_| still, Duration::ZERO)
    }

    #[test]
    fn only_who_is_alone_takes_it() {
        let short = HOLDER_TIMEOUT - Duration::from_millis(1);
        assert_eq!(next(&view(None, &[ME]), short), Some(Action::Take));
        assert_eq!(next(&view(None, &[ME, 2]), short), None);
        assert_eq!(next(&view(None, &[ME, 2]), SERVER_TIMEOUT), Some(Action::Forget(2, 20)));
        let unwilling = Own { id: ME, epoch: "now", wants: false, is_uncertain: false };
        assert_eq!(next_action(&view(None, &[ME]), &unwilling, |_| short, short), None);
    }

    #[test]
    fn who_has_it_lets_go_for_others() {
        let none = Duration::ZERO;
        assert_eq!(next(&view(Some(ME), &[ME]), none), None);
        assert_eq!(next(&view(Some(ME), &[ME, 2]), none), Some(Action::GiveBack));
        let uncertain = Own { id: ME, epoch: "now", wants: true, is_uncertain: true };
        let action = next_action(&view(Some(ME), &[ME]), &uncertain, |_| none, none);
        assert_eq!(action, Some(Action::GiveBack));
    }

    #[test]
    fn a_lease_is_ended_after_its_time() {
        let short = HOLDER_TIMEOUT - Duration::from_millis(1);
        assert_eq!(next(&view(Some(2), &[ME, 2]), short), None);
        assert_eq!(next(&view(Some(2), &[ME, 2]), HOLDER_TIMEOUT), Some(Action::End(2, 20)));
    }

    #[test]
    fn another_history_waits_for_the_leases_of_the_one_before() {
        let old = View { epoch: "before".into(), ..view(None, &[ME]) };
        assert_eq!(next(&old, HOLDER_TIMEOUT), None);
        let me = Own { id: ME, epoch: "now", wants: true, is_uncertain: false };
        let action = next_action(&old, &me, |_| Duration::ZERO, HOLDER_TIMEOUT);
        assert_eq!(action, Some(Action::BeginHistory));
    }
}
