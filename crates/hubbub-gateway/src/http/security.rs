//! Headers that every answer has, so that a browser makes no more of it than it is, and keeps none of it.

use hyper::HeaderMap;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderValue, REFERRER_POLICY, STRICT_TRANSPORT_SECURITY,
    X_CONTENT_TYPE_OPTIONS,
};

/// For everything but pages, which have a policy of their own: if it is shown, nothing in it is run, loaded or framed.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
);
const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");
const NO_REFERRER: HeaderValue = HeaderValue::from_static("no-referrer");
/// What is answered holds for its caller and for now; a browser could show it to the next person.
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
/// Two years. Names below this one are not for this server to decide about.
const HTTPS_ONLY: HeaderValue = HeaderValue::from_static("max-age=63072000");

/// Adds what the endpoint did not say itself.
pub(super) fn add_headers(headers: &mut HeaderMap, is_encrypted: bool) {
    headers.insert(X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    headers.insert(REFERRER_POLICY, NO_REFERRER);
    headers.entry(CONTENT_SECURITY_POLICY).or_insert(POLICY);
    headers.entry(CACHE_CONTROL).or_insert(NO_STORE);
    if is_encrypted {
        headers.insert(STRICT_TRANSPORT_SECURITY, HTTPS_ONLY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_endpoint_says_itself_stays() {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("script-src 'self'"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        add_headers(&mut headers, false);
        assert_eq!(headers[CONTENT_SECURITY_POLICY], "script-src 'self'");
        assert_eq!(headers[CACHE_CONTROL], "no-cache");
        assert_eq!(headers[X_CONTENT_TYPE_OPTIONS], "nosniff");
        assert!(!headers.contains_key(STRICT_TRANSPORT_SECURITY), "only with TLS");
        let mut headers = HeaderMap::new();
        add_headers(&mut headers, true);
        assert_eq!(headers[CACHE_CONTROL], "no-store");
        assert!(headers.contains_key(STRICT_TRANSPORT_SECURITY));
        assert!(headers[CONTENT_SECURITY_POLICY].to_str().unwrap().contains("frame-ancestors 'none'"));
    }
}
