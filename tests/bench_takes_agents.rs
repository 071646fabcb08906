//! `hubbub bench --agents`: processes that send the load together, each free again whatever becomes of the others.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::harness::program::command;
use crate::harness::{Ran, Server, hubbub, hubbub_at_length, until};

/// An agent on a port of its own.
struct Agent {
    child: Child,
    address: String,
}

impl Agent {
    fn start(options: &[&str]) -> Self {
        let mut command = command();
        command.args(["bench", "agent", "--listen", "127.0.0.1:0"]).args(options).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("ready ").unwrap_or_else(|| panic!("{line}")).to_owned();
        Self { child, address }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // It may have been killed already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A load that these agents send to a server.
fn line(server: &Server, agents: &[&Agent], own: &[&str]) -> Vec<String> {
    let agents: Vec<&str> = agents.iter().map(|agent| &*agent.address).collect();
    let (url, agents) = (server.url(), agents.join(","));
    let all = [&["bench"][..], own, &["--json", "--quiet", "--server", &url, "--agents", &agents]].concat();
    all.into_iter().map(str::to_owned).collect()
}

async fn bench(server: &Server, agents: &[&Agent], own: &[&str]) -> Ran {
    hubbub_at_length(line(server, agents, own)).await
}

fn summary(ran: Ran) -> Value {
    serde_json::from_str(&ran.success()).unwrap()
}

const CHAT: [&str; 10] =
    ["chat", "-n", "2000", "-c", "8", "--rooms=4", "--warmup-connections", "2", "--warmup-messages", "50"];

/// More than anybody waits for.
const ENDLESS: [&str; 6] = ["chat", "-n", "1000000000", "-c", "8", "--rooms=4"];

#[tokio::test]
async fn the_ledger_of_two_agents_balances() {
    let (server, one, other) = (Server::start(), Agent::start(&[]), Agent::start(&[]));
    let said = summary(bench(&server, &[&one, &other], &CHAT).await);
    let ledger = &said["ledger"];
    assert_eq!(ledger["faults"], json!([]), "{said}");
    assert_eq!(
        [&ledger["sent"], &ledger["accepted"], &ledger["server"]["stored"]],
        [2000, 2000, 2000],
        "{said}"
    );
    assert_eq!(said["latency"]["count"], 1900, "{said}");
    let agents = said["agents"].as_array().unwrap();
    let names: Vec<&Value> = agents.iter().map(|agent| &agent["address"]).collect();
    assert_eq!(names, [&*one.address, &*other.address]);
    for agent in agents {
        assert_eq!(agent["count"], 950, "{said}");
        assert!(agent["perSecond"].as_f64().unwrap() > 0.0 && agent["startSkewMs"].is_number(), "{said}");
    }

    let http = ["http", "--rate=200", "-d", "1s", "-c", "4", "--rooms=3"];
    let said = summary(bench(&server, &[&one, &other], &http).await);
    assert_eq!(
        (&said["ledger"]["server"]["stored"], &said["ledger"]["faults"]),
        (&json!(200), &json!([])),
        "{said}"
    );

    // What one agent puts, no other replaces: every read is checked.
    let kv = ["kv", "-d", "2s", "--keys=100", "-c", "4", "--get=0.5", "--put=0.4"];
    let said = summary(bench(&server, &[&one, &other], &kv).await);
    let keys = &said["ledger"]["keys"];
    assert!(keys["found"].as_u64().unwrap() > 0, "{said}");
    assert_eq!(
        (&keys["stale"], &keys["wrong"], &said["ledger"]["faults"]),
        (&json!(0), &json!(0), &json!([]))
    );
}

/// Where a process may run, as Linux writes it.
fn processors_of(pid: u32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    list.trim().to_owned()
}

#[tokio::test]
async fn agents_of_a_scenario_are_its_generator_and_run_where_it_says() {
    let (one, other) = (Agent::start(&["--threads=1"]), Agent::start(&["--threads=1"]));
    let before = processors_of(one.child.id());
    let first = before.split([',', '-']).next().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let scenario = format!(
        "title = 'x'\nworkload = 'http'\ncores = {{ load = '{first}' }}\n[options]\nagents = ['{}', '{}']\n\
         closed = true\nduration = '2s'\nconnections = 4\n",
        one.address, other.address
    );
    std::fs::write(path("agents.toml"), &scenario).unwrap();
    let line =
        ["bench", "run", &path("agents.toml"), "--json", "--quiet", "--dir", &path("")].map(str::to_owned);
    let ran = hubbub_at_length(line.into()).await;
    let results: Value = serde_json::from_str(&ran.stdout).unwrap_or_default();
    let run = &results["runs"][0];
    assert_eq!(run["isClean"], true, "{ran:?}");
    let summary = &run["summary"];
    let addresses: Vec<&Value> =
        summary["agents"].as_array().unwrap().iter().map(|agent| &agent["address"]).collect();
    assert_eq!(addresses, [&*one.address, &*other.address]);
    // What their runs may use says that they were pinned; and they are the generator, not others.
    let may_use = summary["verdict"]["figures"]["generator"]["mayUse"].as_f64().unwrap();
    assert!(may_use <= 1.0, "{summary}");
    assert!(summary["cpu"]["generator"].as_f64().unwrap() > 0.0, "{summary}");
    let series = summary["timeSeries"].as_array().unwrap();
    let used = series.iter().find(|series| series["name"] == "generator CPU");
    assert!(used.unwrap_or_else(|| panic!("{summary}"))["average"].as_f64().unwrap() > 0.0, "{summary}");
    assert!(run["others"].is_number(), "agents are seen: {run}");
    assert_eq!(processors_of(one.child.id()), before, "it is let go");

    // Where an agent cannot be pinned, the load does not run where it was to.
    let elsewhere = scenario.replace(&other.address, "192.0.2.1:7070");
    std::fs::write(path("agents.toml"), elsewhere).unwrap();
    let said = hubbub(&["bench", "run", &path("agents.toml"), "--quiet", "--dir", &path("")], "").refusal(1);
    assert!(said.contains("the agent 192.0.2.1:7070 is not seen on this machine"), "{said}");
}

/// Waits until a load is under way.
async fn stored(server: &Server) {
    let before = server.metric("messages_stored_total").await;
    until("load", async || server.metric("messages_stored_total").await > before + 500).await;
}

#[tokio::test]
async fn an_agent_that_is_killed_ends_the_run_with_its_name() {
    let (server, one, mut other) = (Server::start(), Agent::start(&[]), Agent::start(&[]));
    let options = [&ENDLESS[..], &["--warmup-connections=0"]].concat();
    let running = tokio::spawn(hubbub_at_length(line(&server, &[&one, &other], &options)));
    stored(&server).await;
    other.kill();
    let ran = running.await.unwrap();
    let said = ran.refusal(1);
    assert!(said.contains(&format!("agent {}", other.address)) && !said.contains(&one.address), "{said}");
    is_free(&server, &one).await;
    // What sent for the one that was killed went with it.
    until("nobody sends", async || {
        let before = server.metric("messages_stored_total").await;
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        server.metric("messages_stored_total").await == before
    })
    .await;
    let said = bench(&server, &[&one, &other], &CHAT).await.refusal(1);
    assert!(said.contains(&format!("agent {}: cannot connect", other.address)), "{said}");
}

#[tokio::test]
async fn agents_are_free_when_their_coordinator_was_killed() {
    let (server, agent) = (Server::start(), Agent::start(&[]));
    let options = [&ENDLESS[..], &["--warmup-connections=0"]].concat();
    let mut coordinator = command();
    coordinator.args(line(&server, &[&agent], &options)).stdout(Stdio::null());
    let mut coordinator = coordinator.spawn().unwrap();
    stored(&server).await;
    let said = bench(&server, &[&agent], &CHAT).await.refusal(1);
    assert!(said.contains(&format!("agent {}: it is busy", agent.address)), "{said}");
    coordinator.kill().unwrap();
    coordinator.wait().unwrap();
    is_free(&server, &agent).await;
}

/// A run of its own succeeds, once the last one is over.
async fn is_free(server: &Server, agent: &Agent) {
    until("the agent is free", async || {
        let ran = bench(server, &[agent], &CHAT).await;
        assert!(ran.code == Some(0) || ran.stderr.contains("it is busy"), "{ran:?}");
        ran.code == Some(0)
    })
    .await;
}

#[tokio::test]
async fn an_agent_lets_only_in_who_knows_the_secret() {
    let said = hubbub(&["bench", "agent", "--listen", "0.0.0.0:0"], "").refusal(1);
    assert!(said.contains("--listen 0.0.0.0:0") && said.contains("--secret-file"), "{said}");
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let right = file("right", "a secret of more than thirty-two bytes\n");
    let wrong = file("wrong", "a secret of less than thirty-three bytes\n");
    let (server, agent) = (Server::start(), Agent::start(&["--secret-file", &right]));
    let with = |secret: &str| {
        [&CHAT.map(str::to_owned)[..], &["--agents-secret-file".to_owned(), secret.to_owned()]].concat()
    };
    for (own, remedy) in
        [(CHAT.map(str::to_owned).to_vec(), "--agents-secret-file"), (with(&wrong), "the secret is not")]
    {
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        let said = bench(&server, &[&agent], &own).await.refusal(1);
        assert!(said.contains(&agent.address) && said.contains(remedy), "{said}");
        assert!(!said.contains("thirty"), "{said}");
    }
    let own = with(&right);
    let own: Vec<&str> = own.iter().map(String::as_str).collect();
    assert_eq!(summary(bench(&server, &[&agent], &own).await)["ledger"]["faults"], json!([]));
}
