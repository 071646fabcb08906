//! Figures, and the name that they must get.

use super::super::Verdict;
use super::super::figures::{Commit, Database, Disk, Hot, OnProcessor, Pool, Subscribers};
use super::*;

/// A run in which nothing is remarkable.
fn quiet() -> Figures {
    Figures {
        cores: 4,
        server: Some(Processors { run: 0.5, waited: 0.1, may_use: 4.0, hottest: None }),
        generator: Some(Processors { run: 0.4, waited: 0.1, may_use: 4.0, hottest: None }),
        generator_threads: 2,
        generator_stopped: Some(0.01),
        others: Some(0.1),
        latency_ms: 10.0,
        per_second: 1_600.0,
        empty_ms: Some(0.2),
        in_pipeline: Some(1.6),
        under_way: Some(0.98),
        ..Figures::default()
    }
}

fn name(change: impl FnOnce(&mut Figures)) -> &'static str {
    let mut seen = quiet();
    change(&mut seen);
    Verdict::of(seen).finding.bottleneck.name()
}

fn commit(busy: f64, run: f64, wait_ms: f64) -> Commit {
    let on_processor = Some(OnProcessor { run, waited: 0.0 });
    Commit { syncs: true, busy: Some(busy), on_processor, batch_ms: 2.0, operations: 10.0, wait_ms }
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
    assert_eq!(name(|seen| seen.reached = Some(0.99)), "the load itself");
    let only_broker = |seen: &mut Figures| (seen.reached, seen.store_lag_s) = (Some(0.99), Some(9.0));
    assert_ne!(name(only_broker), "the load itself", "the store did not keep up");
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
    assert_eq!(name(|seen| seen.server = on(0.5, 1.4, 1)), "server CPU", "pinned to a core that others use");
    let limited = Processors { run: 0.48, waited: 0.0, may_use: 0.5, hottest: None };
    assert_eq!(name(|seen| seen.server = Some(limited.clone())), "server CPU", "its group has no more");
    assert_eq!(name(|seen| seen.commit = Some(commit(0.95, 0.1, 1.0))), "disk flush");
    let elsewhere =
        |seen: &mut Figures| seen.commit = Some(Commit { syncs: false, ..commit(0.95, 0.1, 1.0) });
    assert_eq!(name(elsewhere), "database");
    let serial = |seen: &mut Figures| {
        (seen.commit, seen.in_pipeline) = (Some(commit(0.2, 0.1, 6.0)), Some(12.8));
    };
    assert_eq!(name(serial), "commit wait");
    let of_others = |seen: &mut Figures| {
        serial(seen);
        seen.in_pipeline = Some(60.0);
    };
    assert_eq!(name(of_others), "not found");
    let thread = |seen: &mut Figures| {
        seen.commit = Some(commit(0.95, 0.9, 1.0));
        seen.server.as_mut().unwrap().hottest = Some(hot(0.9));
    };
    assert_eq!(name(thread), "one hot thread");
    let worker = |seen: &mut Figures| {
        let hottest = Some(Hot { name: "tokio-rt-worker".to_owned(), ..hot(0.98) });
        seen.server = Some(Processors { run: 1.0, waited: 0.0, may_use: 4.0, hottest });
    };
    assert_eq!(name(worker), "server CPU", "server.threads may be 1");
    let crowded = |seen: &mut Figures| (seen.others, seen.server) = (Some(3.0), on(0.5, 1.0, 4));
    assert_eq!(name(crowded), "other processes");
    assert_eq!(name(|seen| seen.reached = Some(1.0)), "the load itself");
}

/// What waits in a server that has no processor left is confirmed late, too.
#[test]
fn a_broker_behind_a_full_server_is_not_the_bottleneck() {
    let mut seen = quiet();
    seen.confirm_ms = Some(9.0);
    seen.server = Some(Processors { run: 3.8, waited: 1.0, may_use: 4.0, hottest: None });
    let verdict = Verdict::of(seen.clone());
    assert_eq!(verdict.finding.bottleneck, Bottleneck::ServerCpu);
    assert_eq!(verdict.also.first().map(|one| one.bottleneck), Some(Bottleneck::Broker));
    let hottest = Some(Hot { name: "log".to_owned(), run: 0.95, waited: 0.0 });
    seen.server = Some(Processors { run: 1.0, waited: 0.0, may_use: 4.0, hottest });
    assert_eq!(Verdict::of(seen).finding.bottleneck, Bottleneck::HotThread);
}

/// Figures of 320 clients of queues on four servers, and of 32 clients whose server has one connection.
#[test]
fn a_pool_is_the_bottleneck_only_where_much_of_the_latency_is_spent_waiting_for_it() {
    let clients = |latency_ms, per_second, pool| {
        move |seen: &mut Figures| {
            (seen.latency_ms, seen.per_second) = (latency_ms, per_second);
            seen.pool = Some(pool);
        }
    };
    let wide = Pool { waiting: 4.5, connections: 64.0, wait_ms: 1.8 };
    let many = clients(54.0, 6_000.0, wide);
    assert_eq!(name(many), "not found");
    let busy = |seen: &mut Figures| {
        many(seen);
        seen.database = Some(Database { processors: 3.9, may_use: 4.0, lock_waiting: Some(0.0) });
    };
    assert_eq!(name(busy), "database", "and what is behind the pool is named");
    let tiny = Pool { waiting: 4.0, connections: 1.0, wait_ms: 131.0 };
    assert_eq!(name(clients(305.0, 95.0, tiny)), "pool", "reads that came together share the connection");
    assert_eq!(name(clients(20.0, 1_000.0, Pool { waiting: 6.0, ..wide })), "pool", "they take ten each");
}

/// Figures of a quarter of an hour that asked for 238,000/s: the latency is the backlog at the client.
#[test]
fn an_open_loop_that_falls_behind_is_judged_by_what_comes_after_the_send() {
    let late = |seen: &mut Figures| {
        (seen.per_second, seen.latency_ms, seen.waited_ms) = (199_240.0, 31_518.0, 31_508.3);
        (seen.reached, seen.window) = (Some(0.837), Some(2_000.0));
    };
    let with = |change: fn(&mut Figures)| {
        let mut seen = quiet();
        late(&mut seen);
        change(&mut seen);
        Verdict::of(seen)
    };
    let said =
        "84 % of the rate that was asked for was reached: messages waited 31.5 s on average in the generator";
    for (change, name) in [
        ((|_| {}) as fn(&mut Figures), "the load's window"),
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
        seen.in_pipeline = Some(1_800.0);
        seen.commit = Some(commit(0.2, 0.1, 6.0));
    });
    let also: Vec<Bottleneck> = slow.also.iter().map(|one| one.bottleneck).collect();
    assert_eq!((slow.finding.bottleneck, also), (Bottleneck::Window, vec![Bottleneck::CommitWait]));
    assert!(
        slow.finding.evidence.starts_with("1933 messages were under way at a time, 9.70 ms each, of 2000 ")
    );
}

#[test]
fn a_slow_subscriber_is_told_from_a_server_that_is_slow_for_all() {
    let subscribers = |behind, cut| Subscribers { slowest_behind: Some(behind), window: Some(512.0), cut };
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

#[test]
fn what_the_disk_did_is_evidence_of_a_slow_flush() {
    let commit = commit(0.9, 0.1, 1.0);
    let said = |flush_ms| {
        let disk = Some(Disk { busy: 0.394, flush_ms });
        Verdict::of(Figures { commit: Some(commit.clone()), disk, ..quiet() }).finding.evidence
    };
    let flush = said(Some(0.0412));
    assert!(
        flush.ends_with("; the busiest disk was in use for 39 % of the time, a flush took 0.041 ms"),
        "{flush}"
    );
    assert!(said(None).ends_with("in use for 39 % of the time"));
    // The disk of this machine is not that of a database.
    let elsewhere = Commit { syncs: false, ..commit.clone() };
    let disk = Some(Disk { busy: 0.394, flush_ms: None });
    let said = Verdict::of(Figures { commit: Some(elsewhere), disk, ..quiet() }).finding.evidence;
    assert!(!said.contains("disk"), "{said}");
}

/// A server elsewhere, or one whose process was not given.
#[test]
fn processor_time_that_nobody_saw_is_no_evidence() {
    let unseen = |syncs| Commit { syncs, on_processor: None, ..commit(0.95, 0.0, 1.0) };
    for (syncs, name) in [(true, Bottleneck::DiskFlush), (false, Bottleneck::Database)] {
        let seen = Figures { server: None, commit: Some(unseen(syncs)), ..quiet() };
        let Finding { bottleneck, evidence } = Verdict::of(seen).finding;
        assert_eq!(bottleneck, name);
        let said = "how much of that was the processor's is not known (give --server-pid)";
        assert!(evidence.ends_with(said), "{evidence}");
    }
    let commit = Some(Commit { busy: None, ..unseen(false) });
    let finding = Verdict::of(Figures { server: None, commit, ..quiet() }).finding;
    assert_eq!(finding.bottleneck, Bottleneck::NotFound, "nobody knows how many threads share the work");
    assert!(finding.evidence.starts_with("what the server used is not known"), "{}", finding.evidence);
}
