//! What an answer that is no success says, be it the server's or that of somebody between.

use std::time::Duration;

use hyper::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER};
use hyper::{HeaderMap, StatusCode};

use crate::error::{Error, Problem};

/// Longest part of an error that is no JSON, in characters.
const STRANGE_MAX: usize = 200;

/// The error of a refusal, also of a proxy's.
pub(crate) fn problem_of(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Error {
    // Serde takes an array of the members, too.
    let object = Some(body).filter(|body| body.trim_ascii_start().starts_with(b"{"));
    let problem = object.and_then(|body| serde_json::from_slice::<Problem>(body).ok());
    let problem = problem.filter(|problem| !problem.code.is_empty());
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let mut problem = problem.unwrap_or_else(|| Problem {
        content_type: Some(header(CONTENT_TYPE).unwrap_or_default().to_owned()),
        ..strange(status, body)
    });
    problem.status = status.as_u16();
    if let Some(location) = header(LOCATION).filter(|_| status.is_redirection()) {
        let location: String = location.chars().take(STRANGE_MAX).collect();
        problem.detail =
            format!("the server answered {status}, to {location}: use the address that this leads to");
    }
    let asked = header(RETRY_AFTER).and_then(|text| text.parse().ok());
    let is_overload = [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE].contains(&status);
    let seconds = asked.unwrap_or(if is_overload { 1.0 } else { 0.0 });
    problem.retry_after = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    problem.into()
}

/// Whether an answer that sends the caller elsewhere, or blames it, may be another one soon. Redirects that are not for good may be
/// a page of maintenance, or a login, of somebody between.
pub(crate) const fn is_of_the_moment(status: u16) -> bool {
    matches!(status, 302 | 303 | 307 | 408 | 429)
}

/// An answer that is not the server's, such as a proxy's, or has no body, as those to `HEAD`: what its status says.
fn strange(status: StatusCode, body: &[u8]) -> Problem {
    let code = match status {
        StatusCode::UNAUTHORIZED => "unauthorized",
        StatusCode::FORBIDDEN => "forbidden",
        StatusCode::NOT_FOUND => "not_found",
        StatusCode::REQUEST_TIMEOUT => "request_timeout",
        StatusCode::TOO_MANY_REQUESTS => "too_many_requests",
        StatusCode::NOT_IMPLEMENTED => "not_supported",
        _ => "unexpected",
    };
    let retryable = is_of_the_moment(status.as_u16())
        || (status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED);
    let mut detail: String = String::from_utf8_lossy(body).chars().take(STRANGE_MAX).collect();
    if detail.is_empty() {
        detail = format!("the server answered {status}");
    }
    Problem { code: code.to_owned(), detail, retryable, ..Problem::default() }
}
