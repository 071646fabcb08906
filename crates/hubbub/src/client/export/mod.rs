//! `hubbub export`: writes the messages of rooms to a file, page by page.

pub(super) mod row;
mod sink;

use anyhow::{Context, bail};
use hubbub_client::Error;
use hubbub_core::text::counted;
use hyper::StatusCode;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::signal::unix::{SignalKind, signal};

use super::connection::{Connection, failed_at};
use super::pages::{PageSize, Pages};
use super::session::with_query;
use super::text;
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
    let server = args.server.clone().with_long_patience();
    let connection = server.with_token(args.token_file.as_deref())?.connect().await?;
    let sink = Sink::create(args.format, args.out.clone())?;
    let progress = Progress::of_messages("exported");
    let connection = connection.with_progress(progress.clone());
    let (size, is_file) = (PageSize::new(), sink.is_file());
    let export = Export { connection, sink, size, epoch: None, messages: 0, rooms: 0, progress, args };
    tokio::select! {
        done = export.whole() => done,
        // What there is of the file goes with it. Writing to anything else may block, which would keep this from being heard.
        stopped = stopped(), if is_file => {
            stopped?;
            bail!("interrupted; nothing was exported");
        }
    }
}

/// Completes at SIGINT, which is Ctrl-C, or at SIGTERM.
async fn stopped() -> anyhow::Result<()> {
    let listening = |kind, name| signal(kind).with_context(|| format!("listening for {name}"));
    let mut interrupt = listening(SignalKind::interrupt(), "SIGINT")?;
    let mut terminate = listening(SignalKind::terminate(), "SIGTERM")?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}

struct Export {
    args: ExportArgs,
    connection: Connection,
    sink: Sink,
    size: PageSize,
    /// Epoch of the first page; its cursors are meaningless in another epoch.
    epoch: Option<String>,
    messages: u64,
    rooms: u64,
    progress: Progress,
}

impl Export {
    async fn whole(mut self) -> anyhow::Result<()> {
        self.run().await?;
        let Self { sink, messages, rooms, progress, .. } = self;
        sink.finish().await?;
        // Standard output may be the export itself.
        progress.remark(&format!("exported {} of {}", counted(messages, "message"), counted(rooms, "room")));
        Ok(())
    }

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
            let (args, epoch) = (&self.args, &self.epoch);
            let path = |limit: usize| page_path(args, room, after, epoch.as_deref(), limit);
            let answer = match self.size.read(&mut self.connection, usize::MAX, path).await {
                Ok(answer) => answer,
                // Not what something else that answers has not found.
                Err(refused) if refused.is("unknown_room") => return Ok(false),
                Err(refused) if refused.status == StatusCode::GONE => {
                    after = self.cursor_after_reset(room, after, &refused)?;
                    continue;
                }
                Err(error) => {
                    return Err(failed_at(&path_of(room), &error)).with_context(|| format!("room {room}"));
                }
            };
            let page: Page<'_> = serde_json::from_slice(&answer.body)
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

    /// The cursor to continue from after a reset: the next messages are not kept any more.
    fn cursor_after_reset(&self, room: &str, after: u64, reset: &Error) -> anyhow::Result<u64> {
        let is_same = Some(reset.epoch.as_str()) == self.epoch.as_deref();
        if !is_same || reset.oldest <= after + 1 {
            bail!("room {room}: the server's history was replaced meanwhile; start the export again");
        }
        Ok(reset.oldest - 1)
    }
}

fn path_of(room: &str) -> String {
    format!("/v1/rooms/{room}/messages")
}

fn page_path(args: &ExportArgs, room: &str, after: u64, epoch: Option<&str>, limit: usize) -> String {
    let pairs = [
        ("limit", Some(limit.to_string())),
        ("after", Some(after.to_string())),
        ("from", args.from.clone()),
        ("to", args.to.clone()),
        ("epoch", epoch.map(str::to_owned)),
    ];
    with_query(&path_of(room), pairs)
}
