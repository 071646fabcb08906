//! `hubbub export`: writes the messages of rooms to a file, page by page.

pub(super) mod row;
mod sink;

use anyhow::{Context, bail};
use hyper::{Method, StatusCode};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::connection::{Answer, Connection, TIMEOUT};
use super::session::{PAGE, Pages, with_query};
use super::{number, text};
use crate::cli::ExportArgs;
use crate::progress::Progress;
use sink::Sink;

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    messages: Vec<&'a RawValue>,
    epoch: String,
    head: u64,
    next: Option<u64>,
}

pub(crate) async fn export(args: ExportArgs) -> anyhow::Result<()> {
    let connection = args.server.clone().with_token(args.token_file.as_deref())?.connect().await?;
    let sink = Sink::create(args.format, args.out.clone())?;
    let progress = Progress::of_messages("exported");
    let mut export = Export { connection, sink, epoch: None, messages: 0, rooms: 0, progress, args };
    export.run().await?;
    let Export { sink, messages, rooms, progress, .. } = export;
    sink.finish()?;
    // Standard output may be the export itself.
    progress.remark(&format!("exported {messages} messages of {rooms} rooms"));
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
    progress: Progress,
}

impl Export {
    async fn run(&mut self) -> anyhow::Result<()> {
        for room in self.args.rooms.clone() {
            if !self.room(room.as_str()).await? {
                bail!("there is no room {room}");
            }
        }
        if !self.args.rooms.is_empty() {
            return Ok(());
        }
        let mut pages = Pages::new("/v1/rooms".into(), "rooms", usize::MAX);
        while let Some(rooms) = pages.next(&mut self.connection).await? {
            for room in &rooms {
                // A room that was removed meanwhile is skipped.
                self.room(text(room, "roomId")).await?;
            }
        }
        Ok(())
    }

    /// Exports one room, from its oldest message to at least its newest one at the start: a room that gets messages as fast
    /// as they are read would never end. Returns whether there is such a room.
    async fn room(&mut self, room: &str) -> anyhow::Result<bool> {
        let (mut after, mut end) = (0, None);
        loop {
            let path = self.page_path(room, after);
            let answer = self.connection.whole(TIMEOUT, Method::GET, &path, &[], "").await?;
            let body = &answer.body;
            match answer.status {
                StatusCode::OK => {}
                StatusCode::NOT_FOUND => return Ok(false),
                StatusCode::GONE => {
                    after = self.cursor_after_reset(room, after, body)?;
                    continue;
                }
                status => {
                    let answer = Answer::lenient(status, body);
                    bail!("room {room}: the server answered {status}: {}", text(&answer.body, "detail"));
                }
            }
            let page: Page<'_> = serde_json::from_slice(body)
                .with_context(|| format!("room {room}: the answer is not a page of messages"))?;
            for message in &page.messages {
                self.sink.write(message)?;
            }
            self.messages += page.messages.len() as u64;
            self.progress.add(page.messages.len() as u64);
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
        let pairs = [
            ("limit", Some(PAGE.to_string())),
            ("after", Some(after.to_string())),
            ("from", self.args.from.clone()),
            ("to", self.args.to.clone()),
            ("epoch", self.epoch.clone()),
        ];
        with_query(&format!("/v1/rooms/{room}/messages"), pairs)
    }

    /// The cursor to continue from after a reset: the next messages are not kept any more.
    fn cursor_after_reset(&self, room: &str, after: u64, body: &[u8]) -> anyhow::Result<u64> {
        let reset: Value = serde_json::from_slice(body).unwrap_or_default();
        let is_same = reset.get("epoch").and_then(Value::as_str) == self.epoch.as_deref();
        let oldest = number(&reset, "oldest");
        if !is_same || oldest <= after + 1 {
            bail!("room {room}: the server's history was replaced meanwhile; start the export again");
        }
        Ok(oldest - 1)
    }
}
