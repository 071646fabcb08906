//! `hubbub room`: manages one room and its members.

use anyhow::Context;
use hubbub_core::{RoomId, UserId};
use hyper::Method;
use serde_json::{Map, Value};

use super::connection::{Connection, Server};
use super::{print, print_json};
use crate::cli::{RoomAction, RoomArgs};

/// Members in one request.
const PAGE: usize = 500;

pub(crate) async fn run(args: RoomArgs) -> anyhow::Result<()> {
    let mut connection = Server::parse(&args.client.server)?.connect().await?;
    let is_json = args.client.json;
    match args.action {
        RoomAction::Set { room, title, members_only, retention } => {
            let mut settings = Map::new();
            settings.extend(title.map(|title| ("title".to_owned(), title.into())));
            settings.extend(members_only.map(|only| ("membersOnly".to_owned(), only.into())));
            let retention = retention.map(|time| if time == "off" { Value::Null } else { time.into() });
            settings.extend(retention.map(|time| ("retention".to_owned(), time)));
            let body = Value::from(settings).to_string();
            let answer = connection.request(Method::PUT, &path_of(&room)?, body).await?;
            let how = if answer.status.as_u16() == 201 { "created" } else { "updated" };
            let room = answer.success()?;
            if is_json {
                return print_json(&room);
            }
            print(&format!("{how}: {}\n", room.get("roomId").and_then(Value::as_str).unwrap_or_default()))
        }
        RoomAction::Delete { room } => change(&mut connection, Method::DELETE, &path_of(&room)?).await,
        RoomAction::Add { room, user } => {
            change(&mut connection, Method::PUT, &member_path_of(&room, &user)?).await
        }
        RoomAction::Remove { room, user } => {
            change(&mut connection, Method::DELETE, &member_path_of(&room, &user)?).await
        }
        RoomAction::Members { room } => members(&mut connection, &path_of(&room)?, is_json).await,
    }
}

fn path_of(room: &str) -> anyhow::Result<String> {
    let room = RoomId::new(room).with_context(|| format!("room '{room}'"))?;
    Ok(format!("/v1/rooms/{room}"))
}

fn member_path_of(room: &str, user: &str) -> anyhow::Result<String> {
    let id = UserId::new(user).with_context(|| format!("user '{user}'"))?;
    Ok(format!("{}/members/{id}", path_of(room)?))
}

/// Prints nothing on success, like other commands that change something.
async fn change(connection: &mut Connection, method: Method, path: &str) -> anyhow::Result<()> {
    connection.request(method, path, String::new()).await?.success()?;
    Ok(())
}

async fn members(connection: &mut Connection, path: &str, is_json: bool) -> anyhow::Result<()> {
    if !is_json {
        print(&format!("{:<32} {:>10}\n", "member", "read"))?;
    }
    let mut after = String::new();
    loop {
        let page = connection.get(&format!("{path}/members?limit={PAGE}{after}")).await?;
        for member in page.get("members").and_then(Value::as_array).into_iter().flatten() {
            if is_json {
                print_json(member)?;
                continue;
            }
            let user = member.get("userId").and_then(Value::as_str).unwrap_or_default();
            let read = member.get("readSeq").and_then(Value::as_u64).unwrap_or_default();
            print(&format!("{user:<32} {read:>10}\n"))?;
        }
        let Some(next) = page.get("next").and_then(Value::as_str) else { return Ok(()) };
        // The only special characters of ids are '@' and ':', which queries may contain.
        after = format!("&after={next}");
    }
}
