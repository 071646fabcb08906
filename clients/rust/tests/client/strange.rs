//! Answers of somebody between the client and the server.

use std::time::Duration;

use hubbub_client::{Client, Error, HistoryQuery, PutOptions, QueueSendOptions, QueueSettings, TakeOptions};

use crate::scripted::{answering, quick, within};

/// How these calls of the client end.
macro_rules! codes {
    ($($work:expr),+ $(,)?) => { vec![$(code(within($work).await)),+] };
}

fn code<T>(ended: Result<T, Error>) -> String {
    ended.err().map_or_else(String::new, |error| error.code.clone())
}

fn only_if(revision: u64) -> PutOptions {
    PutOptions { revision: Some(revision), ..PutOptions::default() }
}

#[tokio::test]
async fn only_the_server_says_that_there_is_no_such_key() {
    let ours = Some((404, "Content-Type: application/problem+json\r\n", ""));
    let (client, _) = answering(quick(), vec![ours]).await;
    assert!(!within(client.keys().delete("k", None)).await.unwrap());
    let theirs = Some((404, "Content-Type: text/html\r\n", ""));
    let (client, requests) = answering(quick(), vec![theirs]).await;
    let keys = client.keys();
    let found = codes![keys.delete("k", None), keys.put("k", "v", PutOptions::default()), keys.get("k")];
    assert_eq!(found, ["not_found"; 3]);
    assert_eq!(requests.lock().len(), 3);
}

#[tokio::test]
async fn a_success_without_the_tag_of_a_key_is_not_the_servers() {
    for headers in ["", "ETag: \"57-gzip\"\r\n", "ETag: \"a\"\r\n"] {
        let (client, requests) = answering(quick(), vec![Some((200, headers, ""))]).await;
        let keys = client.keys();
        let found = codes![
            keys.get("k"),
            keys.put("k", "v", PutOptions::default()),
            keys.put("k", "v", only_if(3)),
            keys.delete("k", None),
        ];
        assert_eq!(found, ["protocol"; 4]);
        assert_eq!(requests.lock().len(), 4);
    }
    let weak = "ETag: W/\"57\"\r\n";
    let replies = vec![Some((200, weak, "v")), Some((200, weak, "")), Some((204, "", ""))];
    let (client, requests) = answering(quick(), replies).await;
    assert_eq!(within(client.keys().get("k")).await.unwrap().unwrap().revision, 57);
    assert!(within(client.keys().delete("k", None)).await.unwrap());
    assert!(requests.lock()[2].head.contains("if-match: \"57\""));
}

async fn taken(client: &Client) -> hubbub_client::Delivery {
    within(client.queue("q").take(&TakeOptions::default())).await.unwrap().remove(0)
}

#[tokio::test]
async fn a_success_that_is_not_what_the_server_answers_is_none() {
    for page in ["", "<html>", "null", r#"{"status":"ok"}"#] {
        let lease = Some((200, "", r#"{"messages":[{"id":"7","receipt":"r"}]}"#));
        let (client, requests) = answering(quick(), vec![lease, Some((200, "", page))]).await;
        let (queue, delivery) = (client.queue("q"), taken(&client).await);
        let found = codes![
            queue.create(&QueueSettings::default()),
            queue.state(),
            queue.send("text", QueueSendOptions::default()),
            queue.take(&TakeOptions::default()),
            delivery.ack(),
            delivery.nack(None),
            delivery.extend(Duration::from_secs(1)),
            client.keys().list("", "", None),
            client.keys().delete("k", Some(3)),
            client.room("r").history(HistoryQuery::default()),
        ];
        assert_eq!(found, ["protocol"; 10], "{page}");
        assert_eq!(requests.lock().len(), 11);
    }
}
