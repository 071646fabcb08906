//! Lists of the server, page by page.

use hubbub_client::{Answer, Error};
use hyper::StatusCode;
use serde_json::Value;

use super::connection::{Connection, failed_at, json};
use super::entries;
use super::session::with_query;

/// Entries of a list in one request.
const PAGE: usize = 500;

/// How many entries a request asks for: fewer once the server has refused to give so many, as it may be set up to
/// (`limits.page_messages`).
pub(super) struct PageSize(usize);

impl PageSize {
    pub(super) fn new() -> Self {
        Self(PAGE)
    }

    /// The answer to the path for a number of entries, at most `wanted`.
    pub(super) async fn read(
        &mut self,
        connection: &mut Connection,
        wanted: usize,
        path: impl Fn(usize) -> String,
    ) -> Result<Answer, Error> {
        loop {
            let asked = self.0.min(wanted);
            let answer = connection.read(&path(asked)).await;
            match answer.as_ref().err().and_then(|refused| fewer(refused, asked)) {
                Some(fewer) => self.0 = fewer,
                None => return answer,
            }
        }
    }
}

/// With how many entries to ask again after a refusal of so many: the most that it names, else half; `None` if the number was
/// not what it is about.
fn fewer(refused: &Error, asked: usize) -> Option<usize> {
    if refused.status != StatusCode::UNPROCESSABLE_ENTITY {
        return None;
    }
    let fault = refused.errors.iter().find(|fault| fault.field == "limit")?;
    let named =
        fault.rule.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).max();
    let fewer = named.filter(|named| *named < asked).unwrap_or(asked / 2);
    (fewer > 0).then_some(fewer)
}

/// A list of the server, page by page.
pub(super) struct Pages {
    path: String,
    name: &'static str,
    after: Option<String>,
    size: PageSize,
    /// Number of entries to read at most.
    left: usize,
}

impl Pages {
    /// The list `name` of the answers to `path`, which may have a query.
    pub(super) fn new(path: String, name: &'static str, limit: usize) -> Self {
        Self { path, name, after: None, size: PageSize::new(), left: limit }
    }

    /// The next page; `None` at the end.
    pub(super) async fn next(&mut self, connection: &mut Connection) -> anyhow::Result<Option<Vec<Value>>> {
        if self.left == 0 {
            return Ok(None);
        }
        let (list, after) = (&self.path, self.after.take());
        let path =
            |limit: usize| with_query(list, [("limit", Some(limit.to_string())), ("after", after.clone())]);
        let answer = self.size.read(connection, self.left, path).await;
        let page = json(list, answer.map_err(|error| failed_at(list, &error))?)?.body;
        let found = entries(&page, self.name)?.to_vec();
        self.after = page.get("next").and_then(Value::as_str).map(str::to_owned);
        self.left = if self.after.is_some() { self.left.saturating_sub(found.len()) } else { 0 };
        Ok(Some(found))
    }
}

#[cfg(test)]
mod tests {
    use hubbub_client::{Fault, Problem};

    use super::*;

    fn refusal(status: u16, field: &str, rule: &str) -> Error {
        let errors = vec![Fault { field: field.into(), rule: rule.into() }];
        Problem { status, errors, ..Problem::default() }.into()
    }

    #[test]
    fn a_refused_number_becomes_the_most_that_is_named() {
        assert_eq!(fewer(&refusal(422, "limit", "must be between 1 and 100"), 500), Some(100));
        assert_eq!(fewer(&refusal(422, "limit", "is too large"), 500), Some(250));
        // What is named is no help: so that it ends, it is less each time.
        assert_eq!(fewer(&refusal(422, "limit", "must be between 1 and 1000"), 500), Some(250));
        assert_eq!(fewer(&refusal(422, "limit", "must be between 1 and 1"), 1), None);
        assert_eq!(fewer(&refusal(422, "after", "must be between 1 and 100"), 500), None);
        assert_eq!(fewer(&refusal(503, "limit", "must be between 1 and 100"), 500), None);
    }
}
