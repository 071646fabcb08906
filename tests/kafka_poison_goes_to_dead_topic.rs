//! What cannot be stored goes to the topic of dead letters with the reason, and is in nobody's way, nor after a restart.

use serde_json::json;

use crate::harness::{Kafka, Postgres, SharedStore, seqs, texts, until, with_each_store};

with_each_store!(kafka_poison_goes_to_dead_topic);

async fn kafka_poison_goes_to_dead_topic(store: SharedStore) {
    let kafka = Kafka::shared();
    let mut server = store.behind(&kafka, 1).start();
    server.put_room("club", json!({"membersOnly": true})).await;
    let good =
        |id: &str| json!({"userId": "u", "message": format!("text of {id}"), "messageId": id}).to_string();
    let change = Some(("hubbub-change", ""));
    kafka.produce(Some("r"), None, &good("m-0"), None);
    until("the first one is stored", async || server.history("r").await.len() == 1).await;
    let first = format!("message {} of", seqs(&server.history("r").await)[0]);
    let poison = [
        ("r", "\u{0}not json".to_owned(), None, "malformed", "JSON"),
        ("r", r#"["u","hi"]"#.to_owned(), None, "malformed", "JSON object"),
        ("r", r#"{"message":"hi"}"#.to_owned(), None, "invalid", "userId is required"),
        (
            "r",
            r#"{"userId":"u","message":"another","messageId":"m-0"}"#.to_owned(),
            None,
            "id_reused",
            first.as_str(),
        ),
        ("club", good("m-9"), None, "not_member", "member"),
        ("", good("m-10"), None, "invalid", "roomId"),
        ("r", good("m-11"), change, "malformed", "the change"),
        ("r", r#"{"change":"addMember","roomId":"r"}"#.to_owned(), change, "invalid", "userId is required"),
    ];
    let mut expected = vec!["text of m-0".to_owned()];
    for (number, (key, body, header, ..)) in poison.iter().enumerate() {
        kafka.produce(Some(key), None, body, *header);
        kafka.produce(Some("r"), None, &good(&format!("m-{}", number + 20)), None);
        expected.push(format!("text of m-{}", number + 20));
    }
    // The last one is poison, too: nothing behind it moves the store's offset.
    kafka.produce(Some("r"), None, "poison", None);
    let dead = poison.len() + 1;
    until("the good ones are stored", async || server.history("r").await.len() == expected.len()).await;
    assert_eq!(texts(&server.history("r").await), expected);
    until("all are dead", async || server.metric("log_messages_dead_total").await == dead as u64).await;

    let letters = kafka.dead_letters();
    assert_eq!(letters.len(), dead);
    for (_, body, header, code, reason) in &poison {
        let letter = letters.iter().find(|letter| letter.body == *body).expect(body);
        assert_eq!(letter.header("hubbub-code"), *code);
        assert!(letter.header("hubbub-reason").contains(reason), "{}", letter.header("hubbub-reason"));
        assert!(letter.header("hubbub-record").starts_with("0/"));
        if let Some((name, value)) = header {
            assert_eq!(letter.header(name), *value);
        }
    }
    // The group's offsets follow the store.
    let consumed = i64::try_from(server.metric("log_messages_consumed_total").await).unwrap();
    until("everything is stored", async || kafka.committed(1) == consumed).await;
    server.restart();
    kafka.produce(Some("r"), None, &good("m-99"), None);
    until("it goes on", async || server.history("r").await.len() == expected.len() + 1).await;
    assert_eq!(kafka.dead_letters().len(), dead, "nothing is dead twice");
    assert!(server.history("club").await.is_empty());

    // With the reason it would be larger than Kafka takes.
    kafka.produce(Some("r"), None, &"x".repeat(1_048_450), None);
    kafka.produce(Some("r"), None, &good("m-100"), None);
    until("it goes on behind it", async || server.history("r").await.len() == expected.len() + 2).await;
    let letters = kafka.dead_letters();
    assert_eq!(letters.len(), dead + 1, "once");
    let letter = &letters[dead];
    assert_eq!((letter.body.as_str(), letter.header("hubbub-truncated")), ("", "1048450"));
    assert_eq!(letter.header("hubbub-code"), "malformed");
    let (at, end) = (letter.header("hubbub-record"), kafka.end(0));
    assert_eq!(at, format!("0/{}", end - 2));
}

/// The store has passed it, so nobody sets it aside again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_that_may_be_missing_are_told() {
    let (kafka, postgres) = (Kafka::shared(), Postgres::start(""));
    let mut server = kafka.setup(&postgres.url("postgres"), 1).start();
    assert_eq!(server.send_as("r", "m-0", "zero").await.status, 202);
    until("it is stored", async || server.history("r").await.len() == 1).await;
    kafka.limit("dead", "10").await;
    let other = json!({"userId": "u", "message": "another", "messageId": "m-0"});
    kafka.produce(Some("r"), None, &other.to_string(), None);
    until("it is tried", async || server.metric("log_batches_retried_total").await > 0).await;
    server.stop().await;
    let log = server.log();
    assert!(log.contains("may be missing in") && log.contains("offsets=\"1\""), "{log}");
}

with_each_store!(what_was_acknowledged_outlives_a_lower_limit);

/// The limit is one of what clients may send. What is in the log was confirmed, perhaps by a server that allows more.
async fn what_was_acknowledged_outlives_a_lower_limit(store: SharedStore) {
    let kafka = Kafka::shared();
    let server = store.behind(&kafka, 1).set("limits.message_bytes=1KiB").start();
    let text = "x".repeat(70_000);
    assert_eq!(server.send_as("r", "m-1", &text).await.status, 422);
    let body = json!({"userId": "u", "message": text, "messageId": "m-2"}).to_string();
    kafka.produce(Some("r"), None, &body, None);
    until("it is stored", async || server.history("r").await.len() == 1).await;
    assert_eq!(texts(&server.history("r").await), [text]);
    assert_eq!(server.metric("log_messages_dead_total").await, 0);
}
