//! The rules, each on its own: what it looks at, and from which value on it says something.

use super::figures::{Figures, Processors, REACHED};
use super::{Bottleneck, Finding};

type Rule = fn(&Figures) -> Option<Finding>;

/// In the order in which they count. What is outside of the server comes first: behind it the server says little. A broker
/// comes after what may be full in the server: how long it takes to confirm contains how long messages wait there until they go out.
pub(super) const RULES: [Rule; 15] = [
    stopped_generator,
    load,
    busy_generator,
    idle_generator,
    network,
    pool,
    locks,
    database,
    slow_subscriber,
    server_cpu,
    commit_thread,
    broker,
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
/// Share of the time of a request, or of all that is under way, that waiting for a connection must be. Not most of it: what
/// waits in turn before that, until others have the connection, waits for the same.
const WAITING: f64 = 0.25;
/// A part of what is under way, measured elsewhere, may seem to be this much of it.
const ALL: f64 = 1.1;
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

fn stopped_generator(seen: &Figures) -> Option<Finding> {
    let stopped = seen.generator_stopped.filter(|share| *share > STOPPED)?;
    let share = percent(stopped);
    found(Bottleneck::Generator, format!("the load generator did not run for {share} of the time"))
}

/// An open loop whose rate was served, and not by a broker alone: whatever else is found made it slower, but not less.
fn load(seen: &Figures) -> Option<Finding> {
    let reached = seen.reached.filter(|share| *share >= REACHED && seen.store_lag_s.is_none())?;
    found(Bottleneck::Load, format!("{} of the rate that was asked for was reached", percent(reached)))
}

fn busy_generator(seen: &Figures) -> Option<Finding> {
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
fn idle_generator(seen: &Figures) -> Option<Finding> {
    let share = seen.under_way.filter(|share| *share < UNDER_WAY)?;
    let evidence = format!(
        "only {} of what should have been under way was: the rest of the time the connections had not sent yet",
        percent(share)
    );
    found(Bottleneck::Generator, evidence)
}

fn network(seen: &Figures) -> Option<Finding> {
    let (empty, latency) = (seen.empty_ms.filter(|ms| *ms >= EMPTY_MS_MIN)?, seen.service_ms());
    let explains = latency > 0.0 && empty >= MOST * latency;
    let evidence = format!(
        "a request with nothing to do took {empty:.1} ms before the load began, of {latency:.1} ms in it"
    );
    if explains { found(Bottleneck::Network, evidence) } else { None }
}

/// The wait is a share of the latency, or those that wait a share of all that is under way: among 300, a few wait at any time
/// and slow nobody. Both are looked at, as neither is the part of a request that is spent waiting. A request may take several
/// connections in turn: then those that wait say more. Reads and writes that came together share one: then the wait does.
fn pool(seen: &Figures) -> Option<Finding> {
    let pool = seen.pool.as_ref().filter(|pool| pool.waiting >= 1.0)?;
    let (under_way, each) = (seen.in_flight(), seen.service_ms());
    let evidence = format!(
        "{:.1} requests at a time waited for one of the {:.0} connections to the database, of {under_way:.1} under way, and \
         for {:.2} of {each:.2} ms",
        pool.waiting, pool.connections, pool.wait_ms
    );
    let explains = pool.wait_ms >= WAITING * each || pool.waiting >= WAITING * under_way;
    if explains { found(Bottleneck::Pool, evidence) } else { None }
}

fn locks(seen: &Figures) -> Option<Finding> {
    let waiting = seen.database.as_ref()?.lock_waiting.filter(|waiting| *waiting >= MOST)?;
    found(Bottleneck::Database, format!("{waiting:.1} sessions of the database at a time waited for a lock"))
}

fn database(seen: &Figures) -> Option<Finding> {
    let used = seen.database.as_ref()?;
    let is_full = used.processors > FULL * used.may_use;
    let evidence = format!("the database used {:.2} of its {} processors", used.processors, used.may_use);
    if is_full { found(Bottleneck::Database, evidence) } else { None }
}

fn slow_subscriber(seen: &Figures) -> Option<Finding> {
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

/// Processors that the load took on this machine.
fn generators(seen: &Figures) -> f64 {
    seen.generators_run.or(seen.generator.as_ref().map(|own| own.run)).unwrap_or(0.0)
}

fn server_cpu(seen: &Figures) -> Option<Finding> {
    let Processors { run, waited, may_use, .. } = seen.server.as_ref()?;
    let is_pinned = *may_use < seen.cores as f64;
    let is_full =
        *run > FULL * may_use || is_pinned && run + waited > WANTED * may_use && *run > 0.25 * may_use;
    // With the generator beside it, the two share the machine.
    let together = run + generators(seen);
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
fn commit_thread(seen: &Figures) -> Option<Finding> {
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
    let commit = seen.commit.as_ref()?;
    let busy = commit.busy.filter(|busy| *busy >= MOST)?;
    let on_processor = commit.on_processor.map(|it| (it.run + it.waited) / busy);
    if on_processor.is_some_and(|share| share > 0.6) {
        return None;
    }
    let whose = on_processor.map_or_else(
        || "how much of that was the processor's is not known (give --server-pid)".to_owned(),
        |share| format!("only {} of that was the processor's", percent(share)),
    );
    let is_disk = commit.syncs && seen.database.is_none();
    let disk = seen
        .disk
        .filter(|_| is_disk && seen.server.is_some())
        .map_or_else(String::new, |disk| disk.to_string());
    let evidence = format!(
        "batches were in the store for {} of the time, {:.2} ms each with {:.0} operations, and {whose}{disk}",
        percent(busy),
        commit.batch_ms,
        commit.operations
    );
    found(if is_disk { Bottleneck::DiskFlush } else { Bottleneck::Database }, evidence)
}

fn broker(seen: &Figures) -> Option<Finding> {
    let whole = seen.service_ms();
    let confirm = seen.confirm_ms.filter(|ms| *ms >= MOST * whole && whole > 0.0)?;
    found(
        Bottleneck::Broker,
        format!("the broker took {confirm:.2} ms to confirm a message, of {whole:.2} ms in all"),
    )
}

fn other_processes(seen: &Figures) -> Option<Finding> {
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
fn window(seen: &Figures) -> Option<Finding> {
    seen.missed()?;
    let window = seen.window.filter(|window| *window > 0.0)?;
    let (under_way, each) = (seen.in_flight(), seen.service_ms());
    let evidence = format!(
        "{under_way:.0} messages were under way at a time, {each:.2} ms each, of {window:.0} that the senders may have \
         unanswered"
    );
    if under_way >= ALL_UNDER_WAY * window { found(Bottleneck::Window, evidence) } else { None }
}

/// What is left where no processor, disk or connection was busy. Of reads that memory answers nothing is in the pipeline, so
/// what is there at a time is compared, and not how long a write takes there. More than there was under way is of others.
fn commit_wait(seen: &Figures) -> Option<Finding> {
    let (commit, under_way) = (seen.commit.as_ref()?, seen.in_flight());
    let waiting = seen.in_pipeline.filter(|count| (MOST * under_way..=ALL * under_way).contains(count))?;
    found(
        Bottleneck::CommitWait,
        format!(
            "nothing was busy, yet of {under_way:.1} operations under way {waiting:.1} were waiting to be committed: {:.2} ms \
             until their batch began, {:.2} ms in the store",
            commit.wait_ms, commit.batch_ms
        ),
    )
}

pub(super) fn not_found(seen: &Figures) -> Finding {
    let server = seen.server.as_ref().map_or_else(
        || "what the server used is not known (give --server-pid)".to_owned(),
        |server| format!("the server used {:.2}", server.run),
    );
    Finding {
        bottleneck: Bottleneck::NotFound,
        evidence: format!(
            "{server}, the generator {:.2} of {} processors, and nothing waited for longer than half of the {:.2} ms from the \
             send to the answer",
            generators(seen),
            seen.cores,
            seen.service_ms()
        ),
    }
}

#[cfg(test)]
mod tests;
