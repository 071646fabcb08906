//! Query strings, and the pages of lists that they ask for: `next` of a page is the `after` of the next one.

use std::borrow::Cow;

use hubbub_core::id::{ID_RULE, InvalidId};
use hubbub_core::number::{WHOLE_NUMBER_RULE, parse_digits};
use hubbub_core::time::TIMESTAMP_RULE;
use hubbub_core::{FieldError, Timestamp};

use crate::problem::Problem;

pub(super) const LIMIT_DEFAULT: usize = 100;
pub(super) const LIMIT_MAX: usize = 1_000;

/// The decoded pairs of a query string; of equal names the first counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(text: Option<&str>) -> Self {
        match text {
            None | Some("") => Self::default(),
            Some(text) => Self(form_urlencoded::parse(text.as_bytes()).into_owned().collect()),
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// All values of a name.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Whether a switch is on: `?live=1`, `?live=true` or `?live`.
    pub(crate) fn is_set(&self, name: &str) -> bool {
        matches!(self.get(name), Some("" | "1" | "true"))
    }

    pub(crate) fn number(&self, name: &'static str, faults: &mut Vec<FieldError>) -> Option<u64> {
        require(parse_digits(self.get(name)?), name, WHOLE_NUMBER_RULE, faults)
    }

    pub(crate) fn time(&self, name: &'static str, faults: &mut Vec<FieldError>) -> Option<Timestamp> {
        // A bare plus sign in a query means a space, but in a time it is the offset's sign.
        require(Timestamp::parse(&self.get(name)?.replace(' ', "+")), name, TIMESTAMP_RULE, faults)
    }

    pub(crate) fn id<T>(
        &self,
        name: &'static str,
        parse: fn(&str) -> Result<T, InvalidId>,
        faults: &mut Vec<FieldError>,
    ) -> Option<T> {
        require(parse(self.get(name)?).ok(), name, ID_RULE, faults)
    }

    pub(crate) fn limit(&self, default: usize, max: usize, faults: &mut Vec<FieldError>) -> usize {
        let Some(limit) = self.number("limit", faults) else { return default };
        let limit = usize::try_from(limit).ok().filter(|limit| (1..=max).contains(limit));
        require(limit, "limit", format!("must be between 1 and {max}"), faults).unwrap_or(default)
    }
}

/// The value of a field; notes the broken rule where there is none.
pub(crate) fn require<T>(
    value: Option<T>,
    field: &'static str,
    rule: impl Into<Cow<'static, str>>,
    faults: &mut Vec<FieldError>,
) -> Option<T> {
    if value.is_none() {
        faults.push(FieldError::new(field, rule));
    }
    value
}

/// An error that names all faults, if there are any.
pub(crate) fn refuse_faults(faults: Vec<FieldError>) -> Result<(), Problem> {
    if faults.is_empty() { Ok(()) } else { Err(Problem::invalid(faults)) }
}

/// Cuts `items` at `limit`; one item more than that means that there is another page. `cursor` makes its `after`.
pub(super) fn cut<T>(
    mut items: Vec<T>,
    limit: usize,
    cursor: impl FnOnce(&T) -> String,
) -> (Vec<T>, Option<String>) {
    let has_more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| has_more).map(cursor);
    (items, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_take_an_offset_written_with_a_bare_plus() {
        let query = Query::parse(Some("a=2026-01-31T13:30:00+01:30&b=2026-01-31T12:00:00Z&c=1769860800&d=x"));
        let mut faults = Vec::new();
        let times = ["a", "b", "c"].map(|name| query.time(name, &mut faults));
        assert!(times.iter().all(|t| t.is_some() && *t == times[0]), "{times:?}");
        assert!(faults.is_empty() && query.time("d", &mut faults).is_none() && faults.len() == 1);
    }

    #[test]
    fn one_item_more_than_asked_for_means_another_page() {
        let page = |count: u32, limit| {
            let (items, next) = cut((0..count).collect(), limit, |last: &u32| last.to_string());
            (items.len(), next)
        };
        assert_eq!(page(0, 2), (0, None));
        assert_eq!(page(2, 2), (2, None));
        assert_eq!(page(3, 2), (2, Some("1".into())));
    }
}
