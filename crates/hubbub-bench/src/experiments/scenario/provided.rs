//! The scenarios that are part of the program.

use crate::cli::UsageError;

/// Names, and files of the directory `scenarios`.
macro_rules! provided {
    ($($name:literal)*) => {
        pub(super) const PROVIDED: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../../../scenarios/", $name, ".toml")))),*];
    };
}

provided! {
    "websocket-single" "websocket-500k" "websocket-wan" "isolated-client" "stages" "send-without-waiting" "http-ramp" "http-max"
    "http-steps" "think-time"
    "persist-baseline" "persist-stress" "persist-endurance" "batch-size"
    "queue-clients" "queue-workers" "queue-message-size" "queue-scale-out" "queue-stability" "nodes"
    "costs" "costs-nodes" "store-alone" "pool-size" "database-size" "database-cores"
    "kv-get-all" "kv-get-popular" "kv-put-all" "kv-mixed"
}

/// The text of a file, or of the provided scenario of that name.
pub(super) fn text_of(name: &str) -> anyhow::Result<String> {
    if let Some((_, text)) = PROVIDED.iter().find(|(provided, _)| *provided == name) {
        return Ok((*text).to_owned());
    }
    let names: Vec<&str> = PROVIDED.iter().map(|(name, _)| *name).collect();
    std::fs::read_to_string(name).map_err(|error| {
        let none = format!("it is none of those provided, either: {}", names.join(", "));
        UsageError(format!("cannot read {name}: {error}; {none}")).into()
    })
}

#[cfg(test)]
mod tests {
    use super::super::file::Scenario;
    use super::*;

    #[test]
    fn what_is_provided_can_be_run() {
        for (name, text) in PROVIDED {
            for is_quick in [false, true] {
                let scenario =
                    Scenario::parse(text, is_quick).unwrap_or_else(|error| panic!("{name}: {error:#}"));
                assert!(!scenario.title.is_empty() && !scenario.about.is_empty(), "{name}");
            }
        }
        let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios")).unwrap();
        let files = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut files: Vec<String> = files.collect();
        let mut names: Vec<String> = PROVIDED.iter().map(|(name, _)| format!("{name}.toml")).collect();
        files.sort_unstable();
        names.sort_unstable();
        assert_eq!(names, files);
        assert!(text_of("nowhere.toml").unwrap_err().to_string().contains("websocket-single"));
    }
}
