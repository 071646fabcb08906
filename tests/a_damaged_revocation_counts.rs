//! Stored API keys and revocations are damaged: the server starts, what cannot be read grants nothing, revocations that cannot be
//! read count, `/health` says so, and everything else goes on.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use hyper::Method;
use serde_json::{Value, json};

use crate::harness::tokens::{admin, call, get, token};
use crate::harness::{Answer, Server, Setup, until};

/// Some four blocks of them.
const REVOCATIONS: usize = 150;
/// In the first value of a file of keys that stands outside the blocks, if it is before all of them.
const IN_THE_FIRST_VALUE: u64 = 40;
/// In a block before the last one of the revocations.
const IN_A_BLOCK: u64 = 3_000;

async fn ask(server: &Server, method: Method, path: &str, body: Value) -> Answer {
    let answer = call(server.address(), &admin(), method, path, body).await;
    assert!((200..300).contains(&answer.status), "{}", answer.text());
    answer
}

async fn is_good(server: &Server, token: &str) -> bool {
    let status = get(server.address(), token, "/v1/auth/me").await.status;
    assert!(matches!(status, 200 | 401), "{status}");
    status == 200
}

/// Fills the first slot, and ends the server. The file that all keys of before are in.
async fn sealed(server: &mut Server) -> PathBuf {
    let dir = server.setup().data().join("kv");
    let runs = || -> Vec<PathBuf> {
        let files = fs::read_dir(&dir).unwrap().map(|file| file.unwrap().path());
        files.filter(|path| path.extension().is_some_and(|found| found == "run")).collect()
    };
    let value = Value::from("x".repeat(200_000));
    until("keys stand in a file", async || {
        // Refused for a moment where slots are filled faster than they are sealed.
        call(server.address(), &admin(), Method::PUT, "/kv/x", value.clone()).await;
        !runs().is_empty()
    })
    .await;
    server.stop().await;
    runs().into_iter().min().unwrap()
}

fn damage(file: &PathBuf, offset: u64) {
    let file = File::options().read(true).write(true).open(file).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[!byte[0]], offset).unwrap();
}

/// What `/health` says of authentication.
async fn fault(server: &Server) -> String {
    let health = get(server.address(), &admin(), "/health").await.json();
    assert_eq!(
        (&health["status"], &health["components"]["auth"]["status"]),
        (&json!("UP"), &json!("DEGRADED"))
    );
    health["components"]["auth"]["reason"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn one_damaged_api_key_is_refused_and_others_are_not() {
    let mut server = Setup::new().with_tokens().start();
    let made = async |name: &str, rooms: Value| {
        let draft = json!({"name": name, "user": name, "rooms": rooms});
        ask(&server, Method::POST, "/v1/auth/keys", draft).await.json()
    };
    // So many rights stand outside the blocks.
    let many: serde_json::Map<String, Value> =
        (0..60).map(|number| (format!("a-room-of-the-importer-{number}"), json!("w"))).collect();
    let (big, small) = (made("big", Value::from(many)).await, made("small", json!({"*": "r"})).await);
    let [big, other] = [&big, &small].map(|made| made["apiKey"].as_str().unwrap());
    assert!(is_good(&server, big).await && is_good(&server, other).await);
    damage(&sealed(&mut server).await, IN_THE_FIRST_VALUE);
    server.restart();
    assert!(!is_good(&server, big).await && is_good(&server, other).await, "{}", server.log());
    assert!(fault(&server).await.starts_with("1 API keys, accounts, logins or revocations"));
    // The list goes on changing.
    ask(&server, Method::DELETE, &format!("/v1/auth/keys/{}", small["keyId"].as_str().unwrap()), Value::Null)
        .await;
    assert!(!is_good(&server, other).await);
}

#[tokio::test]
async fn revocations_of_a_damaged_block_count() {
    let mut server = Setup::new().with_tokens().start();
    let of = |kind: &str, number: usize| token(json!({"sub": "ada", "jti": format!("{kind}-{number}")}));
    let revoke = async |server: &Server, jti: String| {
        ask(server, Method::POST, "/v1/auth/revocations", json!({"jti": jti})).await;
    };
    for number in 0..REVOCATIONS {
        revoke(&server, format!("old-{number}")).await;
    }
    damage(&sealed(&mut server).await, IN_A_BLOCK);
    server.restart();
    assert!(fault(&server).await.starts_with("a part of the list"), "{}", server.log());
    let listed = get(server.address(), &admin(), "/v1/auth/revocations").await.json();
    let listed = listed["revocations"].as_array().unwrap().len();
    assert!((1..REVOCATIONS).contains(&listed), "{listed}");
    for number in 0..REVOCATIONS {
        assert!(!is_good(&server, &of("old", number)).await, "{number}");
    }
    // Tokens whose revocations would be elsewhere are as good as ever, until they are revoked.
    let mut good = Vec::new();
    for number in 0..REVOCATIONS {
        if is_good(&server, &of("new", number)).await {
            good.push(number);
        }
    }
    assert!((1..REVOCATIONS).contains(&good.len()), "{good:?}");
    revoke(&server, format!("new-{}", good[0])).await;
    assert!(!is_good(&server, &of("new", good[0])).await);
}
