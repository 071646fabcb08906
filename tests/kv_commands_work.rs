//! `hubbub kv`: get, put, del, ls and watch.

use serde_json::{Value, json};

use crate::harness::{Ran, Server};

/// Must succeed; what it printed.
fn done(ran: &Ran) -> &str {
    assert_eq!(ran.code, Some(0), "{ran:?}");
    &ran.stdout
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kv_commands_work() {
    let server = Server::start();
    let put = server.run(&["kv", "put", "a b/1", "one", "--if-absent", "--json"], "").await;
    let said: Value = serde_json::from_str(done(&put)).unwrap();
    assert_eq!(said, json!({"key": "a b/1", "revision": 1, "created": true}));
    let again = server.run(&["kv", "put", "a b/1", "two", "--if-absent"], "").await;
    assert!(again.refusal(1).contains("condition_failed"));
    done(&server.run(&["kv", "put", "a b/1", "--if-revision", "1", "--ttl", "1h"], "from\nstdin").await);
    assert_eq!(done(&server.run(&["kv", "get", "a b/1"], "").await), "from\nstdin");
    let json = server.run(&["kv", "get", "a b/1", "--json"], "").await;
    let json: Value = serde_json::from_str(done(&json)).unwrap();
    assert_eq!((&json["value"], &json["revision"]), (&json!("from\nstdin"), &json!(2)));
    assert!(json["expiresAt"].is_string(), "{json}");
    assert_eq!(done(&server.run(&["kv", "put", "c", "-"], "x").await), "created: c\n");

    let listed = server.run(&["kv", "ls", "a "], "").await;
    let listed = done(&listed);
    let [head, line] = listed.lines().collect::<Vec<_>>()[..] else { panic!("{listed}") };
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(head), ["key", "revision", "bytes", "expires"], "as other lists have it");
    let words = words(line);
    let expires = json["expiresAt"].as_str().unwrap();
    assert_eq!(words, ["a%20b/1", "2", "10", expires]);
    assert_eq!(done(&server.run(&["kv", "ls", "--json"], "").await).lines().count(), 2);
    assert_eq!(
        done(&server.run(&["kv", "get", &words[0]], "").await),
        "from\nstdin",
        "a listed key is a key"
    );

    let missing = server.run(&["kv", "get", "nowhere"], "").await;
    assert!(missing.refusal(1).contains("there is no key 'nowhere' (unknown_key)"));
    let missing = server.run(&["kv", "get", "nowhere", "--json"], "").await.refusal(1);
    let missing: Value = serde_json::from_str(&missing).unwrap();
    assert_eq!((&missing["code"], &missing["status"]), (&json!("unknown_key"), &json!(404)));
    server.run(&["kv", "del", "c", "--if-revision", "2"], "").await.refusal(1);
    assert_eq!(done(&server.run(&["kv", "del", "c", "--json"], "").await), "{\"deleted\":\"c\"}\n");
    server.run(&["kv", "del", "c"], "").await.refusal(1);
    let watched = server.run(&["kv", "watch", "--after", "1", "--count", "3", "--json"], "").await;
    let events: Vec<Value> = done(&watched).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events[0], json!({"event": "put", "key": "a%20b/1", "revision": 2}));
    assert_eq!(events[2], json!({"event": "delete", "key": "c", "revision": 4}));
    let ahead = server.run(&["kv", "watch", "--after", "99"], "").await;
    assert!(ahead.refusal(1).contains("compacted"));
}
