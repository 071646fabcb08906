//! Suggests which known name was meant by an unknown one.

use strsim::osa_distance;

/// Characters at least by which the beginning of a name leads to the whole one.
const START_MIN: usize = 3;
/// A name is near if at most one of so many characters is mistyped.
const CHARACTERS_PER_MISTAKE: usize = 3;

/// What to say behind the unknown name. `known` has names that are compared, each with what to suggest for it.
pub(super) fn suggestion(written: &str, known: impl Iterator<Item = (String, String)>) -> String {
    let near = known.filter_map(|(name, meant)| Some((distance(written, &name)?, meant)));
    match near.min_by_key(|(distance, _)| *distance) {
        Some((_, meant)) => format!("; did you mean {meant}?"),
        None => "; hubbub config example shows all".to_owned(),
    }
}

/// How far what was written is from a known name; `None` if it is not near. The beginning of a name leads to the whole one,
/// however long that is.
fn distance(written: &str, known: &str) -> Option<(bool, usize)> {
    let (length, distance) = (written.chars().count(), osa_distance(written, known));
    let is_start = length >= START_MIN && known.starts_with(written);
    let mistakes_max = (length / CHARACTERS_PER_MISTAKE).max(1);
    (is_start || distance <= mistakes_max).then_some((!is_start, distance))
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
