//! `POST /v1/messages`: one receipt or error for each line, in order, good and bad ones mixed, streamed.

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::tokens::read_until;
use crate::harness::{Server, Setup, in_time, texts};

#[tokio::test]
async fn ndjson_answers_line_by_line() {
    let server = Server::start();
    let good = |room: &str, text: &str| {
        json!({"roomId": room, "userId": "ada", "message": text, "messageId": text}).to_string()
    };
    let lines = [
        (good("a", "1"), "seq 1"),
        ("{".to_owned(), "malformed"),
        (good("a", "2"), "seq 2"),
        (json!({"userId": "ada"}).to_string(), "invalid"),
        (good("b", "1"), "seq 1"),
        (good("a", "1"), "duplicate 1"),
        (good("a", "1").replace("\"ada\"", "\"bob\""), "id_reused"),
        ("nonsense".to_owned(), "malformed"),
        (good("a", "3"), "seq 3"),
    ];
    // Empty lines and carriage returns do not count; the last line needs no end.
    let body: String = lines.iter().map(|(line, _)| format!("{line}\r\n\n")).collect();
    let answer = server.http().await.post("/v1/messages", body.trim_end().to_owned()).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/x-ndjson")));
    let shown: Vec<String> = answer.lines().iter().map(show).collect();
    assert_eq!(shown, lines.map(|(_, expected)| expected.to_owned()));
    assert_eq!(texts(&server.history("a").await), ["1", "2", "3"]);
    assert_eq!(texts(&server.history("b").await), ["1"]);
}

fn show(line: &Value) -> String {
    match (&line["seq"], &line["duplicate"], &line["code"]) {
        (seq, Value::Bool(false), _) => format!("seq {seq}"),
        (seq, Value::Bool(true), _) => format!("duplicate {seq}"),
        (_, _, code) => code.as_str().unwrap().to_owned(),
    }
}

#[tokio::test]
async fn a_long_stream_is_stored_in_order() {
    let server = Server::start();
    let line = |n: usize| {
        json!({"roomId": format!("r{}", n % 3), "userId": "ada", "message": n.to_string()}).to_string()
    };
    let body: String = (0..5_000).map(|n| line(n) + "\n").collect();
    let answers = server.http().await.post("/v1/messages", body).await.lines();
    assert_eq!(answers.len(), 5_000);
    for (n, answer) in answers.iter().enumerate() {
        assert_eq!(answer["seq"], n / 3 + 1, "line {n}: {answer}");
    }
    for room in 0..3 {
        let expected: Vec<String> = (room..5_000).step_by(3).map(|n| n.to_string()).collect();
        assert_eq!(texts(&server.history(&format!("r{room}")).await), expected);
    }
}

/// Short lines are long problems. They are answered before more of them are made.
#[tokio::test]
async fn many_short_lines_are_answered_piece_by_piece() {
    const LINES: usize = 8_000;
    let server = Server::start();
    let good = json!({"roomId": "r", "userId": "ada", "message": "last"}).to_string();
    let body = "x\n".repeat(LINES) + &good;
    let head = format!(
        "POST /v1/messages HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream.write_all((head + &body).as_bytes()).await.unwrap();
    let mut answer = String::new();
    in_time("the answers", stream.read_to_string(&mut answer)).await.unwrap();
    let (_, mut rest) = answer.split_once("\r\n\r\n").unwrap();
    let mut answers = Vec::new();
    while let Some((size, after)) = rest.split_once("\r\n")
        && let size = usize::from_str_radix(size, 16).unwrap()
        && size > 0
    {
        let piece: Vec<Value> =
            after[..size].lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(piece.len() <= 1_000, "{} lines at once", piece.len());
        answers.extend(piece);
        rest = &after[size + 2..];
    }
    assert_eq!(answers.len(), LINES + 1);
    assert!(answers[..LINES].iter().all(|answer| answer["code"] == "malformed"));
    assert_eq!(answers[LINES]["seq"], 1);
}

#[tokio::test]
async fn answers_are_streamed() {
    let server = Server::start();
    wait_for_each_answer(TcpStream::connect(server.address()).await.unwrap()).await;
}

/// Who waits to be asked for the body is, and then gets each answer at once.
#[tokio::test]
async fn a_body_is_asked_for() {
    let server = Setup::new().set("server.body_timeout=500ms").start();
    let head =
        "POST /v1/messages HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ntransfer-encoding: chunked\r\n\r\n";
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let asked = read_until(&mut stream, "\r\n\r\n").await;
    assert!(asked.starts_with("HTTP/1.1 100"), "{asked}");
    for seq in 1..=2 {
        let line = json!({"roomId": "lines", "userId": "ada", "message": "x"}).to_string() + "\n";
        stream.write_all(format!("{:x}\r\n{line}\r\n", line.len()).as_bytes()).await.unwrap();
        let answer = read_until(&mut stream, "\"duplicate\":false}").await;
        assert_eq!(answer.starts_with("HTTP/1.1 200"), seq == 1, "{answer}");
        assert!(answer.contains(&format!("\"seq\":{seq},")), "{answer}");
    }
    // Nobody waits for it for ever.
    let mut silent = TcpStream::connect(server.address()).await.unwrap();
    silent.write_all(head.as_bytes()).await.unwrap();
    let answer = read_until(&mut silent, "request_timeout").await;
    assert!(answer.contains("HTTP/1.1 408"), "{answer}");
}

/// Answers come while the request is still being written: a client may wait for one before it sends the next.
pub(crate) async fn wait_for_each_answer(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    stream
        .write_all(b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    for seq in 1..=3 {
        let line = json!({"roomId": "lines", "userId": "ada", "message": "x"}).to_string() + "\n";
        stream.write_all(format!("{:x}\r\n{line}\r\n", line.len()).as_bytes()).await.unwrap();
        let mut buffer = [0; 4096];
        while !answer.contains(&format!("\"seq\":{seq},")) {
            let count = in_time("an answer", stream.read(&mut buffer)).await.unwrap();
            assert_ne!(count, 0, "ended after {answer}");
            answer.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
        }
    }
}
