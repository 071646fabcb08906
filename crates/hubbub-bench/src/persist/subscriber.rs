//! From publishing to hearing: a WebSocket that follows a few rooms and compares each message's timestamp, which is
//! when it was published, with its arrival.

use std::collections::HashMap;
use std::sync::Arc;

use hubbub_core::Timestamp;
use hubbub_core::invariant::saturate;
use parking_lot::Mutex;
use serde::Deserialize;

use super::texts::Texts;
use crate::client::follow::{Listener, follow};
use crate::client::{Cause, Target};
use crate::record::Dist;

#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) latency: Dist,
    /// Messages whose number was not greater than the one before in their room.
    pub(crate) misordered: u64,
    pub(crate) subscribed: u64,
    /// Why nothing more could be heard, before anybody stopped it.
    pub(crate) lost: Option<Cause>,
}

impl Heard {
    pub(crate) fn faults(&self) -> Vec<String> {
        let misordered =
            (self.misordered > 0).then(|| format!("{} arrived again or out of order", self.misordered));
        let lost = self.lost.map(|cause| {
            format!(
                "the listener lost its connection ({cause:?}): arrival times are only of what came before"
            )
        });
        misordered.into_iter().chain(lost).collect()
    }
}

#[derive(Deserialize)]
struct Frame {
    #[serde(rename = "type")]
    kind: String,
    #[serde(rename = "roomId", default)]
    room: String,
    #[serde(default)]
    seq: u64,
    #[serde(default)]
    timestamp: String,
}

/// Follows the first `rooms` rooms until the task is stopped; should the connection end before, notes why.
pub(crate) async fn listen(target: Target, rooms: u64, heard: Arc<Mutex<Heard>>) {
    let rooms = (0..rooms).map(|number| (Texts::room_name(number), "\"last\":0".to_owned()));
    let mut subscriber = Subscriber { heard: Arc::clone(&heard), last: HashMap::new() };
    let Err(cause) = follow(&target, "listener", rooms, &mut subscriber, crate::machine::seed()).await;
    heard.lock().lost = Some(cause);
}

struct Subscriber {
    heard: Arc<Mutex<Heard>>,
    /// The newest `seq` of each room.
    last: HashMap<String, u64>,
}

impl Listener for Subscriber {
    fn hear(&mut self, text: &str) -> Result<(), Cause> {
        let frame: Frame = serde_json::from_str(text).map_err(|_| Cause::Protocol)?;
        let mut heard = self.heard.lock();
        match frame.kind.as_str() {
            "subscribed" => heard.subscribed += 1,
            "message" => {
                let seq = frame.seq;
                let is_misordered = self.last.insert(frame.room, seq).is_some_and(|last| seq <= last);
                heard.misordered += u64::from(is_misordered);
                if let Some(sent) = Timestamp::parse(&frame.timestamp) {
                    let us = crate::machine::now().as_micros().saturating_sub(sent.as_micros());
                    heard.latency.add(saturate(us));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use hubbub_ws::{handshake, write};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn what_comes_again_is_noticed() {
        let (heard, last) = (Arc::<Mutex<Heard>>::default(), HashMap::new());
        let mut subscriber = Subscriber { heard: Arc::clone(&heard), last };
        for (room, seq) in [("a", 1), ("b", 1), ("a", 2), ("a", 2)] {
            let text = format!(
                "{{\"type\":\"message\",\"roomId\":\"{room}\",\"seq\":{seq},\"timestamp\":\"2026-01-01T00:00:00Z\"}}"
            );
            subscriber.hear(&text).unwrap();
        }
        let heard = heard.lock();
        assert_eq!((heard.misordered, heard.latency.len()), (1, 4));
        assert_eq!(heard.faults(), ["1 arrived again or out of order"]);
    }

    #[tokio::test]
    async fn a_listener_that_is_cut_off_is_a_fault() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = Target::parse(&server.local_addr().unwrap().to_string()).unwrap();
        let heard = Arc::new(Mutex::new(Heard::default()));
        let listening = tokio::spawn(listen(target, 1, heard.clone()));
        let (mut peer, _) = server.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            assert!(peer.read_buf(&mut request).await.unwrap() > 0);
        }
        let request = String::from_utf8(request).unwrap();
        let key = request.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: ")).unwrap();
        let answer = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: {}\r\n\r\n",
            handshake::accept_key(key)
        );
        peer.write_all(answer.as_bytes()).await.unwrap();
        // It asks for its room, and hears the end.
        assert!(peer.read_buf(&mut Vec::new()).await.unwrap() > 0);
        assert_eq!(heard.lock().lost, None);
        let mut close = Vec::new();
        write::write_close(&mut close, 1001, "");
        peer.write_all(&close).await.unwrap();
        listening.await.unwrap();
        assert_eq!(heard.lock().lost, Some(Cause::Closed));
        assert_eq!(heard.lock().faults().len(), 1);
    }
}
