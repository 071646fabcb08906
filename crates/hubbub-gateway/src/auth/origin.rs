//! Which pages a browser may use this server from.

use std::net::Ipv4Addr;

use hubbub_core::ErrorCode;
use hyper::header::{HOST, ORIGIN};
use hyper::{HeaderMap, Uri};

use crate::problem::Problem;

/// Refuses requests that a page of another site has a browser send. Where callers need no token, or the browser
/// sends it by itself, being reachable from a browser must not be enough. Programs other than browsers send no `Origin`.
pub(crate) fn check_origin(headers: &HeaderMap, uri: &Uri, allowed: &[String]) -> Result<(), Problem> {
    let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or_default();
    let host = host_of(headers, uri);
    let is_own = host.is_some_and(|host| is_of_host(origin, host));
    if is_own || allowed.iter().any(|other| other.eq_ignore_ascii_case(origin)) {
        return Ok(());
    }
    let detail = format!("pages of {origin} may not act here; server.allowed_origins lists those that may");
    Err(Problem::new(ErrorCode::Forbidden, detail))
}

/// Refuses requests to a name that this server need not have. A site can let its own name point at this machine for a moment, so
/// that its pages count as this server's (DNS rebinding). Where no token is asked for and only programs of this machine are let in,
/// such a page would be one of them. A name of one label belongs to no site.
pub(crate) fn check_host(headers: &HeaderMap, uri: &Uri, allowed: &[String]) -> Result<(), Problem> {
    let host = host_of(headers, uri);
    if host.is_some_and(|host| is_known(host, allowed)) {
        return Ok(());
    }
    let detail = format!(
        "this server asks for no token and does not know the name {:?}; call it by its address or as localhost, list the \
         origin in server.allowed_origins, or ask for tokens (auth.secret)",
        host.unwrap_or_default()
    );
    Err(Problem::new(ErrorCode::Forbidden, detail))
}

/// Asked for every request: what is usual comes first, and nothing is copied.
fn is_known(host: &str, allowed: &[String]) -> bool {
    let name =
        host.rsplit_once(':').map_or(host, |(name, port)| if port.ends_with(']') { host } else { name });
    let name = name.strip_suffix('.').unwrap_or(name);
    name.parse::<Ipv4Addr>().is_ok()
        || name.starts_with('[')
        || !name.contains('.')
        || name.rsplit('.').next().is_some_and(|label| label.eq_ignore_ascii_case("localhost"))
        || allowed.iter().any(|origin| is_of_host(origin, host))
}

/// Whether an origin is that of a host, with the port unless it is the scheme's own.
fn is_of_host(origin: &str, host: &str) -> bool {
    origin.split_once("://").is_some_and(|(_, site)| !site.is_empty() && site.eq_ignore_ascii_case(host))
}

/// HTTP/2 names the host in `:authority`, which is a part of the URI here. Empty if there is none, `None` if it is no text.
fn host_of<'a>(headers: &'a HeaderMap, uri: &'a Uri) -> Option<&'a str> {
    match headers.get(HOST) {
        Some(host) => host.to_str().ok(),
        None => Some(uri.authority().map_or("", |authority| authority.as_str())),
    }
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

    #[test]
    fn names_that_a_site_may_have_are_refused() {
        let check = |host: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, host.parse().unwrap());
            let allowed = ["https://chat.example".to_owned(), "http://chat.example:8080".to_owned()];
            check_host(&headers, &Uri::from_static("/kv/a"), &allowed).is_ok()
        };
        for host in [
            "127.0.0.1:8080",
            "127.0.0.1",
            "10.1.2.3:80",
            "[::1]:8080",
            "[::1]",
            "localhost",
            "LOCALHOST:8080",
            "localhost.",
            "",
            "a.localhost:1",
            "hubbub:8080",
            "chat.example",
            "Chat.example:8080",
        ] {
            assert!(check(host), "{host}");
        }
        for host in [
            "evil.example:8080",
            "evil.example",
            "127.0.0.1.evil.example",
            "chat.example:81",
            "evil.example.",
            "a.b:c]",
        ] {
            assert!(!check(host), "{host}");
        }
    }
}
