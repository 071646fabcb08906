//! Where a request has its token: in `Authorization`, in the WebSocket's subprotocol, in a cookie. Never in its URL, which
//! is logged and shared.

use hubbub_core::ErrorCode;
use hyper::header::{ACCEPT, AUTHORIZATION, COOKIE, HeaderValue, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use hyper::{HeaderMap, Method};

use crate::problem::Problem;

/// The cookie of pages; only requests for an event stream are answered by it.
pub(crate) const COOKIE_NAME: &str = "hubbub_token";
/// The subprotocol that names no token.
const PROTOCOL: &str = "hubbub";
const PROTOCOL_BEARER: &str = "hubbub.bearer.";

pub(crate) fn refused(detail: impl Into<std::borrow::Cow<'static, str>>) -> Problem {
    Problem::new(ErrorCode::Unauthorized, detail)
}

/// The token of a request; `None` = it has none. Two could be read differently by whoever stands in front of the server,
/// so they are refused.
pub(crate) fn token_of<'a>(method: &Method, headers: &'a HeaderMap) -> Result<Option<&'a str>, Problem> {
    let mut bearer = None;
    for value in headers.get_all(AUTHORIZATION) {
        if bearer.replace(value).is_some() {
            return Err(refused("there is more than one Authorization header"));
        }
    }
    let bearer = match bearer.map(|value| value.to_str().map(str::trim)) {
        None => None,
        Some(Ok(value)) => match value.split_once(' ') {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Some(token.trim()),
            _ => return Err(refused("Authorization must be: Bearer and a token")),
        },
        Some(Err(_)) => return Err(refused("Authorization must be ASCII")),
    };
    let mut offered = None;
    for protocol in protocols(headers) {
        if let Some(token) = protocol.strip_prefix(PROTOCOL_BEARER)
            && offered.replace(token).is_some()
        {
            return Err(refused("there is more than one token in Sec-WebSocket-Protocol"));
        }
    }
    match (bearer, offered) {
        (Some(_), Some(_)) => {
            Err(refused("there is a token in Authorization and one in Sec-WebSocket-Protocol"))
        }
        (Some(token), None) | (None, Some(token)) => Ok(Some(token)),
        // Browsers send cookies by themselves, also from pages of others and from other tabs; neither may act as somebody.
        (None, None) if wants_events(method, headers) => cookie(headers),
        (None, None) => Ok(None),
    }
}

/// The header `Authorization`, if there is one and [`token_of`] looks at nothing else.
pub(crate) fn only_header(headers: &HeaderMap) -> Option<&HeaderValue> {
    let mut values = headers.get_all(AUTHORIZATION).into_iter();
    let first = values.next()?;
    (values.next().is_none() && !headers.contains_key(UPGRADE)).then_some(first)
}

/// Whether it is what browsers send for an event stream, which takes no headers of a page. A socket is none.
fn wants_events(method: &Method, headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    *method == Method::GET && !headers.contains_key(UPGRADE) && accept.contains("text/event-stream")
}

fn cookie(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let mut found = None;
    let cookies = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    for pair in cookies.flat_map(|cookies| cookies.split(';')) {
        if let Some((COOKIE_NAME, token)) = pair.trim().split_once('=')
            && found.replace(token).is_some_and(|other| other != token)
        {
            return Err(refused(format!("there are several cookies {COOKIE_NAME}")));
        }
    }
    Ok(found.filter(|token| !token.is_empty()))
}

/// The subprotocols a socket's client offers.
fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).into_iter();
    let values = values.filter(|_| headers.contains_key(UPGRADE)).filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

/// Whether the token is one that a browser sends with the handshake, where it cannot read the answer's status.
pub(crate) fn is_offered(headers: &HeaderMap) -> bool {
    protocols(headers).any(|protocol| protocol.starts_with(PROTOCOL_BEARER))
}

/// The subprotocol to choose: browsers give up when none of those they offer is. That with the token only when there is no
/// other.
pub(crate) fn chosen_protocol(headers: &HeaderMap) -> Option<&str> {
    let offered = || protocols(headers);
    offered().find(|one| *one == PROTOCOL).or_else(|| offered().find(|one| one.starts_with(PROTOCOL_BEARER)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderName;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| {
            (name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap())
        };
        let mut headers = HeaderMap::new();
        for (name, value) in pairs.iter().map(pair) {
            headers.append(name, value);
        }
        headers
    }

    #[test]
    fn a_token_comes_from_one_place() {
        let upgrade = ("upgrade", "websocket");
        let events = ("accept", "text/event-stream");
        for (given, token) in [
            (&[][..], None),
            (&[("authorization", "Bearer a.b.c")], Some("a.b.c")),
            (&[("authorization", "bearer  a ")], Some("a")),
            (&[upgrade, ("sec-websocket-protocol", "hubbub, hubbub.bearer.a.b.c")], Some("a.b.c")),
            // Where there is no socket, there is no subprotocol.
            (&[("sec-websocket-protocol", "hubbub.bearer.a")], None),
            (&[events, ("cookie", "x=1; hubbub_token=c; y=2")], Some("c")),
            (&[events, ("cookie", "hubbub_token=")], None),
            (&[events, ("cookie", "hubbub_token=c"), ("authorization", "Bearer a")], Some("a")),
            // The cookie is for streams only.
            (&[("cookie", "hubbub_token=c")], None),
            (&[("accept", "*/*"), ("cookie", "hubbub_token=c")], None),
            (&[events, upgrade, ("cookie", "hubbub_token=c")], None),
            (
                &[upgrade, ("cookie", "hubbub_token=c"), ("sec-websocket-protocol", "hubbub.bearer.a")],
                Some("a"),
            ),
        ] {
            assert_eq!(token_of(&Method::GET, &headers(given)).unwrap(), token, "{given:?}");
        }
        assert_eq!(token_of(&Method::POST, &headers(&[events, ("cookie", "hubbub_token=c")])).unwrap(), None);
    }

    #[test]
    fn several_tokens_are_refused() {
        let upgrade = ("upgrade", "websocket");
        for given in [
            &[("authorization", "Bearer a"), ("authorization", "Bearer a")][..],
            &[("authorization", "Basic YTpi")],
            &[("authorization", "Bearer")],
            &[("authorization", "Bearer a, Bearer b"), ("authorization", "Bearer b")],
            &[upgrade, ("sec-websocket-protocol", "hubbub.bearer.a, hubbub.bearer.b")],
            &[upgrade, ("authorization", "Bearer a"), ("sec-websocket-protocol", "hubbub.bearer.a")],
            &[("accept", "text/event-stream"), ("cookie", "hubbub_token=a; hubbub_token=b")],
        ] {
            assert!(token_of(&Method::GET, &headers(given)).is_err(), "{given:?}");
        }
    }

    #[test]
    fn the_token_is_not_repeated_if_there_is_another_protocol() {
        let chosen = |offered: &str| {
            let headers = headers(&[("upgrade", "websocket"), ("sec-websocket-protocol", offered)]);
            chosen_protocol(&headers).map(str::to_owned)
        };
        assert_eq!(chosen("hubbub.bearer.a, hubbub").as_deref(), Some("hubbub"));
        assert_eq!(chosen("hubbub.bearer.a").as_deref(), Some("hubbub.bearer.a"));
        assert_eq!(chosen("graphql-ws"), None);
    }
}
