//! Pages of the sites in `server.allowed_origins` may call from a browser and read the answers (CORS, part of the Fetch standard).
//! Answers to calls with cookies stay hidden from them: who needs a token sends it in a header.

use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderValue, ORIGIN, VARY,
};
use hyper::{HeaderMap, Method, Response, StatusCode};

use super::{Body, empty};
use crate::auth::origin::is_listed;

/// Two hours, the most that Chromium takes.
const MAX_AGE: HeaderValue = HeaderValue::from_static("7200");
/// All: that stands for none but with cookies.
const EVERY_HEADER: HeaderValue = HeaderValue::from_static("*");
const BY_ORIGIN: HeaderValue = HeaderValue::from_static("origin");

/// What a request of a listed site's page says.
#[derive(Debug)]
pub(super) struct CrossOrigin {
    origin: HeaderValue,
    /// The headers that the page wants to send, where it asks first.
    wanted: Option<HeaderValue>,
    is_preflight: bool,
}

impl CrossOrigin {
    /// `None` for every other request.
    pub(super) fn of(method: &Method, headers: &HeaderMap, allowed: &[String]) -> Option<Self> {
        let origin = headers.get(ORIGIN).filter(|origin| is_listed(origin, allowed))?.clone();
        let is_preflight = *method == Method::OPTIONS && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
        let wanted = headers.get(ACCESS_CONTROL_REQUEST_HEADERS).filter(|_| is_preflight).cloned();
        Some(Self { origin, wanted, is_preflight })
    }

    /// The answer to a page that asks whether it may call an endpoint which takes `methods`. `None` if it does not ask.
    pub(super) fn preflight(&self, methods: &str) -> Option<Response<Body>> {
        let methods = HeaderValue::from_str(methods).ok().filter(|_| self.is_preflight)?;
        let mut response = empty(StatusCode::NO_CONTENT);
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, methods);
        if let Some(wanted) = &self.wanted {
            headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
        }
        headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
        Some(response)
    }

    /// Lets the page read an answer, also one that refuses it.
    pub(super) fn allow(self, headers: &mut HeaderMap) {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, self.origin);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EVERY_HEADER);
    }
}

/// Where sites are listed, answers differ by who asks: a cache shall not give to one what another got.
pub(super) fn mark_varying(headers: &mut HeaderMap, allowed: &[String]) {
    if !allowed.is_empty() {
        headers.append(VARY, BY_ORIGIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(method: &Method, given: &[(&'static str, &'static str)]) -> Option<CrossOrigin> {
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        CrossOrigin::of(method, &headers, &["https://chat.example".to_owned()])
    }

    #[test]
    fn only_pages_of_listed_sites_are_allowed() {
        for origin in ["https://evil.example", "null", "", "http://chat.example", "https://chat.example.evil"]
        {
            assert!(of(&Method::GET, &[("origin", origin)]).is_none(), "{origin}");
        }
        assert!(of(&Method::GET, &[]).is_none());
        let page = of(&Method::GET, &[("origin", "https://chat.example")]).unwrap();
        assert!(page.preflight("GET").is_none());
        let mut headers = HeaderMap::new();
        page.allow(&mut headers);
        assert_eq!(headers[ACCESS_CONTROL_ALLOW_ORIGIN], "https://chat.example");
    }

    #[test]
    fn a_page_that_asks_first_learns_what_it_may() {
        let origin = ("origin", "https://chat.example");
        let asks = ("access-control-request-method", "PUT");
        let wants = ("access-control-request-headers", "authorization,content-type");
        let answer = of(&Method::OPTIONS, &[origin, asks, wants]).unwrap().preflight("GET, PUT").unwrap();
        assert_eq!(answer.status(), StatusCode::NO_CONTENT);
        assert_eq!(answer.headers()[ACCESS_CONTROL_ALLOW_METHODS], "GET, PUT");
        assert_eq!(answer.headers()[ACCESS_CONTROL_ALLOW_HEADERS], wants.1);
        let plain = of(&Method::OPTIONS, &[origin, asks]).unwrap().preflight("GET").unwrap();
        assert!(!plain.headers().contains_key(ACCESS_CONTROL_ALLOW_HEADERS));
        assert!(of(&Method::OPTIONS, &[origin]).unwrap().preflight("GET").is_none());
    }
}
