//! Whether what was refused is sent again.

use std::borrow::Cow;

use hubbub_core::error::ErrorCode;
use serde::Deserialize;

/// What a refusal says of itself.
#[derive(Deserialize)]
struct Refusal<'a> {
    retryable: Option<bool>,
    #[serde(borrow)]
    code: Option<Cow<'a, str>>,
}

/// Whether the same may be sent again after this answer to a request. What stands before a server, such as a proxy, says so by its
/// status only.
pub(crate) fn is_retryable(status: u16, body: &[u8]) -> bool {
    let refusal = serde_json::from_slice::<Refusal<'_>>(body).ok();
    let said = refusal.and_then(|Refusal { retryable, code }| {
        retryable.or_else(|| Some(ErrorCode::parse(&code?)?.is_retryable()))
    });
    said.unwrap_or(matches!(status, 408 | 429 | 500..) && status != ErrorCode::NotSupported.http_status())
}

/// The same by the codes, or the errors that begin with one, of a server that says no more.
pub(crate) fn may_pass<'w>(mut words: impl Iterator<Item = &'w str>) -> bool {
    let is_code = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    words.any(|word| {
        let code = word.split_once(|letter| !is_code(letter)).map_or(word, |(code, _)| code);
        ErrorCode::parse(code).is_some_and(ErrorCode::is_retryable)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_whether_to_send_again() {
        for code in ErrorCode::ALL {
            let (status, wanted) = (code.http_status(), code.is_retryable());
            let problem = format!(r#"{{"code":"{}","status":{status},"retryable":{wanted}}}"#, code.as_str());
            assert_eq!(is_retryable(status, problem.as_bytes()), wanted, "{problem}");
            let short = format!(r#"{{"code":"{}"}}"#, code.as_str());
            assert_eq!(is_retryable(status, short.as_bytes()), wanted, "{short}");
            assert_eq!(may_pass([code.as_str()].into_iter()), wanted, "{code:?}");
        }
        for (status, wanted) in
            [(408, true), (422, false), (429, true), (501, false), (502, true), (503, true)]
        {
            assert_eq!(is_retryable(status, b"<html>Bad Gateway</html>"), wanted, "{status}");
        }
        assert!(may_pass(["too long", "overloaded: later"].into_iter()));
        assert!(
            !may_pass(["message must have 1 to 500 characters"].into_iter()) && !may_pass([].into_iter())
        );
    }
}
