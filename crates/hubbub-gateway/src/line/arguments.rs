//! Parses the second line of a command: `key:value` terms joined by `;`.

use hubbub_core::number::parse_digits;

/// The known terms of a line. Unknown ones are ignored; a known one may appear only once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Terms<'a> {
    id: Option<&'a str>,
    queue: Option<&'a str>,
    sender: Option<&'a str>,
    receiver: Option<&'a str>,
    order: Option<&'a str>,
    pub(super) content: Option<&'a str>,
}

/// A term is missing, repeated, or not what it must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// Whether a line begins as a line of terms does.
pub(super) fn looks_like_terms(line: &[u8]) -> bool {
    let key = line.iter().take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    let bytes = key.count();
    bytes > 0 && line.get(bytes) == Some(&b':')
}

impl<'a> Terms<'a> {
    pub(super) fn read(line: &'a str) -> Result<Self, Malformed> {
        let mut terms = Self::default();
        let mut rest = (!line.is_empty()).then_some(line);
        while let Some(line) = rest {
            let (term, after) = match line.split_once(';') {
                Some((term, after)) => (term, Some(after)),
                None => (line, None),
            };
            let (key, value) = term.split_once(':').ok_or(Malformed)?;
            if key == "content" {
                let whole = line.get("content:".len()..).unwrap_or_default();
                let (content, after) = terms.end_of_content(whole);
                rest = after;
                terms.take(key, content)?;
            } else {
                rest = after;
                terms.take(key, value)?;
            }
        }
        Ok(terms)
    }

    fn take(&mut self, key: &str, value: &'a str) -> Result<(), Malformed> {
        let place = match key {
            "id" => &mut self.id,
            "queue" => &mut self.queue,
            "sender" => &mut self.sender,
            "receiver" => &mut self.receiver,
            "order" => &mut self.order,
            "content" => &mut self.content,
            "" => return Err(Malformed),
            _ => return Ok(()),
        };
        if place.replace(value).is_some() { Err(Malformed) } else { Ok(()) }
    }

    /// A content takes the rest of the line, `;` and `:` included, unless all of what follows its first `;` are terms
    /// of a message that were not given before it: then it was not the last term, and ends there.
    fn end_of_content(&self, whole: &'a str) -> (&'a str, Option<&'a str>) {
        let Some((content, after)) = whole.split_once(';') else { return (whole, None) };
        let mut seen = *self;
        let are_terms = after.split(';').all(|term| {
            let Some((key @ ("sender" | "receiver" | "queue"), value)) = term.split_once(':') else {
                return false;
            };
            parse_digits(value).is_some() && seen.take(key, value).is_ok()
        });
        if are_terms { (content, Some(after)) } else { (whole, None) }
    }

    pub(super) fn id(&self) -> Result<u64, Malformed> {
        self.id.and_then(parse_digits).ok_or(Malformed)
    }

    pub(super) fn queue(&self) -> Result<u64, Malformed> {
        self.queue.and_then(parse_digits).ok_or(Malformed)
    }

    pub(super) fn sender(&self) -> Result<u64, Malformed> {
        self.sender.and_then(parse_digits).ok_or(Malformed)
    }

    /// `None` when it is missing.
    pub(super) fn maybe_queue(&self) -> Result<Option<u64>, Malformed> {
        self.queue.map(|_| self.queue()).transpose()
    }

    pub(super) fn maybe_sender(&self) -> Result<Option<u64>, Malformed> {
        self.sender.map(|_| self.sender()).transpose()
    }

    pub(super) fn maybe_receiver(&self) -> Result<Option<u64>, Malformed> {
        self.receiver.map(|text| parse_digits(text).ok_or(Malformed)).transpose()
    }

    /// Newest first unless said otherwise.
    pub(super) fn is_newest_first(&self) -> Result<bool, Malformed> {
        match self.order {
            None | Some("newest") => Ok(true),
            Some("oldest") => Ok(false),
            Some(_) => Err(Malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn terms_come_in_any_order() {
        for line in [
            "sender:1;receiver:2;queue:3;content:a",
            "content:a;queue:3;receiver:2;sender:1",
            "queue:3;content:a;sender:1;receiver:2",
            "sender:1;queue:3;content:a;receiver:2",
        ] {
            let terms = Terms::read(line).unwrap();
            assert_eq!((terms.sender(), terms.queue()), (Ok(1), Ok(3)), "{line}");
            assert_eq!((terms.maybe_receiver(), terms.content), (Ok(Some(2)), Some("a")), "{line}");
        }
    }

    #[test]
    fn a_last_content_takes_the_rest() {
        for content in ["", "a;b", "a:b!;", "x;receiver:2;y", ";;", "a;queue:9", "a;sender:1x", "a;content:b"]
        {
            let line = format!("queue:1;sender:1;receiver:0;content:{content}");
            assert_eq!(Terms::read(&line).unwrap().content, Some(content));
        }
        let terms = Terms::read("queue:1;sender:1;content:a;b:c;receiver:2").unwrap();
        assert_eq!((terms.content, terms.maybe_receiver()), (Some("a;b:c;receiver:2"), Ok(None)));
    }

    #[test]
    fn what_is_no_term_is_malformed() {
        for line in ["a", ";", "id:1;", ";id:1", ":1", "id:1;;queue:1", "id:1;id:2", "id:1;x"] {
            assert_eq!(Terms::read(line), Err(Malformed), "{line}");
        }
        for value in ["", "x", "-1", "+1", " 1", "1 ", "1.0", "18446744073709551616", "١"] {
            let line = format!("id:{value};receiver:{value};order:{value}");
            let terms = Terms::read(&line).unwrap();
            assert_eq!(
                (terms.id(), terms.maybe_receiver(), terms.is_newest_first()),
                (Err(Malformed), Err(Malformed), Err(Malformed)),
                "{line}"
            );
        }
        assert_eq!(Terms::read("id:007").unwrap().id(), Ok(7));
        assert_eq!(Terms::read("").unwrap(), Terms::default());
    }

    #[test]
    fn terms_are_recognised_by_their_first_key() {
        for line in ["a:", "id:7", "content:\u{fffd}", "user-agent: x;y"] {
            assert!(looks_like_terms(line.as_bytes()), "{line}");
        }
        for line in ["", ":", "ping", "GET / HTTP/1.1", "a b:c", ";a:b"] {
            assert!(!looks_like_terms(line.as_bytes()), "{line}");
        }
    }

    proptest! {
        #[test]
        fn any_line_is_read(line in "\\PC{0,60}|([a-z:;0-9]{0,8}(content|sender|queue|receiver|:|;)){0,8}") {
            let _ = Terms::read(&line);
        }

        #[test]
        fn content_behind_all_other_terms_stays_whole(content in "\\PC{0,40}|([a;:1]|sender:|receiver:|queue:){0,10}") {
            let line = format!("sender:1;receiver:0;queue:2;content:{content}");
            prop_assert_eq!(Terms::read(&line).unwrap().content, Some(content.as_str()));
        }
    }
}
