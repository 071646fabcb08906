//! Suggests which known name was meant by an unknown one.

use hubbub_core::suggestion::nearest;

/// What to say behind the unknown name. `known` has names that are compared, each with what to suggest for it.
pub(super) fn suggestion(written: &str, known: impl Iterator<Item = (String, String)>) -> String {
    match nearest(written, known) {
        Some(meant) => format!("; did you mean {meant}?"),
        None => "; hubbub config example shows all".to_owned(),
    }
}

/// The key, and what is left of it without its first sections: people leave them out.
pub(super) fn endings(key: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(key), |rest| Some(rest.split_once('.')?.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_near_is_suggested() {
        let keys = ["tls.key", "server.listen", "store.postgres.ca", "rooms.autocreate"];
        let known = || keys.iter().flat_map(|key| endings(key).map(|name| (name.into(), (*key).to_owned())));
        for (written, meant) in [
            ("listen", "server.listen"),
            ("lsiten", "server.listen"),
            ("server.lisen", "server.listen"),
            ("postgres.ca", "store.postgres.ca"),
            ("rooms.auto", "rooms.autocreate"),
            ("auto", "rooms.autocreate"),
        ] {
            assert_eq!(suggestion(written, known()), format!("; did you mean {meant}?"), "{written}");
        }
        for written in ["x", "", "s", "timeout", "limits.x"] {
            assert!(!suggestion(written, known()).contains("did you mean"), "{written}");
        }
    }
}
