//! `hubbub tail`: follows a room. After a lost connection it continues behind the last message it printed.

use hubbub_client::{Event, Message, Ready, Reset, Start, SubscribeOptions};
use hyper::Method;
use serde::Serialize;

use super::address::{Server, TIMEOUT};
use super::connection::refused;
use super::follow::Attention;
use super::{message_line, show, text};
use crate::cli::TailArgs;
use crate::output::notice;

/// A message as the server's frame has it.
#[derive(Serialize)]
struct Frame {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(flatten)]
    message: Message,
}

pub(crate) async fn tail(args: TailArgs) -> anyhow::Result<()> {
    let mut server = args.client.server()?;
    if let Some(user) = args.user {
        server = server.with_user(user.to_string());
    }
    let client = server.client();
    let start = args.after.map_or(Start::Last(args.last), Start::after);
    let mut subscription = client.room(args.room.as_str()).subscribe(start, SubscribeOptions::default())?;
    let mut attention = Attention::new(client.connection());
    let (mut is_first, mut shown) = (true, 0);
    while args.count.is_none_or(|count| shown < count) {
        let before = subscription.position().seq;
        let Some(event) = attention.until(subscription.next()).await? else { break };
        match event.map_err(|error| refused(&error))? {
            Event::Message(message) => {
                shown += 1;
                let frame = serde_json::to_value(Frame { kind: "message", message })?;
                show(args.client.json, &frame, message_line)?;
            }
            Event::Ready(Ready { head: 0, .. }) if is_first => {
                say_if_missing(&server, args.room.as_str()).await
            }
            Event::Ready(_) => {}
            Event::Reset(reset) => {
                notice(&format!(
                    "{}; showing the room from its oldest message",
                    reset_reason(before, &reset)
                ));
            }
        }
        is_first = false;
    }
    Ok(())
}

/// Says so if there is no such room yet: the name may be a typo.
async fn say_if_missing(server: &Server, room: &str) {
    let path = format!("/v1/rooms/{room}/messages?limit=1");
    let answer = server.clone().connection().request(TIMEOUT, Method::GET, &path, "").await;
    // Whatever else the server says to it concerns the connection that follows.
    if answer.is_ok_and(|answer| text(&answer.body, "code") == "unknown_room") {
        notice(&format!("there is no room '{room}' yet; waiting for its first message"));
    }
}

/// Why the server cannot continue behind `seq`.
fn reset_reason(seq: u64, reset: &Reset) -> String {
    let Reset { oldest, head, history_replaced, .. } = *reset;
    if history_replaced {
        "the server's history was replaced".to_owned()
    } else if seq > head && head == 0 {
        format!("{seq} is beyond the newest message: the room has none")
    } else if seq > head {
        format!("{seq} is beyond the newest message, which is {head}")
    } else {
        format!("messages {} to {} are not kept any more", seq.saturating_add(1), oldest.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_names_its_cause() {
        let reason = |seq, history_replaced, oldest, head| {
            reset_reason(seq, &Reset { epoch: "e".to_owned(), oldest, head, history_replaced })
        };
        assert_eq!(reason(999, false, 1, 3), "999 is beyond the newest message, which is 3");
        assert_eq!(reason(999, false, 1, 0), "999 is beyond the newest message: the room has none");
        assert_eq!(reason(4, false, 9, 20), "messages 5 to 8 are not kept any more");
        assert_eq!(reason(4, true, 1, 20), "the server's history was replaced");
    }
}
