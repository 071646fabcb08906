//! Whole workloads against bare servers, and against one that fails on purpose.

use std::collections::HashSet;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;

use hubbub_ws::{Event, Reader, Role, write};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};

use crate::experiments::bare::journal::Journal;
use crate::experiments::bare::{self, Kind};
use crate::options::arguments;
use crate::report::Report;
use crate::workloads::chat::ChatArgs;
use crate::workloads::engine::{Findings, Loading, Workload, measure};
use crate::workloads::fanout::FanoutArgs;
use crate::workloads::http::HttpArgs;
use crate::workloads::kv::KvArgs;
use crate::workloads::queue::QueueArgs;

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("address"));
    (listener, url)
}

async fn bare(kind: Kind) -> String {
    let (listener, url) = listen().await;
    tokio::spawn(bare::accept(kind, listener, None));
    url
}

/// With a journal, in a directory that goes with it.
async fn durable(kind: Kind) -> (String, tempfile::TempDir) {
    let (listener, url) = listen().await;
    let dir = tempfile::tempdir().expect("a directory");
    let journal = Arc::new(Journal::open(dir.path()).expect("a journal"));
    let kind = kind.durable().expect("a durable kind");
    tokio::spawn(bare::accept(kind, listener, Some(journal)));
    (url, dir)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn durable_servers_answer_everything_once() {
    let (url, _dir) = durable(Kind::WsAck).await;
    let report = chat(&url, &["-n", "500", "-c", "10", "--warmup-connections", "0"]).await;
    assert!(report.is_clean() && report.latency.count == 500, "{}", report.terminal());
    let (url, _dir) = durable(Kind::Http).await;
    let line = ["--quiet", "--server", &url, "--closed", "--duration", "200ms", "--connections", "8"];
    let report = run::<HttpArgs>(&line).await;
    assert!(report.is_clean() && report.latency.count > 0, "{}", report.terminal());
    let (url, _dir) = durable(Kind::Kv).await;
    let own = ["put-all", "--unchecked", "--no-preload", "--duration", "200ms", "--warmup", "0ms"];
    let report = run::<KvArgs>(&[&["--quiet", "--server", &url], &own[..]].concat()).await;
    assert!(report.is_clean() && report.latency.count > 0, "{}", report.terminal());
}

async fn run<W: Workload>(line: &[&str]) -> Report {
    measure(&arguments::<Loading<W>>(W::NAME, line).expect("options")).await.expect("measured")
}

async fn chat(url: &str, own: &[&str]) -> Report {
    run::<ChatArgs>(&[&["--quiet", "--server", url], own].concat()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chat_sends_everything_once() {
    let url = bare(Kind::WsAck).await;
    for line in
        [&["-n", "5000", "-c", "30"][..], &["-n", "5000", "-c", "7", "--in-flight", "16", "--rooms", "3"]]
    {
        let short = ["--warmup-connections", "4", "--warmup-messages", "100"];
        let report = chat(&url, &[line, &short].concat()).await;
        let ledger = report.ledger.as_ref().expect("ledger");
        assert_eq!((ledger.sent, ledger.accepted, report.latency.count), (5_000, 5_000, 4_600));
        assert!(report.is_clean() && report.reconnects.is_empty() && report.retries == 0);
        assert_eq!(report.throughput.iter().map(|bucket| bucket.messages).sum::<u64>(), 4_600);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chat_ends_when_its_time_is_over() {
    let url = bare(Kind::WsEcho).await;
    let report =
        chat(&url, &["--echo", "-n", "1000000000", "--warmup-connections", "0", "--duration", "300ms"]).await;
    assert!(report.latency.count > 0 && report.elapsed_s < 5.0 && report.is_clean(), "{}", report.terminal());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_loop_sends_what_its_schedule_says() {
    let url = bare(Kind::Http).await;
    let line = ["--quiet", "--server", &url, "--rate", "500..1500", "--duration", "1s", "--connections", "8"];
    let report = run::<HttpArgs>(&line).await;
    assert_eq!(report.latency.count, 1_000);
    assert!(report.is_clean(), "{}", report.terminal());
    both_latencies_are_told(&report);
}

/// Of an open loop: from the intended send, and from the send, with what lies between.
fn both_latencies_are_told(report: &Report) {
    let summary = serde_json::to_value(report).expect("a summary");
    let mean = |of: &serde_json::Value| {
        assert_eq!(of["count"], report.latency.count, "{of}");
        of["meanMs"].as_f64().expect("a mean")
    };
    let parts = mean(&summary["latencyFromSend"]) + mean(&summary["generator"]["sendDelay"]);
    assert!((mean(&summary["latency"]) - parts).abs() < 1e-6, "{summary}");
    let said = report.terminal();
    assert!(said.contains("\n  from send ms mean ") && said.contains("; sends: p50 "), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_begins_in_the_main_phase_is_measured_and_the_ledger_has_all() {
    let url = bare(Kind::Http).await;
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().to_str().expect("a name");
    let phases = ["--warmup", "200ms", "--duration", "300ms", "--cooldown", "200ms"];
    let line = ["--quiet", "--server", &url, "--rate", "1000", "--connections", "8", "--out", out];
    let report = run::<HttpArgs>(&[&line[..], &phases].concat()).await;
    let ledger = report.ledger.as_ref().expect("ledger");
    assert_eq!(
        (ledger.sent, ledger.accepted, report.latency.count),
        (700, 700, 300),
        "{}",
        report.terminal()
    );
    assert_eq!(report.throughput.iter().map(|bucket| bucket.messages).sum::<u64>(), 300);
    // Answers that come in the cool-down make the main phase no longer.
    assert_eq!((report.elapsed_s, report.per_second), (0.3, 1_000.0));
    let rows = std::fs::read_to_string(dir.path().join("metrics.csv")).expect("rows");
    assert_eq!(rows.lines().count(), 301, "with its header");
    // A closed loop has as many as there is time for.
    let url = bare(Kind::WsAck).await;
    let own = ["-n", "1000000000", "-c", "4", "--warmup-connections", "0"];
    let report = chat(&url, &[&own[..], &phases].concat()).await;
    let ledger = report.ledger.as_ref().expect("ledger");
    let measured = report.latency.count;
    assert!(report.is_clean() && 0 < measured && measured < ledger.accepted, "{}", report.terminal());
    let said = |note: &String| note.contains("processor time, stages and samples are of the warm-up, too");
    assert!(report.notes.iter().any(said) && report.analysis.usage.is_none(), "{:?}", report.notes);
    assert!(report.analysis.steps.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_rooms_may_have_a_rate_in_steps() {
    let url = bare(Kind::WsAck).await;
    let own = ["--rate", "500,1000", "--duration", "200ms", "-c", "8"];
    let warm_up = ["--warmup-connections", "2", "--warmup-messages", "10"];
    let report = chat(&url, &[&own[..], &warm_up].concat()).await;
    let ledger = report.ledger.as_ref().expect("ledger");
    assert_eq!((ledger.sent, report.latency.count), (320, 300), "{}", report.terminal());
    assert!(report.is_clean() && report.little.is_none(), "{}", report.terminal());
    both_latencies_are_told(&report);
    let steps: Vec<_> =
        report.analysis.steps.iter().map(|step| (step.asked_per_second, step.accepted)).collect();
    assert_eq!(steps, [(500.0, 100), (1_000.0, 200)]);
    let said = report.terminal();
    assert!(said.contains("\n  steps        ") && said.contains("answered per second"), "{said}");
}

/// Each waits for its answer, and then for 5 ms, so there cannot be more than that.
fn connections_thought(report: &Report, connections: f64) {
    let most = connections * (report.elapsed_s / 0.005 + 1.0);
    assert!(report.latency.count > 0 && report.latency.count as f64 <= most, "{}", report.terminal());
    let little = report.little.as_ref().expect("a closed loop");
    assert!(little.think_ms > 0.0 && report.terminal().contains(" under way or thinking, "), "{little:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_think_in_closed_loops() {
    let think = ["--think", "5ms", "--duration", "300ms"];
    let own = ["-n", "1000000000", "-c", "4", "--warmup-connections", "0"];
    let url = bare(Kind::WsAck).await;
    connections_thought(&chat(&url, &[&own[..], &think].concat()).await, 4.0);
    let wide = chat(&url, &[&own[..], &think, &["--in-flight", "3"]].concat()).await;
    connections_thought(&wide, 12.0);
    let url = bare(Kind::Http).await;
    let line = ["--quiet", "--server", &url, "--closed", "--connections", "4"];
    connections_thought(&run::<HttpArgs>(&[&line[..], &think].concat()).await, 4.0);
    let url = bare(Kind::Kv).await;
    let line =
        ["mixed", "--quiet", "--server", &url, "--no-preload", "--unchecked", "-c", "4", "--warmup", "0ms"];
    connections_thought(&run::<KvArgs>(&[&line[..], &think].concat()).await, 4.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_loop_has_one_latency() {
    let url = bare(Kind::WsAck).await;
    let report = chat(&url, &["-n", "500", "-c", "4", "--warmup-connections", "0"]).await;
    let (summary, said) = (serde_json::to_value(&report).expect("a summary"), report.terminal());
    assert!(summary.get("latencyFromSend").is_none() && !said.contains("from send ms"), "{said}");
    assert!(summary["generator"].get("sendDelay").is_none(), "{summary}");
    assert!(summary["generator"]["schedulingDelay"]["count"].as_u64() > Some(0), "{summary}");
    assert!(summary["generator"]["clockDriftMs"].is_f64(), "{summary}");
    assert!(said.contains("\n  generator    threads late by ms: p50 "), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_message_of_the_measured_phase_is_a_row() {
    let url = bare(Kind::WsAck).await;
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().join("results").to_str().expect("a name").to_owned();
    let line = ["-n", "5000", "-c", "10", "--warmup-connections", "4", "--warmup-messages", "100"];
    for (bound, rows) in [(&[][..], 4_600), (&["--rows-max", "100"][..], 100)] {
        let report = chat(&url, &[&line[..], &["--out", &out], bound].concat()).await;
        let text = std::fs::read_to_string(dir.path().join("results/metrics.csv")).expect("rows");
        assert_eq!(text.lines().skip(1).filter(|row| row.split(',').nth(3) == Some("200")).count(), rows);
        let noted = report.notes.iter().any(|note| note.contains("leaves out 4500 rows (--rows-max)"));
        assert_eq!(noted, rows == 100, "{}", report.terminal());
        report.write_files(std::path::Path::new(&out)).expect("the other files");
        let rows_after = std::fs::read_to_string(dir.path().join("results/metrics.csv")).expect("rows");
        assert!(rows_after == text, "they are written once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fan_out_reaches_every_subscriber_in_order() {
    let url = bare(Kind::Fanout).await;
    let line = ["--quiet", "--server", &url, "--subscribers", "20", "--duration", "300ms"];
    for phases in [&[][..], &["--warmup", "100ms", "--cooldown", "100ms"]] {
        let report = run::<FanoutArgs>(&[&line[..], phases].concat()).await;
        let (delivery, ledger) = (report.delivery.as_ref().expect("delivery"), report.ledger.as_ref());
        assert_eq!(delivery.delivered, 20 * ledger.expect("ledger").accepted, "in all phases");
        assert!(report.is_clean() && delivery.latency.count > 0, "{}", report.terminal());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_queues_ask_and_are_answered() {
    let url = bare(Kind::Line).await;
    let address = url.strip_prefix("http://").expect("address");
    let line = ["--quiet", "--server", &url, "--line", address, "--via", "line", "--echo", "--warmup", "0ms"];
    for own in
        [&["--clients", "8"][..], &["--ask", "0", "--refresh", "0", "--depth", "500", "--think", "1ms"]]
    {
        let own = [own, &["--duration", "300ms"]].concat();
        let report = run::<QueueArgs>(&[&line[..], &own].concat()).await;
        assert!(report.is_clean(), "{}", report.terminal());
        for kind in ["send", "get", "read"] {
            assert!(report.latency_by_type[kind].count > 0, "{kind}: {}", report.terminal());
        }
    }
    let own = ["populate", "--depth", "1000", "--duration", "10s"];
    let report = run::<QueueArgs>(&[&line[..], &own].concat()).await;
    let queues = report.ledger.and_then(|ledger| ledger.queues).expect("a ledger of queues");
    assert!((1_000..1_200).contains(&queues.sent) && queues.taken == 0, "{queues}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_asked_for_in_both_loops() {
    let url = bare(Kind::Kv).await;
    let line = ["--quiet", "--server", &url, "--no-preload", "--unchecked", "--keys", "1000"];
    let measure = async |own: &[&str]| run::<KvArgs>(&[&line[..], own].concat()).await;
    for kind in ["get-all", "get-popular", "put-all", "delete", "mixed"] {
        let report = measure(&[kind, "--duration", "200ms", "--warmup", "50ms"]).await;
        assert!(report.is_clean() && report.latency.count > 0, "{kind}: {}", report.terminal());
    }
    let report = measure(&["mixed", "--rate", "1000", "--duration", "500ms", "--warmup", "0ms"]).await;
    assert!(report.is_clean() && report.latency.count == 500, "{}", report.terminal());
    both_latencies_are_told(&report);
}

#[tokio::test]
async fn a_server_that_goes_away_ends_the_run() {
    let (listener, url) = listen().await;
    tokio::spawn(async move { drop((listener.accept().await, listener)) });
    let quick = ["--backoff", "1ms", "--backoff-max", "1ms", "--retries", "1", "--give-up", "200ms"];
    let report =
        chat(&url, &[&["-n", "1000", "-c", "4", "--warmup-connections", "0"][..], &quick].concat()).await;
    let ledger = report.ledger.as_ref().expect("ledger");
    assert_eq!((ledger.accepted, ledger.sent), (0, ledger.unconfirmed));
    assert!(ledger.sent > 0 && report.reconnects.contains_key("connect") && !report.is_clean());
    let reason = report.must_be_clean("this run").unwrap_err().to_string();
    let unconfirmed = format!("this run went wrong: {} without an answer; ", ledger.unconfirmed);
    assert!(reason.starts_with(&unconfirmed) && reason.ends_with(" connections lost (connect)"), "{reason}");
}

/// Closes each connection after some answers, one message unanswered although stored, and is overloaded at times.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_survive_lost_connections_and_overload() {
    let (listener, url) = listen().await;
    let stored = Arc::<Mutex<HashSet<String>>>::default();
    let seen = Arc::clone(&stored);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(unreliable(stream, Arc::clone(&seen)));
        }
    });
    let quick = ["--backoff", "1ms", "--backoff-max", "2ms", "--retries", "50", "--warmup-connections", "0"];
    let report =
        chat(&url, &[&["-n", "2000", "-c", "5", "--in-flight", "8", "--rooms", "2"][..], &quick].concat())
            .await;
    let ledger = report.ledger.as_ref().expect("ledger");
    assert_eq!((ledger.sent, ledger.accepted), (2_000, 2_000), "{}", report.terminal());
    assert_eq!(stored.lock().len(), 2_000);
    assert!(report.retries > 0 && report.reconnects.values().sum::<u64>() > 10, "{}", report.terminal());
    let causes = &report.retries_by_cause;
    assert!(causes.contains_key("refused") && causes.len() > 1, "{causes:?}");
    assert!(
        causes.keys().all(|cause| *cause == "refused" || report.reconnects.contains_key(cause)),
        "{causes:?}"
    );
    let rooms = report.rooms.as_ref().expect("two rooms");
    assert_eq!((rooms.count, rooms.slowest.iter().map(|room| room.messages).sum::<u64>()), (2, 2_000));
}

async fn unreliable(stream: TcpStream, stored: Arc<Mutex<HashSet<String>>>) -> io::Result<()> {
    let Ok((mut wire, _)) = bare::upgrade(stream).await else { return Ok(()) };
    let mut reader = Reader::new(Role::Server, 10_000);
    let mut answered = 0_u64;
    loop {
        poll_fn(|cx| {
            wire.poll_read(cx, |bytes, out| {
                let mut frames = reader.feed(bytes);
                while let Ok(Some(Event::Text(text))) = frames.next() {
                    let message: serde_json::Value = serde_json::from_str(text)?;
                    let id = message["messageId"].as_str().expect("id").to_owned();
                    answered += 1;
                    if answered.is_multiple_of(13) {
                        write::write_text(out, br#"{"status":"error","errors":["overloaded"]}"#);
                        continue;
                    }
                    stored.lock().insert(id.clone());
                    if answered > 100 {
                        return Err(io::Error::from(io::ErrorKind::ConnectionAborted));
                    }
                    let answer = format!(r#"{{"status":"success","messageId":"{id}","seq":{answered}}}"#);
                    write::write_text(out, answer.as_bytes());
                }
                Ok(())
            })
        })
        .await??;
        poll_fn(|cx| wire.poll_flush(cx)).await?;
    }
}

/// Runs `scripts/experiments.sh` with a program that measures nothing: `clean` and `noisy` end well, `broken` does not.
#[test]
fn a_row_of_experiments_says_which_failed_and_which_are_marked() {
    const PROGRAM: &str = r#"#!/bin/sh
case "$2 $3" in
"run "*) name=$3; out=$(echo "$*" | sed 's/.*--out //'); echo '{}' >"$out/results.json"
    printf '  clean 1\n' >"$out/results.txt"
    [ "$name" = clean ] || printf '  marked: connections 2: 9 %% of the machine taken by others\n' >>"$out/results.txt"
    [ "$name" != broken ] ;;
esac
"#;
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("program"), PROGRAM).unwrap();
    std::fs::create_dir(path("pages")).unwrap();
    let mut script = std::process::Command::new("sh");
    script.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/experiments.sh"));
    script.arg(path("out")).args(["clean", "noisy", "broken"]);
    std::process::Command::new("chmod").arg("+x").arg(path("program")).status().unwrap();
    let output = script.env("HUBBUB_BIN", path("program")).env("TO", path("pages")).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = said.lines().take(4).collect();
    let log = path("out/broken.log");
    let expected = [
        "clean: done",
        "noisy: done",
        "noisy: marked: connections 2: 9 % of the machine taken by others",
        &format!("broken: not clean, see {}", log.display()),
    ];
    assert_eq!(lines, expected, "{}", String::from_utf8_lossy(&output.stderr));
}
