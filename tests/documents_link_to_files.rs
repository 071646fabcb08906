//! The documents link to what is there, and the commands they name are those the program has.

use std::fs;
use std::path::{Path, PathBuf};

use crate::harness::hubbub;

fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let docs = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let all = docs.filter(|path| path.extension().is_some_and(|end| end == "md"));
    all.chain([root.join("README.md"), root.join("CONTRIBUTING.md")]).collect()
}

#[test]
fn links_lead_somewhere() {
    for path in documents() {
        let text = fs::read_to_string(&path).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split_once(')')) {
            let file = link.0.split('#').next().unwrap();
            if file.is_empty() || file.contains("://") {
                continue;
            }
            assert!(path.parent().unwrap().join(file).exists(), "{}: {file}", path.display());
        }
    }
}

/// Every `hubbub …` that begins a line of a block names a command.
#[test]
fn commands_are_those_of_the_program() {
    let help = hubbub(&["--help"], "").success();
    let commands: Vec<&str> = help
        .lines()
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next().filter(|word| !word.is_empty()))
        .collect();
    for path in documents() {
        let text = fs::read_to_string(&path).unwrap();
        for line in text.lines().filter_map(|line| line.strip_prefix("hubbub ")) {
            let word = line.split(' ').next().unwrap();
            let is_command = word.starts_with('-') || commands.contains(&word);
            assert!(is_command, "{}: hubbub {line}", path.display());
        }
    }
}
