//! Which pages a browser may use this server from.

use std::net::Ipv4Addr;

use hubbub_core::ErrorCode;
use hyper::header::{HOST, HeaderValue, ORIGIN};
use hyper::{HeaderMap, Uri, Version};

use crate::problem::Problem;

/// Refuses requests that a page of another site has a browser send. Where callers need no token, or the browser
/// sends it by itself, being reachable from a browser must not be enough. Programs other than browsers send no `Origin`.
pub(crate) fn check_origin(headers: &HeaderMap, uri: &Uri, allowed: &[String]) -> Result<(), Problem> {
    let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
    let named = origin.to_str().unwrap_or_default();
    let host = host_of(headers, uri);
    if host.is_some_and(|host| is_of_host(named, host)) || is_listed(origin, allowed) {
        return Ok(());
    }
    let detail = format!("pages of {named} may not act here; server.allowed_origins lists those that may");
    Err(Problem::new(ErrorCode::Forbidden, detail))
}

/// Whether an origin is one of those in `server.allowed_origins`.
pub(crate) fn is_listed(origin: &HeaderValue, allowed: &[String]) -> bool {
    let Ok(origin) = origin.to_str() else { return false };
    allowed.iter().any(|listed| without_default_port(listed).eq_ignore_ascii_case(origin))
}

/// Refuses requests that do not say for certain which host they are for, which others on the way may read differently (RFC 9112,
/// 3.2).
pub(crate) fn check_one_host(version: Version, headers: &HeaderMap) -> Result<(), Problem> {
    match headers.get_all(HOST).iter().count() {
        1 => Ok(()),
        0 if version != Version::HTTP_11 => Ok(()),
        _ => Err(Problem::new(ErrorCode::Malformed, "there must be exactly one header Host")),
    }
}

/// Refuses requests to a name that this server need not have. A site can let its own name point at this machine for a moment, so
/// that its pages count as this server's (DNS rebinding). Where no token is asked for, such a page could do whatever a program of
/// this machine can. A name of one label belongs to no site.
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

/// Whether an origin is that of a host. Either may have the port that is the scheme's own.
fn is_of_host(origin: &str, host: &str) -> bool {
    let Some((scheme, site)) = without_default_port(origin).split_once("://") else { return false };
    let is_own = |port: &str| Some(port) == default_port(scheme);
    let host = host.rsplit_once(':').filter(|(_, port)| is_own(port)).map_or(host, |(name, _)| name);
    !site.is_empty() && site.eq_ignore_ascii_case(host)
}

/// An origin as browsers send it.
fn without_default_port(origin: &str) -> &str {
    let own = origin.split_once("://").and_then(|(scheme, _)| default_port(scheme));
    let short = own.and_then(|port| origin.strip_suffix(port)?.strip_suffix(':'));
    short.unwrap_or(origin)
}

fn default_port(scheme: &str) -> Option<&'static str> {
    match scheme {
        "https" => Some("443"),
        "http" => Some("80"),
        _ => None,
    }
}

/// The host in the URI comes first: there HTTP/2 has its `:authority`, and HTTP/1.1 what a proxy is asked for. Empty if there is none,
/// `None` if it is no text.
fn host_of<'a>(headers: &'a HeaderMap, uri: &'a Uri) -> Option<&'a str> {
    match (uri.authority(), headers.get(HOST)) {
        (Some(authority), _) => Some(authority.as_str()),
        (None, Some(host)) => host.to_str().ok(),
        (None, None) => Some(""),
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
            let allowed = ["https://chat.example".to_owned(), "https://other.example:443".to_owned()];
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
        assert!(check(Some("https://other.example"), "127.0.0.1:8080"));
        assert!(check(Some("http://127.0.0.1"), "127.0.0.1:80"));
        for origin in
            ["http://evil.example", "http://127.0.0.1:8081", "null", "", "https://chat.example.evil"]
        {
            assert!(!check(Some(origin), "127.0.0.1:8080"), "{origin}");
        }
    }

    #[test]
    fn a_request_names_one_host() {
        let check = |version, hosts: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append(HOST, HeaderValue::from_static(host));
            }
            check_one_host(version, &headers).is_ok()
        };
        for version in [Version::HTTP_10, Version::HTTP_11, Version::HTTP_2] {
            assert_eq!(check(version, &[]), version != Version::HTTP_11, "{version:?}");
            assert!(check(version, &["localhost"]) && check(version, &[""]), "{version:?}");
            assert!(!check(version, &["localhost", "localhost"]), "{version:?}");
        }
        // The one in the URI is the one that counts.
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_static("localhost"));
        let check = |uri| check_host(&headers, &Uri::from_static(uri), &[]).is_ok();
        assert!(check("/kv/a") && check("http://127.0.0.1:8080/kv/a"));
        assert!(!check("http://evil.example/kv/a"));
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
            "chat.example:443",
            "Chat.example:8080",
        ] {
            assert!(check(host), "{host}");
        }
        for host in [
            "evil.example:8080",
            "evil.example",
            "127.0.0.1.evil.example",
            "chat.example:81",
            "chat.example:80",
            "evil.example.",
            "a.b:c]",
        ] {
            assert!(!check(host), "{host}");
        }
    }
}
