//! Rows about floods: what good senders at a constant rate notice of what somebody else does to the same server. It asks for
//! tokens, and limits nobody: what is measured is what refusing and sharing cost, not what limits keep away.
//!
//! Good senders and the flood have a thread each, so that one does not wait for the other in the generator. Latency counts
//! from when a request should have been sent, unless it was only the generator's timer that was late.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use hubbub_ws::{Opcode, handshake, write};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::{Bench, Row, SECRET};
use crate::client::post::split_response;
use crate::report::grouped;
use crate::spawn::Server;
use crate::statistics::median;

/// Good messages each second, over how many connections, in how many rooms.
const GOOD_RATE: f64 = 10_000.0;
const CONNECTIONS: usize = 64;
const ROOMS: u64 = 20;
/// A room at ten times its share of that.
const HOT_RATE: f64 = 10.0 * GOOD_RATE / 20.0;
const BAD_TOKENS_RATE: f64 = 20_000.0;
const OPENED_RATE: f64 = 2_000.0;
/// Sockets that follow a room each and read nothing.
const SLOW_READERS: u64 = 100;
/// Share of a rate that must be reached.
const REACHED: f64 = 0.95;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
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

/// Where requests go, and the token of those that are good.
#[derive(Debug, Clone)]
struct Aim {
    address: SocketAddr,
    token: String,
}

/// What was sent at a rate.
#[derive(Debug, Default)]
struct Sent {
    latencies_ms: Vec<f64>,
    /// Answered with another status than expected.
    unexpected: u64,
}

impl Sent {
    fn note(&mut self, latency: Duration, is_as_expected: bool) {
        self.latencies_ms.push(latency.as_secs_f64() * 1e3);
        self.unexpected += u64::from(!is_as_expected);
    }

    fn p99_ms(&mut self) -> f64 {
        self.latencies_ms.sort_by(f64::total_cmp);
        self.latencies_ms.get(self.latencies_ms.len() * 99 / 100).copied().unwrap_or(0.0)
    }

    fn per_second(&self, time: Duration) -> f64 {
        self.latencies_ms.len() as f64 / time.as_secs_f64()
    }

    fn fault(&self, what: &str, rate: f64, time: Duration) -> Option<String> {
        let reached = self.per_second(time);
        if self.unexpected > 0 {
            return Some(format!("{} answers to {what} were not as expected", self.unexpected));
        }
        (reached < REACHED * rate)
            .then(|| format!("{what}: {}/s instead of {}/s", grouped(reached), grouped(rate)))
    }
}

impl Bench {
    /// The p99 of good senders beside each flood.
    pub(super) async fn floods(&self) -> anyhow::Result<Vec<Row>> {
        let token = self.mint()?;
        let mut rows = Vec::new();
        for flood in Flood::ALL {
            let (mut alone, mut beside, mut rates, mut faults) =
                (Vec::new(), Vec::new(), Vec::new(), Vec::new());
            for _ in 0..self.args.rounds {
                let server = self.fresh(&[("HUBBUB_AUTH_SECRET", SECRET)]).await?;
                let measured = server.during(async |server: &Server| {
                    let address = server.url.trim_start_matches("http://").parse()?;
                    let aim = Aim { address, token: token.clone() };
                    let (time, args) = (self.args.time, aim.clone());
                    on_thread(move || good(args, WARM_UP)).await?;
                    let args = aim.clone();
                    let alone = on_thread(move || good(args, time)).await?;
                    let (first, second) = (aim.clone(), aim);
                    let pair = tokio::try_join!(
                        on_thread(move || good(first, time)),
                        on_thread(move || flooded(flood, second, time))
                    )?;
                    Ok((alone, pair))
                });
                let (mut before, (mut good, flooding)) = measured.await?;
                alone.push(before.p99_ms());
                beside.push(good.p99_ms());
                rates.push(format!("{}/s", grouped(flooding.per_second(self.args.time))));
                faults.extend(before.fault("good senders alone", GOOD_RATE, self.args.time));
                faults.extend(good.fault("good senders", GOOD_RATE, self.args.time));
                faults.extend(flooding.fault("the flood", flood.rate(), self.args.time));
            }
            let (alone, beside) = (median(&alone), median(&beside));
            let ratio = beside / alone.max(1e-3);
            let met = beside > 0.0 && ratio <= 2.0 && faults.is_empty();
            let what = format!("p99 of good senders, {}/s, beside {}", grouped(GOOD_RATE), flood.name());
            rows.push(
                Row::new(what, format!("{beside:.2} ms"), "≤ 2 × alone", met)
                    .against(format!("{alone:.2} ms alone"), format!("{ratio:.2} ×"))
                    .noting(if flood.rate() > 0.0 {
                        format!("flood {}", rates.join(", "))
                    } else {
                        String::new()
                    })
                    .with_faults(faults),
            );
        }
        Ok(rows)
    }

    fn mint(&self) -> anyhow::Result<String> {
        let line = ["token", "mint", "--user", "good", "--rooms", "*=rw", "--for", "1h"];
        let minted = Command::new(&self.program).args(line).env("HUBBUB_AUTH_SECRET", SECRET).output();
        let minted = minted.context("cannot mint a token")?;
        ensure!(
            minted.status.success(),
            "minting a token failed: {}",
            String::from_utf8_lossy(&minted.stderr)
        );
        Ok(String::from_utf8(minted.stdout)?.trim().to_owned())
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

fn post(token: &str, room: &str) -> Vec<u8> {
    let body = r#"{"message":"A message of somebody who is not to notice anything."}"#;
    let (length, kind) = (body.len(), "content-type: application/json");
    format!(
        "POST /v1/rooms/{room}/messages HTTP/1.1\r\nhost: h\r\nauthorization: Bearer {token}\r\n{kind}\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

async fn good(Aim { address, token }: Aim, time: Duration) -> anyhow::Result<Sent> {
    let request = move |number: u64| post(&token, &format!("good-{}", number % ROOMS));
    paced(address, GOOD_RATE, time, 201, Arc::new(request)).await
}

async fn flooded(flood: Flood, Aim { address, token }: Aim, time: Duration) -> anyhow::Result<Sent> {
    match flood {
        Flood::HotRoom => paced(address, HOT_RATE, time, 201, Arc::new(move |_| post(&token, "hot"))).await,
        Flood::BadTokens => {
            // Each has a signature of its own, so that nothing can be remembered.
            let signed = token.rsplit_once('.').map_or("", |(signed, _)| signed).to_owned();
            let request = move |number: u64| post(&format!("{signed}.{number:043}"), "good-1");
            paced(address, BAD_TOKENS_RATE, time, 401, Arc::new(request)).await
        }
        Flood::Connections => opened(address, time).await,
        Flood::SlowReaders => unread((address, &token), time).await.map(|()| Sent::default()),
    }
}

/// What the request of a number is.
type Requests = Arc<dyn Fn(u64) -> Vec<u8> + Send + Sync>;

/// Sends requests at a rate over connections that take turns, one request at a time each.
async fn paced(
    address: SocketAddr,
    rate: f64,
    time: Duration,
    expected: u16,
    request: Requests,
) -> anyhow::Result<Sent> {
    let mut streams = Vec::new();
    for _ in 0..CONNECTIONS {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        streams.push(stream);
    }
    let begun = Instant::now();
    let mut senders = JoinSet::new();
    for (mut stream, first) in streams.into_iter().zip(0_u64..) {
        let request = Arc::clone(&request);
        senders.spawn(async move {
            let mut sent = Sent::default();
            for number in (first..).step_by(CONNECTIONS) {
                let due = begun + Duration::from_secs_f64(number as f64 / rate);
                // What is not sent by then is missing in the rate.
                if due.max(Instant::now()) > begun + time {
                    break;
                }
                let was_free = Instant::now() < due;
                sleep_until(due).await;
                let from = if was_free { Instant::now() } else { due };
                let status = timeout(ANSWER_TIMEOUT, ask(&mut stream, &request(number))).await??;
                sent.note(from.elapsed(), status == expected);
            }
            anyhow::Ok(sent)
        });
    }
    let mut all = Sent::default();
    while let Some(sent) = senders.join_next().await {
        let sent = sent??;
        all.latencies_ms.extend(sent.latencies_ms);
        all.unexpected += sent.unexpected;
    }
    Ok(all)
}

async fn ask(stream: &mut TcpStream, request: &[u8]) -> anyhow::Result<u16> {
    stream.write_all(request).await?;
    let mut answer = Vec::with_capacity(1_024);
    loop {
        ensure!(stream.read_buf(&mut answer).await? > 0, "the server closed a connection");
        let split =
            split_response(&answer).map_err(|cause| anyhow::anyhow!("no answer: {}", cause.name()))?;
        if let Some((response, _)) = split {
            return Ok(response.status);
        }
    }
}

/// Opens connections at a rate; each asks for one thing and is reset.
async fn opened(address: SocketAddr, time: Duration) -> anyhow::Result<Sent> {
    let begun = Instant::now();
    let (mut open, mut all) = (JoinSet::new(), Sent::default());
    for number in 0_u64.. {
        let due = begun + Duration::from_secs_f64(number as f64 / OPENED_RATE);
        if due > begun + time {
            break;
        }
        sleep_until(due).await;
        open.spawn(timeout(ANSWER_TIMEOUT, async move {
            let mut stream = TcpStream::connect(address).await?;
            stream.set_zero_linger()?;
            let status = ask(&mut stream, b"GET /v1/rooms HTTP/1.1\r\nhost: h\r\n\r\n").await?;
            // It has no token.
            anyhow::Ok((due.elapsed(), status == 401))
        }));
        while let Some(done) = open.try_join_next() {
            let (latency, is_refused) = done???;
            all.note(latency, is_refused);
        }
    }
    while let Some(done) = open.join_next().await {
        let (latency, is_refused) = done???;
        all.note(latency, is_refused);
    }
    Ok(all)
}

/// Follows the rooms of the good senders, and reads nothing until the time is over.
async fn unread((address, token): (SocketAddr, &str), time: Duration) -> anyhow::Result<()> {
    let until = Instant::now() + time;
    let mut streams = Vec::new();
    for number in 0..SLOW_READERS {
        let key = handshake::client_key([7; 16]);
        let request = handshake::request("h", "/v1/ws", &key);
        let head = request.trim_end_matches("\r\n");
        let mut bytes = format!("{head}\r\nauthorization: Bearer {token}\r\n\r\n").into_bytes();
        let frame = format!(r#"{{"type":"subscribe","roomId":"good-{}"}}"#, number % ROOMS);
        write::write_masked(&mut bytes, Opcode::Text, frame.as_bytes(), [1, 2, 3, 4]);
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(&bytes).await?;
        streams.push(stream);
    }
    sleep_until(until).await;
    drop(streams);
    Ok(())
}
