//! Rows about floods: what good senders at a constant rate notice of what somebody else does to the same server. It asks for
//! tokens, and limits nobody: what is measured is what refusing and sharing cost, not what limits keep away.
//!
//! Good senders are the workload `http`, and so are two of the floods. Good senders and the flood have a thread each, so that
//! one does not wait for the other in the generator.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use tokio::task::JoinSet;

use super::together::Together;
use super::{Bench, Row, SECRET};
use crate::analysis::verdict::REACHED;
use crate::client::access::AccessArgs;
use crate::client::follow::{Listener, follow};
use crate::client::{Cause, Target};
use crate::host::spawn::Server;
use crate::load::pace::{Due, Rate, Schedule};
use crate::load::run::Run;
use crate::load::worker::{Worker, work};
use crate::options::{Patience, arguments};
use crate::progress::Live;
use crate::report::{Report, grouped};
use crate::results::record::Ending;
use crate::statistics::median;
use crate::workloads::http::HttpArgs;

/// Good messages each second, and in how many rooms.
const GOOD_RATE: f64 = 10_000.0;
const ROOMS: u64 = 20;
/// A room at ten times its share of that.
const HOT_RATE: f64 = 10.0 * GOOD_RATE / 20.0;
const BAD_TOKENS_RATE: f64 = 20_000.0;
const OPENED_RATE: f64 = 2_000.0;
/// Connections that are opened at a time.
const OPENERS: usize = 64;
/// Sockets that follow a room each and read nothing.
const SLOW_READERS: u64 = 100;
/// Longer than any measurement.
const REST: Duration = Duration::from_secs(3_600);
const WARM_UP: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy)]
enum Flood {
    HotRoom,
    BadTokens,
    Connections,
    SlowReaders,
}

impl Flood {
    const ALL: [Self; 4] = [Self::HotRoom, Self::BadTokens, Self::Connections, Self::SlowReaders];

    fn name(self) -> String {
        match self {
            Self::HotRoom => format!("a room at 10 × its share ({}/s)", grouped(HOT_RATE)),
            Self::BadTokens => format!("{} bad tokens/s", grouped(BAD_TOKENS_RATE)),
            Self::Connections => format!("{} new connections/s", grouped(OPENED_RATE)),
            Self::SlowReaders => format!("{SLOW_READERS} readers that do not read"),
        }
    }

    fn rate(self) -> f64 {
        match self {
            Self::HotRoom => HOT_RATE,
            Self::BadTokens => BAD_TOKENS_RATE,
            Self::Connections => OPENED_RATE,
            Self::SlowReaders => 0.0,
        }
    }
}

/// What is loaded, and the secret whose tokens are shown.
#[derive(Clone)]
struct Aim {
    server: Arc<Server>,
    secret: PathBuf,
}

/// What a flood did: how much of it was answered as it should be, each second until its last answer, and what was not.
#[derive(Debug, Default)]
struct Flooded {
    per_second: f64,
    faults: Vec<String>,
    /// Of a flood of messages.
    report: Option<Report>,
}

impl Bench {
    /// The p99 of good senders beside each flood.
    pub(super) async fn floods(&self) -> anyhow::Result<Vec<Row>> {
        let secret = self.secret("secret", SECRET)?;
        let mut rows = Vec::new();
        for flood in Flood::ALL {
            let (mut alone, mut beside, mut rates) = (Vec::new(), Vec::new(), Vec::new());
            let (mut slow, mut faults) = (Vec::new(), Vec::new());
            for _ in 0..self.args.rounds {
                let server = Arc::new(self.fresh(&[("HUBBUB_AUTH_SECRET", SECRET)]).await?);
                let aim = Aim { server, secret: secret.clone() };
                let (before, good, flooded) = self.beside_flood(flood, &aim).await?;
                let server = Arc::try_unwrap(aim.server).ok().context("somebody still loads the server")?;
                server.kill().await?;
                alone.push(before.latency.p99_ms);
                beside.push(good.latency.p99_ms);
                rates.push(format!("{}/s", grouped(flooded.per_second)));
                for (report, what) in [(before, "good senders alone"), (good, "good senders")] {
                    faults.extend(report.faults());
                    slow.extend(too_slow(what, report.per_second, GOOD_RATE));
                }
                slow.extend(too_slow("the flood", flooded.per_second, flood.rate()));
                faults.extend(flooded.faults);
            }
            let (alone, beside) = (median(&alone), median(&beside));
            let ratio = beside / alone.max(1e-3);
            let met = beside > 0.0 && ratio <= 2.0 && slow.is_empty() && faults.is_empty();
            let what = format!("p99 of good senders, {}/s, beside {}", grouped(GOOD_RATE), flood.name());
            let rates =
                if flood.rate() > 0.0 { format!("flood {}", rates.join(", ")) } else { String::new() };
            rows.push(
                Row::new(what, format!("{beside:.2} ms"), "≤ 2 × alone", met)
                    .against(format!("{alone:.2} ms alone"), format!("{ratio:.2} ×"))
                    .noting(rates)
                    .noting(slow.join("; "))
                    .with_faults(faults),
            );
        }
        Ok(rows)
    }

    /// Good senders alone, then beside a flood.
    async fn beside_flood(&self, flood: Flood, aim: &Aim) -> anyhow::Result<(Report, Report, Flooded)> {
        let time = self.args.time;
        let wrong = self.secret("wrong", &SECRET.to_uppercase())?;
        let good = |time| {
            let aim = aim.clone();
            on_thread(move || async move { aim.send(GOOD_RATE, "good-", ROOMS, time).await })
        };
        let together = Together::begin(aim.target()?).await?;
        let warm_up = good(WARM_UP).await?;
        let alone = good(time).await?;
        let aim = aim.clone();
        let flooding = on_thread(move || async move { flooded(flood, aim, wrong, time).await });
        let (beside, mut flooded) = tokio::try_join!(good(time), flooding)?;
        let lost = together.end([&warm_up, &alone, &beside].into_iter().chain(&flooded.report)).await?;
        flooded.faults.extend(lost);
        Ok((alone, beside, flooded))
    }

    /// The file of a secret.
    fn secret(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text)?;
        Ok(path)
    }
}

/// Runs `work` on a thread with a runtime of its own.
async fn on_thread<R: Send + 'static, F: Future<Output = anyhow::Result<R>>>(
    work: impl FnOnce() -> F + Send + 'static,
) -> anyhow::Result<R> {
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.context("cannot start a thread")?.block_on(work())
    };
    tokio::task::spawn_blocking(run).await?
}

/// That a rate was not reached: the row says little then, though nothing was lost.
fn too_slow(what: &str, reached: f64, rate: f64) -> Option<String> {
    let is_slow = reached < REACHED * rate;
    is_slow.then(|| format!("{what}: {}/s instead of {}/s", grouped(reached), grouped(rate)))
}

impl Aim {
    fn target(&self) -> anyhow::Result<Target> {
        let access = AccessArgs { secret_file: Some(self.secret.clone()), ..AccessArgs::default() };
        Target::with(&self.server.url, &access.credentials()?)
    }

    /// Sends messages at a rate, over connections that each have a token of their own.
    async fn send(&self, rate: f64, prefix: &str, rooms: u64, time: Duration) -> anyhow::Result<Report> {
        let (rate, rooms, secret) = (rate.to_string(), rooms.to_string(), self.secret.display().to_string());
        let own = ["--rate", &rate, "--room-prefix", prefix, "--rooms", &rooms, "--secret-file", &secret];
        // Good senders and a flood send to the same server.
        self.server.load::<HttpArgs>(Some(time), &[&own[..], &["--beside-others"]].concat()).await
    }
}

/// Floods a server; tokens made with the secret `wrong` are bad, each time a server looks at them.
async fn flooded(flood: Flood, aim: Aim, wrong: PathBuf, time: Duration) -> anyhow::Result<Flooded> {
    match flood {
        Flood::HotRoom => {
            let report = aim.send(HOT_RATE, "hot-", 1, time).await?;
            let (per_second, faults) = (report.per_second, report.faults());
            Ok(Flooded { per_second, faults, report: Some(report) })
        }
        Flood::BadTokens => {
            let report = Aim { secret: wrong, ..aim }.send(BAD_TOKENS_RATE, "good-", ROOMS, time).await?;
            let ledger = report.ledger.as_ref().context("no ledger")?;
            let unexpected = ledger.accepted + ledger.unconfirmed;
            let fault = (unexpected > 0).then(|| format!("{unexpected} bad tokens were not refused"));
            // The answers that it has latencies of are none of these.
            let took_s = report.cpu.as_ref().map_or(0.0, |cpu| cpu.seconds);
            let per_second = rate(ledger.rejected, time, took_s);
            Ok(Flooded { per_second, faults: fault.into_iter().collect(), report: Some(report) })
        }
        Flood::Connections => {
            let run = opened(&aim.server.url, time).await?;
            let [_, refused, taken, failed] = run.counts.totals();
            let fault =
                (taken + failed > 0).then(|| format!("{} new connections were not refused", taken + failed));
            let per_second = rate(refused, time, run.record.lock().last_us as f64 / 1e6);
            Ok(Flooded { per_second, faults: fault.into_iter().collect(), report: None })
        }
        Flood::SlowReaders => {
            let following = unread(&aim.target()?, time).await;
            let fault = (following < SLOW_READERS)
                .then(|| format!("only {following} of {SLOW_READERS} readers could subscribe"));
            Ok(Flooded { faults: fault.into_iter().collect(), ..Flooded::default() })
        }
    }
}

/// What ended in each second until the last of it did: a flood that is behind goes on for longer than its time.
fn rate(ended: u64, time: Duration, took_s: f64) -> f64 {
    ended as f64 / took_s.max(time.as_secs_f64())
}

/// Opens connections at a rate; each asks for one thing, has no token, is refused, which is what counts as accepted here, and
/// is reset.
async fn opened(url: &str, time: Duration) -> anyhow::Result<Arc<Run>> {
    let (target, patience) = (Target::parse(url)?, arguments::<Patience>("patience", &[])?);
    let run = Arc::new(Run::of_operations(&target, &patience, &["connection"]));
    let schedule = Schedule::new(Rate::constant(OPENED_RATE), time, 0);
    let (due, mut openers) = (Due::new(schedule), JoinSet::new());
    for _ in 0..OPENERS {
        openers.spawn(open(Worker::new(&run, &target), Arc::clone(&due)));
    }
    due.start(&run);
    let live = Live::new("connections", schedule.messages(), true);
    work(&run, openers, &live, async {}, || due.abandon()).await;
    Ok(run)
}

async fn open(mut worker: Worker, due: Arc<Due>) {
    while !worker.is_over() {
        let Some(intended_us) = due.next().await else { break };
        let begun = worker.begin(Some(intended_us));
        let ending = match worker.connect().await {
            None => Ending::Unconfirmed,
            Some(mut caller) => {
                let status = caller.request("GET", "/v1/rooms", b"", |response| response.status).await;
                caller.reset();
                match status {
                    Ok(401) => Ending::Accepted,
                    Ok(_) => Ending::Rejected,
                    Err(_) => Ending::Unconfirmed,
                }
            }
        };
        worker.end(begun, 0, 0, ending);
    }
    worker.hand_over();
}

/// Reads what comes first, and nothing after it.
struct Unreading {
    /// Counts all whose subscription was accepted, of one room each.
    following: Arc<AtomicU64>,
}

impl Listener for Unreading {
    fn hear(&mut self, text: &str) -> Result<(), Cause> {
        if text.starts_with("{\"type\":\"subscribed\"") {
            self.following.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn rest(&self) -> Duration {
        REST
    }
}

/// Follows the rooms of the good senders, and reads nothing until the time is over. How many readers could subscribe.
async fn unread(target: &Target, time: Duration) -> u64 {
    let (mut readers, following) = (JoinSet::new(), Arc::<AtomicU64>::default());
    for number in 0..SLOW_READERS {
        let (target, following) = (target.clone(), Arc::clone(&following));
        readers.spawn(async move {
            let room = (format!("good-{}", 1 + number % ROOMS), "\"last\":0".to_owned());
            let user = format!("slow-{number}");
            let mut listener = Unreading { following };
            follow(&target, &user, std::iter::once(room), &mut listener, number).await
        });
    }
    tokio::time::sleep(time).await;
    // One that was cut off because it does not read has ended.
    readers.shutdown().await;
    following.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use parking_lot::Mutex;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn each_new_connection_asks_once_and_is_reset() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", server.local_addr().unwrap());
        let ends = Arc::<Mutex<Vec<String>>>::default();
        let seen = Arc::clone(&ends);
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = server.accept().await.unwrap();
                let seen = Arc::clone(&seen);
                tokio::spawn(async move {
                    let mut request = vec![0; 1_024];
                    let read = stream.read(&mut request).await.unwrap();
                    assert!(request[..read].starts_with(b"GET /v1/rooms HTTP/1.1\r\n"));
                    let refused = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n";
                    stream.write_all(refused).await.unwrap();
                    let end = stream.read(&mut request).await.map_err(|error| error.kind().to_string());
                    seen.lock().push(format!("{end:?}"));
                });
            }
        });
        let run = opened(&url, Duration::from_millis(50)).await.unwrap();
        assert_eq!(run.counts.totals(), [100, 100, 0, 0], "sent, refused, taken, failed");
        let reset = format!("{:?}", Err::<usize, _>(std::io::ErrorKind::ConnectionReset.to_string()));
        let all = async {
            while ends.lock().len() < 100 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), all).await.unwrap();
        assert_eq!(ends.lock().drain(..).collect::<HashSet<_>>(), HashSet::from([reset]));
    }

    #[tokio::test]
    async fn readers_that_could_not_subscribe_are_not_counted() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = Target::parse(&format!("http://{}", server.local_addr().unwrap())).unwrap();
        drop(server);
        assert_eq!(unread(&target, Duration::from_millis(50)).await, 0);
    }

    #[test]
    fn what_is_answered_late_makes_no_rate() {
        let time = Duration::from_secs(5);
        assert_eq!(rate(100_000, time, 15.0).round(), 6_667.0);
        assert_eq!(rate(100_000, time, 4.9), 20_000.0, "the last one is due before its end");
    }

    #[test]
    fn a_rate_that_was_not_reached_is_told() {
        assert_eq!(too_slow("the flood", 950.0, 1_000.0), None);
        assert_eq!(
            too_slow("the flood", 940.0, 1_000.0).as_deref(),
            Some("the flood: 940/s instead of 1,000/s")
        );
        assert_eq!(too_slow("readers", 0.0, 0.0), None);
    }
}
