//! Agents in this process, and such that are no good.

use std::time::Duration;

use clap::Args as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;

use super::lines::{PART_BYTES_MAX, TASK_BYTES_MAX, lines};
use super::message::{FromAgent, FromCoordinator, Hello, Task};
use super::perform::perform;
use super::serve::{Agent, OwnArgs};
use super::{AgentArgs, PROTOCOL, Share, divided, serve, split};
use crate::client::{Target, Targets};
use crate::experiments::bare::{self, Kind};
use crate::load::pace::Rate;
use crate::options::arguments;
use crate::report::Report;
use crate::workloads::chat::ChatArgs;
use crate::workloads::engine::{Findings, Loading, Setup, Workload, measure};
use crate::workloads::fanout::FanoutArgs;
use crate::workloads::http::HttpArgs;
use crate::workloads::kv::KvArgs;

mod merged;

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

async fn server(kind: Kind) -> String {
    let (listener, address) = listen().await;
    tokio::spawn(bare::accept(kind, listener, None));
    format!("http://{address}")
}

/// An agent whose runs are threads of this process; its address.
async fn agent(line: &[&str]) -> String {
    let (listener, address) = listen().await;
    let args = arguments::<AgentArgs>("agent", line).unwrap();
    let own = arguments::<OwnArgs>("own", &[]).unwrap();
    let here = move |task: Task, stream: TcpStream| {
        let own = own.clone();
        async move {
            let run = move || Handle::current().block_on(perform(&task, stream, &own));
            tokio::task::spawn_blocking(run).await?
        }
    };
    tokio::spawn(Agent::new(&args).unwrap().attend(listener, here));
    address
}

async fn run<W: Workload>(url: &str, agents: &[&str], own: &[&str]) -> anyhow::Result<Report> {
    let agents = agents.join(",");
    let line = [&["--server", url, "--agents", &agents, "--quiet"], own].concat();
    measure(&arguments::<Loading<W>>(W::NAME, &line)?).await
}

const CHAT: [&str; 6] =
    ["-n", "600", "--connections=7", "--rooms=3", "--warmup-connections=3", "--warmup-messages=5"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_report_of_two_agents_is_that_of_both() {
    let (url, one, other) = (server(Kind::WsAck).await, agent(&[]).await, agent(&[]).await);
    // Once more, as each is free again.
    for _ in 0..2 {
        let report = run::<ChatArgs>(&url, &[&one, &other], &CHAT).await.unwrap();
        let ledger = report.ledger.as_ref().unwrap();
        assert_eq!((ledger.sent, ledger.accepted), (600, 600), "{}", report.terminal());
        assert!(report.is_clean() && report.latency.count == 585, "{}", report.terminal());
        assert_eq!(report.connections_opened, 7);
        assert_eq!(report.latency_by_type.values().map(|stats| stats.count).sum::<u64>(), 585);
        assert_eq!(report.throughput.iter().map(|bucket| bucket.messages).sum::<u64>(), 585);
        let said = serde_json::to_value(&report).unwrap();
        assert_eq!(said["rooms"]["count"], 3, "{said}");
        let agents = said["agents"].as_array().unwrap();
        // Messages go by connections.
        assert_eq!(agents.iter().map(|one| one["count"].as_u64().unwrap()).collect::<Vec<_>>(), [250, 335]);
        assert_eq!(
            (&agents[0]["address"], &agents[1]["address"]),
            (&one.clone().into(), &other.clone().into())
        );
        assert!(report.terminal().contains(&format!("  agents       {one}: ")), "{}", report.terminal());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_and_keys_come_from_agents_too() {
    let (one, other) = (agent(&[]).await, agent(&[]).await);
    let own = ["--rate=400", "--duration=500ms", "--connections=5"];
    let report = run::<HttpArgs>(&server(Kind::Http).await, &[&one, &other], &own).await.unwrap();
    assert!(report.is_clean() && report.latency.count == 200, "{}", report.terminal());
    let own = ["--rate=200,400", "--duration=250ms", "--warmup=100ms", "--cooldown=100ms", "--connections=4"];
    let report = run::<HttpArgs>(&server(Kind::Http).await, &[&one, &other], &own).await.unwrap();
    let sent = report.ledger.as_ref().unwrap().sent;
    assert!(report.is_clean() && (sent, report.latency.count) == (210, 150), "{}", report.terminal());
    let steps = report.analysis.steps.iter().map(|step| (step.asked_per_second, step.accepted));
    assert_eq!(steps.collect::<Vec<_>>(), [(200.0, 50), (400.0, 100)]);
    assert_eq!((report.elapsed_s, report.per_second), (0.5, 300.0), "the main phase before a cool-down");
    let own =
        ["put-all", "--unchecked", "--no-preload", "--duration=200ms", "--warmup=0ms", "--connections=4"];
    let report = run::<KvArgs>(&server(Kind::Kv).await, &[&one, &other], &own).await.unwrap();
    assert!(report.is_clean() && report.latency.count > 0, "{}", report.terminal());
    assert_eq!(report.latency_by_type["put"].count, report.latency.count);
}

async fn refused<W: Workload>(agents: &[&str], own: &[&str]) -> String {
    let url = server(Kind::WsAck).await;
    format!("{:#}", run::<W>(&url, agents, own).await.expect_err("refused"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_coordinators_with_the_secret_are_let_in() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let right = file("right", "a secret of more than thirty-two bytes\n");
    let wrong = file("wrong", "a secret of less than thirty-three bytes\n");
    let guarded = agent(&["--secret-file", &right]).await;
    let error = refused::<ChatArgs>(&[&guarded], &CHAT).await;
    assert_eq!(error, format!("agent {guarded} asks for a secret: give --agents-secret-file"));
    let error =
        refused::<ChatArgs>(&[&guarded], &[&CHAT[..], &["--agents-secret-file", &wrong]].concat()).await;
    assert_eq!(error, format!("agent {guarded}: the secret is not that of --secret-file"));
    let with = [&CHAT[..], &["--agents-secret-file", &right]].concat();
    let report = run::<ChatArgs>(&server(Kind::WsAck).await, &[&guarded], &with).await.unwrap();
    assert!(report.is_clean(), "{}", report.terminal());

    let args = arguments::<AgentArgs>("agent", &["--listen", "0.0.0.0:0"]).unwrap();
    let error = serve(&args).await.expect_err("open to everybody").to_string();
    assert!(
        error.starts_with("--listen 0.0.0.0:0 can be reached") && error.contains("--secret-file"),
        "{error}"
    );
}

#[tokio::test]
async fn what_cannot_be_divided_is_refused() {
    let two = ["127.0.0.1:1", "127.0.0.1:2"];
    let error = refused::<FanoutArgs>(&two, &[]).await;
    assert!(error.starts_with("--agents: fanout"), "{error}");
    for (own, said) in [
        (&["--connections=1"][..], "--connections 1 cannot be divided among 2 agents"),
        (&["--connections=6", "--rooms=4"], "each of the 2 agents needs a connection to each of the 4 rooms"),
    ] {
        let error = refused::<ChatArgs>(&two, own).await;
        assert!(error.contains(said), "{error}");
    }
    let error = refused::<HttpArgs>(&two, &["--listeners=1"]).await;
    assert!(error.contains("--listeners"), "{error}");
    let error = refused::<ChatArgs>(&two, &CHAT).await;
    assert!(error.starts_with("agent 127.0.0.1:1: cannot connect"), "{error}");
}

/// An agent that says `hello`, and what `says` makes of each thing that it hears; then it is gone.
async fn odd(hello: Hello, says: fn(&FromCoordinator) -> Option<FromAgent>) -> String {
    let (listener, address) = listen().await;
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let (mut incoming, mut outgoing) = lines(stream, TASK_BYTES_MAX).unwrap();
        outgoing.say(&FromAgent::Hello(hello)).await.unwrap();
        while let Ok(heard) = incoming.next().await {
            let Some(said) = says(&heard) else { break };
            outgoing.say(&said).await.unwrap();
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_is_lost_or_odd_fails_the_run() {
    let hello = || Hello::here("1".to_owned(), false, "none");
    let older = odd(Hello { version: "0.0.1".to_owned(), ..hello() }, |_| None).await;
    let error = refused::<ChatArgs>(&[&older], &CHAT).await;
    assert!(
        error.starts_with(&format!("agent {older}: it is hubbub 0.0.1 (protocol {PROTOCOL}), and this is")),
        "{error}"
    );
    let tokens = odd(Hello { tokens: "one".to_owned(), ..hello() }, |_| None).await;
    assert!(refused::<ChatArgs>(&[&tokens], &CHAT).await.contains("--token-file"));

    // It is prepared, and gone once it is to start, while another one works.
    let lost = odd(hello(), |heard| match heard {
        FromCoordinator::Prepare(_) => Some(FromAgent::Prepared),
        FromCoordinator::Ping => Some(FromAgent::Pong),
        FromCoordinator::Alive => Some(FromAgent::Alive),
        FromCoordinator::Start { .. } => None,
    });
    let (lost, whole) = (lost.await, agent(&[]).await);
    let long = ["-n", "100000000", "--connections=4", "--rooms=1", "--warmup-connections=0"];
    let error = refused::<ChatArgs>(&[&whole, &lost], &long).await;
    assert!(error.starts_with(&format!("agent {lost}: the connection ")), "{error}");

    let failed = odd(hello(), |_| Some(FromAgent::Failed { error: "no disk".to_owned() })).await;
    assert_eq!(refused::<ChatArgs>(&[&failed], &CHAT).await, format!("agent {failed}: no disk"));
    let early = odd(hello(), |_| Some(FromAgent::Pong)).await;
    let error = refused::<ChatArgs>(&[&early], &CHAT).await;
    assert!(error.starts_with(&format!("agent {early}: it said something else")), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_is_free_when_its_coordinator_is_gone() {
    let (url, address) = (server(Kind::WsAck).await, agent(&[]).await);
    let server = format!("--server={url}");
    let long = [&server, "-n", "100000000", "--connections=2", "--rooms=1", "--warmup-connections=0"];
    let task = Task { workload: "chat".to_owned(), line: long.map(str::to_owned).into(), proof: None };
    let (mut incoming, mut outgoing) =
        lines(TcpStream::connect(&address).await.unwrap(), PART_BYTES_MAX).unwrap();
    assert!(matches!(incoming.next().await.unwrap(), FromAgent::Hello(_)));
    outgoing.say(&FromCoordinator::Prepare(task)).await.unwrap();
    while !matches!(incoming.next().await.unwrap(), FromAgent::Prepared) {}
    outgoing.say(&FromCoordinator::Start { after_us: 0 }).await.unwrap();
    let error = refused::<ChatArgs>(&[&address], &CHAT).await;
    assert_eq!(error, format!("agent {address}: it is busy with another run"));
    drop((incoming, outgoing));
    loop {
        match run::<ChatArgs>(&url, &[&address], &CHAT).await {
            Ok(report) => break assert!(report.is_clean(), "{}", report.terminal()),
            Err(error) => assert!(format!("{error:#}").contains("busy"), "{error:#}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn setup() -> Setup {
    let common = arguments::<Loading<ChatArgs>>("chat", &["--server=127.0.0.1:1"]).unwrap().common;
    let targets = Targets::from(Target::parse("127.0.0.1:1").unwrap());
    Setup::new(common, targets)
}

/// The options of each agent, as it reads them.
fn shares<W: Workload>(line: &[&str], agents: usize) -> Vec<Loading<W>> {
    let whole = arguments::<Loading<W>>(W::NAME, line).unwrap();
    let shares = whole.own.divide(&setup(), agents).unwrap().shares;
    let part = |share: &Share| {
        let line = whole.common.given.line::<Loading<W>>(share);
        arguments::<Loading<W>>(W::NAME, &line.iter().map(String::as_str).collect::<Vec<_>>()).unwrap()
    };
    shares.iter().map(part).collect()
}

#[test]
fn parts_add_up_to_the_whole() {
    for (whole, weights) in
        [(10, &[1, 1, 1][..]), (7, &[3, 0, 4]), (u64::MAX, &[1, 1, 5]), (0, &[1]), (0, &[0])]
    {
        let parts = divided(whole, weights);
        assert_eq!(parts.iter().sum::<u64>(), whole, "{parts:?}");
        assert_eq!(parts.len(), weights.len());
    }
    assert_eq!(divided(7, &[3, 0, 4]), [3, 0, 4]);
    assert_eq!(split("keys", 10, 3).unwrap(), [3, 3, 4]);
    assert!(split("keys", 2, 3).is_err());
    let rate: Rate = "1000..4000..31000".parse().unwrap();
    let parts: Vec<String> = rate.divided(&[1, 3]).iter().map(ToString::to_string).collect();
    assert_eq!(parts, ["250..1000..7750", "750..3000..23250"]);
}

#[test]
fn agents_are_given_the_options_of_the_coordinator() {
    let line = ["-n1001", "-c5", "--rooms=2", "--warmup-connections=3", "--warmup-messages=7", "--own-users"];
    let more = ["--send-timeout=3s", "--text-bytes=40", "--room-prefix=-x", "--out=/nowhere", "--threads=9"];
    let parts = shares::<ChatArgs>(&[&line[..], &more].concat(), 2);
    let sum = |of: fn(&ChatArgs) -> u64| parts.iter().map(|part| of(&part.own)).sum::<u64>();
    assert_eq!(sum(|own| own.messages), 1001);
    assert_eq!(sum(|own| own.sending.connections as u64), 5);
    assert_eq!(sum(|own| own.warmup_connections as u64), 3);
    for Loading { common, own } in &parts {
        assert_eq!((own.warmup_messages, own.traffic.rooms, own.traffic.text_bytes), (7, 2, Some(40)));
        assert!(own.traffic.own_users && own.traffic.room_prefix == "-x");
        assert_eq!(own.sending.rules.patience.send_timeout, Duration::from_secs(3));
        assert!(common.out.is_none() && common.threads != 9);
    }
    let parts = shares::<HttpArgs>(&["--rate=1000..3000", "-c3", "--duration=2s"], 2);
    let rates: Vec<_> = parts.iter().map(|part| part.own.pacing.rate.unwrap().to_string()).collect();
    assert_eq!(rates.len(), 2);
    let [one, other] =
        [&rates[0], &rates[1]].map(|rate| rate.split_once("..").unwrap().0.parse::<f64>().unwrap());
    assert!((one + other - 1000.0).abs() < 1e-6 && one < other, "{rates:?}");
    let parts = shares::<HttpArgs>(&["--closed", "-c3"], 2);
    assert!(parts.iter().all(|part| part.own.closed && part.own.pacing.rate.is_none()));

    // Each has its own keys, at least one for each of its connections.
    let parts =
        shares::<KvArgs>(&["get-popular", "-c5", "--keys=11", "--hot=3", "--key-prefix=k", "--rate=10"], 3);
    let said: Vec<_> = parts.iter().map(|part| serde_json::to_value(&part.own).unwrap()).collect();
    let sum = |name: &str| said.iter().map(|own| own[name].as_u64().unwrap()).sum::<u64>();
    assert_eq!((sum("connections"), sum("keys"), sum("hot")), (5, 11, 3), "{said:?}");
    assert!(
        said.iter()
            .all(|own| own["kind"] == "get-popular" && own["keys"].as_u64() >= own["connections"].as_u64())
    );
    let prefixes: Vec<_> = said.iter().map(|own| own["keyPrefix"].as_str().unwrap()).collect();
    assert_eq!(prefixes, ["k1-", "k2-", "k3-"]);
}

/// What is not sent to agents is named for that; a new option of a workload is sent.
#[test]
fn local_options_exist() {
    let command = Loading::<ChatArgs>::augment_args(clap::Command::new("chat"));
    let longs: Vec<_> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
    for local in super::given::LOCAL {
        assert!(longs.contains(&local), "{local}");
    }
}
