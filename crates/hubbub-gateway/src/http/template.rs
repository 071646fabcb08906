//! What a path has in the place of a template's parameters. Both are looked at with each request, for the right to it and by
//! the handler; so they are compared by bytes, and what does not change is found once.

/// The position of `{*` in a template, whose parameter takes the rest of the path.
pub(super) const fn rest_at(template: &str) -> Option<usize> {
    let mut rest = template.as_bytes();
    while let [_, after @ ..] = rest {
        if let [b'{', b'*', ..] = rest {
            return Some(template.len() - rest.len());
        }
        rest = after;
    }
    None
}

/// What the path has for a parameter, still percent-encoded; `None` = one of them has it not. `rest_at` is that of the template.
pub(super) fn parameter<'a>(
    template: &str,
    rest_at: Option<usize>,
    name: &str,
    path: &'a str,
) -> Option<&'a str> {
    match rest_at {
        Some(at) => path.strip_prefix(template.get(..at)?),
        // From the end, because there may be a prefix.
        None => segment_before(path, segments_behind(template, name)?),
    }
}

/// How many segments the template has behind the parameter of this name.
fn segments_behind(template: &str, name: &str) -> Option<usize> {
    let mut behind = 0;
    for (at, byte) in template.bytes().enumerate().rev() {
        match byte {
            b'/' => behind += 1,
            b'{' => {
                let rest = template.get(at + 1..)?.strip_prefix(name);
                if rest.is_some_and(|rest| rest.starts_with('}')) {
                    return Some(behind);
                }
            }
            _ => {}
        }
    }
    None
}

/// The segment of a path before its last `behind` ones, if it has so many.
fn segment_before(path: &str, behind: usize) -> Option<&str> {
    let (mut end, mut left) = (path.len(), behind);
    for (at, byte) in path.bytes().enumerate().rev() {
        if byte == b'/' {
            if left == 0 {
                return path.get(at + 1..end);
            }
            (end, left) = (at, left - 1);
        }
    }
    if left == 0 { path.get(..end) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By whole segments, compared from the end.
    fn plainly<'a>(template: &str, name: &str, path: &'a str) -> Option<&'a str> {
        let wanted = format!("{{{name}}}");
        template.rsplit('/').zip(path.rsplit('/')).find(|(part, _)| *part == wanted).map(|(_, found)| found)
    }

    proptest::proptest! {
        #[test]
        fn segments_are_those_of_the_template(
            path in "[/a%é]{0,12}",
            template in proptest::sample::select(vec![
                "/v1/rooms/{room}", "/v1/rooms/{room}/messages", "/v1/rooms/{room}/members/{user}", "/chat/{room}", "/health",
                "/v1/queues/{queue}/messages/{id}/ack",
            ]),
            name in proptest::sample::select(vec!["room", "user", "queue", "id", "ro", ""]),
        ) {
            proptest::prop_assert_eq!(parameter(template, rest_at(template), name, &path), plainly(template, name, &path));
        }
    }

    #[test]
    fn the_rest_of_a_path_is_one_parameter() {
        let read = |path| parameter("/kv/{*key}", rest_at("/kv/{*key}"), "key", path);
        assert_eq!(read("/kv//a/é"), Some("/a/é"));
        assert_eq!((read("/kv/"), read("/v1/kv/a")), (Some(""), None));
    }
}
