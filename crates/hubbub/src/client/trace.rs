//! `hubbub trace`: what became of a message on one or several servers.
//!
//! Each server tells what it did itself. Timelines of several are merged by time, which is that of their own clocks.

use anyhow::{anyhow, bail};
use hubbub_core::text::counted;
use hubbub_core::{MessageId, Timestamp};
use hyper::{Method, StatusCode};
use serde_json::{Map, Value, json};

use super::connection::{Connection, TIMEOUT, failed_at};
use super::pages::Pages;
use super::session::Session;
use super::{entries, number, show, text};
use crate::cli::TraceArgs;
use crate::output::UsageError;

/// Most rooms in which a message is looked for: each takes a request.
const ROOMS_MAX: usize = 1_000;

pub(crate) async fn trace(args: TraceArgs) -> anyhow::Result<()> {
    let (message, mut sessions) = (&args.message, Vec::new());
    for client in args.clients() {
        sessions.push((client.server.url(), Session::new(&client)?));
    }
    let room = match (&args.room, sessions.first_mut()) {
        (None, Some((_, session))) => find(&mut session.connection, message).await?,
        (room, _) => room.as_ref().map(ToString::to_string).unwrap_or_default(),
    };
    // All at once: one that hangs does not hold up the others.
    let asked: Vec<_> = sessions
        .into_iter()
        .map(|(url, mut session)| {
            let path = path(&room, message);
            // One attempt: the others have told by then.
            let asking =
                async move { session.connection.request(TIMEOUT, Method::GET, &path, "").await?.success() };
            (url, tokio::spawn(asking))
        })
        .collect();
    let (mut told, mut failed) = (Vec::new(), Vec::new());
    for (url, answer) in asked {
        match answer.await? {
            Ok(timeline) => told.push(timeline),
            Err(error) => failed.push((url, error)),
        }
    }
    let several = told.len() + failed.len();
    if told.is_empty() {
        return failed.into_iter().next().map_or(Ok(()), |(_, error)| Err(error));
    }
    let timeline = match told.as_slice() {
        [timeline] if several == 1 => timeline.clone(),
        timelines => merge(timelines)?,
    };
    show(args.json, &timeline, |timeline| lines(timeline, &room))?;
    if failed.is_empty() {
        return Ok(());
    }
    let reasons: Vec<String> = failed.iter().map(|(url, error)| format!("{url}: {error}")).collect();
    Err(anyhow!("{} of {several} servers did not tell: {}", failed.len(), reasons.join("; ")))
}

fn path(room: &str, message: &MessageId) -> String {
    format!("/v1/rooms/{room}/messages/{message}/timeline")
}

/// The room of a message. An id is one of its room, so each room is asked for it.
async fn find(connection: &mut Connection, message: &MessageId) -> anyhow::Result<String> {
    let usage = |text: String| anyhow!(UsageError(format!("{text}; name it: hubbub trace {message} ROOM")));
    let (mut pages, mut rooms) = (Pages::new("/v1/rooms".into(), "rooms", ROOMS_MAX + 1), Vec::new());
    while let Some(page) = pages.next(connection).await? {
        rooms.extend(page.iter().map(|room| text(room, "roomId").to_owned()));
    }
    if rooms.len() > ROOMS_MAX {
        return Err(usage(format!("the room is looked for only where there are no more than {ROOMS_MAX}")));
    }
    let mut found = Vec::new();
    for room in &rooms {
        let path = path(room, message);
        match connection.read(&path).await {
            Ok(_) => found.push(room.as_str()),
            Err(error) if error.status == StatusCode::NOT_FOUND => {}
            Err(error) => return Err(failed_at(&path, &error)),
        }
    }
    match found.as_slice() {
        [] => bail!(
            "no room that is listed has a message {message}; {} looked through",
            counted(rooms.len(), "room")
        ),
        [room] => Ok((*room).to_owned()),
        several => Err(usage(format!("rooms with a message of this id: {}", several.join(", ")))),
    }
}

/// One timeline of what several servers told, each step with the name of its server.
fn merge(timelines: &[Value]) -> anyhow::Result<Value> {
    let Some(first) = timelines.first() else { bail!("no server told anything") };
    let member = |timeline: &Value, name: &str| timeline.get(name).cloned().unwrap_or_default();
    let (mut events, mut missing, mut servers) = (Vec::new(), Vec::new(), Vec::new());
    for timeline in timelines {
        for name in ["seq", "epoch"] {
            if timeline.get(name) != first.get(name) {
                bail!("{} and {} do not share a store", text(first, "server"), text(timeline, "server"));
            }
        }
        let server = member(timeline, "server");
        events.extend(entries(timeline, "events")?.iter().map(|event| at(&server, event)));
        missing.extend(entries(timeline, "missing")?.iter().map(|missing| at(&server, missing)));
        servers.push(json!({"server": server, "recordedSince": member(timeline, "recordedSince")}));
    }
    // When it was received says the store or the broker, to each of them.
    let (mut received, mut others): (Vec<_>, Vec<_>) =
        events.into_iter().partition(|event| text(event, "stage") == "received");
    received.truncate(1);
    received.iter_mut().filter_map(Value::as_object_mut).for_each(|event| drop(event.remove("server")));
    others.sort_by_key(|event| Timestamp::parse(text(event, "at")));
    // One server stores a message, and any number of them may deliver it.
    let is_stored = others.iter().any(|event| text(event, "stage") == "stored");
    missing.retain(|missing| !(is_stored && text(missing, "stage") == "stored"));
    received.append(&mut others);
    let [room, message, seq, epoch] = ["roomId", "messageId", "seq", "epoch"].map(|name| member(first, name));
    Ok(json!({
        "roomId": room, "messageId": message, "seq": seq, "epoch": epoch,
        "events": received, "missing": missing, "servers": servers,
    }))
}

/// An entry of a server's timeline with the server's name.
fn at(server: &Value, entry: &Value) -> Value {
    let named = [("server".to_owned(), server.clone())];
    let rest = entry.as_object().into_iter().flatten().map(|(name, value)| (name.clone(), value.clone()));
    named.into_iter().chain(rest).collect::<Map<_, _>>().into()
}

/// A timeline for people, of one server or of several.
fn lines(timeline: &Value, room: &str) -> String {
    let list = |name: &str| timeline.get(name).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let servers = list("servers");
    let names: Vec<&str> = servers.iter().map(|server| text(server, "server")).collect();
    let (who, verb) = match names.as_slice() {
        [] => (text(timeline, "server").to_owned(), "has"),
        [name] => ((*name).to_owned(), "has"),
        names => (names.join(", "), "have"),
    };
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let begin = |entry: &Value| match width {
        0 => format!("{:<10}  ", text(entry, "stage")),
        width => format!("{:<10}  {:<width$}  ", text(entry, "stage"), text(entry, "server")),
    };
    let mut lines = format!("message {} of {room}, as {who} {verb} it on record:\n", number(timeline, "seq"));
    // In the order of their times: a message gets that of `received` while its batch is committed.
    let mut events: Vec<&Value> = list("events").iter().collect();
    events.sort_by_key(|event| Timestamp::parse(text(event, "at")));
    for event in events {
        lines += &format!("{}{}\n", begin(event), event_text(event));
    }
    for missing in list("missing") {
        let told = servers.iter().find(|server| text(server, "server") == text(missing, "server"));
        let since = told.unwrap_or(timeline).get("recordedSince").and_then(Value::as_str).unwrap_or("never");
        let why = match text(missing, "because") {
            "tooOld" => format!("not known any more; this server's record goes back to {since}"),
            "notHere" if text(missing, "stage") == "published" => "nobody followed the room here".to_owned(),
            "notHere" => format!("not on this server; its record goes back to {since}"),
            _ => "not recorded (timeline.memory)".to_owned(),
        };
        lines += &format!("{}{why}\n", begin(missing));
    }
    lines
}

/// A time to the microsecond, as all are told, also where it has fewer digits.
fn micros(time: &str) -> String {
    let (whole, fraction) =
        time.trim_end_matches('Z').split_once('.').unwrap_or((time.trim_end_matches('Z'), ""));
    format!("{whole}.{fraction:0<6}Z")
}

fn event_text(event: &Value) -> String {
    let mut line = micros(text(event, "at"));
    if let Some(until) = event.get("until").and_then(Value::as_str) {
        line += &format!(" to {}", micros(until));
    }
    let count = number(event, "count");
    line + &match text(event, "stage") {
        "queued" => format!("  in a batch of {count}"),
        "published" if text(event, "from") == "commit" => {
            format!("  for {}", counted(count, "live subscriber"))
        }
        "published" => {
            format!("  for {}, from the {}", counted(count, "live subscriber"), text(event, "from"))
        }
        "delivered" => format!("  to {count}"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn timeline(server: &str, events: &Value, missing: &Value) -> Value {
        json!({
            "server": server, "roomId": "r", "messageId": "m", "seq": 7, "epoch": "e", "events": events,
            "missing": missing, "recordedSince": "2026-01-31T11:00:00.000Z",
        })
    }

    #[test]
    fn steps_stand_in_the_order_of_their_times() {
        let received = json!({"stage": "received", "at": "2026-01-31T12:00:00.255Z"});
        let queued = json!({"stage": "queued", "at": "2026-01-31T12:00:00.254699Z", "count": 1});
        let nobody = json!([{"stage": "published", "because": "notHere"}]);
        let told = lines(&timeline("a", &json!([received, queued]), &nobody), "r");
        assert_eq!(
            told,
            "message 7 of r, as a has it on record:\n\
             queued      2026-01-31T12:00:00.254699Z  in a batch of 1\n\
             received    2026-01-31T12:00:00.255000Z\n\
             published   nobody followed the room here\n"
        );
    }

    #[test]
    fn timelines_of_several_servers_are_one() {
        let received = json!({"stage": "received", "at": "2026-01-31T12:00:00.000Z"});
        let published =
            json!({"stage": "published", "at": "2026-01-31T12:00:00.003Z", "count": 2, "from": "bus"});
        let stored = json!({"stage": "stored", "at": "2026-01-31T12:00:00.003456Z"});
        let bus = json!({"stage": "bus", "at": "2026-01-31T12:00:00.002Z"});
        let not_here = |stage: &str| json!({"stage": stage, "because": "notHere"});
        let a = timeline("a", &json!([received, published]), &json!([not_here("stored")]));
        let b = timeline("bb", &json!([received, bus, stored]), &json!([not_here("published")]));
        let merged = merge(&[a.clone(), b]).unwrap();
        assert_eq!(
            lines(&merged, "r"),
            "message 7 of r, as a, bb have it on record:\n\
             received        2026-01-31T12:00:00.000000Z\n\
             bus         bb  2026-01-31T12:00:00.002000Z\n\
             published   a   2026-01-31T12:00:00.003000Z  for 2 live subscribers, from the bus\n\
             stored      bb  2026-01-31T12:00:00.003456Z\n\
             published   bb  nobody followed the room here\n"
        );
        // Nobody stored it, as far as those who were asked know.
        assert_eq!(merge(&[a.clone(), a.clone()]).unwrap()["missing"].as_array().unwrap().len(), 2);
        let mut stranger = timeline("c", &json!([received]), &json!([]));
        stranger["epoch"] = json!("another");
        assert_eq!(merge(&[a, stranger]).unwrap_err().to_string(), "a and c do not share a store");
    }
}
