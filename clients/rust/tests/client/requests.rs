//! Queues and keys.

use std::collections::HashSet;
use std::time::Duration;

use hubbub_client::{
    Client, Error, HistoryQuery, KeyEvent, Options, PutOptions, QueueSendOptions, Start, TakeOptions,
};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::scripted::{Requests, answering, quick, within};

fn lines(requests: &Requests) -> Vec<String> {
    requests.lock().iter().map(|asked| asked.line.clone()).collect()
}

/// The condition of a request.
fn condition(head: &str) -> &str {
    head.split("if-match: ").nth(1).map_or("", |rest| rest.split("\r\n").next().unwrap())
}

#[tokio::test]
async fn a_queue_message_is_sent_again_with_its_id() {
    let overloaded = Some((503, "Retry-After: 0\r\n", r#"{"code":"overloaded","retryable":true}"#));
    let replies = vec![None, overloaded, Some((502, "", "bad gateway")), Some((201, "", r#"{"id":"7"}"#))];
    let (client, requests) = answering(quick(), replies).await;
    let queue = client.queue("a b");
    let sent = queue.send("text", QueueSendOptions::default());
    assert_eq!(within(sent).await.unwrap().id, "7");
    let requests = requests.lock();
    let ids: HashSet<&str> = requests.iter().map(|asked| asked.body["messageId"].as_str().unwrap()).collect();
    assert_eq!((requests.len(), ids.len()), (4, 1));
    assert_eq!(requests[0].line, "post /v1/queues/a%20b/messages");
    assert_eq!(requests[0].body["sender"], "ada");
}

#[tokio::test]
async fn a_final_refusal_is_not_repeated() {
    let unknown = Some((404, "", r#"{"code":"unknown_queue","retryable":false}"#));
    let (client, requests) = answering(quick(), vec![unknown]).await;
    let error = within(client.queue("q").take(&TakeOptions::default())).await.unwrap_err();
    assert_eq!((error.code.as_str(), error.status, requests.lock().len()), ("unknown_queue", 404, 1));
}

#[tokio::test]
async fn the_patience_ends_before_a_pause_that_would_exceed_it() {
    let many = Some((429, "Retry-After: 3600\r\n", r#"{"code":"too_many_requests","retryable":true}"#));
    let options = Options { attempts_min: 6, ..quick() };
    let (client, requests) = answering(options, vec![many]).await;
    let error = within(client.queue("q").send("text", QueueSendOptions::default())).await.unwrap_err();
    assert_eq!((error.code.as_str(), requests.lock().len()), ("too_many_requests", 1));
    assert_eq!(error.retry_after, Duration::from_secs(3_600));
}

#[tokio::test]
async fn so_many_attempts_are_made_whatever_the_patience() {
    let overloaded = Some((503, "Retry-After: 0\r\n", r#"{"code":"overloaded","retryable":true}"#));
    let options = Options { attempts_min: 3, patience: Duration::ZERO, ..quick() };
    let (client, requests) = answering(options, vec![overloaded]).await;
    let error = within(client.queue("q").send("text", QueueSendOptions::default())).await.unwrap_err();
    assert_eq!((error.code.as_str(), requests.lock().len()), ("overloaded", 3));
}

/// A server that hangs is not asked six times for as long as one answer may take.
#[tokio::test]
async fn attempts_end_when_one_answer_is_late() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let answer_max = Duration::from_millis(200);
    let options = Options { attempts_min: 6, patience: Duration::ZERO, answer_max, ..quick() };
    let client = Client::new(&format!("http://{}", listener.local_addr().unwrap()), options).unwrap();
    let error = within(client.queue("q").send("text", QueueSendOptions::default())).await.unwrap_err();
    assert!(error.is("unreachable"), "{error:?}");
    listener.accept().await.unwrap();
    let another = tokio::time::timeout(Duration::from_millis(50), listener.accept()).await;
    assert!(another.is_err(), "one attempt");
}

/// They opened at the same time, and lead to the same nowhere.
#[tokio::test]
async fn after_an_attempt_without_an_answer_no_kept_connection_is_used() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = Options { answer_max: Duration::from_millis(300), ..quick() };
    let client = Client::new(&format!("http://{}", listener.local_addr().unwrap()), options).unwrap();
    let mut silent = Vec::new();
    for _ in 0..3 {
        client.connect().await.unwrap();
        silent.push(listener.accept().await.unwrap().0);
    }
    tokio::spawn(async move {
        let (mut answering, _) = listener.accept().await.unwrap();
        assert!(answering.read(&mut [0; 1_000]).await.unwrap() > 0);
        let answer = "HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{\"messages\":3}";
        answering.write_all(answer.as_bytes()).await.unwrap();
        std::future::pending::<()>().await;
    });
    assert_eq!(within(client.queue("q").state()).await.unwrap().messages, 3);
    let mut asked = 0;
    for stream in &mut silent {
        let read = tokio::time::timeout(Duration::from_secs(5), stream.read(&mut [0; 1_000])).await;
        asked += usize::from(read.unwrap().unwrap() > 0);
    }
    assert_eq!(asked, 1);
}

#[tokio::test]
async fn names_of_dots_are_escaped() {
    let found = Some((200, "", r#"{"messages":[]}"#));
    let (client, requests) = answering(quick(), vec![found]).await;
    for name in [".", ".."] {
        within(client.queue(name).take(&TakeOptions::default())).await.unwrap();
        within(client.room(name).history(HistoryQuery::default())).await.unwrap_err();
    }
    let [queue, room] = ["post /v1/queues/", "get /v1/rooms/"];
    let expected = ["%2e", "%2e%2e"]
        .map(|name| [format!("{queue}{name}/lease"), format!("{room}{name}/messages?")])
        .concat();
    assert_eq!(lines(&requests), expected);
}

/// What a server asks for may be anything.
#[tokio::test]
async fn no_wait_is_too_long_to_be_refused() {
    for headers in ["Retry-After: 1e300\r\n", "Retry-After: -1\r\n", "Retry-After: 99999999999\r\n"] {
        let done = Some((200, "", r#"{"messages":[]}"#));
        let (client, _) =
            answering(quick(), vec![Some((429, headers, r#"{"code":"x","retryable":true}"#)), done]).await;
        let taken = within(client.queue("q").take(&TakeOptions::default())).await;
        assert_eq!(taken.is_err(), headers.contains("99999999999"), "{headers}");
    }
}

#[tokio::test]
async fn what_an_attempt_without_an_answer_may_have_done_is_told() {
    let failed = Some((412, "", r#"{"code":"condition_failed","retryable":false}"#));
    // A proxy that lost the server after the request.
    let bad_gateway = Some((502, "", "bad gateway"));
    for (code, replies) in [
        ("condition_failed", vec![failed]),
        ("unconfirmed", vec![None, failed]),
        ("unconfirmed", vec![bad_gateway, failed]),
    ] {
        let (client, requests) = answering(quick(), replies).await;
        let only_if = PutOptions { revision: Some(3), ..PutOptions::default() };
        let error = within(client.keys().put("k", "v", only_if)).await.unwrap_err();
        assert_eq!((error.code.as_str(), condition(&requests.lock()[0].head)), (code, "\"3\""));
    }
    let gone = Some((404, "Content-Type: application/problem+json\r\n", r#"{"code":"unknown_key"}"#));
    let seen = Some((200, "ETag: \"4\"\r\n", ""));
    for (was_there, replies) in [
        (false, vec![seen, gone, gone]),
        (true, vec![seen, None, gone]),
        (true, vec![seen, bad_gateway, gone]),
    ] {
        let (client, _) = answering(quick(), replies).await;
        assert_eq!(within(client.keys().delete("k", None)).await.unwrap(), was_there);
    }
}

#[tokio::test]
async fn a_change_names_the_revision_it_saw() {
    let faster = Some((412, "", r#"{"code":"condition_failed","retryable":false}"#));
    let seen = |tag| Some((200, tag, ""));
    let replies = vec![seen("ETag: \"4\"\r\n"), faster, seen("ETag: \"6\"\r\n"), seen("ETag: \"7\"\r\n")];
    let (client, requests) = answering(quick(), replies).await;
    let keys = client.keys();
    let put = keys.put(b"a/\xff", "v", PutOptions::default());
    assert_eq!(within(put).await.unwrap(), 7);
    let asked: Vec<String> =
        requests.lock().iter().map(|asked| format!("{} {}", asked.line, condition(&asked.head))).collect();
    let (head, path) = ("head /kv/a/%ff ", "put /kv/a/%ff");
    assert_eq!(asked, [head, &format!("{path} \"4\""), head, &format!("{path} \"6\"")]);
}

#[tokio::test]
async fn a_handler_that_fails_gives_its_message_back() {
    let delivery = r#"{"messages":[{"id":"7","receipt":"7-1","sender":"ann","message":"text"}]}"#;
    let over = Some((404, "", r#"{"code":"unknown_queue","retryable":false}"#));
    let (back, done) = (Some((200, "", "{}")), Some((204, "", "")));
    let replies = vec![Some((200, "", delivery)), back, Some((200, "", delivery)), done, over];
    let (client, requests) = answering(quick(), replies).await;
    let (mut handled, mut failures) = (0, Vec::new());
    let handler = async |delivery: &hubbub_client::Delivery| {
        handled += 1;
        assert_eq!(delivery.message, "text");
        if handled == 1 { Err(Error::from(hubbub_client::Problem::default())) } else { Ok(()) }
    };
    let queue = client.queue("q");
    let polled = queue.poll(Duration::from_secs(30), handler, |error| failures.push(error));
    assert_eq!(within(polled).await.unwrap_err().code, "unknown_queue");
    assert_eq!(failures.len(), 1);
    let (take, message) = ("post /v1/queues/q/lease", "post /v1/queues/q/messages/7");
    assert_eq!(lines(&requests), [take, &format!("{message}/nack"), take, &format!("{message}/ack"), take]);
}

#[tokio::test]
async fn a_lost_watch_goes_on_and_another_history_is_one_reset() {
    let first = "event: watching\ndata: {\"epoch\":\"e\",\"after\":3}\n\n\
                 id: e:5\nevent: put\ndata: {\"key\":\"a%20b\",\"revision\":5}\n\n";
    let stream = |text| Some((200, "Content-Type: text/event-stream\r\n", text));
    let reset = Some((410, "", r#"{"code":"reset","epoch":"f","oldest":1,"head":9}"#));
    let second = "id: f:10\nevent: delete\ndata: {\"key\":\"c\",\"revision\":10}\n\n";
    let (client, requests) = answering(quick(), vec![stream(first), reset, stream(second)]).await;
    let mut watch = client.keys().watch("a b", Start::after(3));
    let mut next = async || within(watch.next()).await.unwrap().unwrap();
    assert_eq!(next().await, KeyEvent::Ready { epoch: "e".into(), revision: 3 });
    let KeyEvent::Change(put) = next().await else { panic!("no change") };
    assert_eq!(
        (put.kind.as_str(), &*put.text(), put.escaped.as_str(), put.revision),
        ("put", "a b", "a%20b", 5)
    );
    let KeyEvent::Reset(reset) = next().await else { panic!("no reset") };
    assert_eq!((reset.head, reset.history_replaced), (9, true));
    let KeyEvent::Change(gone) = next().await else { panic!("no change") };
    assert_eq!((gone.kind.as_str(), gone.revision), ("delete", 10));
    let asked = lines(&requests);
    let path = "get /v1/kv/watch?prefix=a%2520b&after=";
    assert_eq!(asked, [format!("{path}3"), format!("{path}5&epoch=e"), format!("{path}9&epoch=f")]);
}

#[tokio::test]
async fn a_watch_that_is_asked_again_and_again_opens_one_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = Client::new(&format!("http://{}", listener.local_addr().unwrap()), quick()).unwrap();
    let mut watch = client.keys().watch("", Start::Now);
    let ask = Duration::from_millis(1);
    let mut stream = loop {
        tokio::select! {
            accepted = listener.accept() => break accepted.unwrap().0,
            asked = tokio::time::timeout(ask, watch.next()) => assert!(asked.is_err()),
        }
    };
    for _ in 0..3 {
        assert!(tokio::time::timeout(ask, watch.next()).await.is_err());
    }
    let event = "event: watching\ndata: {\"epoch\":\"e\",\"after\":3}\n\n";
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", event.len());
    stream.write_all(format!("{head}{event}").as_bytes()).await.unwrap();
    let ready = within(watch.next()).await.unwrap().unwrap();
    assert_eq!(ready, KeyEvent::Ready { epoch: "e".into(), revision: 3 });
}
