//! Base64 (RFC 4648, with padding), for bytes in JSON.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Appends the encoded bytes.
pub(crate) fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    for chunk in bytes.chunks(3) {
        let three = [0, 1, 2].map(|at| u32::from(chunk.get(at).copied().unwrap_or(0)));
        let bits = three.iter().fold(0, |bits, byte| bits << 8 | byte);
        for place in 0..4 {
            let digit = DIGITS.get((bits >> (18 - 6 * place) & 63) as usize).copied().unwrap_or(b'=');
            out.push(if place <= chunk.len() { digit } else { b'=' });
        }
    }
}

/// The bytes, `None` when it is not base64.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let digits = text.strip_suffix("==").or_else(|| text.strip_suffix('=')).unwrap_or(text).as_bytes();
    let mut out = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for chunk in digits.chunks(4) {
        let mut bits = 0;
        for digit in chunk {
            bits = bits << 6 | u32::try_from(DIGITS.iter().position(|known| known == digit)?).ok()?;
        }
        let missing = 4 - chunk.len();
        bits <<= 6 * missing;
        let bytes = bits.to_be_bytes();
        let (kept, rest) = bytes.get(1..)?.split_at_checked(3 - missing)?;
        // What does not fill a byte must be nothing, so that there is one way to write it.
        if rest.iter().any(|byte| *byte != 0) {
            return None;
        }
        out.extend_from_slice(kept);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back() {
        let known = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("\u{fb}\u{ff}", "w7vDvw=="),
        ];
        for (plain, encoded) in known {
            let mut out = Vec::new();
            encode(plain.as_bytes(), &mut out);
            assert_eq!(out, encoded.as_bytes());
            assert_eq!(decode(encoded).as_deref(), Some(plain.as_bytes()));
        }
        for wrong in ["Z", "Zg", "Zg=", "Zh==", "Zm9=", "Zg==Zg==", "Z===", "====", "Zm 9v", "Zm9-"] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }
}
