//! Values over HTTP: what they are under conditions, how they run out, how keys are listed, many at once.

use hyper::Method;
use serde_json::{Value, json};

use crate::harness::tokens::{admin, call, get};
use crate::harness::{Answer, Http, Server, Setup, until};

async fn put(http: &mut Http, key: &str, headers: &[(&str, &str)], value: &str) -> Answer {
    http.request(Method::PUT, &format!("/kv/{key}"), headers, value.to_owned()).await
}

async fn delete(http: &mut Http, key: &str, headers: &[(&str, &str)]) -> Answer {
    http.request(Method::DELETE, &format!("/kv/{key}"), headers, "").await
}

async fn get_with(http: &mut Http, key: &str, headers: &[(&str, &str)]) -> Answer {
    http.request(Method::GET, &format!("/kv/{key}"), headers, "").await
}

#[tokio::test]
async fn values_are_bytes_and_keys_any_bytes() {
    let setup = Setup::new().set("store.embedded.journal_slot=4MiB").set("limits.value_bytes=1MiB");
    let mut server = setup.start();
    let mut http = Http::connect(server.address()).await;
    let bytes: Vec<u8> = (0..=255).collect();
    let keys = ["a", "a/b//c", "%00%ff", "m%C3%BC", "health", "v1/chat/health", "%2f", &"x".repeat(512)];
    for key in keys {
        let made = http.request(Method::PUT, &format!("/kv/{key}"), &[], bytes.clone()).await;
        assert_eq!((made.status, made.body.len()), (201, 0), "{key}: {made:?}");
        let found = http.get(&format!("/kv/{key}")).await;
        assert_eq!((found.status, &found.body[..]), (200, &bytes[..]), "{key}");
        assert_eq!(found.header("etag"), made.header("etag"));
        assert_eq!(found.header("content-type"), Some("application/octet-stream"));
        assert_eq!(found.header("cache-control"), Some("no-cache, no-transform"));
        assert_eq!(found.header("hubbub-cache"), Some("hit"));
    }
    let head = http.request(Method::HEAD, "/kv/a", &[], "").await;
    assert_eq!((head.status, head.header("content-length"), head.body.len()), (200, Some("256"), 0));
    assert_eq!(put(&mut http, "a", &[], "").await.status, 204, "there is another value");
    server.restart();
    let mut http = Http::connect(server.address()).await;
    let found = http.get("/kv/a").await;
    assert_eq!((found.status, found.body.len(), found.header("hubbub-cache")), (200, 0, Some("miss")));
    assert_eq!(http.get("/kv/%2F").await.body, bytes, "one key, however it is written");
    assert_eq!(delete(&mut http, "a", &[]).await.status, 204);
    http.get("/kv/a").await.problem(404, "unknown_key");
    delete(&mut http, "a", &[]).await.problem(404, "unknown_key");

    for key in ["", "100%", "%zz", &"x".repeat(513)] {
        http.get(&format!("/kv/{key}")).await.faults(&["key"]);
    }
    http.post("/kv/a", "x").await.problem(405, "method_not_allowed");
    let large = "x".repeat((1 << 20) + 1);
    put(&mut http, "a", &[], &large).await.problem(413, "too_large");
    let mut http = Http::connect(server.address()).await;
    assert_eq!(put(&mut http, "a", &[], &large[1..]).await.status, 201);
    assert_eq!(http.get("/kv/a").await.body.len(), 1 << 20);
}

#[tokio::test]
async fn conditions_are_judged_as_the_standard_says() {
    let server = Server::start();
    let mut http = Http::connect(server.address()).await;
    let mut tag =
        put(&mut http, "k", &[("if-none-match", "*")], "1").await.header("etag").unwrap().to_owned();
    let refused = put(&mut http, "k", &[("if-none-match", "*")], "2").await;
    assert_eq!(refused.problem(412, "condition_failed")["revision"], 1);
    assert_eq!(refused.header("etag"), Some(tag.as_str()));
    for (headers, is_done) in [
        (vec![("if-match", "*")], true),
        (vec![("if-match", "\"999\"")], false),
        (vec![("if-match", "W/$")], false),
        (vec![("if-match", "\"999\", $")], true),
        (vec![("if-none-match", "$")], false),
        (vec![("if-none-match", "W/$")], false),
        (vec![("if-none-match", "\"999\"")], true),
        (vec![("if-none-match", "\"999\", $")], false),
        (vec![("if-match", "*"), ("if-none-match", "\"999\"")], true),
    ] {
        let headers: Vec<(&str, String)> =
            headers.iter().map(|(name, value)| (*name, value.replace('$', &tag))).collect();
        let headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let answer = put(&mut http, "k", &headers, "x").await;
        assert_eq!(answer.status, if is_done { 204 } else { 412 }, "{headers:?}");
        assert_eq!(answer.header("etag") == Some(tag.as_str()), !is_done, "{headers:?}");
        tag = answer.header("etag").unwrap().to_owned();
    }
    for (header, status) in [
        (("if-none-match", tag.clone()), 304),
        (("if-none-match", format!("W/{tag}")), 304),
        (("if-none-match", "*".into()), 304),
        (("if-none-match", "\"999\"".into()), 200),
        (("if-match", tag.clone()), 200),
        (("if-match", "\"999\"".into()), 412),
    ] {
        let answer = get_with(&mut http, "k", &[(header.0, &header.1)]).await;
        assert_eq!(answer.status, status, "{header:?}");
        assert_eq!(answer.header("etag"), Some(tag.as_str()), "{header:?}");
    }
    // Where nothing is there is nothing to match.
    put(&mut http, "gone", &[("if-match", "*")], "x").await.problem(412, "condition_failed");
    delete(&mut http, "gone", &[("if-match", "\"1\"")]).await.problem(412, "condition_failed");
    get_with(&mut http, "gone", &[("if-match", "*")]).await.problem(404, "unknown_key");
    // Nothing is stored that would be read as something else.
    put(&mut http, "part", &[("content-range", "bytes 0-0/9")], "x").await.problem(400, "malformed");
    put(&mut http, "part", &[("content-encoding", "gzip")], "x").await.problem(400, "malformed");
    get_with(&mut http, "part", &[]).await.problem(404, "unknown_key");
    get_with(&mut http, "gone", &[("if-none-match", "*")]).await.problem(404, "unknown_key");
    put(&mut http, "k", &[("if-match", "1")], "x").await.faults(&["If-Match"]);
    delete(&mut http, "k", &[("if-match", "\"1\"")]).await.problem(412, "condition_failed");
    assert_eq!(delete(&mut http, "k", &[("if-match", &tag)]).await.status, 204);
}

#[tokio::test]
async fn values_run_out() {
    let mut server = Server::start();
    let mut http = Http::connect(server.address()).await;
    put(&mut http, "k", &[("hubbub-ttl", "0")], "x").await.faults(&["Hubbub-TTL"]);
    assert_eq!(put(&mut http, "brief", &[("hubbub-ttl", "1")], "x").await.status, 201);
    assert_eq!(put(&mut http, "long", &[("hubbub-ttl", "1000")], "x").await.status, 201);
    // Again where this machine stood still until it had run out.
    until("its time to live is gone", async || {
        assert_eq!(put(&mut http, "kept", &[("hubbub-ttl", "1")], "x").await.status / 100, 2);
        put(&mut http, "kept", &[], "y").await.status == 204
    })
    .await;
    let left = http.get("/kv/long").await.header("hubbub-ttl").unwrap().parse::<u64>().unwrap();
    assert!((900..=1_000).contains(&left), "{left}");
    assert_eq!(http.get("/kv/kept").await.header("hubbub-ttl"), None);
    server.restart();
    let mut http = Http::connect(server.address()).await;
    until("it has run out", async || {
        let mut http = Http::connect(server.address()).await;
        http.get("/kv/brief").await.status == 404
    })
    .await;
    assert_eq!(http.get("/kv/kept").await.body, "y");
    until("it is swept away", async || server.metric("store_keys").await == 2).await;
    let page = http.get("/v1/kv").await.json();
    let keys: Vec<&Value> = page["keys"].as_array().unwrap().iter().map(|key| &key["key"]).collect();
    assert_eq!(keys, ["kept", "long"]);
    assert!(page["keys"][1]["expiresAt"].is_string() && page["keys"][0].get("expiresAt").is_none(), "{page}");
}

#[tokio::test]
async fn keys_are_listed_page_by_page() {
    let server = Server::start();
    let mut http = Http::connect(server.address()).await;
    let names = ["a", "b/%FF", "b/1", "b/10", "b/2", "b%20", "c"];
    for name in names {
        put(&mut http, name, &[], name).await;
    }
    let mut listed = Vec::new();
    let mut after = String::new();
    loop {
        let page = http.get(&format!("/v1/kv?prefix=b/&limit=3{after}")).await.json();
        listed.extend(
            page["keys"].as_array().unwrap().iter().map(|key| key["key"].as_str().unwrap().to_owned()),
        );
        assert_eq!(page["revision"], 7);
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={}", form_urlencoded::byte_serialize(next.as_bytes()).collect::<String>());
    }
    assert_eq!(listed, ["b/1", "b/10", "b/2", "b/%FF"], "in the order of their bytes");
    for name in &listed {
        assert_eq!(http.get(&format!("/kv/{name}")).await.text(), *name, "a listed key is a path");
    }
    let all = http.get("/v1/kv").await.json();
    assert_eq!(all["keys"].as_array().unwrap().len(), names.len());
    assert_eq!(all["keys"][0], json!({"key": "a", "revision": 1, "bytes": 1}));
    http.get("/v1/kv?limit=0&after=%25&prefix=%25z").await.faults(&["limit", "prefix", "after"]);
}

/// The server's own keys lie between those of clients, and are passed over wherever a page begins or ends.
#[tokio::test]
async fn a_page_repeats_no_key_around_those_of_the_server() {
    let server = Setup::new().with_tokens().start();
    let (address, admin) = (server.address(), admin());
    let names = ["%00a", "%00hubbub", "%00i", "a", "b", "c"];
    for name in names {
        assert_eq!(call(address, &admin, Method::PUT, &format!("/kv/{name}"), json!("x")).await.status, 201);
    }
    for reserved in 0..=3 {
        for limit in 1..=7 {
            let mut listed = Vec::new();
            let mut after = String::new();
            loop {
                let page = get(address, &admin, &format!("/v1/kv?limit={limit}{after}")).await.json();
                let keys = page["keys"].as_array().unwrap();
                listed.extend(keys.iter().map(|key| key["key"].as_str().unwrap().to_owned()));
                assert!(listed.len() <= names.len(), "{reserved} reserved, limit {limit}: {listed:?}");
                let Some(next) = page["next"].as_str() else { break };
                let next: String = form_urlencoded::byte_serialize(next.as_bytes()).collect();
                after = format!("&after={next}");
            }
            assert_eq!(listed, names, "{reserved} reserved, limit {limit}");
        }
        let draft = json!({"name": "service", "user": "service", "rooms": {"*": "r"}});
        assert_eq!(call(address, &admin, Method::POST, "/v1/auth/keys", draft).await.status, 201);
    }
}

#[tokio::test]
async fn many_keys_at_once() {
    let server = Setup::new().set("kv.cache_bytes=0B").start();
    let mut http = Http::connect(server.address()).await;
    let answer = http
        .post(
            "/v1/kv",
            json!({
                "put": [
                    {"key": "a", "value": "one"},
                    {"key": "b", "base64": "/wA=", "ttl": 100},
                    {"key": "a", "value": "two", "ifRevision": 1},
                    {"key": "a", "value": "three", "ifRevision": 1},
                    {"key": "b", "value": "x", "ifRevision": 0},
                ],
                "delete": ["c", {"key": "a", "ifRevision": 1}],
                "get": ["a", "b", "c%20"],
            })
            .to_string(),
        )
        .await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let answer = answer.json();
    let codes: Vec<&Value> = answer["put"].as_array().unwrap().iter().map(|put| &put["code"]).collect();
    assert_eq!(
        codes,
        [&Value::Null, &Value::Null, &Value::Null, &json!("condition_failed"), &json!("condition_failed")]
    );
    assert_eq!(answer["put"][2], json!({"key": "a", "revision": 3, "created": false}));
    assert_eq!(answer["put"][3]["revision"], 3);
    assert_eq!(answer["delete"][0], json!({"key": "c", "deleted": false}));
    assert_eq!(answer["delete"][1]["code"], "condition_failed");
    assert_eq!(answer["get"][0], json!({"key": "a", "value": "two", "revision": 3}));
    assert_eq!(answer["get"][1]["base64"], "/wA=");
    assert!(answer["get"][1]["expiresAt"].is_string());
    assert_eq!(answer["get"][2]["code"], "unknown_key");
    assert_eq!(answer["get"][2]["key"], "c%20");
    let deleted = http.post("/v1/kv", json!({"delete": ["a", "a"]}).to_string()).await.json();
    assert_eq!([&deleted["delete"][0]["deleted"], &deleted["delete"][1]["deleted"]], [true, false]);
    assert_eq!(http.post("/v1/kv", "{}").await.json(), json!({"put": [], "delete": [], "get": []}));

    let faulty = json!({"put": [{"key": "", "value": "x"}, {"key": "a"}, {"key": "a", "value": "x", "ttl": 0}], "get": ["%"]});
    http.post("/v1/kv", faulty.to_string()).await.faults(&["put", "put", "put", "get"]);
    let many: Vec<String> = (0..1_001).map(|n| n.to_string()).collect();
    http.post("/v1/kv", json!({"get": many}).to_string()).await.faults(&["put, delete, get"]);
    http.post("/v1/kv", "[]").await.problem(400, "malformed");
}
