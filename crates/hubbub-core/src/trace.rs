//! W3C Trace Context: the trace that an operation belongs to, as the header `traceparent` says it.

use std::fmt;

/// A span of a trace that other spans are children of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace; not 0.
    pub trace: u128,
    /// The span; not 0.
    pub span: u64,
}

/// Bytes of a header of version 00.
const HEADER_BYTES: usize = 55;

impl TraceContext {
    /// Reads a `traceparent` header, and whether its sender records the trace. `None` = it has no valid form, and counts as
    /// missing.
    pub fn parse(header: &[u8]) -> Option<(Self, bool)> {
        let (head, rest) = header.split_at_checked(HEADER_BYTES)?;
        let mut parts = str::from_utf8(head).ok()?.split('-');
        let mut part = |digits: usize| {
            let part = parts.next().filter(|part| part.len() == digits)?;
            let is_hex = part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            u128::from_str_radix(part, 16).ok().filter(|_| is_hex)
        };
        let (version, trace, span, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
        // Later versions may add fields behind another hyphen.
        let is_whole =
            if version == 0 { rest.is_empty() } else { rest.first().is_none_or(|byte| *byte == b'-') };
        let span = u64::try_from(span).ok()?;
        let is_valid = version != 0xff && trace != 0 && span != 0 && is_whole;
        is_valid.then_some((Self { trace, span }, flags & 1 == 1))
    }
}

/// The header, saying that the trace is recorded.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-01", self.trace, self.span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn headers_are_read_as_the_standard_says() {
        let context =
            TraceContext { trace: 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c, span: 0xb7ad_6b71_6920_3331 };
        assert_eq!(TraceContext::parse(HEADER.as_bytes()), Some((context, true)));
        assert_eq!(context.to_string(), HEADER);
        for (header, is_recorded) in [
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", false),
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-02", false),
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03", true),
            ("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", true),
            ("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what", true),
        ] {
            assert_eq!(TraceContext::parse(header.as_bytes()), Some((context, is_recorded)), "{header}");
        }
    }

    #[test]
    fn other_headers_count_as_missing() {
        for header in [
            "",
            "00",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what",
            "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01what",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0",
            "00-0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b71692033310-01",
            "00-0af7651916cd43dd8448eb211c80319\u{e9}-b7ad6b7169203331-01",
        ] {
            assert_eq!(TraceContext::parse(header.as_bytes()), None, "{header}");
        }
    }
}
