//! `hubbub export`: rooms page by page into a file.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use anyhow::{Context, bail};
use hubbub_core::RoomId;
use hyper::{Method, StatusCode};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::connection::{Connection, Server, TIMEOUT};
use super::csv;
use crate::cli::{ExportArgs, FileFormat};

/// Messages, or rooms, asked for in one request.
const PAGE: usize = 500;

/// The columns of a CSV file; an import finds them by these names.
pub(super) const COLUMNS: [&str; 9] =
    ["roomId", "seq", "messageId", "userId", "username", "messageType", "timestamp", "receivedAt", "message"];

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    messages: Vec<&'a RawValue>,
    epoch: String,
    next: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Row<'a> {
    #[serde(borrow)]
    room_id: Cow<'a, str>,
    seq: u64,
    #[serde(borrow)]
    message_id: Cow<'a, str>,
    #[serde(borrow)]
    user_id: Cow<'a, str>,
    #[serde(borrow)]
    username: Option<Cow<'a, str>>,
    #[serde(borrow)]
    message_type: Cow<'a, str>,
    #[serde(borrow)]
    timestamp: Cow<'a, str>,
    #[serde(borrow)]
    received_at: Cow<'a, str>,
    #[serde(borrow)]
    message: Cow<'a, str>,
}

pub(crate) async fn export(args: ExportArgs) -> anyhow::Result<()> {
    for room in &args.rooms {
        RoomId::new(room).with_context(|| format!("--room '{room}'"))?;
    }
    let connection = Server::parse(&args.server)?.connect().await?;
    let output = Output::create(args.out.clone())?;
    let mut export =
        Export { connection, output, buffer: Vec::new(), epoch: None, messages: 0, rooms: 0, args };
    export.run().await?;
    let Export { output, messages, rooms, .. } = export;
    output.finish()?;
    // Standard output may be the file.
    eprintln!("exported {messages} messages of {rooms} rooms");
    Ok(())
}

struct Export {
    args: ExportArgs,
    connection: Connection,
    output: Output,
    buffer: Vec<u8>,
    /// The history that the first page was of; a cursor of one means nothing in another.
    epoch: Option<String>,
    messages: u64,
    rooms: u64,
}

impl Export {
    async fn run(&mut self) -> anyhow::Result<()> {
        if self.args.format == FileFormat::Csv {
            csv::write(&COLUMNS, &mut self.buffer);
        }
        if !self.args.rooms.is_empty() {
            for room in self.args.rooms.clone() {
                if !self.room(&room).await? {
                    bail!("there is no room {room}");
                }
            }
            return self.flush();
        }
        let mut after = String::new();
        loop {
            let page = self.connection.get(&format!("/v1/rooms?limit={PAGE}{after}")).await?;
            let rooms: Vec<String> = page
                .get("rooms")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(|room| room.get("roomId")?.as_str().map(str::to_owned))
                .collect();
            for room in rooms {
                // One that was removed meanwhile is not missed.
                self.room(&room).await?;
            }
            match page.get("next").and_then(Value::as_str) {
                Some(next) => after = format!("&after={next}"),
                None => return self.flush(),
            }
        }
    }

    /// One room from its oldest message to its newest. Says whether there is such a room.
    async fn room(&mut self, room: &str) -> anyhow::Result<bool> {
        let mut after = 0;
        loop {
            let path = self.page_path(room, after);
            let (status, body) = self.connection.whole(TIMEOUT, Method::GET, &path, String::new()).await?;
            match status {
                StatusCode::OK => {}
                StatusCode::NOT_FOUND => return Ok(false),
                StatusCode::GONE => {
                    after = self.go_on(room, after, &body)?;
                    continue;
                }
                _ => bail!("room {room}: the server answered {status}: {}", detail(&body)),
            }
            let page: Page<'_> =
                serde_json::from_slice(&body).with_context(|| format!("room {room}: no page of messages"))?;
            for message in &page.messages {
                self.write(message)?;
            }
            self.messages += page.messages.len() as u64;
            self.epoch = Some(page.epoch);
            match page.next {
                Some(next) => after = next,
                None => break,
            }
        }
        self.rooms += 1;
        Ok(true)
    }

    fn page_path(&self, room: &str, after: u64) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("limit", &PAGE.to_string()).append_pair("after", &after.to_string());
        for (name, value) in [("from", &self.args.from), ("to", &self.args.to), ("epoch", &self.epoch)] {
            if let Some(value) = value {
                query.append_pair(name, value);
            }
        }
        format!("/v1/rooms/{room}/messages?{}", query.finish())
    }

    /// Where to go on when what came next is not kept any more.
    fn go_on(&self, room: &str, after: u64, body: &[u8]) -> anyhow::Result<u64> {
        let reset: Value = serde_json::from_slice(body).unwrap_or_default();
        let is_same = reset.get("epoch").and_then(Value::as_str) == self.epoch.as_deref();
        let oldest = reset.get("oldest").and_then(Value::as_u64).unwrap_or_default();
        if !is_same || oldest <= after + 1 {
            bail!("room {room}: the server's history was replaced meanwhile; begin the export again");
        }
        Ok(oldest - 1)
    }

    fn write(&mut self, message: &RawValue) -> anyhow::Result<()> {
        match self.args.format {
            FileFormat::Jsonl => {
                self.buffer.extend_from_slice(message.get().as_bytes());
                self.buffer.push(b'\n');
            }
            FileFormat::Csv => {
                let row: Row<'_> = serde_json::from_str(message.get()).context("a message lacks a part")?;
                let fields = [
                    &*row.room_id,
                    &row.seq.to_string(),
                    &*row.message_id,
                    &*row.user_id,
                    row.username.as_deref().unwrap_or_default(),
                    &*row.message_type,
                    &*row.timestamp,
                    &*row.received_at,
                    &*row.message,
                ];
                csv::write(&fields, &mut self.buffer);
            }
        }
        self.flush()
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        self.output.writer.write_all(&self.buffer).context("writing the export")?;
        self.buffer.clear();
        Ok(())
    }
}

fn detail(body: &[u8]) -> String {
    let problem: Value = serde_json::from_slice(body).unwrap_or_default();
    problem.get("detail").and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Standard output, or a file that has its name only once it is complete.
struct Output {
    writer: BufWriter<Box<dyn Write>>,
    file: Option<(File, PathBuf, PathBuf)>,
}

impl Output {
    fn create(path: Option<PathBuf>) -> anyhow::Result<Self> {
        let Some(path) = path else {
            return Ok(Self { writer: BufWriter::new(Box::new(std::io::stdout())), file: None });
        };
        let mut partial = path.clone().into_os_string();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let file = File::create(&partial).with_context(|| format!("making {}", partial.display()))?;
        let writer: Box<dyn Write> = Box::new(file.try_clone().context("opening the file twice")?);
        Ok(Self { writer: BufWriter::new(writer), file: Some((file, partial, path)) })
    }

    fn finish(mut self) -> anyhow::Result<()> {
        self.writer.flush().context("writing the export")?;
        if let Some((file, partial, path)) = self.file {
            file.sync_all().with_context(|| format!("syncing {}", partial.display()))?;
            fs::rename(&partial, &path).with_context(|| format!("naming {}", path.display()))?;
        }
        Ok(())
    }
}
