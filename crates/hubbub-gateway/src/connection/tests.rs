use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use hubbub_core::Outcome;
use hubbub_pipeline::SendLane;

use super::pending::{Encoder, Pending};
use super::socket::BACKLOG_BYTES_MAX;
use super::*;
use crate::problem::Problem;
use crate::server::Shutdown;

/// Each byte is a request. Its answer is the byte, as many times as the protocol was told to; `!` cuts the connection and
/// `.` ends it.
struct Echo {
    pending: Pending<u8>,
    answer_bytes: usize,
    backlog_max: Arc<std::sync::atomic::AtomicUsize>,
}

struct Repeat(usize);

impl Encoder<u8> for Repeat {
    fn is_ready(&mut self, _: &mut u8) -> bool {
        true
    }

    fn answer(&mut self, answer: u8, out: &mut Vec<u8>) {
        out.resize(out.len() + self.0, answer);
    }

    fn outcome(&mut self, _: &Outcome, _: &mut Vec<u8>) {
        unreachable!("nothing is submitted");
    }

    fn failure(&mut self, _: &Problem, _: usize, _: Vec<SendLane>, _: &mut Vec<u8>) {
        unreachable!("nothing is submitted");
    }
}

impl Protocol for Echo {
    const UNANSWERED_MAX: usize = 8;
    const ANSWERS_HALF_CLOSED: bool = true;

    fn decode(&mut self, _: &mut Context<'_>, _: &mut Io, input: &mut [u8], _: &mut OpBatch) -> Flow {
        for byte in input {
            match byte {
                b'!' => return Flow::Cut,
                b'.' => return Flow::Drain,
                byte => self.pending.push(*byte),
            }
        }
        Flow::Continue
    }

    fn encode(&mut self, _: &mut Context<'_>, io: &mut Io) -> Flow {
        self.pending.encode(&mut Repeat(self.answer_bytes), &mut io.socket);
        self.backlog_max.fetch_max(io.socket.backlog_bytes(), std::sync::atomic::Ordering::Relaxed);
        Flow::Continue
    }

    fn unanswered(&self) -> usize {
        self.pending.unanswered()
    }

    fn is_drained(&self, _: &Socket) -> bool {
        self.pending.unanswered() == 0
    }

    fn on_timer(&mut self, _: &mut Context<'_>, _: &mut Io) -> Flow {
        Flow::Continue
    }

    fn on_shutdown(&mut self, _: &mut Io) {}

    fn on_close(&mut self, socket: &mut Socket) {
        socket.out().extend_from_slice(b"bye");
    }
}

/// A client of an [`Echo`], whose task runs beside it, what ends the server, and the largest backlog there was.
struct Served {
    client: TcpStream,
    task: tokio::task::JoinHandle<()>,
    stopper: crate::server::Stopper,
    backlog_max: Arc<std::sync::atomic::AtomicUsize>,
}

async fn serve(answer_bytes: usize) -> Served {
    serve_among(&crate::OutgoingMemory::new(usize::MAX, Arc::default()), answer_bytes).await
}

/// Bytes that the system takes for a client at a time. With its own choice, of megabytes, it may take nearly all of the last
/// answers that were made for a client who reads nothing.
const TAKEN_BYTES: u32 = 8 * 1024;

async fn serve_among(all: &Arc<crate::OutgoingMemory>, answer_bytes: usize) -> Served {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_send_buffer_size(TAKEN_BYTES).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let stream = listener.accept().await.unwrap().0;
    let (stopper, shutdown) = Shutdown::new();
    let backlog_max = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let waiter = Arc::new(Waiter::ordered());
    let pending = Pending::new(waiter.clone());
    let protocol = Echo { pending, answer_bytes, backlog_max: backlog_max.clone() };
    let connection = Connection::new(Socket::new(stream), waiter, Reader::new(all), protocol);
    let task = tokio::spawn(async move { connection.run(&shutdown).await });
    Served { client, task, stopper, backlog_max }
}

fn answers(requests: &[u8], answer_bytes: usize) -> Vec<u8> {
    requests.iter().flat_map(|byte| std::iter::repeat_n(*byte, answer_bytes)).collect()
}

#[tokio::test]
async fn what_a_slow_reader_gets_is_whole_and_in_order() {
    const ANSWER_BYTES: usize = 100_000;
    let Served { mut client, task, stopper: _stopper, backlog_max } = serve(ANSWER_BYTES).await;
    let requests: Vec<u8> = (0..120).map(|number| b'A' + number % 26).collect();
    for request in requests.chunks(7) {
        client.write_all(request).await.unwrap();
    }
    client.shutdown().await.unwrap();
    let mut heard = Vec::new();
    client.read_to_end(&mut heard).await.unwrap();
    task.await.unwrap();
    let expected = [answers(&requests, ANSWER_BYTES), b"bye".to_vec()].concat();
    assert!(heard == expected, "{} of {} bytes", heard.len(), expected.len());
    let backlog_max = backlog_max.load(std::sync::atomic::Ordering::Relaxed);
    assert!(backlog_max < BACKLOG_BYTES_MAX + ANSWER_BYTES, "{backlog_max}");
}

#[tokio::test]
async fn what_is_sent_before_a_cut_is_a_prefix() {
    let Served { mut client, task, stopper: _stopper, .. } = serve(50_000).await;
    client.write_all(b"abcdefgh!i").await.unwrap();
    let mut heard = Vec::new();
    client.read_to_end(&mut heard).await.unwrap();
    drop(client);
    task.await.unwrap();
    let heard = heard.strip_suffix(b"bye").unwrap();
    assert!(answers(b"abcdefgh", 50_000).starts_with(heard));
}

#[tokio::test]
async fn nothing_behind_the_last_request_is_answered() {
    let Served { mut client, task, stopper: _stopper, .. } = serve(2).await;
    client.write_all(b"ab.cd").await.unwrap();
    let mut heard = Vec::new();
    client.read_to_end(&mut heard).await.unwrap();
    drop(client);
    task.await.unwrap();
    assert_eq!(heard, b"aabbbye");
}

#[tokio::test]
async fn a_shutdown_answers_what_was_read() {
    let Served { mut client, task, stopper, .. } = serve(3).await;
    client.write_all(b"xyz").await.unwrap();
    let mut heard = [0; 9];
    client.read_exact(&mut heard).await.unwrap();
    stopper.stop();
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.unwrap();
    drop(client);
    task.await.unwrap();
    assert_eq!((&heard, &rest[..]), (b"xxxyyyzzz", &b"bye"[..]));
}

#[tokio::test]
async fn an_idle_connection_keeps_no_buffer() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let mut socket = Socket::new(listener.accept().await.unwrap().0);
    let mut spare = Vec::new();
    for turn in 0..3_u8 {
        socket.lend(&mut spare);
        socket.out().extend_from_slice(&[turn; 5_000]);
        std::future::poll_fn(|context| socket.poll_flush(context)).await.unwrap();
        socket.reclaim(&mut spare);
        assert_eq!((socket.out().capacity(), socket.out_begins_at()), (0, 5_000 * (u64::from(turn) + 1)));
        assert!(spare.is_empty() && spare.capacity() >= 5_000, "the buffer is used again");
    }
    // What the peer has not taken is kept, and written first.
    socket.lend(&mut spare);
    socket.out().extend_from_slice(b"first");
    socket.reclaim(&mut spare);
    assert!(spare.is_empty());
    socket.lend(&mut spare);
    socket.out().extend_from_slice(b"second");
    std::future::poll_fn(|context| socket.poll_flush(context)).await.unwrap();
    socket.reclaim(&mut spare);
    assert_eq!((socket.out().capacity(), socket.out_begins_at()), (0, 15_011));
    let mut heard = vec![0; 15_011];
    client.read_exact(&mut heard).await.unwrap();
    assert!(heard.ends_with(b"firstsecond"));
}

/// Of two clients that take nothing, the one that has taken nothing for longer is cut off when there is too much for both.
#[tokio::test]
async fn who_takes_nothing_for_longest_is_cut_off() {
    const ANSWER_BYTES: usize = 100_000;
    let metrics = Arc::new(hubbub_pipeline::Metrics::default());
    // What one of them holds is more than half of it.
    let all = crate::OutgoingMemory::new(BACKLOG_BYTES_MAX + BACKLOG_BYTES_MAX / 2, metrics.clone());
    // More than the system takes for a client.
    let requests = vec![b'a'; 200];
    let (mut first, mut second) =
        (serve_among(&all, ANSWER_BYTES).await, serve_among(&all, ANSWER_BYTES).await);
    for served in [&mut first, &mut second] {
        served.client.write_all(&requests).await.unwrap();
        while metrics.unread_bytes.get() < 100_000 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    first.task.await.unwrap();
    assert_eq!(metrics.unread_given_up.get(), 1);
    let mut heard = vec![0; requests.len() * ANSWER_BYTES];
    second.client.read_exact(&mut heard).await.unwrap();
    assert!(!second.task.is_finished() && metrics.unread_bytes.get() == 0);
}
