//! Rows about members, what is unread, and statistics.

use std::time::Duration;

use anyhow::Context;
use hubbub_core::clock::{RandomSource, SeededRandom};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use super::loaded::asked_row;
use super::paired::Pair;
use super::{Bench, Fresh, Row};
use crate::asks::Question;
use crate::chat::{self, ChatArgs};
use crate::client::Target;
use crate::client::get::get;
use crate::client::post::split_response;
use crate::limits::Bare;
use crate::options::arguments;
use crate::spawn::Server;

/// Rooms of the one user whose unread counts are asked for.
const ROOMS: u32 = 1_000;

/// Rooms that messages are sent to, and users who send, all of them members.
const BUSY_ROOMS: u32 = 20;
const SENDERS: u32 = 1_000;

/// Users of the messages stored before.
const USERS: u64 = 100_000;

/// Connections that make rooms and members.
const MAKERS: usize = 16;

fn question(name: &'static str, path: &'static str) -> Question {
    Question { name, path: Box::new(move |_| path.to_owned()) }
}

impl Bench {
    /// Asks what people and their administrators ask, beside 10,000 messages a second.
    pub(super) async fn people(&self, target: &Target, server: &Server) -> anyhow::Result<Row> {
        let mut requests = Vec::new();
        for room in 1..=ROOMS {
            if room > BUSY_ROOMS {
                let body = r#"{"userId":"someone","message":"The first message of a quiet room."}"#;
                requests.push(("POST", format!("/v1/rooms/{room}/messages"), body));
            }
            requests.push(("PUT", format!("/v1/rooms/{room}/members/reader"), ""));
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
            Question { name: "last 50 of a user", path: Box::new(history) },
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
        let load = Bare::Ack { in_flight: 64 };
        let mut pair = Pair::default();
        for _ in 0..self.rounds {
            for (has_members, side) in [(false, &mut pair.bare), (true, &mut pair.real)] {
                let Fresh { server, _data } = self.fresh(&[]).await?;
                let target = Target::parse(&server.url)?;
                let asking = if has_members { Some(join_all(&target).await?) } else { None };
                side.add(load, &self.send(&server).await?);
                if let Some(asking) = asking {
                    asking.abort();
                }
                server.kill().await?;
            }
        }
        let what =
            "64 in flight, every sender a member with a read mark, statistics asked for 10 times a second";
        Ok(pair.row(what, "messages/s", 0.85, "≥ 85 % of the same without"))
    }

    async fn send(&self, server: &Server) -> anyhow::Result<crate::report::Report> {
        let (seconds, senders) = (format!("{}s", self.time.as_secs_f64()), SENDERS.to_string());
        let pid = server.pid.to_string();
        let line = ["--quiet", "--rows-max", "0", "--target", &server.url, "--server-pid", &pid];
        let own = ["--in-flight", "64", "--users", &senders, "-n", "1000000000", "--duration", &seconds];
        chat::measure(&arguments::<ChatArgs>("chat", &[&line[..], &own].concat())?).await
    }
}

/// Makes every sender a member of every busy room, then has somebody ask for statistics until aborted.
async fn join_all(target: &Target) -> anyhow::Result<tokio::task::JoinHandle<()>> {
    let rooms = (1..=BUSY_ROOMS).map(|room| ("PUT", format!("/v1/rooms/{room}"), "{}"));
    make(target, rooms.collect()).await?;
    let members = (1..=BUSY_ROOMS)
        .flat_map(|room| (1..=SENDERS).map(move |user| format!("/v1/rooms/{room}/members/{user}")));
    make(target, members.map(|path| ("PUT", path, "")).collect()).await?;
    let target = target.clone();
    Ok(tokio::spawn(async move {
        // A failure shows in the ledger of the run, or in its rate.
        while get(&target, "/v1/stats/users?limit=10").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }))
}

/// Makes requests that must all succeed, over a few connections.
pub(super) async fn make(
    target: &Target,
    requests: Vec<(&'static str, String, &'static str)>,
) -> anyhow::Result<()> {
    let mut makers = JoinSet::new();
    let share = requests.len().div_ceil(MAKERS).max(1);
    for part in requests.chunks(share) {
        let (target, part) = (target.clone(), part.to_vec());
        makers.spawn(async move {
            let mut wire = target.open().await?;
            for (method, path, body) in part {
                let request = format!(
                    "{method} {}{path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                    target.prefix, target.host, body.len()
                );
                wire.stream().write_all(request.as_bytes()).await?;
                let mut answer = Vec::new();
                let status = loop {
                    if let Ok(Some((response, _))) = split_response(&answer) {
                        break response.status;
                    }
                    anyhow::ensure!(wire.stream().read_buf(&mut answer).await? > 0, "the server closed the connection");
                };
                anyhow::ensure!((200..300).contains(&status), "{method} {path} was answered with {status}");
            }
            Ok(())
        });
    }
    while let Some(ended) = makers.join_next().await {
        ended.context("a maker ended early")??;
    }
    Ok(())
}
