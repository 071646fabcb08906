//! The documents link to what is there, and the commands they name are those the program has.

use std::collections::HashMap;
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

/// A name for sessions of a database, which documents name like a command.
const SESSION: &str = "notifications";

/// What `--help` lists as commands; none where there are none.
fn commands_of(command: &[&str]) -> Vec<String> {
    let help = hubbub(&[command, &["--help"]].concat(), "").success();
    let listed =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names = listed.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Every `hubbub …` that begins a line of a block or stands in backticks names a command, and one of that command's own, if it has
/// any.
#[test]
fn commands_are_those_of_the_program() {
    let commands = commands_of(&[]);
    let mut own: HashMap<String, Vec<String>> = HashMap::new();
    for path in documents() {
        let text = fs::read_to_string(&path).unwrap();
        let lines = text.lines().filter_map(|line| line.strip_prefix("hubbub "));
        let inline = text.split("`hubbub ").skip(1).filter_map(|rest| Some(rest.split_once('`')?.0));
        for line in lines.chain(inline) {
            let mut words = line.split_whitespace().filter(|word| *word != SESSION);
            let Some(word) = words.next().filter(|word| is_name(word)) else { continue };
            assert!(commands.iter().any(|command| command == word), "{}: hubbub {line}", path.display());
            let own = own.entry(word.to_owned()).or_insert_with(|| commands_of(&[word]));
            if let Some(word) = words.next().filter(|word| !own.is_empty() && is_name(word)) {
                assert!(own.iter().any(|command| command == word), "{}: hubbub {line}", path.display());
            }
        }
    }
}

/// Rather than an option, or what stands for a word.
fn is_name(word: &str) -> bool {
    word.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase())
}
