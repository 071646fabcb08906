//! Names for the states of messages in SQL texts: `state in ({delayed}, {leased})`.
#![expect(clippy::indexing_slicing, clippy::panic, reason = "only the compiler runs this")]

use super::working_set::State;

const fn named(name: &[u8]) -> State {
    match name {
        b"ready" => State::Ready,
        b"delayed" => State::Delayed,
        b"leased" => State::Leased,
        b"exhausted" => State::Exhausted,
        b"expired" => State::Expired,
        _ => panic!("no state of a message has this name"),
    }
}

/// `text` with the numbers of states in place of their names, in the first bytes of a buffer; and how many these are.
pub(super) const fn numbered<const TEXT: usize>(text: &str) -> ([u8; TEXT], usize) {
    let (mut rest, mut numbered, mut length) = (text.as_bytes(), [0; TEXT], 0);
    while let [next, behind @ ..] = rest {
        (numbered[length], rest) = (*next, behind);
        if *next == b'{' {
            let mut end = 0;
            while behind[end] != b'}' {
                end += 1;
            }
            numbered[length] = b'0' + named(behind.split_at(end).0) as u8;
            rest = behind.split_at(end + 1).1;
        }
        length += 1;
    }
    (numbered, length)
}

/// An SQL text with the number of a state ([`State`]) in place of each name in braces: `{ready}`. Other names do not compile.
macro_rules! with_states {
    ($text:expr) => {{
        const TEXT: &str = $text;
        const NUMBERED: &([u8; TEXT.len()], usize) = &$crate::queues::states::numbered(TEXT);
        match str::from_utf8(NUMBERED.0.split_at(NUMBERED.1).0) {
            Ok(text) => text,
            Err(_) => panic!("an ASCII character is never a part of another one"),
        }
    }};
}
pub(super) use with_states;

/// [`statements!`](crate::db::statements) with names of states in their texts.
macro_rules! queue_statements {
    ($($(#[$doc:meta])* $vis:vis $name:ident($what:expr) = $text:expr;)*) => {
        $crate::db::statements! {
            $($(#[$doc])* $vis $name($what) = $crate::queues::states::with_states!($text);)*
        }
    };
}
pub(super) use queue_statements;

#[cfg(test)]
mod tests {
    #[test]
    fn states_are_numbered_in_texts() {
        let text = with_states!("{ready}, {delayed}, {leased}, {exhausted}, {expired}: état in ({ready})");
        assert_eq!(text, "0, 1, 2, 3, 4: état in (0)");
        assert_eq!(with_states!(""), "");
    }
}
