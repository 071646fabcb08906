//! `hubbub import`: sends the messages of a file in batches. Each has an id, so that repeating an import is harmless.

mod source;

use std::time::Duration;

use anyhow::{Context, bail};
use hubbub_core::backoff::Backoff;
use hyper::Method;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::connection::{Connection, JSON};
use super::session::pause;
use super::{is_true, print_json, show, text};
use crate::cli::ImportArgs;
use crate::progress::Progress;
use source::Source;

/// Size of a request, in messages and bytes.
const BATCH_LINES: usize = 1_000;
const BATCH_BYTES: usize = 1 << 20;
const BATCH_MAX: Duration = Duration::from_secs(120);

/// Attempts without progress before the import fails, and their pauses.
const ATTEMPTS: u32 = 8;
const PAUSES: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));

pub(crate) async fn import(args: ImportArgs) -> anyhow::Result<()> {
    let name = args.file.display().to_string();
    let progress = source::progress(&args);
    let mut source = Source::open(&args, &progress).with_context(|| format!("reading {name}"))?;
    let mut import = Import {
        connection: args.client.server()?.connect().await?,
        waiting: Vec::new(),
        is_repeated: false,
        bytes: 0,
        stored: 0,
        duplicate: 0,
        refused: 0,
        unit: source.unit,
        is_json: args.client.json,
        progress,
    };
    let failure = loop {
        match source.next() {
            Ok(Some((line, Some(message)))) => {
                import.add(line, with_id(message, &args.id_prefix, line)).await?;
            }
            Ok(Some((line, None))) => {
                import.refuse(line, "malformed", "quotes or the number of fields are wrong")?;
            }
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    import.send().await?;
    if let Some(error) = failure {
        import.print()?;
        return Err(error).with_context(|| {
            format!(
                "reading {name}: only the messages before are imported; importing the whole file again is harmless"
            )
        });
    }
    import.report()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Id {
    message_id: Option<IgnoredAny>,
}

/// Adds an id to a message that has none: the same one whenever the file is imported with this prefix. The server refuses
/// what is not a message.
fn with_id(message: String, prefix: &str, line: u64) -> String {
    if !serde_json::from_str::<Id>(&message).is_ok_and(|id| id.message_id.is_none()) {
        return message;
    }
    let id = format!("{prefix}-{line}-{:08x}", crc32c::crc32c(message.as_bytes()));
    match serde_json::from_str(&message) {
        Ok(Value::Object(mut object)) => {
            object.insert("messageId".to_owned(), id.into());
            Value::Object(object).to_string()
        }
        _ => message,
    }
}

struct Import {
    connection: Connection,
    /// Messages without an answer, with their lines.
    waiting: Vec<(u64, String)>,
    /// Whether the waiting messages were sent before: then duplicates may be of this import.
    is_repeated: bool,
    bytes: usize,
    stored: u64,
    duplicate: u64,
    refused: u64,
    /// Name of a message's position: line or row.
    unit: &'static str,
    is_json: bool,
    progress: Progress,
}

impl Import {
    async fn add(&mut self, line: u64, message: String) -> anyhow::Result<()> {
        if self.bytes + message.len() > BATCH_BYTES {
            self.send().await?;
        }
        self.bytes += message.len();
        self.waiting.push((line, message));
        if self.waiting.len() >= BATCH_LINES { self.send().await } else { Ok(()) }
    }

    /// Repeats until every message has a final answer. After a message that it cannot accept now, the server refuses all
    /// later ones, so repeating keeps the order.
    async fn send(&mut self) -> anyhow::Result<()> {
        let (mut backoff, mut attempts) = (PAUSES, 0);
        while let Some((line, _)) = self.waiting.first() {
            let (line, before) = (*line, self.waiting.len());
            let (trouble, asked) = match self.attempt().await {
                Ok(None) => continue,
                Ok(Some(trouble)) => trouble,
                Err(error) => (format!("{error:#}"), Duration::ZERO),
            };
            self.is_repeated = true;
            self.progress.remark(&format!("{} {line}: {trouble}; trying again", self.unit));
            if self.waiting.len() < before {
                backoff.reset();
                attempts = 0;
            }
            attempts += 1;
            if attempts == ATTEMPTS {
                bail!(
                    "{} {line} and those behind it were not stored: {trouble}; importing again is harmless",
                    self.unit
                );
            }
            pause(&mut backoff, asked).await;
        }
        self.bytes = 0;
        self.is_repeated = false;
        Ok(())
    }

    /// Sends all waiting messages in one request. Those to be repeated keep waiting; returns why, and how long the server asks
    /// to wait.
    async fn attempt(&mut self) -> anyhow::Result<Option<(String, Duration)>> {
        let body: String = self.waiting.iter().flat_map(|(_, message)| [message, "\n"]).collect();
        let answer = self.connection.whole(BATCH_MAX, Method::POST, "/v1/messages", JSON, body).await?;
        let status = answer.status;
        let asked = answer.clone().success().map_or_else(|refused| refused.retry_after, |_| Duration::ZERO);
        let mut answers = answer.body.split(|byte| *byte == b'\n').filter(|answer| !answer.is_empty());
        let (mut again, mut trouble) = (Vec::new(), None);
        for (line, message) in std::mem::take(&mut self.waiting) {
            let answer = answers.next().map(serde_json::from_slice::<Value>);
            let Some(Ok(answer)) = answer.filter(|_| status.is_success()) else {
                trouble.get_or_insert_with(|| format!("the server answered {status}, and not every line"));
                again.push((line, message));
                continue;
            };
            match text(&answer, "code") {
                "" if is_true(&answer, "duplicate") && !self.is_repeated => self.duplicate += 1,
                "" => self.stored += 1,
                _ if is_true(&answer, "retryable") => {
                    trouble.get_or_insert_with(|| text(&answer, "detail").to_owned());
                    again.push((line, message));
                }
                code => self.refuse(line, code, text(&answer, "detail"))?,
            }
        }
        self.waiting = again;
        Ok(trouble.map(|trouble| (trouble, asked)))
    }

    /// Reports a refused line and the reason.
    fn refuse(&mut self, line: u64, code: &str, detail: &str) -> anyhow::Result<()> {
        self.refused += 1;
        if self.is_json {
            return print_json(&json!({(self.unit): line, "code": code, "detail": detail}));
        }
        self.progress.remark(&format!("{} {line}: {detail} ({code})", self.unit));
        Ok(())
    }

    fn print(&self) -> anyhow::Result<()> {
        let Self { stored, duplicate, refused, .. } = self;
        self.progress.finish();
        let counts = json!({"stored": stored, "duplicate": duplicate, "refused": refused});
        show(self.is_json, &counts, |_| {
            format!("stored {stored}, there before {duplicate}, refused {refused}\n")
        })
    }

    fn report(&self) -> anyhow::Result<()> {
        self.print()?;
        if self.refused > 0 {
            bail!("{} {}s were refused; nothing of them was stored", self.refused, self.unit);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use hubbub_core::id::is_valid_id;

    use super::*;
    use crate::cli::{Cli, Command};

    fn id(message: &str, prefix: &str, line: u64) -> String {
        let message: Value = serde_json::from_str(&with_id(message.to_owned(), prefix, line)).unwrap();
        text(&message, "messageId").to_owned()
    }

    #[test]
    fn equal_lines_of_two_files_have_ids_of_their_own() {
        const LINE: &str = r#"{"roomId":"r","userId":"ada","message":"hello"}"#;
        assert_eq!(id(LINE, "import", 7), id(LINE, "import", 7), "an import can be repeated");
        assert!(id(LINE, "import", 7).starts_with("import-7-"));
        assert_ne!(id(LINE, "monday", 7), id(LINE, "tuesday", 7));
        assert_eq!(id(r#"{"messageId":"own"}"#, "monday", 7), "own");
    }

    #[test]
    fn a_prefix_makes_valid_ids() {
        let parse = |prefix: &str| {
            let parsed = Cli::try_parse_from(["hubbub", "import", "-", "--id-prefix", prefix])?;
            let Command::Import(args) = parsed.command else { unreachable!("it is an import") };
            Ok::<_, clap::Error>(args.id_prefix)
        };
        for prefix in ["a", "2026-11_logs.1:x@y", &"x".repeat(34)] {
            let id = id("{}", &parse(prefix).unwrap(), u64::MAX);
            assert!(is_valid_id(&id), "{id}");
        }
        for prefix in ["", "a b", "ä", "a/b", &"x".repeat(35)] {
            let refused = parse(prefix).unwrap_err().to_string();
            assert!(refused.contains("1 to 34 characters"), "{refused}");
        }
        let parsed = Cli::try_parse_from(["hubbub", "import", "-"]).unwrap();
        assert!(matches!(parsed.command, Command::Import(args) if args.id_prefix == "import"));
    }
}
