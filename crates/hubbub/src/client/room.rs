//! `hubbub room`: manages one room and its members.

use hubbub_core::{RoomId, UserId};
use hyper::Method;
use serde_json::Value;

use super::pages::Pages;
use super::session::{Session, object};
use super::table::Table;
use super::{number, text};
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
            session.put(&path_of(&room), settings, "roomId").await
        }
        RoomAction::Delete { room } => {
            session.change(Method::DELETE, &path_of(&room), ("deleted", room.as_str())).await
        }
        RoomAction::Add { room, user } => {
            session.change(Method::PUT, &member_path_of(&room, &user), ("added", user.as_str())).await
        }
        RoomAction::Remove { room, user } => {
            session.change(Method::DELETE, &member_path_of(&room, &user), ("removed", user.as_str())).await
        }
        RoomAction::Members { room } => {
            let pages = Pages::new(format!("{}/members", path_of(&room)), "members", usize::MAX);
            let row =
                |member: &Value| [text(member, "userId").to_owned(), number(member, "readSeq").to_string()];
            session.table(pages, Table::new(["member", "read"]), row).await
        }
    }
}

fn path_of(room: &RoomId) -> String {
    format!("/v1/rooms/{room}")
}

fn member_path_of(room: &RoomId, user: &UserId) -> String {
    format!("{}/members/{user}", path_of(room))
}
