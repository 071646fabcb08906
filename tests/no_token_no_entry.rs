//! Every endpoint, frame and command, with no token, wrong ones, and ones that allow too little or enough. Each of them
//! stands in a table here: one that is new and missing fails the test.

mod sockets;

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::harness::tokens::{admin, status, token, token_by};
use crate::harness::{Server, Setup};

/// Who may use an endpoint, from the least: nobody has less than the one before, but for scopes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Everybody,
    /// Any token of `ada`.
    Any,
    /// `ada` with r for everything.
    Reader,
    /// With rw.
    Writer,
    /// With rwm.
    Manager,
    /// With the scopes, and nothing else.
    Scoped,
    Admin,
}
use Who::*;

/// Operations of `/openapi.json`, who may use them, and whether they are for `ada` herself only.
const OPERATIONS: &[(&str, Who, bool)] = &[
    ("ackMessage", Reader, false),
    ("ackMessages", Reader, false),
    ("addAccount", Admin, false),
    ("addMember", Reader, false),
    ("auditStats", Scoped, false),
    ("beginBackup", Scoped, false),
    ("changeKeys", Writer, false),
    ("changePassword", Any, true),
    ("closeConnection", Admin, false),
    ("closeSession", Everybody, false),
    ("createApiKey", Admin, false),
    ("deleteKey", Writer, false),
    ("deleteQueue", Admin, false),
    ("deleteQueueMessage", Admin, false),
    ("deleteRoom", Manager, false),
    ("endBackup", Scoped, false),
    ("endLogin", Any, false),
    ("eraseUser", Writer, true),
    ("extendLease", Reader, false),
    ("followRoom", Reader, false),
    ("getAsyncApi", Everybody, false),
    ("getBySender", Reader, true),
    ("getFromQueue", Reader, false),
    ("getHealth", Everybody, false),
    ("getKey", Reader, false),
    ("getLiveness", Everybody, false),
    ("getMe", Any, false),
    ("getMetrics", Scoped, false),
    ("getOpenApi", Everybody, false),
    ("getQueue", Reader, false),
    ("getReadiness", Everybody, false),
    ("getReport", Scoped, false),
    ("getRoom", Reader, false),
    ("getTotals", Scoped, false),
    ("getWaysToLogIn", Everybody, false),
    ("leaseFromQueue", Reader, false),
    ("listAccounts", Admin, false),
    ("listActiveUsers", Scoped, false),
    ("listApiKeys", Admin, false),
    ("listClients", Scoped, false),
    ("listConnections", Admin, false),
    ("listHours", Scoped, false),
    ("listKeys", Reader, false),
    // Or a login of the account.
    ("listLogins", Admin, false),
    ("listMembers", Reader, false),
    ("listPresent", Reader, false),
    ("listQueueMessages", Admin, false),
    ("listQueues", Any, false),
    ("listRevocations", Admin, false),
    ("listRoomStats", Scoped, false),
    ("listRooms", Any, false),
    ("listUserParticipation", Any, true),
    ("listUserRooms", Any, true),
    ("listUserStats", Scoped, false),
    ("logIn", Everybody, false),
    ("markRead", Reader, false),
    ("nackMessage", Reader, false),
    ("openChat", Writer, false),
    // The socket is open before anybody is known; see the frames.
    ("openSocket", Everybody, false),
    ("openSession", Any, false),
    ("putKey", Writer, false),
    ("putQueue", Admin, false),
    ("putRoom", Manager, false),
    ("readBackupFile", Scoped, false),
    ("readBySender", Reader, true),
    ("readHistory", Reader, false),
    ("readQueue", Reader, false),
    ("readUserMessages", Any, true),
    ("redriveQueue", Admin, false),
    ("registerClient", Reader, true),
    ("removeAccount", Admin, false),
    ("removeMember", Reader, false),
    ("revokeApiKey", Admin, false),
    ("revokeTokens", Admin, false),
    ("sendMessage", Writer, false),
    // Each line is refused by itself.
    ("sendMessages", Any, false),
    ("sendToQueue", Writer, false),
    ("setAccountRights", Admin, false),
    ("traceMessage", Reader, false),
    ("unregisterClient", Reader, true),
    ("watchKeys", Reader, false),
    ("watchServer", Admin, false),
];

fn grants(who: Who) -> Value {
    let queues = |rights: &str| json!({"*": rights});
    match who {
        Everybody | Any => json!({}),
        Reader => json!({"rooms": {"*": "r"}, "queues": queues("r"), "kv": {"": "r"}}),
        Writer => json!({"rooms": {"*": "rw"}, "queues": queues("rw"), "kv": {"": "rw"}}),
        Manager => json!({"rooms": {"*": "rwm"}, "queues": queues("rw"), "kv": {"": "rw"}}),
        Scoped => json!({"scopes": ["stats", "metrics", "health", "backup", "clients"]}),
        Admin => json!({"admin": true}),
    }
}

fn token_of(user: &str, who: Who) -> String {
    let mut claims = grants(who);
    claims["sub"] = user.into();
    token(claims)
}

/// Whether a token of one kind is enough for what needs another.
fn is_enough(has: Who, needs: Who) -> bool {
    let rank = |who: Who| [Any, Reader, Writer, Manager].iter().position(|one| *one == who);
    match (has, needs) {
        (_, Everybody | Any) | (Admin, _) => true,
        (Scoped, needs) => needs == Scoped,
        (has, needs) => rank(needs).is_some_and(|needed| rank(has) >= Some(needed)),
    }
}

/// Tokens that open nothing, wherever a token is needed.
fn bad_tokens() -> Vec<(&'static str, String)> {
    let everything = json!({"sub": "ada", "admin": true});
    let mut expired = everything.clone();
    expired["exp"] = json!(1_000_000_000);
    let mut foreign = everything.clone();
    foreign["aud"] = "somebody else".into();
    let good = admin();
    let (message, _) = good.rsplit_once('.').unwrap();
    vec![
        ("no token", String::new()),
        ("no JWT", "x".into()),
        ("an unsigned one", format!("{message}.")),
        ("another secret's", token_by("another secret, which is long enough too", everything)),
        ("an expired one", token(expired)),
        ("somebody else's", token(foreign)),
        ("an API key nobody has", format!("hbk_0123456789abcdef_{}", "0".repeat(64))),
        ("a login nobody has", format!("hbl_0123456789abcdef_{}", "0".repeat(64))),
    ]
}

fn path_of(template: &str, user: &str) -> String {
    let path = template.replace("{room}", "lobby").replace("{user}", user).replace("{client}", user);
    path.replace("{queue}", "jobs")
        .replace("{id}", "1")
        .replace("{key}", "a")
        .replace("{keyId}", "k1")
        .replace("{loginId}", "l1")
        .replace("{connection}", "1")
        .replace("{backup}", "b1")
        .replace("{file}", "f1")
}

async fn status_of(server: &Server, method: &str, path: &str, token: &str, operation: &str) -> u16 {
    let bearer = format!("Bearer {token}");
    let mut headers = Vec::new();
    if !token.is_empty() {
        headers.push(("authorization", bearer.as_str()));
    }
    if matches!(operation, "openSocket" | "openChat") {
        headers.extend([
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ]);
    }
    let body = match operation {
        "changeKeys" => r#"{"put":[{"key":"a","value":"x"}]}"#,
        "sendMessage" => r#"{"message":"x"}"#,
        "sendToQueue" => r#"{"message":"x"}"#,
        "getBySender" | "readBySender" => r#"{"sender":"ada"}"#,
        "sendMessages" => "",
        _ if method == "get" || method == "delete" => "",
        _ => "{}",
    };
    status(server.address(), &format!("{} {path}", method.to_uppercase()), &headers, body).await
}

async fn prepared() -> Server {
    let server = Setup::new().with_tokens().set("auth.accounts=true").line().start();
    prepare(&server).await;
    server
}

/// Makes what the operations are about, if it is not there: only a member may change a room.
async fn prepare(server: &Server) {
    let bearer = format!("Bearer {}", admin());
    for path in ["/v1/rooms/lobby", "/v1/rooms/lobby/members/ada", "/v1/queues/jobs"] {
        let made =
            status(server.address(), &format!("PUT {path}"), &[("authorization", &bearer)], "{}").await;
        assert!((200..300).contains(&made), "{path}: {made}");
    }
}

#[tokio::test]
async fn no_token_no_entry() {
    let server = prepared().await;
    let document = server.get("/openapi.json").await.json();
    let mut seen = BTreeSet::new();
    for (template, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap();
            let entry = OPERATIONS.iter().find(|(known, ..)| *known == id);
            let &(_, needs, is_own) = entry.unwrap_or_else(|| panic!("{id}: say here who may use it"));
            assert!(seen.insert(id.to_owned()));
            let is_open = operation["security"].as_array().unwrap().is_empty();
            assert_eq!(is_open, needs == Everybody && id != "openSocket", "{id}: as documented");
            let path = path_of(template, "ada");
            for (what, token) in bad_tokens() {
                let status = status_of(&server, method, &path, &token, id).await;
                // A socket that may still be told who it is is open, but of no use.
                let is_fine = match needs {
                    Everybody => status != 401 || (id == "openSocket" && !token.is_empty()),
                    _ => status == 401,
                };
                assert!(is_fine, "{method} {path} with {what}: {status}");
            }
            for has in [Any, Reader, Writer, Manager, Scoped, Admin] {
                if method != "get" {
                    prepare(&server).await;
                }
                let token = token_of("ada", has);
                let status = status_of(&server, method, &path, &token, id).await;
                let is_let_in = !matches!(status, 401 | 403);
                assert_eq!(is_let_in, is_enough(has, needs), "{method} {path} as {has:?}: {status}");
            }
            let token = token_of("bob", Manager);
            if is_own {
                let status = status_of(&server, method, &path, &token, id).await;
                assert_eq!(status, 403, "{method} {path} as somebody else");
            }
        }
    }
    let known: BTreeSet<String> = OPERATIONS.iter().map(|(id, ..)| (*id).to_owned()).collect();
    assert_eq!(seen, known);
}

/// `HEAD`, a prefix of the path, escapes and a slash too many lead to the same doors.
#[tokio::test]
async fn other_ways_to_the_same_door_are_shut() {
    let server = prepared().await;
    let address = server.address();
    for head in [
        "HEAD /kv/a",
        "GET /v1/rooms/lobb%79",
        "GET /v1/rooms/lobby/messages?token=x&access_token=x",
        "GET /v1//rooms",
        "GET /kv/%61",
        "GET /v1/kv?prefix=%61",
        "GET /metrics?user=ada",
    ] {
        let status = status(address, head, &[], "").await;
        assert!(matches!(status, 401 | 404), "{head}: {status}");
        assert!(status == 401 || head.contains("//"), "{head}: {status}");
    }
    let upgrade = [
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    for head in
        ["GET /chat/lobby", "GET /x/chat/lobby", "GET /x/y/chat/lobby?live=1", "GET /health/chat/lobby"]
    {
        assert_eq!(status(address, head, &upgrade, "").await, 401, "{head}");
    }
    // What is open has nothing to tell to those who may not know.
    for head in ["GET /health", "GET /x/health", "GET /health/ready", "GET /a/health/live", "HEAD /health"] {
        assert_eq!(status(address, head, &[], "").await, 200, "{head}");
    }
    let health = server.get("/x/health").await.json();
    assert_eq!(health, json!({"status": "UP"}));
    let bearer = format!("Bearer {}", token_of("ada", Scoped));
    let health =
        server.http().await.request(hyper::Method::GET, "/health", &[("authorization", &bearer)], "").await;
    assert_eq!(health.json()["components"]["store"]["status"], "UP");
    assert_eq!(status(address, "OPTIONS /v1/rooms", &[], "").await, 405);
    for page in ["GET /", "GET /dashboard", "GET /docs", "GET /web/hubbub.js", "GET /openapi.json"] {
        assert_eq!(status(address, page, &[], "").await, 200, "{page}");
    }
    let answer = server.get("/v1/rooms").await;
    assert_eq!(answer.header("www-authenticate"), Some("Bearer realm=\"hubbub\""));
    answer.problem(401, "unauthorized");
}
