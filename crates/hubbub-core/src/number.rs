//! Whole numbers as clients write them: decimal digits and nothing else.

/// What a field must be that is read by these functions.
pub const WHOLE_NUMBER_RULE: &str = "must be a whole number from 0 on";

/// The number, however many zeros it begins with. `str::parse` alone would take a sign.
pub fn parse_digits(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// The number, if `text` is the one way to write it.
pub fn parse_canonical(text: &str) -> Option<u64> {
    parse_digits(text).filter(|_| text == "0" || !text.starts_with('0'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_digits_are_a_number() {
        for text in ["", "x", "-1", "+1", " 1", "1 ", "1.0", "1e3", "18446744073709551616", "١"] {
            assert_eq!((parse_digits(text), parse_canonical(text)), (None, None), "{text}");
        }
        assert_eq!((parse_digits("007"), parse_canonical("007")), (Some(7), None));
        assert_eq!((parse_digits("00"), parse_canonical("00")), (Some(0), None));
    }

    proptest! {
        #[test]
        fn a_number_that_was_written_is_read(number: u64) {
            prop_assert_eq!(parse_canonical(&number.to_string()), Some(number));
            prop_assert_eq!(parse_digits(&number.to_string()), Some(number));
        }

        #[test]
        fn one_text_is_canonical_for_each_number(text in "[0-9]{1,20}|\\PC{0,8}") {
            let canonical = parse_digits(&text).filter(|number| number.to_string() == text);
            prop_assert_eq!(parse_canonical(&text), canonical);
        }
    }
}
