//! What `hubbub bench` says of a run beyond rates and latencies: stages that add up to the whole, and what the load costs.

use std::path::Path;

use serde_json::{Value, json};

use crate::bottlenecks_are_named::is_disturbed;
use crate::harness::{Postgres, hubbub, hubbub_at_length};

/// Runs a scenario on a store of its own, and keeps the results; the summary of its only run.
async fn measure(dir: &Path, scenario: &str, own: &[&str]) -> Value {
    let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    std::fs::write(path("measured.toml"), format!("title = 'Measured'\n{scenario}")).unwrap();
    let line = [
        ["bench", "run", "--json"].map(str::to_owned),
        [path("measured.toml"), "--dir".to_owned(), path("")],
    ];
    let line = [line.concat(), vec!["--overwrite".to_owned(), "--out".to_owned(), path("out")]].concat();
    let line = line.into_iter().chain(own.iter().map(|word| (*word).to_owned())).collect();
    let ran = hubbub_at_length(line).await;
    let results: Value = serde_json::from_str(&ran.stdout).unwrap_or_default();
    let summary = results["runs"][0]["summary"].clone();
    assert!(summary.is_object(), "{ran:?}");
    summary
}

/// The share of the whole that these stages have. All stages, and what is in none, are the whole.
fn share_of(way: &Value, names: &[&str]) -> f64 {
    let stages = way["stages"].as_array().unwrap_or_else(|| panic!("no stages: {way}"));
    let share = |stage: &&Value| stage["share"].as_f64().unwrap();
    let all: f64 = stages.iter().map(|stage| share(&stage)).sum();
    assert!((all + way["unaccounted"].as_f64().unwrap() - 1.0).abs() < 1e-6, "{way}");
    let is_named = |stage: &&Value| names.contains(&stage["name"].as_str().unwrap());
    stages.iter().filter(is_named).map(|stage| share(&stage)).sum()
}

/// Stages of these ways that are the whole of the time.
type Whole<'a> = &'a [(&'a str, &'a [&'a str])];

/// Measures until they are, three times at most: the rest grows where a machine stands still for a moment.
async fn measure_whole(dir: &Path, scenario: &str, whole: Whole<'_>) -> Value {
    for _ in 0..2 {
        let summary = measure(dir, scenario, &[]).await;
        let is_whole = |(way, names): &(&str, &[&str])| {
            (0.95..=1.05).contains(&share_of(&summary["stages"][way], names))
        };
        if whole.iter().all(is_whole) {
            return summary;
        }
    }
    measure(dir, scenario, &[]).await
}

/// Each sync takes so long that on any machine the rest is next to nothing: what the server measured must be the whole.
const SLOW_SYNC: &str = "[settings.store.embedded]\nsync_delay = '400ms'\n";

#[tokio::test]
async fn stages_add_up_to_the_latency() {
    let dir = tempfile::tempdir().unwrap();
    let chat = "workload = 'chat'\n[options]\nconnections = 16\nmessages = 1_000_000\nduration = '4s'\n\
                warmup-connections = 1\nwarmup-messages = 1\n";
    let answered = ["client", "queue", "commit", "answer"];
    let whole: Whole<'_> = &[("confirmed", &answered)];
    let summary = measure_whole(dir.path(), &format!("{chat}{SLOW_SYNC}"), whole).await;
    let way = &summary["stages"]["confirmed"];
    let share = share_of(way, &answered);
    assert!((0.95..=1.05).contains(&share), "{share}: {way}");
    assert_eq!(way["overlaps"], false, "{way}");
    assert!(way["followed"].as_u64().is_some_and(|count| count >= 30), "{way}");
    assert_followed_as_long(way);
    let mark = way["unaccounted"].as_f64().unwrap().abs() > 0.05;
    assert_eq!(way.get("mark").is_some(), mark, "{way}");
    assert_eq!(way["wholeMs"], summary["latency"]["meanMs"]);
    assert!(summary["stages"].get("delivered").is_none(), "nobody listened: {summary}");
    let shown = std::fs::read_to_string(dir.path().join("out/01-1/report.html")).unwrap();
    assert!(shown.contains("Where the time goes until the answer"), "{shown}");

    // An open loop, with subscribers.
    let http = "workload = 'http'\n[options]\nrate = 50\nduration = '4s'\nlisteners = 4\nrooms = 2\n";
    let delivery = ["client", "queue", "commit", "delivery"];
    let whole: Whole<'_> = &[("confirmed", &answered), ("delivered", &delivery)];
    let summary = measure_whole(dir.path(), &format!("{http}{SLOW_SYNC}"), whole).await;
    let confirmed = share_of(&summary["stages"]["confirmed"], &answered);
    assert!((0.95..=1.05).contains(&confirmed), "{summary}");
    let delivered = share_of(&summary["stages"]["delivered"], &delivery);
    assert!((0.95..=1.05).contains(&delivered), "{summary}");
    assert_eq!(summary["rooms"]["count"], 2, "{summary}");
    let page = publish(dir.path(), &[]);
    for part in [
        "until the answer",
        "until subscribers have it",
        "| ms | client | to the server | queue | commit | answer | to the client |",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("Minute by minute"), "a run of seconds has no minutes: {page}");
}

/// Those that were followed are some of all, and their mean is that of all but for chance.
fn assert_followed_as_long(way: &Value) {
    let ms = |name: &str| way[name].as_f64().unwrap_or_else(|| panic!("no {name}: {way}"));
    let (off, whole) = ((ms("followedMs") - ms("wholeMs")).abs(), ms("wholeMs"));
    assert!(off <= f64::max(whole / 3.0, 4.0 * ms("followedErrorMs")), "{off}: {way}");
}

/// Each room has subscribers at one server or at both, and messages come to either.
const TWO_SERVERS: &str = "workload = 'http'\n[options]\nservers = 2\nrate = 300\nwarmup = '3s'\nduration = '5s'\nconnections = 8\n\
    listeners = 4\nrooms = 3\n";

/// Messages are accepted by one server and delivered by another one, and nothing of their time is left out.
async fn stages_of_two_servers(own: &[&str], names: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let summary = measure(dir.path(), TWO_SERVERS, own).await;
    let way = &summary["stages"]["delivered"];
    let all: Vec<&str> =
        way["stages"].as_array().unwrap().iter().map(|stage| stage["name"].as_str().unwrap()).collect();
    assert_eq!(all, names, "{summary}");
    assert!(share_of(way, &["bus"]) > 0.0 && way["followed"].as_u64().unwrap() >= 30, "{way}");
    assert_eq!(way["wholeMs"], summary["delivery"]["latency"]["meanMs"], "{summary}");
    println!("{way}\n{}", summary["stages"]["confirmed"]);
    if is_disturbed(&summary) {
        println!("others took the processors: few messages that were followed are not like all of them");
        return;
    }
    let unaccounted = way["unaccounted"].as_f64().unwrap();
    assert!(unaccounted.abs() <= 0.05 && (0.95..=1.05).contains(&share_of(way, names)), "{way}");
    // The stages are in proportion to the whole: that those followed took about as long says that none of it is missing.
    assert_followed_as_long(way);
    let confirmed = summary["stages"]["confirmed"]["unaccounted"].as_f64().unwrap();
    assert!(confirmed.abs() <= 0.05, "{summary}");
}

#[tokio::test]
async fn stages_of_two_servers_add_up() {
    let postgres = Postgres::start("");
    let names = ["client", "to the server", "queue", "commit", "bus", "delivery", "to subscribers"];
    stages_of_two_servers(&["--postgres", &postgres.url("postgres")], &names).await;
}

#[cfg(feature = "kafka")]
#[tokio::test]
async fn stages_of_two_servers_behind_a_broker_add_up() {
    let (postgres, kafka) = (Postgres::start(""), crate::harness::Kafka::shared());
    let names = ["client", "to the server", "log", "queue", "commit", "bus", "delivery", "to subscribers"];
    let own = ["--postgres", &postgres.url("postgres"), "--kafka", &kafka.url()];
    stages_of_two_servers(&own, &names).await;
}

/// Servers measure each request, so what is outside of them is known, reads included.
#[tokio::test]
async fn stages_of_keys_and_queues_leave_nothing_out() {
    let keys =
        "workload = 'kv'\n[options]\nconnections = 8\nkeys = 64\nget = 0.5\nput = 0.5\nduration = '4s'\n";
    let queues = "workload = 'queue'\n[options]\nclients = 8\nqueues = 4\nduration = '4s'\n";
    // Of this process alone, where a machine has more than one.
    let [.., a, b] = std::process::id().to_be_bytes();
    let host = if cfg!(target_os = "linux") { format!("127.3.{a}.{b}") } else { "127.0.0.1".to_owned() };
    let over_line =
        format!("{queues}via = 'line'\nline = '{host}:3456'\n[settings.server]\nline = '{host}:3456'\n");
    for workload in [keys.to_owned(), format!("{queues}via = 'http'\n"), over_line] {
        let dir = tempfile::tempdir().unwrap();
        let slow = SLOW_SYNC.replace("400ms", "50ms");
        let mut summary = measure(dir.path(), &format!("{workload}{slow}"), &[]).await;
        let way = summary["stages"]["confirmed"].take();
        let names: Vec<&str> =
            way["stages"].as_array().unwrap().iter().map(|stage| stage["name"].as_str().unwrap()).collect();
        assert_eq!(
            names,
            ["client", "handling", "queue", "commit", "answer", "both ways"],
            "{workload}{way}"
        );
        assert!(way["unaccounted"].as_f64().unwrap().abs() <= 0.05, "{workload}{way}");
        let slow = share_of(&way, &["queue", "commit"]);
        assert!(slow > 0.5, "{slow}: the sync takes most of it: {workload}{way}");
    }
}

fn publish(dir: &Path, own: &[&str]) -> String {
    let (results, pages) = (dir.join("out"), dir.join("pages"));
    let line = ["bench", "publish", results.to_str().unwrap(), "--to", pages.to_str().unwrap()];
    hubbub(&[&line[..], own].concat(), "").success();
    std::fs::read_to_string(pages.join("measured/README.md")).unwrap()
}

const SMALL: &str = "workload = 'chat'\n[options]\nconnections = 4\nmessages = 3_000\nwarmup-connections = 1\n\
                     warmup-messages = 10\n";

#[tokio::test]
async fn a_load_has_its_price() {
    let dir = tempfile::tempdir().unwrap();
    let summary = measure(dir.path(), SMALL, &["--price", "core-hour=1000,gb-month=0"]).await;
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{value} of {summary}"));
    let (usage, cost) = (&summary["usage"], &summary["cost"]);
    assert_eq!(usage["messages"], 2_990.0, "without the warm-up: {usage}");
    let used: f64 = usage["processorS"].as_object().unwrap().values().map(number).sum();
    let wanted = used / 3_600.0 * 1_000.0 * 1e6 / 2_990.0;
    assert!((number(&cost["perMillion"]) / wanted - 1.0).abs() < 1e-9 || wanted == 0.0, "{summary}");
    assert_eq!(cost["storage"], 0.0);
    let first = publish(dir.path(), &[]);
    assert!(first.contains("**Price** of all: ") && first.contains("core-hour=1000,gb-month=0"), "{first}");
    // Other prices, without another run.
    let page = publish(dir.path(), &["--price", "core-hour=2,gb-month=3"]);
    assert!(page.contains("core-hour=2,gb-month=3") && !page.contains("core-hour=1000"), "{page}");
    let out = dir.path().join("out").to_str().unwrap().to_owned();
    let report = hubbub(&["bench", "report", &out, "--price", "core-hour=2,gb-month=3"], "").success();
    assert!(report.contains("cost a million"), "{report}");
    let partly = publish(dir.path(), &["--price", "core-hour=2"]);
    assert!(partly.contains("disk without a price") && partly.contains("gb-month is missing"), "{partly}");
    let ran = hubbub(&["bench", "publish", &out, "--price", "gold=2"], "");
    assert!(ran.code == Some(2) && ran.stderr.contains("'gold' has no price here"), "{ran:?}");
}

/// As programs wrote them that knew of neither stages, minutes nor usage.
#[tokio::test]
async fn results_of_older_programs_are_published_without_what_they_lack() {
    let dir = tempfile::tempdir().unwrap();
    let summary = json!({
        "perSecond": 1_234.0,
        "latency": {"medianMs": 1.5, "p99Ms": 2.5},
        "verdict": {"bottleneck": "disk flush", "evidence": "batches", "tryNext": "another disk"},
    });
    let run = json!({"point": {}, "repetition": 1, "isClean": true, "faults": [], "summary": summary});
    let results = json!({
        "version": 1, "scenario": "measured.toml", "title": "Measured", "about": "", "isQuick": false,
        "machine": "a machine", "started": "2026-01-01T00:00:00Z", "text": "", "runs": [run],
    });
    std::fs::create_dir(dir.path().join("out")).unwrap();
    let file = dir.path().join("out/results.json");
    std::fs::write(&file, results.to_string()).unwrap();
    let page = publish(dir.path(), &[]);
    assert!(page.contains("| all | 1,234 | 1.500 | 2.500 |"), "{page}");
    for part in ["Where the time goes", "Minute by minute", "Price", "cost"] {
        assert!(!page.contains(part), "{part}: {page}");
    }
    assert!(!dir.path().join("pages/measured/minutes.csv").exists());
    let out = dir.path().join("out").to_str().unwrap().to_owned();
    let refused = hubbub(&["bench", "publish", &out, "--price", "core-hour=1,gb-month=1"], "").refusal(1);
    assert!(refused.contains("do not say what the servers used"), "{refused}");
    // Two minutes, as this program writes them.
    let spread = json!({"mean": 100.0, "variance": 4.0, "interval": [99.0, 101.0]});
    let minute = |start_s: f64| {
        json!({"startS": start_s, "endS": start_s + 60.0, "messages": 6_000, "perSecond": spread,
               "latencyMs": {"mean": 2.0, "variance": 1.0, "interval": null}, "partial": false})
    };
    let mut results = results;
    results["runs"][0]["summary"]["minutes"] = json!([minute(0.0), minute(60.0)]);
    std::fs::write(&file, results.to_string()).unwrap();
    let page = publish(dir.path(), &[]);
    assert!(page.contains("| 60 to 120 | 100.000 | 99.000 to 101.000 | 4.000 | 2.000 | | 1.000 |"), "{page}");
    let rows = std::fs::read_to_string(dir.path().join("pages/measured/minutes.csv")).unwrap();
    assert!(rows.ends_with("1,60,120,6000,false,100,99,101,4,2,,,1\n"), "{rows}");
}
