//! What became of a message is told by each server that had to do with it, and nothing else is.

use std::sync::atomic::{AtomicU64, Ordering};

use hubbub_core::Timestamp;
use serde_json::{Value, json};

use crate::harness::{Postgres, Ran, Server, Setup, hubbub_aside, until};

/// Runs `hubbub trace` for these servers.
async fn trace(arguments: &[&str], servers: &[&Server]) -> Ran {
    let arguments = ["trace"].iter().chain(arguments).map(|&argument| argument.to_owned());
    let servers = servers.iter().flat_map(|server| ["--server".to_owned(), server.url()]);
    hubbub_aside(arguments.chain(servers).collect(), String::new()).await
}

async fn timeline(server: &Server, room: &str, id: &str) -> Value {
    server.get(&format!("/v1/rooms/{room}/messages/{id}/timeline")).await.json()
}

fn stages(timeline: &Value) -> Vec<&str> {
    timeline["events"].as_array().unwrap().iter().map(|event| event["stage"].as_str().unwrap()).collect()
}

fn event<'a>(timeline: &'a Value, stage: &str) -> &'a Value {
    let mut events = timeline["events"].as_array().unwrap().iter();
    events.find(|event| event["stage"] == stage).unwrap_or_else(|| panic!("no {stage} in {timeline}"))
}

fn missing(timeline: &Value) -> Vec<(&str, &str)> {
    let all = timeline["missing"].as_array().unwrap().iter();
    all.map(|one| (one["stage"].as_str().unwrap(), one["because"].as_str().unwrap())).collect()
}

/// Sends messages until `is_so` holds of the timeline of the last one at `told`, and returns that: a subscription is live a
/// moment after it was answered.
async fn sent_until(sent_at: &Server, told: &Server, is_so: impl Fn(&Value) -> bool) -> Value {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut last = Value::Null;
    until("the timeline is whole", async || {
        let id = format!("m-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let message = json!({"userId": "ada", "message": "x", "messageId": id});
        let status = sent_at.post("/v1/rooms/r/messages", &message).await.status;
        assert!([201, 202].contains(&status), "{status}");
        // Publishing follows the answer; a broker's committer follows later.
        for _ in 0..20 {
            last = timeline(told, "r", &id).await;
            if last["events"].is_array() && is_so(&last) {
                return true;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        false
    })
    .await;
    last
}

fn is_delivered_to(count: u64) -> impl Fn(&Value) -> bool {
    move |timeline| {
        let mut events = timeline["events"].as_array().unwrap().iter();
        events.any(|event| event["stage"] == "delivered" && event["count"] == count)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timeline_of_a_message() {
    let mut server = Server::start();
    let nobody = server.send("alone", "x").await;
    let id = nobody["messageId"].as_str().unwrap();
    let mut told = Value::Null;
    // It is recorded right after the answer.
    until("the batch is on record", async || {
        told = timeline(&server, "alone", id).await;
        stages(&told).len() > 1
    })
    .await;
    assert_eq!(stages(&told), ["received", "queued", "committing", "stored", "answered"]);
    assert_eq!((&told["seq"], missing(&told)), (&json!(1), vec![("published", "notHere")]));
    let sockets = [server.subscriber("r", json!({})).await, server.subscriber("r", json!({})).await];
    let told = sent_until(&server, &server, is_delivered_to(2)).await;
    let expected = ["received", "queued", "committing", "stored", "answered", "published", "delivered"];
    assert_eq!((stages(&told), missing(&told)), (expected.to_vec(), vec![]));
    assert_eq!(
        (&event(&told, "queued")["count"], &event(&told, "published")["count"]),
        (&json!(1), &json!(2))
    );
    assert_eq!(event(&told, "published")["from"], "commit");
    let time = |text: &Value| Timestamp::parse(text.as_str().unwrap()).unwrap();
    let times: Vec<Timestamp> =
        told["events"].as_array().unwrap()[1..].iter().map(|event| time(&event["at"])).collect();
    assert!(times.is_sorted() && time(&told["recordedSince"]) <= times[0], "{told}");
    let id = told["messageId"].as_str().unwrap();
    // The command says the same.
    let trace =
        async |server: &Server, more: &[&str]| trace(&[&[id, "r"][..], more].concat(), &[server]).await;
    let said: Value = serde_json::from_str(&trace(&server, &["--json"]).await.success()).unwrap();
    assert_eq!(said["events"].as_array().unwrap().len(), expected.len());
    let text = trace(&server, &[]).await.success();
    assert!(text.contains("delivered ") && text.contains("for 2 live subscribers"), "{text}");
    let name = told["server"].as_str().unwrap();
    assert!(
        name.ends_with(server.url().rsplit(':').next().unwrap()) && text.contains(name),
        "{name}: {text}"
    );
    let unknown = server.get(&format!("/v1/rooms/alone/messages/{id}/timeline")).await;
    unknown.problem(404, "unknown_message");
    drop(sockets);
    // What a server did before it was restarted is not on its record, and not made up.
    server.restart();
    let told = timeline(&server, "r", id).await;
    assert_eq!(
        (stages(&told), missing(&told)),
        (vec!["received"], vec![("stored", "tooOld"), ("published", "tooOld")])
    );
    assert!(trace(&server, &[]).await.success().contains("not known any more"));
}

/// The command finds the room where there are not too many.
#[tokio::test]
async fn the_room_of_a_message_is_found() {
    let server = Server::start();
    let send = async |rooms: std::ops::Range<usize>, id: &str| {
        let line =
            |room| json!({"roomId": format!("r-{room}"), "userId": "u", "message": "x", "messageId": id});
        let lines: String = rooms.map(|room| format!("{}\n", line(room))).collect();
        assert_eq!(server.http().await.post("/v1/messages", lines).await.status, 200);
    };
    send(0..3, "everywhere").await;
    send(1..2, "once").await;
    let trace = async |id: &str| trace(&[id], &[&server]).await;
    let said = trace("once").await.success();
    assert!(said.starts_with("message 2 of r-1, as "), "{said}");
    let said = trace("nowhere").await.refusal(1);
    assert!(said.contains("no room that is listed has a message nowhere; 3 rooms looked through"), "{said}");
    let said = trace("everywhere").await.refusal(2);
    assert!(
        said.contains("a message of this id: r-0, r-1, r-2; name it: hubbub trace everywhere ROOM"),
        "{said}"
    );
    send(3..1_001, "many").await;
    let said = trace("once").await.refusal(2);
    assert!(said.contains("no more than 1000; name it: hubbub trace once ROOM"), "{said}");
}

#[tokio::test]
async fn a_server_without_records_says_so() {
    let server = Setup::new().set("timeline.memory=0B").start();
    let id = server.send("r", "x").await["messageId"].as_str().unwrap().to_owned();
    let told = timeline(&server, "r", &id).await;
    assert_eq!(
        (missing(&told), &told["recordedSince"]),
        (vec![("stored", "off"), ("published", "off")], &Value::Null)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_server_of_a_database_tells_its_part() {
    let postgres = Postgres::start("");
    let setup = || Setup::new().store(&postgres.url("postgres"));
    let (here, there) = (setup().set("server.name=here").start(), setup().start());
    let _socket = there.subscriber("r", json!({})).await;
    let told = sent_until(&here, &there, is_delivered_to(1)).await;
    assert_eq!(
        (stages(&told), missing(&told)),
        (vec!["received", "published", "delivered"], vec![("stored", "notHere")])
    );
    assert_eq!(event(&told, "published")["from"], "store");
    let told = timeline(&here, "r", told["messageId"].as_str().unwrap()).await;
    assert_eq!((&told["server"], missing(&told)), (&json!("here"), vec![("published", "notHere")]));
    assert_eq!(stages(&told), ["received", "queued", "committing", "stored", "answered"]);
}

#[cfg(feature = "kafka")]
crate::harness::with_each_store!(with_kafka_the_committer_and_the_others_tell_their_parts);

#[cfg(feature = "kafka")]
async fn with_kafka_the_committer_and_the_others_tell_their_parts(store: crate::harness::SharedStore) {
    let kafka = crate::harness::Kafka::shared();
    let setup = |name: &str, role: &str| {
        let setup = store.behind(&kafka, 2).set(&format!("server.name={name}"));
        setup.set(&format!("server.role={role}"))
    };
    let committer = setup("b", "gateway,committer").start();
    let [sender, gateway] = ["a", "c"].map(|name| setup(name, "gateway").start());
    let _sockets = [sender.subscriber("r", json!({})).await, gateway.subscriber("r", json!({})).await];
    let from_bus = |told: &Value| is_delivered_to(1)(told) && event(told, "published")["from"] == "bus";
    // Both are live from then on.
    sent_until(&sender, &sender, from_bus).await;
    let told = sent_until(&sender, &gateway, from_bus).await;
    assert_eq!(missing(&told), [("stored", "notHere")]);
    let id = told["messageId"].as_str().unwrap().to_owned();
    // Its sender was told by the broker, before.
    let all = ["received", "queued", "committing", "stored", "bus"];
    until("all is told", async || stages(&timeline(&committer, "r", &id).await) == all).await;
    until("it is delivered", async || is_delivered_to(1)(&timeline(&sender, "r", &id).await)).await;
    all_servers_tell([&sender, &committer, &gateway], &id).await;
}

/// The command says which server did what: `a` and `c` deliver what `b` stored.
#[cfg(feature = "kafka")]
async fn all_servers_tell(servers: [&Server; 3], id: &str) {
    use std::collections::BTreeSet;

    let said = trace(&[id, "r", "--json"], &servers).await.success();
    let said: Value = serde_json::from_str(&said).unwrap();
    let who = |stage: &str| {
        let events = said["events"].as_array().unwrap().iter().filter(|event| event["stage"] == stage);
        events.map(|event| event["server"].as_str().unwrap_or("the log")).collect::<BTreeSet<_>>()
    };
    for (stage, expected) in [
        ("received", &["the log"][..]),
        ("committing", &["b"]),
        ("stored", &["b"]),
        ("published", &["a", "c"]),
        ("delivered", &["a", "c"]),
    ] {
        assert_eq!(who(stage), expected.iter().copied().collect(), "{stage} in {said}");
    }
    assert_eq!(said["missing"], json!([{"server": "b", "stage": "published", "because": "notHere"}]));
    // One that is away hides nothing.
    let ran = trace(&[id, "r", "--server", "127.0.0.1:1"], &servers).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stdout.contains("as a, b, c have it on record"), "{ran:?}");
    assert!(ran.stderr.contains("1 of 4 servers did not tell: http://127.0.0.1:1"), "{ran:?}");
}
