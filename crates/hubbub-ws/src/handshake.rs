//! The HTTP upgrade: the server's answer to a key, and the client's side of it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::error::HandshakeError;

const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// A response header longer than this is no answer to our request.
const RESPONSE_HEADER_BYTES_MAX: usize = 16 * 1024;

/// `Sec-WebSocket-Accept` for a client's `Sec-WebSocket-Key`.
pub fn accept_key(key: &str) -> String {
    let mut sha1 = sha1_smol::Sha1::new();
    sha1.update(key.as_bytes());
    sha1.update(GUID);
    STANDARD.encode(sha1.digest().bytes())
}

/// `Sec-WebSocket-Key` from 16 random bytes.
pub fn client_key(random: [u8; 16]) -> String {
    STANDARD.encode(random)
}

/// Whether a key is what RFC 6455 asks for: 16 bytes in base64.
pub fn is_valid_key(key: &str) -> bool {
    let digit = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/');
    key.strip_suffix("==").is_some_and(|digits| digits.len() == 22 && digits.bytes().all(digit))
}

/// The client's request to speak WebSocket at `path`, which may hold a query.
pub fn request(host: &str, path: &str, key: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
}

/// Reads the server's answer: how many bytes of `response` it is, or `None` when it is not complete yet. What
/// follows it is WebSocket.
pub fn parse_response(response: &[u8], key: &str) -> Result<Option<usize>, HandshakeError> {
    let Some(end) = response.windows(4).position(|four| four == b"\r\n\r\n") else {
        return if response.len() > RESPONSE_HEADER_BYTES_MAX {
            Err(HandshakeError::NotHttp)
        } else {
            Ok(None)
        };
    };
    let head = response.get(..end).unwrap_or_default();
    let head = std::str::from_utf8(head).map_err(|_| HandshakeError::NotHttp)?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 ")).and_then(|rest| rest.get(..3));
    match status.and_then(|status| status.parse().ok()) {
        Some(101) => {}
        Some(other) => return Err(HandshakeError::Status(other)),
        None => return Err(HandshakeError::NotHttp),
    }
    let accept = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("sec-websocket-accept"))
        .map(|(_, value)| value.trim());
    if accept == Some(accept_key(key).as_str()) {
        Ok(Some(end + 4))
    } else {
        Err(HandshakeError::WrongAccept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

    #[test]
    fn the_example_of_the_rfc() {
        assert_eq!(accept_key(KEY), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(client_key(*b"the sample nonce"), KEY);
        assert!(is_valid_key(KEY));
        assert!(!is_valid_key("dGhlIHNhbXBsZSBub25j"));
    }

    #[test]
    fn a_response_is_read_to_its_end() {
        let response = format!(
            "HTTP/1.1 101 Switching Protocols\r\nsec-websocket-ACCEPT: {}\r\n\r\nrest",
            accept_key(KEY)
        );
        assert_eq!(parse_response(response.as_bytes(), KEY), Ok(Some(response.len() - 4)));
        assert_eq!(parse_response(&response.as_bytes()[..30], KEY), Ok(None));
        assert_eq!(parse_response(b"HTTP/1.1 404 Not Found\r\n\r\n", KEY), Err(HandshakeError::Status(404)));
        assert_eq!(parse_response(b"HTTP/1.1 101 Ok\r\n\r\n", KEY), Err(HandshakeError::WrongAccept));
        assert_eq!(parse_response(b"SSH-2.0\r\n\r\n", KEY), Err(HandshakeError::NotHttp));
    }
}
