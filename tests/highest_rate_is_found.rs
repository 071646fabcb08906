//! `hubbub bench find-max` finds the highest rate that keeps a threshold, and `report` makes the report of its results anew.

use serde_json::Value;

use crate::harness::{Ran, hubbub_at_length};

async fn bench(line: &[&str]) -> Ran {
    let line = [&["bench"], line].concat();
    hubbub_at_length(line.into_iter().map(str::to_owned).collect()).await
}

const RISING: &str = "title = 'Rising'\nworkload = 'http'\nthresholds = ['BOUND']\n\
    [options]\nduration = '500ms'\nconnections = 8\nrate = 50\n";

#[tokio::test]
async fn the_highest_rate_is_found_and_its_report_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (file, out, place) = (path("rising.toml"), path("found"), path(""));
    // Not more than so many in half a second: the highest rate is twice that, on any machine.
    std::fs::write(&file, RISING.replace("BOUND", "ledger.sent <= 150")).unwrap();
    let line = [
        "find-max",
        &file,
        "--dir",
        &place,
        "--out",
        &out,
        "--precision",
        "10",
        "--repetitions",
        "1",
        "--json",
    ];
    let ran = bench(&line).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let said: Value = serde_json::from_str(&ran.stdout).unwrap();
    let found = &said["found"][0];
    let (highest, missed) = (found["highest"].as_f64().unwrap(), found["missed"]["rate"].as_f64().unwrap());
    // A machine that stands still meanwhile finds less.
    assert!((20.0..=303.0).contains(&highest) && missed > highest && missed <= 1.1 * highest + 1.0, "{said}");
    let tried = found["tried"].as_array().unwrap();
    let [first, second] = [0, 1].map(|index| tried[index]["rate"].as_f64().unwrap());
    assert!(first == 50.0 && (second == 100.0 || second == 25.0), "{said}");
    for one in tried.iter().filter(|one| one["rate"].as_f64().unwrap() > 303.0) {
        assert!(one["verdict"]["missed"].as_str().unwrap().contains("ledger.sent is"), "{said}");
    }
    let text = std::fs::read_to_string(path("found/find-max.txt")).unwrap();
    assert!(text.contains("the highest rate that keeps ledger.sent <= 150"), "{text}");

    // The report is made again of nothing but the results, also with another bound.
    for name in ["results.txt", "report.html"] {
        let place = dir.path().join("found").join(name);
        let first = std::fs::read_to_string(&place).unwrap();
        std::fs::remove_file(&place).unwrap();
        let _ = bench(&["report", &out]).await;
        assert_eq!(std::fs::read_to_string(&place).unwrap(), first, "{name}");
    }
    let results = path("found/results.json");
    let looser =
        std::fs::read_to_string(&results).unwrap().replace("ledger.sent <= 150", "ledger.sent <= 9999");
    std::fs::write(&results, looser).unwrap();
    let said = bench(&["report", &out]).await.success();
    assert!(!said.contains("fault:"), "{said}");
    let page = std::fs::read_to_string(path("found/report.html")).unwrap();
    for part in ["class=\"fill\"", &format!("rate {second}"), "9999"] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    bench(&["report", &path("nowhere")]).await.refusal(1);

    std::fs::write(&file, RISING.replace("'BOUND'", "")).unwrap();
    let line = bench(&["find-max", &file, "--dir", &place]).await.refusal(1);
    assert!(line.contains("no thresholds"), "{line}");
    let fanout = RISING.replace("BOUND", "perSecond > 1").replace("'http'", "'fanout'");
    let fanout = fanout.replace("rate = 50", "").replace("connections", "subscribers");
    std::fs::write(&file, fanout).unwrap();
    let line = bench(&["find-max", &file, "--dir", &place]).await.refusal(1);
    assert!(line.contains("find-max sets --rate"), "{line}");
}
