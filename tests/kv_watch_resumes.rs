//! Changes of keys as Server-Sent Events: those missed, those that come, on behind `Last-Event-ID` after a `kill -9`,
//! and what is said when they are not kept any more.

use hyper::Method;

use crate::harness::{Http, Server, Watch};

async fn change(server: &Server, method: Method, key: &str, headers: &[(&str, &str)]) {
    let mut http = Http::connect(server.address()).await;
    let answer = http.request(method, &format!("/kv/{key}"), headers, "x").await;
    assert!((200..300).contains(&answer.status), "{answer:?}");
}

#[tokio::test]
async fn kv_watch_resumes() {
    let mut server = Server::start();
    change(&server, Method::PUT, "a/1", &[]).await;
    change(&server, Method::PUT, "b", &[]).await;
    change(&server, Method::PUT, "a/%FF", &[]).await;
    let mut all = Watch::open(&server, "?after=0", None).await;
    all.receive(&[("put", "a/1", 1), ("put", "b", 2), ("put", "a/%FF", 3)]).await;
    let mut some = Watch::open(&server, "?after=0&prefix=a/", None).await;
    some.receive(&[("put", "a/1", 1), ("put", "a/%FF", 3)]).await;
    let mut live = Watch::open(&server, "?prefix=a", None).await;
    change(&server, Method::DELETE, "b", &[]).await;
    change(&server, Method::DELETE, "a/1", &[]).await;
    change(&server, Method::PUT, "a/2", &[("hubbub-ttl", "1")]).await;
    all.receive(&[("delete", "b", 4)]).await;
    for watch in [&mut all, &mut some, &mut live] {
        watch.receive(&[("delete", "a/1", 5), ("put", "a/2", 6), ("expire", "a/2", 7)]).await;
    }
    // Whoever hears of a change reads it, or a newer one.
    for revision in 8..100_u64 {
        change(&server, Method::PUT, "a/3", &[]).await;
        let last = live.receive(&[("put", "a/3", revision)]).await;
        let mut http = Http::connect(server.address()).await;
        assert_eq!(http.get("/kv/a/3").await.header("etag"), Some(format!("\"{revision}\"").as_str()));
        if revision == 50 {
            server.restart();
            live = Watch::open(&server, "?prefix=a", Some(&last)).await;
        }
    }
    let mut again = Watch::open(&server, "?prefix=a/2&after=5", None).await;
    again.receive(&[("put", "a/2", 6), ("expire", "a/2", 7)]).await;
    server.terminate();
    while again.next().await.is_some() {}
}

/// A reader that is cut off before the first change comes back to where it began.
#[tokio::test]
async fn a_watch_without_a_change_resumes_where_it_began() {
    let server = Server::start();
    change(&server, Method::PUT, "a", &[]).await;
    let begun = Watch::open(&server, "", None).await.begun;
    change(&server, Method::PUT, "b", &[]).await;
    let mut again = Watch::open(&server, "", Some(&begun)).await;
    again.receive(&[("put", "b", 2)]).await;
}

#[tokio::test]
async fn cursors_that_cannot_be_honoured_are_told() {
    let server = Server::start();
    change(&server, Method::PUT, "a", &[]).await;
    let mut http = Http::connect(server.address()).await;
    let ahead = http.get("/v1/kv/watch?after=2").await.problem(410, "compacted");
    assert_eq!((&ahead["oldest"], &ahead["head"]), (&0.into(), &1.into()), "{ahead}");
    let epoch = ahead["epoch"].as_str().unwrap();
    let other = http.get("/v1/kv/watch?after=0&epoch=other").await.problem(410, "reset");
    assert_eq!((&other["epoch"], &other["head"]), (&epoch.into(), &1.into()));
    let id = [("last-event-id", "other:1")];
    http.request(Method::GET, "/v1/kv/watch", &id, "").await.problem(410, "reset");
    let id = [("last-event-id", "1")];
    http.request(Method::GET, "/v1/kv/watch", &id, "").await.faults(&["Last-Event-ID"]);
    Watch::open(&server, "?after=0", Some(&format!("{epoch}:1"))).await;
}
