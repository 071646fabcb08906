//! Experiments as files: every scenario that is provided, in its quick form, and what is refused.

use serde_json::{Value, json};

use crate::harness::{Postgres, hubbub, hubbub_at_length};

/// Runs a scenario with `own` arguments, on a disk of tests; the results, and what the program said.
async fn run(scenario: &str, own: &[&str]) -> (Option<i32>, Value, String) {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().to_str().unwrap();
    let line = [&["bench", "run", scenario, "--json", "--dir", place], own].concat();
    let ran = hubbub_at_length(line.into_iter().map(str::to_owned).collect()).await;
    (ran.code, serde_json::from_str(&ran.stdout).unwrap_or_default(), ran.stderr)
}

macro_rules! provided {
    ($($test:ident: $name:literal, $points:literal $(, $store:ident)?;)*) => {
        $(
            #[tokio::test]
            async fn $test() {
                let line = ["--quick".to_owned()];
                $(
                    let $store = Postgres::start("");
                    let line = [&line[..], &["--postgres".to_owned(), $store.url("postgres")]].concat();
                )?
                let line: Vec<&str> = line.iter().map(String::as_str).collect();
                let (code, results, said) = run($name, &line).await;
                assert_eq!(code, Some(0), "{said}");
                let runs = results["runs"].as_array().unwrap();
                assert_eq!(runs.len(), $points, "{said}");
                for run in runs {
                    assert_eq!(run["isClean"], true, "{said}");
                    let summary = &run["summary"];
                    let rate = summary["storedPerSecond"].as_f64().or(summary["perSecond"].as_f64());
                    assert!(rate.unwrap() > 0.0, "{said}");
                }
            }
        )*

        #[test]
        fn every_scenario_that_is_listed_is_run_here() {
            let listed = hubbub(&["bench", "list"], "").success();
            let names: Vec<&str> = listed.lines().filter_map(|line| line.split_whitespace().next()).collect();
            assert_eq!(names, [$($name),*]);
            for name in names {
                let text = hubbub(&["bench", "show", name], "").success();
                assert!(text.contains("workload = "), "{name}");
            }
        }
    };
}

provided! {
    one_websocket: "websocket-single", 1;
    many_websockets: "websocket-500k", 2;
    websockets_from_far_away: "websocket-wan", 2;
    the_generator_alone: "isolated-client", 2;
    stages_of_the_server: "stages", 2;
    sending_without_waiting: "send-without-waiting", 2;
    a_rising_rate: "http-ramp", 2;
    one_rate_of_many: "http-max", 1;
    rates_in_steps: "http-steps", 1;
    people_who_think: "think-time", 2;
    persisting: "persist-baseline", 1;
    persisting_more: "persist-stress", 1;
    persisting_for_long: "persist-endurance", 1;
    sizes_of_batches: "batch-size", 2;
    clients_of_queues: "queue-clients", 2;
    threads_of_the_server: "queue-workers", 2;
    sizes_of_queue_messages: "queue-message-size", 2;
    queues_on_several_servers: "queue-scale-out", 2, postgres;
    queues_for_long: "queue-stability", 1;
    rooms_on_several_servers: "nodes", 2, postgres;
    costs_of_a_message: "costs", 2;
    costs_between_servers: "costs-nodes", 2, postgres;
    the_store_alone: "store-alone", 2;
    sizes_of_the_pool: "pool-size", 2, postgres;
    sizes_of_the_database: "database-size", 2;
    processors_of_the_database: "database-cores", 2, postgres;
    reading_any_key: "kv-get-all", 2;
    reading_popular_keys: "kv-get-popular", 2;
    writing_any_key: "kv-put-all", 2;
    all_operations_on_keys: "kv-mixed", 2;
}

#[tokio::test]
async fn steps_and_think_time_are_reported_without_warm_up_and_cool_down() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("steps").to_str().unwrap().to_owned();
    let (code, results, said) = run("http-steps", &["--quick", "--out", &out]).await;
    assert_eq!(code, Some(0), "{said}");
    let summary = &results["runs"][0]["summary"];
    let steps = summary["steps"].as_array().unwrap();
    let shown: Vec<[&Value; 2]> = steps.iter().map(|it| [&it["askedPerSecond"], &it["accepted"]]).collect();
    assert_eq!(shown, [[&json!(50.0), &json!(25)], [&json!(200.0), &json!(100)]], "{summary}");
    assert_eq!([&summary["latency"]["count"], &summary["ledger"]["sent"]], [125, 155], "{summary}");
    assert_eq!([&summary["ledger"]["server"]["stored"]], [155], "{summary}");
    assert_eq!(summary["latencyFromSend"]["count"], 125, "{summary}");
    let pages = dir.path().join("pages");
    hubbub(&["bench", "publish", &out, "--to", pages.to_str().unwrap()], "").success();
    let page = std::fs::read_to_string(pages.join("http-steps/README.md")).unwrap();
    assert!(page.contains("\n**Conclusion:** ") && page.contains("\n## Step by step: all\n"), "{page}");

    let (code, results, said) = run("think-time", &["--quick"]).await;
    assert_eq!(code, Some(0), "{said}");
    for run in results["runs"].as_array().unwrap() {
        let little = &run["summary"]["little"];
        assert!(little["thinkMs"].as_f64().unwrap() > 0.0, "{little}");
        assert_eq!(
            little["concurrency"].as_f64().unwrap().to_string(),
            run["point"]["connections"],
            "{little}"
        );
    }
}

/// Each operation of a client waits until it is due, and the ledger of messages has those of the warm-up.
#[tokio::test]
async fn operations_on_queues_have_a_rate() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("paced.toml").to_str().unwrap().to_owned();
    let text = "title = 'x'\nworkload = 'queue'\n[options]\nrate = [250, 500]\nwarmup = '200ms'\nduration = '200ms'\n\
                refresh = '0s'\nclients = 8\nqueues = 2\n";
    std::fs::write(&file, text).unwrap();
    let (_, results, said) = run(&file, &[]).await;
    let run = &results["runs"][0];
    let summary = &run["summary"];
    assert_eq!(run["isClean"], true, "{said}");
    assert_eq!([&summary["latency"]["count"], &summary["ledger"]["sent"]], [150, 200], "{said}");
    assert_eq!(summary["latencyFromSend"]["count"], 150, "{said}");
    assert!(summary["ledger"]["queues"]["sent"].as_u64().unwrap() > 0, "{said}");
    let accepted: Vec<&Value> =
        summary["steps"].as_array().unwrap().iter().map(|step| &step["accepted"]).collect();
    assert_eq!(accepted, [50, 100], "{said}");
}

const SMALL: &str = "title = 'Small'\nworkload = 'chat'\nrepetitions = 2\nseed = 7\n\
    thresholds = ['ledger.rejected <= 0', 'latency.count >= LEAST']\n\
    [options]\nmessages = 60\nwarmup-connections = 1\nwarmup-messages = 10\n\
    [settings.kv]\ncache_bytes = '1MiB'\n[sweep]\nconnections = [1, 2]\n";

#[tokio::test]
async fn results_are_kept_and_compared_and_thresholds_count() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (file, [a, b]) = (path("small.toml"), [path("a"), path("b")]);
    for (out, least, code) in [(&a, "50", 0), (&b, "51", 1)] {
        std::fs::write(&file, SMALL.replace("LEAST", least)).unwrap();
        let (ended, results, said) = run(&file, &["--out", out]).await;
        assert_eq!(ended, Some(code), "{said}");
        let runs = results["runs"].as_array().unwrap();
        let points: Vec<&Value> = runs.iter().map(|run| &run["point"]["connections"]).collect();
        assert_eq!(points, ["1", "2", "1", "2"], "repetitions take turns");
        let faults = runs[0]["faults"].as_array().unwrap();
        assert_eq!(faults.len(), usize::try_from(code).unwrap(), "{faults:?}");
    }
    let kept = std::fs::read_to_string(dir.path().join("a/results.json")).unwrap();
    let kept: Value = serde_json::from_str(&kept).unwrap();
    assert_eq!(kept["runs"].as_array().unwrap().len(), 4);
    assert_eq!(kept["runs"][1]["summary"]["little"]["concurrency"], 2.0);
    assert!(kept.get("scaling").is_none(), "two points are no law");
    let shown = std::fs::read_to_string(dir.path().join("a/results.txt")).unwrap();
    assert!(shown.contains("Little's law: connections 2, repetition 1: 2 should be under way"), "{shown}");
    assert!(dir.path().join("a/02-2/summary.json").exists());
    let rows = std::fs::read_to_string(dir.path().join("a/01-1/metrics.csv")).unwrap();
    assert_eq!(rows.lines().count(), 51, "a row for each message, without the warm-up: {rows}");

    hubbub(&["bench", "publish", &a, "--to", &path("pages")], "").success();
    let published = |name: &str| std::fs::read_to_string(dir.path().join("pages/small").join(name)).unwrap();
    let page = published("README.md");
    for part in [
        "# Small",
        "**Result:**",
        "**Conclusion:**",
        "**Bottleneck:**",
        "**What to do:**",
        "4 measurements, 2 of each",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert_eq!(published("scenario.toml"), std::fs::read_to_string(&file).unwrap().replace("51", "50"));
    let rows = published("results.csv");
    assert!(rows.lines().count() == 5 && rows.starts_with("connections,repetition,"), "{rows}");
    assert!(published("chart.svg").starts_with("<svg xmlns="));

    let compared = hubbub(&["bench", "compare", &a, &b, "--json"], "").success();
    let compared: Value = serde_json::from_str(&compared).unwrap();
    let rows = compared["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 6, "rate, p50 and p99 of both points: {rows:?}");
    for row in rows {
        let ratio = row["ratio"].as_f64().unwrap();
        let bounds: Vec<f64> = row["interval"].as_array().unwrap().iter().filter_map(Value::as_f64).collect();
        assert!(bounds[0] <= ratio && ratio <= bounds[1], "{row}");
    }
    let same = hubbub(&["bench", "compare", &a, &a], "").success();
    assert!(same.contains("connections 1, per second: 1.000"), "{same}");
    hubbub(&["bench", "compare", &a, &path("nowhere")], "").refusal(1);
}

#[tokio::test]
async fn a_sweep_over_connections_has_its_law() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("law.toml"), SMALL.replace("LEAST", "1").replace("[1, 2]", "[1, 2, 3, 4]")).unwrap();
    let (code, results, said) = run(&path("law.toml"), &["--out", &path("law")]).await;
    assert_eq!(code, Some(0), "{said}");
    let law = &results["scaling"];
    assert_eq!((&law["over"], law["points"].as_array().unwrap().len()), (&"connections".into(), 4), "{law}");
    assert!(law["lambda"]["value"].as_f64().unwrap() > 0.0, "{law}");
    let shown = std::fs::read_to_string(path("law/results.txt")).unwrap();
    assert!(shown.contains("Universal Scalability Law over connections"), "{shown}");
    hubbub(&["bench", "compare", &path("law"), &path("law")], "").success();
}

#[tokio::test]
async fn several_servers_need_a_store_that_they_share() {
    let (code, _, said) = run("queue-scale-out", &[]).await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("servers = 2") && said.contains("--postgres"), "{said}");
}

#[tokio::test]
async fn what_is_wrong_in_a_file_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("wrong.toml").to_str().unwrap().to_owned();
    for (text, parts) in [
        ("workload = 'chat'\n", &["title"][..]),
        ("title = 'x'\nworkload = 'golf'\n", &["golf", "chat"]),
        ("title = 'x'\nworkload = 'chat'\n[options]\nconections = 4\n", &["--conections", "--connections"]),
        ("title = 'x'\nworkload = 'chat'\n[options]\nmessages = 'many'\n", &["--messages", "many", "digit"]),
        ("title = 'x'\nworkload = 'chat'\n[settings.kv]\ncache = 1\n", &["kv.cache", "cache_bytes"]),
        (
            "title = 'x'\nworkload = 'chat'\nserver = 'http://127.0.0.1:9'\n[settings.kv]\ncache_bytes = 1\n",
            &["--server"],
        ),
    ] {
        std::fs::write(&file, text).unwrap();
        let (code, _, said) = run(&file, &[]).await;
        // What only the server's own check finds is its failure.
        assert!(matches!(code, Some(1 | 2)), "{said}");
        assert!(
            said.contains("wrong.toml") && parts.iter().all(|part| said.contains(part)),
            "{text}: {said}"
        );
    }
    let line = hubbub(&["bench", "run", "no-such-scenario"], "").refusal(2);
    assert!(line.contains("no-such-scenario") && line.contains("websocket-single"), "{line}");
}
