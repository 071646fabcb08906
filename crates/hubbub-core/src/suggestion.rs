//! Which known name was meant by an unknown one.

use strsim::osa_distance;

/// Characters at least by which the beginning of a name leads to the whole one.
const START_MIN: usize = 3;
/// A name is near if at most one of so many characters is mistyped.
const CHARACTERS_PER_MISTAKE: usize = 3;
/// What is longer is near nothing: comparing takes time.
const WRITTEN_BYTES_MAX: usize = 256;

/// What the nearest of the `known` names stands for; `None` if none is near.
pub fn nearest<N: AsRef<str>, T>(written: &str, known: impl Iterator<Item = (N, T)>) -> Option<T> {
    if written.len() > WRITTEN_BYTES_MAX {
        return None;
    }
    let near = known.filter_map(|(name, meant)| Some((distance(written, name.as_ref())?, meant)));
    near.min_by_key(|(distance, _)| *distance).map(|(_, meant)| meant)
}

/// How far what was written is from a known name; `None` if it is not near. The beginning of a name leads to the whole one,
/// however long that is.
fn distance(written: &str, known: &str) -> Option<(bool, usize)> {
    let (length, distance) = (written.chars().count(), osa_distance(written, known));
    let is_start = length >= START_MIN && known.starts_with(written);
    let mistakes_max = (length / CHARACTERS_PER_MISTAKE).max(1);
    (is_start || distance <= mistakes_max).then_some((!is_start, distance))
}
