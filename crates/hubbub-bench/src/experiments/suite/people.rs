//! Rows about members, what is unread, and statistics.

use std::time::Duration;

use hubbub_core::clock::{RandomSource, SeededRandom};
use tokio::task::JoinSet;

use super::loaded::asked_row;
use super::paired::Pair;
use super::{Bench, Row};
use crate::client::Target;
use crate::client::caller::{Caller, get};
use crate::experiments::limits::ENDLESS;
use crate::host::spawn::Server;
use crate::load::message_plan::BENCH_PREFIX;
use crate::load::room_load::join;
use crate::workloads::chat::ChatArgs;
use crate::workloads::query_load::QueryTemplate;

/// Rooms of the one user whose unread counts are asked for.
const ROOMS: u32 = 1_000;

/// Rooms that messages are sent to, and users who send, all of them members.
const BUSY_ROOMS: u32 = 20;
const SENDERS: u32 = 1_000;

/// Users of the messages stored before.
const USERS: u64 = 100_000;

/// Connections that make rooms and members.
const MAKERS: usize = 16;
const TIMEOUT: Duration = Duration::from_secs(60);

fn question(name: &'static str, path: &'static str) -> QueryTemplate {
    QueryTemplate { name, path: Box::new(move |_| path.to_owned()) }
}

impl Bench {
    /// Asks what people and their administrators ask, beside 10,000 messages a second.
    pub(super) async fn people(&self, target: &Target, server: &Server) -> anyhow::Result<Row> {
        let mut requests = Vec::new();
        for room in 1..=ROOMS {
            if room > BUSY_ROOMS {
                let body = r#"{"userId":"someone","message":"The first message of a quiet room."}"#;
                requests.push(("POST", format!("/v1/rooms/{BENCH_PREFIX}{room}/messages"), body));
            }
            requests.push(("PUT", format!("/v1/rooms/{BENCH_PREFIX}{room}/members/reader"), ""));
        }
        // A room must be there before anybody joins it, so messages go first.
        let (first, then): (Vec<_>, Vec<_>) = requests.into_iter().partition(|request| request.0 == "POST");
        make(target, first).await?;
        make(target, then).await?;
        // The first question about statistics has them counted.
        get(target, "/v1/stats").await?;
        let history =
            |random: &SeededRandom| format!("/v1/users/{}/messages?limit=50", 1 + random.next_u64() % USERS);
        let questions = vec![
            question("unread of 1,000 rooms", "/v1/users/reader/rooms?limit=1000"),
            QueryTemplate { name: "last 50 of a user", path: Box::new(history) },
            question("top 10 users", "/v1/stats/users?limit=10"),
            question("top 10 rooms", "/v1/stats/rooms?limit=10"),
            question("active users of a day", "/v1/stats/active-users?limit=0"),
        ];
        let (times, report) = self.read_and_write(target, server, questions).await?;
        Ok(asked_row("people", &[5.0, 5.0, 5.0, 5.0, 50.0], &times, &report))
    }

    /// 64 in flight, once without members and questions, once where every sender is a member and statistics are
    /// asked for all the time.
    pub(super) async fn members(&self) -> anyhow::Result<Row> {
        let senders = SENDERS.to_string();
        let own = ["--in-flight", "64", "--users", &senders, "-n", ENDLESS];
        let mut pair = Pair::default();
        for _ in 0..self.args.rounds {
            for (has_members, side) in [(false, &mut pair.bare), (true, &mut pair.real)] {
                let measuring = async |server: &Server| {
                    let target = Target::parse(&server.url)?;
                    let asking = if has_members { Some(join_all(&target).await?) } else { None };
                    let report = self.load::<ChatArgs>(server, &own).await;
                    asking.inspect(|asking| asking.abort());
                    report
                };
                side.add(&self.fresh(&[]).await?.during(measuring).await?);
            }
        }
        let what =
            "64 in flight, every sender a member with a read mark, statistics asked for 10 times a second";
        Ok(pair.row(what, "messages/s", 0.85, "≥ 85 % of the same without"))
    }
}

/// Makes every sender a member of every busy room, then has somebody ask for statistics until aborted.
async fn join_all(target: &Target) -> anyhow::Result<tokio::task::JoinHandle<()>> {
    let rooms = (1..=BUSY_ROOMS).map(|room| ("PUT", format!("/v1/rooms/{BENCH_PREFIX}{room}"), "{}"));
    make(target, rooms.collect()).await?;
    let members = (1..=BUSY_ROOMS).flat_map(|room| {
        (1..=SENDERS).map(move |user| format!("/v1/rooms/{BENCH_PREFIX}{room}/members/{user}"))
    });
    make(target, members.map(|path| ("PUT", path, "")).collect()).await?;
    let target = target.clone();
    Ok(tokio::spawn(async move {
        // A failure shows in the ledger of the run, or in its rate.
        while get(&target, "/v1/stats/users?limit=10").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }))
}

type Request = (&'static str, String, &'static str);

/// Makes requests that must all succeed, over a few connections: method, path and body of each.
pub(super) async fn make(target: &Target, requests: Vec<Request>) -> anyhow::Result<()> {
    let mut makers = JoinSet::new();
    for part in requests.chunks(requests.len().div_ceil(MAKERS).max(1)) {
        makers.spawn(make_each(target.clone(), part.to_vec()));
    }
    join(makers).await
}

async fn make_each(target: Target, requests: Vec<Request>) -> anyhow::Result<()> {
    let mut caller = Caller::open(&target, TIMEOUT).await?;
    for (method, path, body) in requests {
        let status = caller.request(method, &path, body.as_bytes(), |response| response.status).await;
        let status = status.map_err(|cause| anyhow::anyhow!("no answer to {method} {path}: {cause:?}"))?;
        anyhow::ensure!((200..300).contains(&status), "{method} {path} was answered with {status}");
    }
    Ok(())
}
