//! `hubbub export`: writes the messages of rooms to a file, page by page.

pub(super) mod row;
mod sink;

use anyhow::{Context, bail};
use hubbub_core::RoomId;
use hyper::{Method, StatusCode};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::connection::{Connection, Server, TIMEOUT};
use crate::cli::ExportArgs;
use sink::Sink;

/// Messages or rooms in one request.
const PAGE: usize = 500;

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    messages: Vec<&'a RawValue>,
    epoch: String,
    head: u64,
    next: Option<u64>,
}

pub(crate) async fn export(args: ExportArgs) -> anyhow::Result<()> {
    for room in &args.rooms {
        RoomId::new(room).with_context(|| format!("--room '{room}'"))?;
    }
    let connection = Server::parse(&args.server)?.connect().await?;
    let sink = Sink::create(args.format, args.out.clone())?;
    let mut export = Export { connection, sink, epoch: None, messages: 0, rooms: 0, args };
    export.run().await?;
    let Export { sink, messages, rooms, .. } = export;
    sink.finish()?;
    // Standard output may be the export itself.
    eprintln!("exported {messages} messages of {rooms} rooms");
    Ok(())
}

struct Export {
    args: ExportArgs,
    connection: Connection,
    sink: Sink,
    /// Epoch of the first page; its cursors are meaningless in another epoch.
    epoch: Option<String>,
    messages: u64,
    rooms: u64,
}

impl Export {
    async fn run(&mut self) -> anyhow::Result<()> {
        if !self.args.rooms.is_empty() {
            for room in self.args.rooms.clone() {
                if !self.room(&room).await? {
                    bail!("there is no room {room}");
                }
            }
            return Ok(());
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
                // A room that was removed meanwhile is skipped.
                self.room(&room).await?;
            }
            match page.get("next").and_then(Value::as_str) {
                Some(next) => after = format!("&after={next}"),
                None => return Ok(()),
            }
        }
    }

    /// Exports one room, from its oldest message to at least its newest one at the start: a room that gets messages as fast
    /// as they are read would never end. Returns whether there is such a room.
    async fn room(&mut self, room: &str) -> anyhow::Result<bool> {
        let (mut after, mut end) = (0, None);
        loop {
            let path = self.page_path(room, after);
            let (status, body) = self.connection.whole(TIMEOUT, Method::GET, &path, String::new()).await?;
            match status {
                StatusCode::OK => {}
                StatusCode::NOT_FOUND => return Ok(false),
                StatusCode::GONE => {
                    after = self.cursor_after_reset(room, after, &body)?;
                    continue;
                }
                _ => bail!("room {room}: the server answered {status}: {}", detail(&body)),
            }
            let page: Page<'_> = serde_json::from_slice(&body)
                .with_context(|| format!("room {room}: the answer is not a page of messages"))?;
            for message in &page.messages {
                self.sink.write(message)?;
            }
            self.messages += page.messages.len() as u64;
            self.epoch = Some(page.epoch);
            let end = *end.get_or_insert(page.head);
            match page.next {
                Some(next) if next < end => after = next,
                _ => break,
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

    /// The cursor to continue from after a reset: the next messages are not kept any more.
    fn cursor_after_reset(&self, room: &str, after: u64, body: &[u8]) -> anyhow::Result<u64> {
        let reset: Value = serde_json::from_slice(body).unwrap_or_default();
        let is_same = reset.get("epoch").and_then(Value::as_str) == self.epoch.as_deref();
        let oldest = reset.get("oldest").and_then(Value::as_u64).unwrap_or_default();
        if !is_same || oldest <= after + 1 {
            bail!("room {room}: the server's history was replaced meanwhile; start the export again");
        }
        Ok(oldest - 1)
    }
}

fn detail(body: &[u8]) -> String {
    let problem: Value = serde_json::from_slice(body).unwrap_or_default();
    problem.get("detail").and_then(Value::as_str).unwrap_or_default().to_owned()
}
