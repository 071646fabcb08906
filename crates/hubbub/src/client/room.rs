//! `hubbub room`: manages one room and its members.

use anyhow::Context;
use hubbub_core::UserId;
use hyper::Method;
use serde_json::Value;

use super::session::{Pages, Session, object};
use super::{number, room_id, text};
use crate::cli::{ActionArgs, RoomAction};

pub(crate) async fn run(args: ActionArgs<RoomAction>) -> anyhow::Result<()> {
    let mut session = Session::new(&args.client)?;
    match args.action {
        RoomAction::Set { room, title, members_only, retention } => {
            let retention = retention.map(|time| if time == "off" { Value::Null } else { time.into() });
            let settings = object([
                ("title", title.map(Value::from)),
                ("membersOnly", members_only.map(Value::from)),
                ("retention", retention),
            ]);
            session.put(&path_of(&room)?, settings, "roomId").await
        }
        RoomAction::Delete { room } => session.change(Method::DELETE, &path_of(&room)?).await,
        RoomAction::Add { room, user } => session.change(Method::PUT, &member_path_of(&room, &user)?).await,
        RoomAction::Remove { room, user } => {
            session.change(Method::DELETE, &member_path_of(&room, &user)?).await
        }
        RoomAction::Members { room } => {
            let pages = Pages::new(format!("{}/members", path_of(&room)?), "members", usize::MAX);
            let head = format!("{:<32} {:>10}\n", "member", "read");
            let line = |member: &Value| {
                format!("{:<32} {:>10}\n", text(member, "userId"), number(member, "readSeq"))
            };
            session.list(pages, &head, line).await
        }
    }
}

fn path_of(room: &str) -> anyhow::Result<String> {
    Ok(format!("/v1/rooms/{}", room_id(room)?))
}

fn member_path_of(room: &str, user: &str) -> anyhow::Result<String> {
    let id = UserId::new(user).with_context(|| format!("user '{user}'"))?;
    Ok(format!("{}/members/{id}", path_of(room)?))
}
