//! URLs as they may be shown: in logs, in errors, in reports.

/// The text with `***` instead of passwords, in the authority and in the query of a URL. If a password makes the parts
/// ambiguous, too much is hidden rather than too little.
pub fn masked(text: &str) -> String {
    // Those of the query first: they may hold an `@`.
    let mut parts = text.split("password=");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        shown.push_str("password=***");
        shown.extend(part.split_once('&').into_iter().flat_map(|(_, behind)| ["&", behind]));
    }
    if let Some((scheme, rest)) = shown.split_once("://")
        && let Some((user, behind)) = rest.rsplit_once('@')
        && let Some((name, _)) = user.split_once(':')
    {
        return format!("{scheme}://{name}:***@{behind}");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::masked;

    #[test]
    fn passwords_are_masked() {
        let cases = [
            ("embedded:./data", "embedded:./data"),
            ("postgres://ada@db:5432/chat", "postgres://ada@db:5432/chat"),
            (
                "postgres://ada:se/cr?et@db,db2/chat?sslmode=require",
                "postgres://ada:***@db,db2/chat?sslmode=require",
            ),
            ("postgres://ada:se@cret@db/chat", "postgres://ada:***@db/chat"),
            ("postgres://db/chat?password=secret&user=ada", "postgres://db/chat?password=***&user=ada"),
            ("postgres://db/chat?password=sec@ret", "postgres://db/chat?password=***"),
            (
                "postgres://me:secret@db/chat?sslpassword=secret&password=sec@ret&user=me",
                "postgres://me:***@db/chat?sslpassword=***&password=***&user=me",
            ),
            ("amqp://guest:secret@mq/v", "amqp://guest:***@mq/v"),
            ("scylla://ada:secret@a,b:9042/chat", "scylla://ada:***@a,b:9042/chat"),
        ];
        for (url, shown) in cases {
            assert_eq!(masked(url), shown);
        }
    }
}
