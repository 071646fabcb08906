//! `hubbub send`: sends a message, or each line of standard input.

use hubbub_core::RoomId;
use hyper::Method;
use serde_json::{Value, json};

use super::session::{Session, Texts, object};
use super::{is_true, show};
use crate::cli::{SendArgs, USER_DEFAULT};

pub(crate) async fn send(args: SendArgs) -> anyhow::Result<()> {
    let SendArgs { room, text, user, id, kind, client } = args;
    let path = format!("/v1/rooms/{}/messages", room);
    let mut session = Session::new(&client)?;
    let mut texts = Texts::new(text, id)?;
    while let Some((text, id)) = texts.next().await? {
        // A token has a name of its own.
        let is_named = !session.has_token || user.as_str() != USER_DEFAULT;
        let message = object([
            ("userId", is_named.then(|| json!(user.as_str()))),
            ("message", Some(json!(text))),
            ("messageId", Some(json!(id))),
            ("messageType", Some(json!(kind))),
        ]);
        let answer = session.retry(Method::POST, &path, message).await?;
        show(client.json, &answer.success()?, |receipt| receipt_line(receipt, &room))?;
    }
    Ok(())
}

fn receipt_line(receipt: &Value, room: &RoomId) -> String {
    let Some(seq) = receipt.get("seq").and_then(Value::as_u64) else {
        // A broker has it; the store will number it.
        return format!("accepted for {room}\n");
    };
    let how = if is_true(receipt, "duplicate") { "was stored before" } else { "stored" };
    format!("{how} as message {seq} of {room}\n")
}
