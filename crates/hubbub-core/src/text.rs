//! The check of every text that is stored, whatever protocol it came by.

use std::borrow::Cow;

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

    proptest! {
        #[test]
        fn a_text_passes_if_it_is_short_and_has_no_nul(text in "\\PC{0,12}|[a\0]{0,4}", chars in 0..12_usize, bytes in 0..30_usize) {
            let is_right = !text.contains('\0') && text.chars().count() <= chars && text.len() <= bytes;
            prop_assert_eq!(check_text(&text, Some(chars), bytes).is_ok(), is_right);
        }
    }
}
