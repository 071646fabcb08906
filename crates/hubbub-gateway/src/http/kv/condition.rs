//! `If-Match` and `If-None-Match`, as RFC 9110 has them: a key's entity tag is its revision in quotes.

use hubbub_core::FieldError;
use hubbub_core::kv::Condition;
use hyper::HeaderMap;
use hyper::header::{HeaderName, IF_MATCH, IF_NONE_MATCH};

use crate::problem::Problem;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Preconditions {
    if_match: Option<Tags>,
    if_none_match: Option<Tags>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Tags {
    /// `*`
    Any,
    Listed(Vec<Tag>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tag {
    is_weak: bool,
    /// `None` = of something else than a key.
    revision: Option<u64>,
}

const TAGS_MAX: usize = 100;

impl Preconditions {
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        Ok(Self {
            if_match: tags(headers, &IF_MATCH, "If-Match")?,
            if_none_match: tags(headers, &IF_NONE_MATCH, "If-None-Match")?,
        })
    }

    /// Whether a key with this revision, `None` = not there, is what `If-Match` asks for.
    pub(super) fn is_matched(&self, revision: Option<u64>) -> bool {
        match &self.if_match {
            None => true,
            Some(Tags::Any) => revision.is_some(),
            // A weak tag is no match here: it does not promise the same bytes.
            Some(Tags::Listed(tags)) => {
                revision.is_some() && tags.iter().any(|tag| !tag.is_weak && tag.revision == revision)
            }
        }
    }

    /// Whether `If-None-Match` says that the caller knows this revision.
    pub(super) fn is_known(&self, revision: Option<u64>) -> bool {
        match &self.if_none_match {
            None => false,
            Some(Tags::Any) => revision.is_some(),
            Some(Tags::Listed(tags)) => revision.is_some() && tags.iter().any(|tag| tag.revision == revision),
        }
    }

    fn hold(&self, revision: Option<u64>) -> bool {
        self.is_matched(revision) && !self.is_known(revision)
    }

    /// The condition for the store; `None` when the store cannot evaluate it, and the key must be read first.
    pub(super) fn condition(&self) -> Option<Condition> {
        match (&self.if_match, &self.if_none_match) {
            (None, None) => Some(Condition::Always),
            (Some(Tags::Any), None) => Some(Condition::Present),
            (None, Some(Tags::Any)) => Some(Condition::Absent),
            (Some(Tags::Listed(tags)), None) => match tags.as_slice() {
                [Tag { is_weak: false, revision: Some(revision) }] => Some(Condition::Is(*revision)),
                _ => None,
            },
            (None, Some(Tags::Listed(tags))) => match tags.as_slice() {
                [Tag { revision: Some(revision), .. }] => Some(Condition::IsNot(*revision)),
                _ => None,
            },
            (Some(_), Some(_)) => None,
        }
    }

    /// For a key that was seen with this revision: the condition that it still has it, if a change may be made then.
    pub(super) fn condition_at(&self, revision: Option<u64>) -> Option<Condition> {
        self.hold(revision).then(|| revision.map_or(Condition::Absent, Condition::Is))
    }
}

fn tags(headers: &HeaderMap, name: &HeaderName, field: &'static str) -> Result<Option<Tags>, Problem> {
    let mut lines = headers.get_all(name).iter().peekable();
    if lines.peek().is_none() {
        return Ok(None);
    }
    let fault = || {
        Problem::invalid(vec![FieldError::new(
            field,
            "must be * or a list of at most 100 entity tags in quotes",
        )])
    };
    let mut tags = Vec::new();
    for line in lines {
        let line = line.to_str().map_err(|_| fault())?.trim();
        if line == "*" && headers.get_all(name).iter().count() == 1 {
            return Ok(Some(Tags::Any));
        }
        read(line, &mut tags).filter(|()| tags.len() <= TAGS_MAX).ok_or_else(fault)?;
    }
    Ok(Some(Tags::Listed(tags)))
}

/// Adds the tags of one line; empty places of a list are no fault.
fn read(mut line: &str, tags: &mut Vec<Tag>) -> Option<()> {
    loop {
        line = line.trim_start_matches([' ', '\t', ',']);
        if line.is_empty() {
            return Some(());
        }
        let (is_weak, quoted) = match line.strip_prefix("W/") {
            Some(rest) => (true, rest),
            None => (false, line),
        };
        // A tag may hold commas, but no quotes.
        let (tag, rest) = quoted.strip_prefix('"')?.split_once('"')?;
        let is_number = tag.bytes().all(|digit| digit.is_ascii_digit()) && !tag.starts_with('0');
        tags.push(Tag { is_weak, revision: if is_number { tag.parse().ok() } else { None } });
        line = rest.trim_start();
        if !line.is_empty() && !line.starts_with(',') {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(if_match: &[&str], if_none_match: &[&str]) -> Result<Preconditions, Problem> {
        let mut headers = HeaderMap::new();
        for (name, lines) in [(IF_MATCH, if_match), (IF_NONE_MATCH, if_none_match)] {
            for line in lines {
                headers.append(&name, line.parse().unwrap());
            }
        }
        Preconditions::of(&headers)
    }

    #[test]
    fn what_the_store_can_evaluate_is_left_to_it() {
        let cases: &[(&[&str], &[&str], Option<Condition>)] = &[
            (&[], &[], Some(Condition::Always)),
            (&["*"], &[], Some(Condition::Present)),
            (&[], &["*"], Some(Condition::Absent)),
            (&["\"7\""], &[], Some(Condition::Is(7))),
            (&[], &["W/\"7\""], Some(Condition::IsNot(7))),
            (&["W/\"7\""], &[], None),
            (&["\"7\", \"8\""], &[], None),
            (&["\"x\""], &[], None),
            (&["*"], &["\"7\""], None),
        ];
        for (if_match, if_none_match, condition) in cases {
            assert_eq!(
                of(if_match, if_none_match).unwrap().condition(),
                *condition,
                "{if_match:?} {if_none_match:?}"
            );
        }
    }

    #[test]
    fn lists_and_weak_tags_are_compared_as_the_standard_says() {
        let listed = of(&["\"7\" ,, \"a,b\",W/\"9\"", "\"8\""], &[]).unwrap();
        let matched: Vec<u64> = (1..12).filter(|revision| listed.is_matched(Some(*revision))).collect();
        assert_eq!(matched, [7, 8], "a weak tag does not match");
        assert!(!listed.is_matched(None));
        assert_eq!(listed.condition_at(Some(8)), Some(Condition::Is(8)));
        assert_eq!(listed.condition_at(Some(9)), None);
        let known = of(&[], &["\"7\", W/\"8\""]).unwrap();
        assert!(known.is_known(Some(7)) && known.is_known(Some(8)) && !known.is_known(Some(9)));
        assert_eq!(known.condition_at(None), Some(Condition::Absent));
        assert_eq!(known.condition_at(Some(8)), None);
        let both = of(&["*"], &["\"7\""]).unwrap();
        assert_eq!(
            [None, Some(7), Some(8)].map(|at| both.condition_at(at)),
            [None, None, Some(Condition::Is(8))]
        );
        assert!(!of(&["\"07\""], &[]).unwrap().is_matched(Some(7)), "tags are compared as text");
    }

    #[test]
    fn what_is_no_tag_is_refused() {
        let many = "\"1\",".repeat(101);
        for line in ["7", "\"7", "\"7\" \"8\"", "*, \"7\"", "w/\"7\"", many.as_str()] {
            assert!(of(&[line], &[]).is_err(), "{line}");
            assert!(of(&[], &[line]).is_err(), "{line}");
        }
    }
}
