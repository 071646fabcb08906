//! Which pages a browser may use this server from.

use hubbub_core::ErrorCode;
use hyper::HeaderMap;
use hyper::header::{HOST, ORIGIN};

use crate::problem::Problem;

/// Refuses requests that a page of another site has a browser send. Where callers need no token, or the browser
/// sends it by itself, being reachable from a browser must not be enough. Programs other than browsers send no `Origin`.
pub(crate) fn check_origin(headers: &HeaderMap, allowed: &[String]) -> Result<(), Problem> {
    let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or_default();
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let site = origin.split_once("://").map_or("", |(_, site)| site);
    let is_own = !site.is_empty() && site.eq_ignore_ascii_case(host);
    if is_own || allowed.iter().any(|other| other.eq_ignore_ascii_case(origin)) {
        return Ok(());
    }
    let detail = format!("pages of {origin} may not act here; server.allowed_origins lists those that may");
    Err(Problem::new(ErrorCode::Forbidden, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_other_sites_are_refused() {
        let check = |origin: Option<&str>, host: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, host.parse().unwrap());
            if let Some(origin) = origin {
                headers.insert(ORIGIN, origin.parse().unwrap());
            }
            check_origin(&headers, &["https://chat.example".to_owned()]).is_ok()
        };
        assert!(check(None, "127.0.0.1:8080"));
        assert!(check(Some("http://127.0.0.1:8080"), "127.0.0.1:8080"));
        assert!(check(Some("https://chat.example"), "127.0.0.1:8080"));
        for origin in
            ["http://evil.example", "http://127.0.0.1:8081", "null", "", "https://chat.example.evil"]
        {
            assert!(!check(Some(origin), "127.0.0.1:8080"), "{origin}");
        }
    }
}
