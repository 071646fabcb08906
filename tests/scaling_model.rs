//! `hubbub bench model`, from measurements of a real server; and what `docs/scaling.md` shows of it.

use std::path::Path;

use serde_json::Value;

use crate::harness::{hubbub, hubbub_at_length};

async fn bench(line: &[&str]) -> crate::harness::Ran {
    let line = [&["bench"], line].concat();
    hubbub_at_length(line.into_iter().map(str::to_owned).collect()).await
}

/// The blocks of the page: the command of each `sh` block, with the block of text behind it, if there is one.
fn commands(page: &str) -> Vec<(&str, Option<&str>)> {
    let blocks: Vec<&str> = page.split("```").collect();
    let mut commands = Vec::new();
    for (index, block) in blocks.iter().enumerate().skip(1).step_by(2) {
        let Some(lines) = block.strip_prefix("sh\n") else { continue };
        let shown = blocks.get(index + 2).and_then(|next| next.strip_prefix("text\n"));
        let is_next = blocks.get(index + 1).is_some_and(|between| between.trim().is_empty());
        let lines: Vec<&str> = lines.lines().filter(|line| !line.is_empty()).collect();
        for (place, line) in lines.iter().enumerate() {
            commands.push((*line, shown.filter(|_| is_next && place + 1 == lines.len())));
        }
    }
    commands
}

/// Every command of the page is one that the program takes. What needs nothing but the program says what is shown.
#[test]
fn the_page_shows_what_the_model_says() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/scaling.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (mut run, mut compared) = (0, 0);
    for (line, shown) in commands(&page) {
        let line = line.split(" #").next().unwrap().trim();
        let words: Vec<&str> = line.split_whitespace().skip(1).collect();
        assert!(line.starts_with("hubbub bench "), "{line}");
        if words.iter().any(|word| word.contains("results/") || word.contains("://")) {
            let name = words.get(1).unwrap();
            let help = hubbub(&["bench", name, "--help"], "").success();
            for option in words.iter().filter(|word| word.starts_with("--")) {
                assert!(help.contains(option), "{line}: {option}");
            }
            continue;
        }
        let said = hubbub(&words, "").success();
        run += 1;
        if let Some(shown) = shown {
            assert_eq!(said, shown, "{line}");
            compared += 1;
        }
    }
    assert!(run >= 2 && compared >= 1, "{run} commands were run, {compared} answers compared");
}

/// Points that tell every cost of one server apart, in seconds.
const COSTS: &str = "title = 'Costs'\nworkload = 'persist'\n\
    [options]\nduration = '1500ms'\naround = '100ms'\nrooms = 3\nlisten = 0\npublishers = 4\n\
    [[point]]\nwindow = 1\nrate = 400\n[[point]]\nwindow = 1\npublishers = 16\nrate = 2000\n[[point]]\nwindow = 50\nrate = 2000\n\
    [[point]]\nwindow = 50\nrate = 2000\ntext-bytes = 2000\n[[point]]\nwindow = 50\nrate = 2000\nlisten = 3\n\
    [[point]]\nwindow = 50\nrate = 1000\nlisten = 3\nlisteners = 4\n\
    [[point]]\nwindow = 50\nrate = 200\n[[point]]\nwindow = 10\nrate = 1000\n";

#[tokio::test]
async fn costs_that_were_measured_predict() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (file, out, place) = (path("costs.toml"), path("measured"), path(""));
    std::fs::write(&file, COSTS).unwrap();
    let ran = bench(&["run", &file, "--dir", &place, "--out", &out]).await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);

    let line = ["model", "--costs", &out, "--compare", &out, "--rate", "100", "--json"];
    let said = bench(&line).await.success();
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&said["nodes"], &said["isBuiltIn"]), (&Value::from(1), &Value::from(false)), "{said}");
    assert_eq!(said["costs"]["store"], "embedded");
    let workers = said["costs"]["parts"]["workers"].as_object().unwrap();
    let total: f64 = workers.values().map(|cost| cost["value"].as_f64().unwrap()).sum();
    assert!(total > 0.0 && workers.values().all(|cost| cost["value"].as_f64().unwrap() > 0.0), "{said}");
    let points = said["compared"]["points"].as_array().unwrap();
    assert_eq!(points.len(), 8);
    for point in points {
        let [measured, model] = ["measured", "model"].map(|side| point["server"][side].as_f64().unwrap());
        assert!(measured > 0.0 && model > 0.0, "{point}");
    }
    let most = |said: &Value| said["growth"][0]["mostPerSecond"].as_f64().unwrap();
    assert!(most(&said) > 100.0, "{said}");

    // The costs can be kept, and the database's that are not there are not asked for.
    let saved = path("costs.json");
    bench(&["model", "--costs", &out, "--save", &saved]).await.success();
    let again = bench(&["model", "--costs", &saved, "--rate", "100", "--json"]).await.success();
    assert_eq!(most(&serde_json::from_str(&again).unwrap()).round(), most(&said).round());

    let wrong = bench(&["model", "--costs", &path("nowhere")]).await.refusal(1);
    assert!(wrong.contains("nowhere"), "{wrong}");
}
