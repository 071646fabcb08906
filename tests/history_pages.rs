//! History by seq and by time, page by page, and the list of rooms.

use serde_json::{Value, json};

use crate::harness::{Server, seqs};

const COUNT: u64 = 250;

async fn filled() -> Server {
    let server = Server::start();
    let body: String = (1..=COUNT)
        .map(|n| json!({"roomId": "r", "userId": "ada", "message": n.to_string()}).to_string() + "\n")
        .collect();
    assert_eq!(server.http().await.post("/v1/messages", body).await.lines().len() as u64, COUNT);
    server
}

async fn page(server: &Server, query: &str) -> (Vec<u64>, Value) {
    let answer = server.get(&format!("/v1/rooms/r/messages?{query}")).await;
    assert_eq!(answer.status, 200, "{query}: {}", answer.text());
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let page = answer.json();
    assert_eq!((&page["head"], &page["oldest"]), (&json!(COUNT), &json!(1)), "{query}");
    assert!(page["epoch"].is_string());
    (seqs(page["messages"].as_array().unwrap()), page["next"].clone())
}

fn range(from: u64, to: u64) -> Vec<u64> {
    (from..=to).collect()
}

#[tokio::test]
async fn history_pages_by_seq() {
    let mut server = filled().await;
    // From the journal, and again from what a restart made of it.
    for _ in 0..2 {
        assert_eq!(page(&server, "").await, (range(201, 250), json!(201)), "the newest 50, newest last");
        assert_eq!(page(&server, "limit=3").await, (range(248, 250), json!(248)));
        assert_eq!(page(&server, "before=248&limit=3").await, (range(245, 247), json!(245)));
        assert_eq!(page(&server, "before=3").await, (range(1, 2), Value::Null));
        assert_eq!(page(&server, "before=1").await, (vec![], Value::Null));
        assert_eq!(page(&server, "after=0&limit=2").await, (range(1, 2), json!(2)));
        assert_eq!(page(&server, "after=2&limit=2").await, (range(3, 4), json!(4)));
        assert_eq!(
            page(&server, "after=248&limit=2").await,
            (range(249, 250), Value::Null),
            "exactly to the end"
        );
        assert_eq!(page(&server, "after=250").await, (vec![], Value::Null));
        assert_eq!(page(&server, "after=0&limit=1000").await, (range(1, 250), Value::Null));
        // Following `next` in either direction shows everything once.
        let (mut forward, mut next) = page(&server, "after=0&limit=7").await;
        while let Some(after) = next.as_u64() {
            let (more, then) = page(&server, &format!("after={after}&limit=7")).await;
            forward.extend(more);
            next = then;
        }
        assert_eq!(forward, range(1, COUNT));
        let (mut backward, mut next) = page(&server, "limit=7").await;
        while let Some(before) = next.as_u64() {
            let (more, then) = page(&server, &format!("before={before}&limit=7")).await;
            backward = [more, backward].concat();
            next = then;
        }
        assert_eq!(backward, range(1, COUNT));
        server.restart();
    }
}

#[tokio::test]
async fn history_pages_by_time() {
    let server = filled().await;
    let all = server.history("r").await;
    let at = |seq: u64| all[usize::try_from(seq).unwrap() - 1]["receivedAt"].as_str().unwrap();
    // The window is [from, to): what the page holds is what lies within, by the times themselves.
    for (from, to) in [(1, 250), (100, 200), (50, 51), (200, 100)] {
        let (from, to) = (at(from), at(to));
        let expected: Vec<u64> = all
            .iter()
            .filter(|message| (from..to).contains(&message["receivedAt"].as_str().unwrap()))
            .map(|message| message["seq"].as_u64().unwrap())
            .collect();
        let query = format!("from={from}&to={to}");
        assert_eq!(
            page(&server, &format!("{query}&limit=1000")).await,
            (expected.clone(), Value::Null),
            "{query}"
        );
        // In pages: from its beginning on, because it has one.
        let (mut paged, mut next) = page(&server, &format!("{query}&limit=40")).await;
        while let Some(after) = next.as_u64() {
            let (more, then) = page(&server, &format!("{query}&after={after}&limit=40")).await;
            paged.extend(more);
            next = then;
        }
        assert_eq!(paged, expected, "{query}");
    }
    assert_eq!(page(&server, &format!("from={}&limit=1000", at(1))).await.0, range(1, COUNT));
    assert_eq!(page(&server, &format!("to={}", at(1))).await, (vec![], Value::Null));
    assert_eq!(page(&server, "from=2000-01-01T00:00:00Z&limit=2").await, (range(1, 2), json!(2)));
    assert_eq!(page(&server, "from=4102444800").await, (vec![], Value::Null), "seconds are taken too");
    assert_eq!(page(&server, "to=2099-01-01T02:00:00+02:00&limit=2").await, (range(249, 250), json!(249)));
}

#[tokio::test]
async fn rooms_page_in_the_order_of_their_names() {
    let server = Server::start();
    let mut names: Vec<String> =
        (0..25).map(|n| format!("room-{n}")).chain(["A".into(), "z".into()]).collect();
    for name in &names {
        server.send(name, "x").await;
    }
    server.send("A", "y").await;
    names.sort_unstable();
    let mut listed = Vec::new();
    let mut query = "limit=4".to_owned();
    loop {
        let page = server.get(&format!("/v1/rooms?{query}")).await.json();
        let rooms = page["rooms"].as_array().unwrap();
        assert!(!rooms.is_empty() && rooms.len() <= 4, "{page}");
        listed.extend(rooms.iter().map(|room| room["roomId"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => query = format!("limit=4&after={next}"),
            None => break,
        }
    }
    assert_eq!(listed, names);
    let room = server.get("/v1/rooms/A").await.json();
    let last = server.history("A").await[1]["receivedAt"].clone();
    let expected = json!({
        "roomId": "A", "title": null, "membersOnly": false, "retention": null, "head": 2, "oldest": 1,
        "messages": 2, "members": 0, "lastReceivedAt": last,
    });
    assert_eq!(room, expected);
    assert_eq!(server.get("/v1/rooms?limit=1").await.json()["rooms"], json!([room]));
}
