//! A user's messages over many rooms are paged without a gap and without a repeat, also where times are equal.

use serde_json::{Value, json};

use crate::harness::{Http, Server, until};

/// Sends one message of `user` to each of the rooms `from..to` in one batch, so that many have equal times.
async fn send_to_many(server: &Server, user: &str, rooms: std::ops::Range<u32>) {
    let line = |room: u32| {
        let text = "x".repeat(usize::try_from(room % 50 * 20 + 1).unwrap());
        json!({"roomId": format!("r-{}", room % 250), "userId": user, "message": text}).to_string() + "\n"
    };
    let mut left: Vec<String> = rooms.map(line).collect();
    until("room for all of them", async || {
        let answers = server.http().await.post("/v1/messages", left.concat()).await.lines();
        // A slow disk may be behind: what it refuses for that reason is not stored.
        assert!(answers.iter().all(|it| it["seq"].is_u64() || it["retryable"] == true), "{answers:?}");
        let mut stored = answers.iter().map(|it| it["seq"].is_u64());
        left.retain(|_| stored.next() == Some(false));
        left.is_empty()
    })
    .await;
}

/// By time, room and seq.
fn place(message: &Value) -> (String, String, u64) {
    let text = |name: &str| message[name].as_str().unwrap().to_owned();
    (text("receivedAt"), text("roomId"), message["seq"].as_u64().unwrap())
}

/// All pages from the newest to the oldest, put together.
async fn paged(http: &mut Http, user: &str, limit: usize, window: &str) -> Vec<Value> {
    let (mut all, mut before) = (Vec::new(), String::new());
    loop {
        let answer = http.get(&format!("/v1/users/{user}/messages?limit={limit}{window}{before}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let mut page = answer.json();
        assert!(page["epoch"].is_string());
        let messages = page["messages"].as_array_mut().unwrap();
        assert!(messages.len() <= limit);
        all.splice(0..0, messages.drain(..));
        let Some(next) = page["next"].as_str() else { return all };
        before = format!("&before={next}");
    }
}

#[tokio::test]
async fn pages_have_no_gap_and_no_repeat() {
    let mut server = Server::start();
    for round in 0..12 {
        send_to_many(&server, "ada", round * 100..round * 100 + 300).await;
        send_to_many(&server, "bob", round * 70..round * 70 + 100).await;
    }
    for is_restarted in [false, true] {
        if is_restarted {
            server.restart();
        }
        let mut expected = Vec::new();
        for room in 0..250 {
            expected.extend(server.history(&format!("r-{room}")).await);
        }
        expected.retain(|message| message["userId"] == "ada");
        expected.sort_by_key(place);
        assert_eq!(expected.len(), 3_600);
        let times: std::collections::BTreeSet<_> =
            expected.iter().map(|m| m["receivedAt"].as_str()).collect();
        assert!(times.len() * 3 < expected.len(), "hardly any equal times: {} different ones", times.len());
        let mut http = server.http().await;
        for limit in [7, 50, 1_000] {
            assert_eq!(paged(&mut http, "ada", limit, "").await, expected, "limit {limit}");
        }
        // Windows: from is in it, to is not.
        let from = expected[1_000]["receivedAt"].as_str().unwrap();
        let to = expected[2_500]["receivedAt"].as_str().unwrap();
        let window = format!("&from={from}&to={to}");
        let within = |message: &Value| {
            let time = message["receivedAt"].as_str().unwrap();
            from <= time && time < to
        };
        let expected: Vec<Value> = expected.iter().filter(|message| within(message)).cloned().collect();
        assert!(!expected.is_empty());
        assert_eq!(paged(&mut http, "ada", 33, &window).await, expected);
        assert_eq!(paged(&mut http, "nobody", 33, "").await, [json!(null); 0]);
    }
}

/// What comes meanwhile is newer and moves no page.
#[tokio::test]
async fn pages_stand_while_messages_come() {
    let server = Server::start();
    send_to_many(&server, "ada", 0..400).await;
    let mut http = server.http().await;
    let whole = paged(&mut http, "ada", 1_000, "").await;
    let first = http.get("/v1/users/ada/messages?limit=10").await.json();
    send_to_many(&server, "ada", 100..300).await;
    let before = format!("&before={}", first["next"].as_str().unwrap());
    let mut rest = http.get(&format!("/v1/users/ada/messages?limit=1000{before}")).await.json();
    let mut seen = std::mem::take(rest["messages"].as_array_mut().unwrap());
    seen.extend(first["messages"].as_array().unwrap().iter().cloned());
    assert_eq!(seen, whole);
}
