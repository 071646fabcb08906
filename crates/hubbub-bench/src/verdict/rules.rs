//! The rules, each on its own: what it looks at, and from which value on it says something.

use super::seen::{Processors, REACHED, Seen};
use super::{Bottleneck, Finding};

type Rule = fn(&Seen) -> Option<Finding>;

/// In the order in which they count. What is outside of the server comes first: behind it the server says little.
pub(super) const RULES: [Rule; 15] = [
    stopped_generator,
    load,
    busy_generator,
    idle_generator,
    network,
    pool,
    locks,
    database,
    broker,
    slow_subscriber,
    server_cpu,
    commit_thread,
    other_processes,
    window,
    commit_wait,
];

/// Begins the names of the threads that serve connections.
const WORKERS: &str = "tokio-r";
/// From this share of what it may use on, a processor counts as full.
const FULL: f64 = 0.85;
/// The same where waiting for a processor counts with it: then others take what is missing.
const WANTED: f64 = 0.92;
/// Share of the time from the send to the answer that explains it.
const MOST: f64 = 0.5;
/// Share of what is under way that must wait for a connection.
const WAITING: f64 = 0.25;
/// Share of the time for which a generator may stand still.
const STOPPED: f64 = 0.2;
/// Share of the concurrency that must be under way in a closed loop.
const UNDER_WAY: f64 = 0.7;
/// Round trips of an empty request below this are not the network's.
const EMPTY_MS_MIN: f64 = 1.0;
/// Share of the machine that others must take to be named.
const OTHERS: f64 = 0.25;
/// Share of what may be under way that counts as all of it: between an answer and the next message is a little time.
const ALL_UNDER_WAY: f64 = 0.9;

fn found(bottleneck: Bottleneck, evidence: String) -> Option<Finding> {
    Some(Finding { bottleneck, evidence })
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

fn stopped_generator(seen: &Seen) -> Option<Finding> {
    let stopped = seen.generator_stopped.filter(|share| *share > STOPPED)?;
    let share = percent(stopped);
    found(Bottleneck::Generator, format!("the load generator did not run for {share} of the time"))
}

/// An open loop whose rate was served: whatever else is found made it slower, but not less.
fn load(seen: &Seen) -> Option<Finding> {
    let reached = seen.reached.filter(|share| *share >= REACHED)?;
    found(Bottleneck::Load, format!("{} of the rate that was asked for was reached", percent(reached)))
}

fn busy_generator(seen: &Seen) -> Option<Finding> {
    let Processors { run, waited, may_use, .. } = seen.generator.as_ref()?;
    let threads = may_use.min(seen.generator_threads as f64);
    let is_pinned = *may_use < seen.cores as f64;
    let is_full =
        *run > 0.9 * threads || is_pinned && run + waited > WANTED * threads && *run > 0.25 * threads;
    let evidence = || {
        format!(
            "the load generator used {run:.2} of the {threads} processors it may use, and waited for {waited:.2} more"
        )
    };
    if is_full { found(Bottleneck::Generator, evidence()) } else { None }
}

/// Between an answer and the next message, time passed that no latency contains.
fn idle_generator(seen: &Seen) -> Option<Finding> {
    let share = seen.under_way.filter(|share| *share < UNDER_WAY)?;
    let evidence = format!(
        "only {} of what should have been under way was: the rest of the time the connections had not sent yet",
        percent(share)
    );
    found(Bottleneck::Generator, evidence)
}

fn network(seen: &Seen) -> Option<Finding> {
    let (empty, latency) = (seen.empty_ms.filter(|ms| *ms >= EMPTY_MS_MIN)?, seen.service_ms());
    let explains = latency > 0.0 && empty >= MOST * latency;
    let evidence = format!(
        "a request with nothing to do took {empty:.1} ms before the load began, of {latency:.1} ms in it"
    );
    if explains { found(Bottleneck::Network, evidence) } else { None }
}

/// Those that wait count against all that is under way: among 300, a few wait at any time and slow nobody. By Little's law,
/// that is the share of the mean latency that is spent waiting. The wait for a single connection would not tell: a request
/// may take several in turn, or none. A batch waits once for many requests: that is time in the store, which
/// [`commit_thread`] looks at.
fn pool(seen: &Seen) -> Option<Finding> {
    let pool = seen.pool.as_ref().filter(|pool| pool.waiting >= 1.0)?;
    let under_way = seen.in_flight();
    let evidence = format!(
        "{:.1} of {under_way:.1} requests under way at a time waited for one of the {:.0} connections to the database, \
         {:.2} ms each",
        pool.waiting, pool.connections, pool.wait_ms
    );
    if pool.waiting >= WAITING * under_way { found(Bottleneck::Pool, evidence) } else { None }
}

fn locks(seen: &Seen) -> Option<Finding> {
    let waiting = seen.database.as_ref()?.lock_waiting.filter(|waiting| *waiting >= MOST)?;
    found(Bottleneck::Database, format!("{waiting:.1} sessions of the database at a time waited for a lock"))
}

fn database(seen: &Seen) -> Option<Finding> {
    let used = seen.database.as_ref()?;
    let is_full = used.processors > FULL * used.may_use;
    let evidence = format!("the database used {:.2} of its {} processors", used.processors, used.may_use);
    if is_full { found(Bottleneck::Database, evidence) } else { None }
}

fn broker(seen: &Seen) -> Option<Finding> {
    let whole = seen.service_ms();
    let confirm = seen.confirm_ms.filter(|ms| *ms >= MOST * whole && whole > 0.0)?;
    found(
        Bottleneck::Broker,
        format!("the broker took {confirm:.2} ms to confirm a message, of {whole:.2} ms in all"),
    )
}

fn slow_subscriber(seen: &Seen) -> Option<Finding> {
    let subscribers = seen.subscribers.as_ref()?;
    if subscribers.cut > 0.0 {
        let cut = subscribers.cut;
        let evidence = format!("the server cut off {cut:.0} subscribers that did not read");
        return found(Bottleneck::SlowSubscriber, evidence);
    }
    let (behind, window) = (subscribers.slowest_behind?, subscribers.window?);
    let evidence = format!(
        "the slowest subscriber was {behind:.0} messages behind most others on average, of {window:.0} that the senders \
         may be ahead of it"
    );
    if behind >= MOST * window { found(Bottleneck::SlowSubscriber, evidence) } else { None }
}

fn server_cpu(seen: &Seen) -> Option<Finding> {
    let Processors { run, waited, may_use, .. } = seen.server.as_ref()?;
    let is_pinned = *may_use < seen.cores as f64;
    let is_full =
        *run > FULL * may_use || is_pinned && run + waited > WANTED * may_use && *run > 0.25 * may_use;
    // With the generator beside it, the two share the machine.
    let together = run + seen.generator.as_ref().map_or(0.0, |own| own.run);
    let fills_machine = *run > 0.3 * may_use && together > FULL * seen.cores as f64;
    let evidence = format!(
        "the server used {run:.2} of the {may_use} processors it may use, and its threads waited for {waited:.2} more; with \
         the generator {together:.2} of {}",
        seen.cores
    );
    if is_full || fills_machine { found(Bottleneck::ServerCpu, evidence) } else { None }
}

/// One thread that does all it can: by itself, or waiting for the disk or the database. Whoever waits for a processor does
/// not wait for the disk.
fn commit_thread(seen: &Seen) -> Option<Finding> {
    let hot = seen.server.as_ref().and_then(|server| server.hottest.as_ref());
    let hot = hot.filter(|hot| hot.run > FULL || hot.run + hot.waited > WANTED && hot.run > 0.6);
    if let Some(hot) = hot {
        let (name, run) = (&hot.name, percent(hot.run));
        let evidence =
            format!("the server's thread '{name}' ran for {run} of the time, and the others had place");
        // Of these there can be more.
        let is_worker = name.starts_with(WORKERS);
        return found(if is_worker { Bottleneck::ServerCpu } else { Bottleneck::HotThread }, evidence);
    }
    let commit = seen.commit.as_ref().filter(|commit| commit.busy >= MOST)?;
    let (busy, on_processor) = (percent(commit.busy), percent((commit.run + commit.waited) / commit.busy));
    if (commit.run + commit.waited) > 0.6 * commit.busy {
        return None;
    }
    let evidence = format!(
        "batches were in the store for {busy} of the time, {:.2} ms each with {:.0} operations, and only {on_processor} of \
         that was the processor's",
        commit.batch_ms, commit.operations
    );
    let is_disk = commit.syncs && seen.database.is_none();
    found(if is_disk { Bottleneck::DiskFlush } else { Bottleneck::Database }, evidence)
}

fn other_processes(seen: &Seen) -> Option<Finding> {
    let others = seen.others.filter(|others| *others > OTHERS * seen.cores as f64)?;
    let waits = |one: &Processors| one.waited > one.run && one.run + one.waited > 0.5;
    let is_hurt = seen.server.iter().chain(&seen.generator).any(waits);
    let evidence = format!(
        "others used {others:.2} of {} processors, and server or generator waited longer for one than they ran",
        seen.cores
    );
    if is_hurt { found(Bottleneck::OtherProcesses, evidence) } else { None }
}

/// An open loop that falls behind while all that may be under way is. By Little's law its rate cannot be more than the
/// window for each service time; where nothing before this is busy, more under way make more.
fn window(seen: &Seen) -> Option<Finding> {
    seen.missed()?;
    let window = seen.window.filter(|window| *window > 0.0)?;
    let (under_way, each) = (seen.in_flight(), seen.service_ms());
    let evidence = format!(
        "{under_way:.0} messages were under way at a time, {each:.2} ms each, of {window:.0} that the senders may have \
         unanswered"
    );
    if under_way >= ALL_UNDER_WAY * window { found(Bottleneck::Window, evidence) } else { None }
}

/// What is left where no processor, disk or connection was busy.
fn commit_wait(seen: &Seen) -> Option<Finding> {
    let (commit, whole) = (seen.commit.as_ref()?, seen.service_ms());
    let in_server = seen.server_ms.filter(|ms| whole > 0.0 && *ms >= MOST * whole)?;
    found(
        Bottleneck::CommitWait,
        format!(
            "nothing was busy, yet a message was under way in the server for {in_server:.2} of {whole:.2} ms: {:.2} ms until \
             its batch began, {:.2} ms in the store",
            commit.wait_ms, commit.batch_ms
        ),
    )
}

pub(super) fn not_found(seen: &Seen) -> Finding {
    let run = |processors: &Option<Processors>| processors.as_ref().map_or(0.0, |one| one.run);
    Finding {
        bottleneck: Bottleneck::NotFound,
        evidence: format!(
            "the server used {:.2}, the generator {:.2} of {} processors, and nothing waited for longer than half of the \
             {:.2} ms from the send to the answer",
            run(&seen.server),
            run(&seen.generator),
            seen.cores,
            seen.service_ms()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::super::seen::{Commit, Database, Hot, Pool, Subscribers};
    use super::*;

    /// A run in which nothing is remarkable.
    fn quiet() -> Seen {
        Seen {
            cores: 4,
            server: Some(Processors { run: 0.5, waited: 0.1, may_use: 4.0, hottest: None }),
            generator: Some(Processors { run: 0.4, waited: 0.1, may_use: 4.0, hottest: None }),
            generator_threads: 2,
            generator_stopped: Some(0.01),
            others: Some(0.1),
            latency_ms: 10.0,
            per_second: 1_600.0,
            empty_ms: Some(0.2),
            server_ms: Some(1.0),
            under_way: Some(0.98),
            ..Seen::default()
        }
    }

    fn name(change: impl FnOnce(&mut Seen)) -> &'static str {
        let mut seen = quiet();
        change(&mut seen);
        Verdict::of(seen).finding.bottleneck.name()
    }

    fn commit(busy: f64, run: f64, wait_ms: f64) -> Commit {
        Commit { syncs: true, busy, run, waited: 0.0, batch_ms: 2.0, operations: 10.0, wait_ms }
    }

    #[test]
    fn each_fault_has_its_name() {
        let hot = |run| Hot { name: "commit".to_owned(), run, waited: 0.05 };
        let on = |run, waited, may_use: u8| {
            Some(Processors { run, waited, may_use: f64::from(may_use), hottest: None })
        };
        let database = |processors, lock_waiting| Some(Database { processors, may_use: 4.0, lock_waiting });
        assert_eq!(name(|_| {}), "not found");
        assert_eq!(name(|seen| seen.generator_stopped = Some(0.5)), "generator");
        assert_eq!(name(|seen| seen.generator = on(1.9, 0.0, 4)), "generator");
        assert_eq!(
            name(|seen| seen.generator = on(0.5, 0.9, 1)),
            "generator",
            "pinned to a core that others use"
        );
        assert_eq!(name(|seen| seen.under_way = Some(0.4)), "generator", "thinks");
        assert_eq!(name(|seen| seen.empty_ms = Some(8.0)), "network");
        let waiting = |waiting| Some(Pool { waiting, connections: 1.0, wait_ms: 3.0 });
        assert_eq!(name(|seen| seen.pool = waiting(5.0)), "pool", "of 16 under way");
        assert_eq!(name(|seen| seen.pool = waiting(0.3)), "not found");
        assert_eq!(name(|seen| seen.database = database(0.1, Some(1.0))), "database");
        assert_eq!(name(|seen| seen.database = database(3.7, Some(0.0))), "database");
        assert_eq!(name(|seen| seen.confirm_ms = Some(6.0)), "broker");
        assert_eq!(name(|seen| seen.server = on(3.6, 0.0, 4)), "server CPU");
        assert_eq!(
            name(|seen| seen.server = on(0.5, 1.4, 1)),
            "server CPU",
            "pinned to a core that others use"
        );
        let limited = Processors { run: 0.48, waited: 0.0, may_use: 0.5, hottest: None };
        assert_eq!(name(|seen| seen.server = Some(limited.clone())), "server CPU", "its group has no more");
        assert_eq!(name(|seen| seen.commit = Some(commit(0.95, 0.1, 1.0))), "disk flush");
        let elsewhere =
            |seen: &mut Seen| seen.commit = Some(Commit { syncs: false, ..commit(0.95, 0.1, 1.0) });
        assert_eq!(name(elsewhere), "database");
        let serial = |seen: &mut Seen| {
            (seen.commit, seen.server_ms) = (Some(commit(0.2, 0.1, 6.0)), Some(8.0));
        };
        assert_eq!(name(serial), "commit wait");
        let thread = |seen: &mut Seen| {
            seen.commit = Some(commit(0.95, 0.9, 1.0));
            seen.server.as_mut().unwrap().hottest = Some(hot(0.9));
        };
        assert_eq!(name(thread), "one hot thread");
        let worker = |seen: &mut Seen| {
            let hottest = Some(Hot { name: "tokio-rt-worker".to_owned(), ..hot(0.98) });
            seen.server = Some(Processors { run: 1.0, waited: 0.0, may_use: 4.0, hottest });
        };
        assert_eq!(name(worker), "server CPU", "server.threads may be 1");
        let crowded = |seen: &mut Seen| (seen.others, seen.server) = (Some(3.0), on(0.5, 1.0, 4));
        assert_eq!(name(crowded), "other processes");
        assert_eq!(name(|seen| seen.reached = Some(1.0)), "the load itself");
    }

    /// Figures of 320 clients of queues on four servers, and of 32 clients that share a connection.
    #[test]
    fn a_pool_is_the_bottleneck_only_where_most_of_the_latency_is_spent_waiting_for_it() {
        let clients = |latency_ms, per_second, pool| {
            move |seen: &mut Seen| {
                (seen.latency_ms, seen.per_second) = (latency_ms, per_second);
                seen.pool = Some(pool);
            }
        };
        let wide = Pool { waiting: 4.5, connections: 64.0, wait_ms: 1.8 };
        let many = clients(54.0, 6_000.0, wide);
        assert_eq!(name(many), "not found");
        let busy = |seen: &mut Seen| {
            many(seen);
            seen.database = Some(Database { processors: 3.9, may_use: 4.0, lock_waiting: Some(0.0) });
        };
        assert_eq!(name(busy), "database", "and what is behind the pool is named");
        let tiny = Pool { waiting: 22.0, connections: 1.0, wait_ms: 20.0 };
        assert_eq!(name(clients(29.0, 1_100.0, tiny)), "pool");
        assert_eq!(name(clients(2.0, 2_000.0, Pool { waiting: 4.5, ..wide })), "pool", "nearly all wait");
    }

    /// Figures of a quarter of an hour that asked for 238,000/s: the latency is the backlog at the client.
    #[test]
    fn an_open_loop_that_falls_behind_is_judged_by_what_comes_after_the_send() {
        let late = |seen: &mut Seen| {
            (seen.per_second, seen.latency_ms, seen.waited_ms) = (199_240.0, 31_518.0, 31_508.3);
            (seen.reached, seen.window) = (Some(0.837), Some(2_000.0));
        };
        let with = |change: fn(&mut Seen)| {
            let mut seen = quiet();
            late(&mut seen);
            change(&mut seen);
            Verdict::of(seen)
        };
        let said = "84 % of the rate that was asked for was reached: messages waited 31.5 s on average in the generator";
        for (change, name) in [
            ((|_| {}) as fn(&mut Seen), "the load's window"),
            (|seen| seen.window = Some(8_000.0), "not found"),
            (|seen| seen.confirm_ms = Some(6.0), "broker"),
            (|seen| seen.empty_ms = Some(6.0), "network"),
            (|seen| seen.server = None, "the load's window"),
        ] {
            let Finding { bottleneck, evidence } = with(change).finding;
            assert_eq!(bottleneck.name(), name);
            assert!(evidence.ends_with(said), "{evidence}");
        }
        let reached = with(|seen| seen.reached = Some(0.96)).finding;
        assert_eq!(reached.bottleneck, Bottleneck::Load);
        assert!(!reached.evidence.contains("waited"), "{}", reached.evidence);
        let slow = with(|seen| {
            seen.server_ms = Some(9.0);
            seen.commit = Some(commit(0.2, 0.1, 6.0));
        });
        let also: Vec<Bottleneck> = slow.also.iter().map(|one| one.bottleneck).collect();
        assert_eq!((slow.finding.bottleneck, also), (Bottleneck::Window, vec![Bottleneck::CommitWait]));
        assert!(
            slow.finding
                .evidence
                .starts_with("1933 messages were under way at a time, 9.70 ms each, of 2000 ")
        );
    }

    #[test]
    fn a_slow_subscriber_is_told_from_a_server_that_is_slow_for_all() {
        let subscribers =
            |behind, cut| Subscribers { slowest_behind: Some(behind), window: Some(512.0), cut };
        assert_eq!(name(|seen| seen.subscribers = Some(subscribers(400.0, 0.0))), "slow subscriber");
        assert_eq!(name(|seen| seen.subscribers = Some(subscribers(40.0, 0.0))), "not found");
        assert_eq!(name(|seen| seen.subscribers = Some(subscribers(40.0, 1.0))), "slow subscriber");
    }

    #[test]
    fn what_is_outside_of_the_server_comes_first_and_the_rest_is_said_too() {
        let mut seen = quiet();
        seen.empty_ms = Some(9.0);
        seen.commit = Some(commit(0.9, 0.1, 1.0));
        let verdict = Verdict::of(seen);
        assert_eq!(verdict.finding.bottleneck, Bottleneck::Network);
        assert_eq!(verdict.also.len(), 1);
        let said = verdict.to_string();
        assert!(said.contains("bottleneck   network: ") && said.contains("also disk flush: "), "{said}");
        let json = serde_json::to_value(&verdict).unwrap();
        assert_eq!((&json["bottleneck"], &json["figures"]["emptyMs"]), (&"network".into(), &9.0.into()));
    }
}
