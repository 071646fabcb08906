//! The check of every text that is stored, whatever protocol it came by, and what of a client's text is repeated to it.

use std::borrow::Cow;
use std::fmt::Display;

use crate::id::ID_BYTES_MAX;

/// Checks a text's content and size; the error is the rule that it breaks. `chars_max` = `None` where only bytes count.
pub fn check_text(text: &str, chars_max: Option<usize>, bytes_max: usize) -> Result<(), Cow<'static, str>> {
    if text.as_bytes().contains(&0) {
        return Err("must not contain U+0000".into());
    }
    match chars_max {
        // Characters are counted only where bytes do not already decide.
        Some(max) if text.len() > max && text.chars().count() > max => {
            Err(format!("must be 1 to {max} characters").into())
        }
        _ if text.len() > bytes_max => Err(format!("must be at most {bytes_max} bytes").into()),
        _ => Ok(()),
    }
}

/// Characters of what a client sent that an error repeats: every id, whole.
const REPEATED_CHARS: usize = ID_BYTES_MAX;
/// Characters of what the parser says about JSON, which repeats values and names of it.
const JSON_FAULT_CHARS: usize = 256;

/// What an error repeats of a client's text: its beginning, so that nobody has the server make or keep long ones.
pub fn repeated(text: &str) -> Cow<'_, str> {
    shortened(text, REPEATED_CHARS)
}

/// What is wrong with JSON of a client, and where.
pub fn json_fault(error: &serde_json::Error) -> String {
    let fault = error.to_string();
    match shortened(&fault, JSON_FAULT_CHARS) {
        // The place stands at the end.
        Cow::Owned(short) => format!("{short} at line {} column {}", error.line(), error.column()),
        Cow::Borrowed(_) => fault,
    }
}

fn shortened(text: &str, chars_max: usize) -> Cow<'_, str> {
    let rest = text.char_indices().nth(chars_max);
    match rest.and_then(|(end, _)| text.get(..end)) {
        Some(beginning) => format!("{beginning}…").into(),
        None => text.into(),
    }
}

/// A count with its noun: `1 message`, `2 messages`.
pub fn counted(count: impl Display, noun: &str) -> String {
    let count = count.to_string();
    match noun.strip_suffix('y') {
        _ if count == "1" => format!("{count} {noun}"),
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{count} {stem}ies"),
        _ => format!("{count} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_rule_is_named() {
        let rule = |text, chars_max, bytes_max| check_text(text, chars_max, bytes_max).err();
        assert_eq!(rule("", Some(0), 0), None);
        assert_eq!(rule("äöü", Some(3), 6), None);
        assert_eq!(rule("äöü", Some(2), 6).unwrap(), "must be 1 to 2 characters");
        assert_eq!(rule("äöü", Some(3), 5).unwrap(), "must be at most 5 bytes");
        assert_eq!(rule("äöü", None, 5).unwrap(), "must be at most 5 bytes");
        assert_eq!(rule("a\0b", None, 9).unwrap(), "must not contain U+0000");
    }

    #[test]
    fn one_is_not_many() {
        let said = [(0, "room"), (1, "room"), (2, "room"), (1, "copy"), (3, "copy"), (3, "key")];
        let said = said.map(|(count, noun)| counted(count, noun));
        assert_eq!(said, ["0 rooms", "1 room", "2 rooms", "1 copy", "3 copies", "3 keys"]);
    }

    #[test]
    fn of_a_long_text_the_beginning_is_repeated() {
        let most = "ä".repeat(REPEATED_CHARS);
        assert_eq!(repeated(&most), most);
        assert_eq!(repeated(&format!("{most}b")), format!("{most}…"));
    }

    #[test]
    fn a_long_fault_of_json_names_its_place() {
        let fault = |text: &str| json_fault(&serde_json::from_str::<u8>(text).unwrap_err());
        assert_eq!(fault("\"a\""), "invalid type: string \"a\", expected u8 at line 1 column 3");
        let long = fault(&format!("\"{}\"", "ä".repeat(10_000)));
        assert!(
            long.starts_with("invalid type: string \"ä") && long.ends_with("ä… at line 1 column 20002"),
            "{long}"
        );
        assert!(long.chars().count() < 300, "{long}");
    }

    proptest! {
        #[test]
        fn a_text_passes_if_it_is_short_and_has_no_nul(text in "\\PC{0,12}|[a\0]{0,4}", chars in 0..12_usize, bytes in 0..30_usize) {
            let is_right = !text.contains('\0') && text.chars().count() <= chars && text.len() <= bytes;
            prop_assert_eq!(check_text(&text, Some(chars), bytes).is_ok(), is_right);
        }
    }
}
