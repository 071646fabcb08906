//! What a command prints: answers on standard output; errors and notices on standard error, with `--json` as JSON lines.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use hubbub_core::text::counted;
use serde_json::{Map, Value, json};

/// How this process prints; set once, before a command runs.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// From now on errors and notices are JSON lines.
pub(crate) fn use_json() {
    IS_JSON.store(true, Ordering::Relaxed);
}

/// Nobody reads standard output any more, as behind `head`. The program ends without a word.
#[derive(Debug, thiserror::Error)]
#[error("standard output is closed")]
struct ClosedOutput;

/// Standard output, which knows when nobody reads it any more.
pub(crate) struct Stdout;

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::stdout().write(bytes).map_err(closed)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush().map_err(closed)
    }
}

fn closed(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => io::Error::new(io::ErrorKind::BrokenPipe, ClosedOutput),
        _ => error,
    }
}

/// Whether a command failed only because nobody reads its output any more.
pub(crate) fn is_closed_output(error: &anyhow::Error) -> bool {
    let inner = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>()?.get_ref().map(|inner| inner.is::<ClosedOutput>())
    };
    error.chain().any(|cause| inner(cause).unwrap_or(false))
}

/// Writes to standard output at once.
pub(crate) fn print(text: impl AsRef<[u8]>) -> anyhow::Result<()> {
    let written = Stdout.write_all(text.as_ref()).and_then(|()| Stdout.flush());
    written.context("writing to standard output")
}

/// The text without control characters, so that no escape sequence reaches the terminal.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\t' { '\u{FFFD}' } else { c }).collect()
}

/// The same JSON, with the control characters escaped that JSON leaves as they are.
pub(crate) fn json_line(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '\u{7F}'..='\u{9F}' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            _ => out.push(c),
        }
    }
    out
}

/// Says on standard error what is no error: that a connection is opened again, for example.
pub(crate) fn notice(text: &str) {
    report(text, "hubbub: ");
}

/// Says on standard error how far the command came, or with what it had to do.
pub(crate) fn remark(text: &str) {
    report(text, "");
}

fn report(text: &str, prefix: &str) {
    if IS_JSON.load(Ordering::Relaxed) {
        complain(&json_line(&json!({"notice": text}).to_string()));
    } else {
        complain(&lines(&format!("{prefix}{text}")));
    }
}

/// Says on standard error why the command fails; a server's refusal with its code and status.
pub(crate) fn error(error: &anyhow::Error) {
    let text = text_of(error);
    if !IS_JSON.load(Ordering::Relaxed) {
        return complain(&lines(&format!("hubbub: {text}")));
    }
    let mut members = Map::from_iter([("error".to_owned(), Value::from(text))]);
    if let Some(refusal) = error.downcast_ref::<Refusal>() {
        members.insert("code".into(), refusal.code.as_str().into());
        if refusal.status != 0 {
            members.insert("status".into(), refusal.status.into());
        }
    }
    complain(&json_line(&Value::from(members).to_string()));
}

/// [`plain`], line by line.
fn lines(text: &str) -> String {
    text.split('\n').map(plain).collect::<Vec<_>>().join("\n")
}

/// An error and its causes. A cause that the text before it names already is not repeated.
fn text_of(error: &anyhow::Error) -> String {
    let mut out = String::new();
    for cause in error.chain() {
        let text = cause.to_string();
        if out.is_empty() {
            out = text;
        } else if !out.contains(&text) {
            out.push_str(": ");
            out.push_str(&text);
        }
    }
    out
}

/// A closed standard error is nobody's trouble.
fn complain(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Invalid usage that only the command itself can find.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UsageError(pub(crate) String);

/// How a command is given the token that it lacks.
fn way_in(code: &str, detail: &str) -> &'static str {
    let lacks =
        code == "unauthorized" && (detail.contains("token is required") || detail.contains("must be auth"));
    if lacks { "; give one with --token-file or HUBBUB_TOKEN" } else { "" }
}

fn status_text(status: u16) -> String {
    if status == 0 { String::new() } else { format!(" {status}") }
}

/// The server refused a request.
#[derive(Debug, thiserror::Error)]
#[error("the server answered{}: {}{} ({})", status_text(*status), plain(detail), way_in(code, detail), plain(code))]
pub(crate) struct Refusal {
    /// 0 without one, as on a socket.
    pub(crate) status: u16,
    pub(crate) code: String,
    pub(crate) detail: String,
}

/// A size for people, such as `1.2 GiB`.
pub(crate) fn size(bytes: u64) -> String {
    if bytes < 1_024 {
        return counted(bytes, "byte");
    }
    #[allow(clippy::cast_precision_loss)]
    let mut value = bytes as f64 / 1_024.0;
    for unit in ["KiB", "MiB", "GiB"] {
        // What would be shown as 1024 is one of the next unit.
        if value < 1_023.5 {
            let digits = usize::from(value < 99.95);
            return format!("{value:.digits$} {unit}");
        }
        value /= 1_024.0;
    }
    format!("{value:.1} TiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_named_once() {
        let cause = || io::Error::new(io::ErrorKind::NotFound, "it is not there");
        let plain = anyhow::Error::new(cause()).context("reading x");
        assert_eq!(text_of(&plain), "reading x: it is not there");
        let told = anyhow::Error::new(cause()).context("reading x failed: it is not there; look for it");
        assert_eq!(text_of(&told), "reading x failed: it is not there; look for it");
    }

    /// C1 controls begin escape sequences, too, and may stand in JSON as they are.
    #[test]
    fn what_a_server_says_moves_no_cursor() {
        let text = "a\u{1b}[2J\u{9b}2J\u{7f}\tä\n";
        let refusal = Refusal { status: 404, code: "x\u{9b}".into(), detail: text.into() };
        let shown = refusal.to_string();
        assert_eq!(shown, "the server answered 404: a\u{FFFD}[2J\u{FFFD}2J\u{FFFD}\tä\u{FFFD} (x\u{FFFD})");
        assert_eq!(lines("one\u{85}\ntwo\u{1b}"), "one\u{FFFD}\ntwo\u{FFFD}");
        let json = json!({"text": text});
        let line = json_line(&json.to_string());
        assert!(!line.chars().any(char::is_control), "{line:?}");
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), json);
    }

    #[test]
    fn only_a_closed_output_is_no_error() {
        let closed = anyhow::Error::new(closed(io::ErrorKind::BrokenPipe.into())).context("writing");
        assert!(is_closed_output(&closed));
        let lost = anyhow::Error::new(io::Error::from(io::ErrorKind::BrokenPipe)).context("sending");
        assert!(!is_closed_output(&lost));
    }

    #[test]
    fn sizes_are_short() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1, "1 byte"),
            (1_023, "1023 bytes"),
            (1_024, "1.0 KiB"),
            (1_536, "1.5 KiB"),
            (734 << 20, "734 MiB"),
            ((1 << 30) - 1, "1.0 GiB"),
            (102_300, "99.9 KiB"),
            (102_399, "100 KiB"),
            (12_345_678_901_234, "11.2 TiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }
}
