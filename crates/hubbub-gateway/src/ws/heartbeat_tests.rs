use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use hubbub_core::clock::ManualClock;
use hubbub_core::{MessageType, Op, OpBatch, Send};
use hubbub_pipeline::Waiter;
use hubbub_ws::{Event, Opcode, Reader, Role, write};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::Gateway;
use crate::auth::caller::{Caller, Identity};
use crate::connection::Connection;
use crate::connection::socket::Socket;
use crate::fixture::{self, now};
use crate::rates::Charged;
use crate::server::{Shutdown, Stopper};
use crate::ws::api::Api;
use crate::ws::peer::Opening;
use crate::ws::protocol::WebSocket;

const MESSAGES: usize = 40;
const PONG_TIMEOUT: Duration = Duration::from_millis(500);

/// A client of a server that pings often, with much to catch up. The system takes little for it at a time.
struct Link {
    stream: TcpStream,
    reader: Reader,
    messages: usize,
    closed: Option<u16>,
    _stopper: Stopper,
}

impl Link {
    async fn open() -> Self {
        Self::at(Arc::new(ManualClock::at(now()))).await
    }

    async fn at(clock: Arc<ManualClock>) -> Self {
        let mut gateway = fixture::gateway(clock).await;
        let limits = &mut Arc::get_mut(&mut gateway).unwrap().server;
        (limits.ping_interval, limits.pong_timeout) = (PONG_TIMEOUT, PONG_TIMEOUT);
        let text = "x".repeat(60_000);
        for number in 0..MESSAGES {
            let (id, mut ops) = (format!("m-{number}"), OpBatch::default());
            let kind = MessageType::Text;
            let (room, user, text, timestamp) = ("r", "ada", text.as_str(), now());
            ops.push(&Op::Send(Send { room, user, id: &id, username: None, text, kind, timestamp }));
            gateway.store.apply(&ops).unwrap();
        }
        let [at, from] = [(); 2].map(|()| TcpSocket::new_v4().unwrap());
        at.set_send_buffer_size(16 * 1024).unwrap();
        from.set_recv_buffer_size(16 * 1024).unwrap();
        at.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = at.listen(1).unwrap();
        let mut stream = from.connect(listener.local_addr().unwrap()).await.unwrap();
        let stopper = serve(gateway, listener.accept().await.unwrap().0);
        let mut frame = Vec::new();
        let subscribe = br#"{"type":"subscribe","roomId":"r","after":0}"#;
        write::write_masked(&mut frame, Opcode::Text, subscribe, [1, 2, 3, 4]);
        stream.write_all(&frame).await.unwrap();
        let reader = Reader::new(Role::Client, 1 << 20);
        Self { stream, reader, messages: 0, closed: None, _stopper: stopper }
    }

    /// Reads a little, and answers pings; `false` at the end.
    async fn read(&mut self) -> bool {
        let mut buffer = [0; 8 * 1024];
        let reading = tokio::time::timeout(Duration::from_secs(20), self.stream.read(&mut buffer));
        let Ok(count @ 1..) = reading.await.unwrap() else { return false };
        let mut pongs = Vec::new();
        let mut frames = self.reader.feed(&mut buffer[..count]);
        while let Some(event) = frames.next().unwrap() {
            match event {
                Event::Text(text) => self.messages += usize::from(text.starts_with("{\"type\":\"message\"")),
                Event::Ping(payload) => {
                    write::write_masked(&mut pongs, Opcode::Pong, payload, [1, 2, 3, 4]);
                }
                Event::Close { code, .. } => self.closed = code,
                Event::Binary(_) | Event::Pong(_) => {}
            }
        }
        self.stream.write_all(&pongs).await.is_ok()
    }
}

fn serve(gateway: Arc<Gateway>, stream: TcpStream) -> Stopper {
    let (stopper, shutdown) = Shutdown::new();
    let waiter = Arc::new(Waiter::ordered());
    let from = (IpAddr::V4(Ipv4Addr::LOCALHOST), Charged::default());
    let opening = Opening::Known(Caller::unnamed(Identity::Anyone).unwrap());
    let reader = crate::outgoing_memory::Reader::new(&gateway.outgoing_memory);
    let protocol = WebSocket::new(gateway, waiter.clone(), Api, opening, from);
    let connection = Connection::new(Socket::new(stream), waiter, reader, protocol);
    tokio::spawn(async move { connection.run(&shutdown).await });
    stopper
}

/// What waits for it takes longer than it has for a pong, and as long as the server waits for it to take that, it reads nothing.
#[tokio::test]
async fn a_slow_link_that_catches_up_is_left_alone() {
    let mut link = Link::open().await;
    let begun = tokio::time::Instant::now();
    while link.messages < MESSAGES {
        assert!(link.read().await, "closed with {:?} after {} messages", link.closed, link.messages);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(begun.elapsed() > 4 * PONG_TIMEOUT, "too quick to tell");
}

#[tokio::test]
async fn a_peer_that_takes_nothing_is_cut() {
    let mut link = Link::open().await;
    tokio::time::sleep(4 * PONG_TIMEOUT).await;
    while link.read().await {}
    assert_eq!(link.closed, Some(4408));
    assert!(link.messages < MESSAGES, "what waits for it is not kept");
}

/// What came of a message whose end, and the pong behind it, are still on the way after several times the time for a pong.
async fn trickle(link: &mut Link, mut on_byte: impl FnMut()) -> bool {
    while link.messages < MESSAGES {
        assert!(link.read().await);
    }
    let mut frame = Vec::new();
    write::write_masked(&mut frame, Opcode::Text, br#"{"type":"ping"}"#, [1, 2, 3, 4]);
    let begun = tokio::time::Instant::now();
    for part in frame.chunks(1) {
        on_byte();
        if link.stream.write_all(part).await.is_err() {
            break;
        }
        tokio::time::sleep(PONG_TIMEOUT / 4).await;
    }
    assert!(begun.elapsed() > 4 * PONG_TIMEOUT, "too quick to tell");
    link.read().await
}

#[tokio::test]
async fn a_pong_may_stand_behind_a_message_that_still_comes() {
    let mut link = Link::open().await;
    assert!(trickle(&mut link, || {}).await);
    assert_eq!(link.closed, None);
}

#[tokio::test]
async fn a_message_that_trickles_is_cut_all_the_same() {
    let clock = Arc::new(ManualClock::at(now()));
    let mut link = Link::at(clock.clone()).await;
    // The time that a whole message may take is over before its last byte.
    trickle(&mut link, || clock.advance_micros(2_000_000)).await;
    assert_eq!(link.closed, Some(4408));
}
