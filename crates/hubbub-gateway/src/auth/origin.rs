//! Which pages a browser may use this server from.

use hubbub_core::ErrorCode;
use hyper::header::{HOST, ORIGIN};
use hyper::{HeaderMap, Uri};

use crate::problem::Problem;

/// Refuses requests that a page of another site has a browser send. Where callers need no token, or the browser
/// sends it by itself, being reachable from a browser must not be enough. Programs other than browsers send no `Origin`.
pub(crate) fn check_origin(headers: &HeaderMap, uri: &Uri, allowed: &[String]) -> Result<(), Problem> {
    let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or_default();
    // HTTP/2 names the host in `:authority`, which is a part of the URI here.
    let host = match headers.get(HOST) {
        Some(host) => host.to_str().unwrap_or_default(),
        None => uri.authority().map_or("", |authority| authority.as_str()),
    };
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
            let allowed = ["https://chat.example".to_owned()];
            let is_allowed = check_origin(&headers, &Uri::from_static("/kv/a"), &allowed).is_ok();
            // The same over HTTP/2.
            headers.remove(HOST);
            let uri: Uri = format!("https://{host}/kv/a").parse().unwrap();
            assert_eq!(check_origin(&headers, &uri, &allowed).is_ok(), is_allowed);
            is_allowed
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
