//! What a token does not allow is not seen in lists, streams and answers about other things either.

use hyper::Method;
use serde_json::{Value, json};

use crate::harness::tokens::{admin, begin, call, get, read_until, status, token};
use crate::harness::{Server, Setup, Ws};

const TEAM: &str = r#"{"sub":"ada","rooms":{"team-*":"rw"},"queues":{"jobs-*":"rw"},"kv":{"config/":"rw"}}"#;

fn team() -> String {
    token(serde_json::from_str(TEAM).unwrap())
}

async fn do_as_admin(server: &Server, method: Method, path: &str, body: Value) {
    let answer = call(server.address(), &admin(), method, path, body).await;
    assert!(answer.status < 300, "{path}: {}", answer.text());
}

async fn start() -> Server {
    let server = Setup::new().with_tokens().line().start();
    for room in ["lobby", "team-1", "team-2", "zoo"] {
        do_as_admin(&server, Method::PUT, &format!("/v1/rooms/{room}"), Value::Null).await;
        do_as_admin(&server, Method::PUT, &format!("/v1/rooms/{room}/members/ada"), Value::Null).await;
        let message = json!({"userId": "root", "message": format!("to {room}")});
        do_as_admin(&server, Method::POST, &format!("/v1/rooms/{room}/messages"), message).await;
    }
    for queue in ["jobs-1", "mail", "1"] {
        do_as_admin(&server, Method::PUT, &format!("/v1/queues/{queue}"), Value::Null).await;
    }
    for key in ["config/a", "secret/b", "zzz"] {
        do_as_admin(&server, Method::PUT, &format!("/kv/{key}"), json!(1)).await;
    }
    server
}

fn names(list: &Value, name: &str, member: &str) -> Vec<String> {
    let entries = list[name].as_array().unwrap_or_else(|| panic!("{list}"));
    entries.iter().map(|entry| entry[member].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn lists_have_what_may_be_seen() {
    let server = start().await;
    let (address, token) = (server.address(), team());
    let read = async |path: &str| get(address, &token, path).await;
    let rooms = read("/v1/rooms").await.json();
    assert_eq!(names(&rooms, "rooms", "roomId"), ["team-1", "team-2"]);
    let page = read("/v1/rooms?limit=1").await.json();
    assert_eq!(page["next"], "team-1");
    assert_eq!(read("/v1/rooms?limit=1&after=team-2").await.json()["next"], Value::Null);
    let own = read("/v1/users/ada/rooms").await.json();
    assert_eq!(names(&own, "rooms", "roomId"), ["team-1", "team-2"]);
    assert_eq!(own["rooms"][0]["lastMessage"]["message"], "to team-1");
    assert_eq!(names(&read("/v1/queues").await.json(), "queues", "queue"), ["jobs-1"]);
    assert_eq!(read("/v1/queues?limit=1").await.json()["next"], Value::Null);
    read("/v1/queues?receiver=bob").await.problem(403, "forbidden");
    assert_eq!(names(&read("/v1/kv?prefix=config/").await.json(), "keys", "key"), ["config/a"]);
    for path in [
        "/v1/kv",
        "/v1/kv?prefix=config",
        "/v1/kv?prefix=",
        "/v1/kv?prefix=secret/",
        "/v1/kv/watch",
        "/v1/kv/watch?prefix=con",
        "/kv/secret/b",
        "/kv/secret%2Fb",
        "/kv/config",
        "/v1/rooms/lobby",
        "/v1/rooms/lobb%79",
        "/v1/rooms/team",
        "/v1/rooms/lobby/messages",
        "/v1/rooms/lobby/members",
        "/v1/rooms/lobby/presence",
        "/v1/rooms/lobby/events",
        "/v1/rooms/nowhere",
        "/v1/queues/mail",
        "/v1/queues/nowhere",
        "/v1/clients",
        "/v1/stats",
        "/v1/stats/users",
        "/v1/stats/users?user=root",
        "/v1/stats/users/root/rooms",
        "/v1/users/root/messages",
        "/v1/users/root/rooms",
        "/metrics",
        "/v1/rooms?user=root",
    ] {
        read(path).await.problem(403, "forbidden");
    }
    assert_eq!(read("/kv/conf%69g/a").await.status, 200, "escapes are undone before the rights are compared");
    assert_eq!(read("/v1/stats/users?user=ada").await.status, 200);
    let header = [("authorization", &*format!("Bearer {token}")), ("hubbub-user", "root")];
    assert_eq!(status(address, "GET /v1/rooms", &header, "").await, 403);
}

/// API keys and revocations are kept among the keys, where nobody sees them.
#[tokio::test]
async fn the_server_s_own_keys_are_hidden() {
    let server = start().await;
    let address = server.address();
    let bearer = format!("Bearer {}", admin());
    let headers = [("authorization", bearer.as_str())];
    let (mut watch, _) = begin(address, "GET /v1/kv/watch?after=0", &headers, "").await;
    let draft = json!({"name": "n", "user": "u"});
    let made = call(address, &admin(), Method::POST, "/v1/auth/keys", draft).await.json();
    let id = made["keyId"].as_str().unwrap();
    do_as_admin(&server, Method::PUT, "/kv/%00", json!(1)).await;
    do_as_admin(&server, Method::PUT, "/kv/last", json!(1)).await;
    let read = read_until(&mut watch, "\"key\":\"last\"").await;
    assert!(read.contains("config/a") && !read.contains("hubbub"), "{read}");
    for path in
        ["/v1/kv", "/v1/kv?limit=1", "/v1/kv?limit=2", "/v1/kv?prefix=%2500", "/v1/kv?prefix=%2500hubbub/"]
    {
        let listed = get(address, &admin(), path).await.text();
        assert!(!listed.contains("hubbub/"), "{path}: {listed}");
    }
    let all = get(address, &admin(), "/v1/kv").await.json();
    assert_eq!(names(&all, "keys", "key"), ["%00", "config/a", "last", "secret/b", "zzz"]);
    let path = format!("/kv/%00hubbub/key/{id}");
    for method in [Method::GET, Method::PUT, Method::DELETE, Method::HEAD] {
        assert_eq!(call(address, &admin(), method, &path, Value::Null).await.status, 422);
    }
    for body in [
        json!({"get": [format!("%00hubbub/key/{id}")]}),
        json!({"put": [{"key": "%00hubbub/key/x", "value": "{}"}]}),
        json!({"delete": [format!("%00hubb%75b/key/{id}")]}),
    ] {
        call(address, &admin(), Method::POST, "/v1/kv", body).await.problem(422, "invalid");
    }
}

#[tokio::test]
async fn each_message_is_checked_by_itself() {
    let server = start().await;
    let (address, token) = (server.address(), team());
    let lines = [
        json!({"roomId": "team-1", "message": "fine"}),
        json!({"roomId": "lobby", "message": "not allowed"}),
        json!({"roomId": "team-1", "userId": "bob", "message": "not me"}),
        json!({"roomId": "team-2", "userId": "ada", "message": "fine too"}),
    ];
    let body: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str())];
    let answer = server.http().await.request(Method::POST, "/v1/messages", &headers, body).await;
    let codes: Vec<Value> = answer.lines().iter().map(|line| line["code"].clone()).collect();
    assert_eq!(codes, [Value::Null, json!("forbidden"), json!("forbidden"), Value::Null]);
    let send = async |room: &str, message: Value| {
        call(address, &token, Method::POST, &format!("/v1/rooms/{room}/messages"), message).await
    };
    assert_eq!(send("team-1", json!({"message": "as myself"})).await.status, 201);
    let problem = send("team-1", json!({"userId": "bob", "message": "x"})).await.problem(403, "forbidden");
    assert!(problem["detail"].as_str().unwrap().contains("'ada'"), "{problem}");
    send("lobby", json!({"roomId": "team-1", "message": "x"})).await.problem(403, "forbidden");
    // In queues too, and in a batch of keys.
    let path = "/v1/queues/jobs-1/messages";
    call(address, &token, Method::POST, path, json!({"sender": "bob", "message": "x"}))
        .await
        .problem(403, "forbidden");
    let taken = json!({"receiver": "bob"});
    call(address, &token, Method::POST, "/v1/queues/jobs-1/get", taken).await.problem(403, "forbidden");
    let batch = json!({"put": [{"key": "config/b", "value": "1"}], "get": ["secret/b"]});
    call(address, &token, Method::POST, "/v1/kv", batch).await.problem(403, "forbidden");
    assert_eq!(get(address, &token, "/kv/config/b").await.status, 404, "nothing of it was done");
    // Membership comes on top: a private room is its members' only.
    do_as_admin(&server, Method::PUT, "/v1/rooms/team-9", json!({"membersOnly": true})).await;
    get(address, &token, "/v1/rooms/team-9/messages").await.problem(403, "not_member");
    do_as_admin(&server, Method::PUT, "/v1/rooms/team-9/members/ada", Value::Null).await;
    assert_eq!(get(address, &token, "/v1/rooms/team-9/messages").await.status, 200);
    let path = "/v1/rooms/team-9/members/bob";
    call(address, &token, Method::PUT, path, Value::Null).await.problem(403, "forbidden");
    assert_eq!(
        call(address, &token, Method::DELETE, "/v1/rooms/team-9/members/ada", Value::Null).await.status,
        204
    );
}

/// An administrator may act in the name of a user, with that user's rights.
#[tokio::test]
async fn administrators_may_stand_for_others() {
    let server = start().await;
    let bearer = format!("Bearer {}", admin());
    let as_bob = [("authorization", bearer.as_str()), ("hubbub-user", "bob")];
    let mut http = server.http().await;
    let sent = http.request(Method::POST, "/v1/rooms/lobby/messages", &as_bob, r#"{"message":"x"}"#).await;
    assert_eq!(sent.status, 201);
    http.request(Method::GET, "/v1/users/ada/rooms", &as_bob, "").await.problem(403, "forbidden");
    let history = get(server.address(), &admin(), "/v1/rooms/lobby/messages").await.json();
    assert_eq!(history["messages"][1]["userId"], "bob");
}

/// What is the user's own in rooms that the token may not read: not named, not even by where a list goes on.
#[tokio::test]
async fn own_things_in_other_rooms_are_not_seen() {
    let server = start().await;
    let (address, token) = (server.address(), team());
    let bearer = format!("Bearer {}", admin());
    let as_ada = [("authorization", bearer.as_str()), ("hubbub-user", "ada")];
    let mut http = server.http().await;
    let mut as_ada =
        async |method, path: &str, body: &'static str| http.request(method, path, &as_ada, body).await.status;
    for room in ["lobby", "team-1", "lobby", "zoo", "team-2", "lobby"] {
        let path = format!("/v1/rooms/{room}/messages");
        assert_eq!(as_ada(Method::POST, &path, r#"{"message":"mine"}"#).await, 201);
    }
    let mut socket = Ws::with_token(address, "/v1/ws", &token).await;
    socket.send(&json!({"type": "ping"})).await;
    assert_eq!(socket.next().await.unwrap()["type"], "pong");
    for room in ["lobby", "team-1"] {
        assert_eq!(as_ada(Method::PUT, &format!("/v1/rooms/{room}/read"), r#"{"seq":1}"#).await, 200);
    }
    assert_eq!(socket.next().await.unwrap()["roomId"], "team-1", "the mark in lobby is none of its business");
    for (list, name, expected) in [
        ("/v1/users/ada/messages", "messages", ["team-1", "team-2"]),
        ("/v1/stats/users/ada/rooms", "rooms", ["team-1", "team-2"]),
        ("/v1/users/ada/rooms", "rooms", ["team-1", "team-2"]),
    ] {
        let whole = get(address, &token, list).await.json();
        assert_eq!(names(&whole, name, "roomId"), expected, "{list}");
        let (mut seen, mut from) = (Vec::new(), String::new());
        for _ in 0..10 {
            let page = get(address, &token, &format!("{list}?limit=1{from}")).await.json();
            seen.extend(names(&page, name, "roomId"));
            let Some(next) = page["next"].as_str() else { break };
            assert!(next.contains("team-"), "{list}: {next}");
            from = format!("&{}={next}", if name == "messages" { "before" } else { "after" });
        }
        seen.sort_unstable();
        assert_eq!(seen, expected, "{list}");
    }
    let of_admin = get(address, &admin(), "/v1/users/ada/messages").await.json();
    assert_eq!(of_admin["messages"].as_array().unwrap().len(), 6);
}

#[tokio::test]
async fn all_rooms_are_those_that_may_be_read() {
    let server = start().await;
    let mut socket = Ws::with_token(server.address(), "/v1/ws", &team()).await;
    socket.send(&json!({"type": "subscribe", "ref": 1, "roomId": "*"})).await;
    let mut subscribed = Vec::new();
    loop {
        let said = socket.next().await.unwrap();
        assert_ne!(said["type"], "error", "{said}");
        if said["type"] == "subscribed" && said["roomId"] == "*" {
            assert_eq!(said["rooms"], 2, "{said}");
            break;
        }
        subscribed.push(said["roomId"].as_str().unwrap().to_owned());
    }
    subscribed.dedup();
    assert_eq!(subscribed, ["team-1", "team-2"]);
    // Nor does joining another one bring it in.
    for room in ["other", "team-3"] {
        do_as_admin(&server, Method::PUT, &format!("/v1/rooms/{room}"), Value::Null).await;
        do_as_admin(&server, Method::PUT, &format!("/v1/rooms/{room}/members/ada"), Value::Null).await;
    }
    assert_eq!(socket.next().await.unwrap()["roomId"], "team-3");
    socket.send(&json!({"type": "subscribe", "roomId": "other"})).await;
    assert_eq!(socket.next().await.unwrap()["code"], "forbidden");
}

/// Where a token may stand, and where two are one too many.
#[tokio::test]
async fn a_token_comes_from_one_place() {
    let server = start().await;
    let (address, token) = (server.address(), team());
    let bearer = format!("Bearer {token}");
    let both = [("authorization", bearer.as_str()), ("authorization", bearer.as_str())];
    assert_eq!(status(address, "GET /v1/rooms", &both, "").await, 401);
    // Subprotocols: the token is not repeated where there is another one to choose.
    let protocol = "sec-websocket-protocol";
    let offered = format!("hubbub, hubbub.bearer.{token}");
    let mut socket = Ws::with_header(address, "/v1/ws", protocol, &offered).await.unwrap();
    socket.send(&json!({"type": "subscribe", "roomId": "team-1"})).await;
    assert_eq!(socket.next().await.unwrap()["type"], "subscribed");
    // A browser cannot read a status, but a close code.
    let mut refused = Ws::with_header(address, "/v1/ws", protocol, "hubbub, hubbub.bearer.x").await.unwrap();
    assert_eq!(refused.close_code().await, Some(4401));
    assert_eq!(Ws::with_header(address, "/v1/ws", "authorization", "Bearer x").await.err(), Some(401));
    // The cookie: for event streams alone, and only from the page's own site.
    let headers = [("authorization", bearer.as_str()), ("origin", "https://chat.example")];
    assert_eq!(status(address, "POST /v1/auth/session", &headers, "").await, 403, "a page of another site");
    let answer = call(address, &token, Method::POST, "/v1/auth/session", Value::Null).await;
    let cookie = answer.header("set-cookie").unwrap().to_owned();
    for part in ["HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=900"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    let cookie = cookie.split(';').next().unwrap();
    let by_cookie = [("cookie", cookie), ("accept", "text/event-stream")];
    assert_eq!(status(address, "GET /v1/rooms/team-1/events", &by_cookie, "").await, 200);
    assert_eq!(status(address, "GET /v1/rooms/lobby/events", &by_cookie, "").await, 403);
    for head in ["POST /v1/rooms/team-1/messages", "PUT /kv/config/a", "DELETE /kv/config/a"] {
        assert_eq!(status(address, head, &by_cookie, r#"{"message":"x"}"#).await, 401, "{head}");
    }
    for head in ["GET /v1/auth/me", "GET /v1/rooms/team-1/messages", "GET /v1/rooms/team-1/events"] {
        assert_eq!(status(address, head, &[("cookie", cookie)], "").await, 401, "{head}");
    }
    // A socket opened with it alone is nobody's.
    let mut socket = Ws::with_header(address, "/v1/ws", "cookie", cookie).await.unwrap();
    socket.send(&json!({"type": "ping"})).await;
    assert_eq!(socket.close_code().await, Some(4401));
    // One that no browser would keep.
    let rooms: serde_json::Map<String, Value> =
        (0..200).map(|n| (format!("a-room-{n:06}"), json!("r"))).collect();
    let long = crate::harness::tokens::token(json!({"sub": "ada", "rooms": rooms}));
    call(address, &long, Method::POST, "/v1/auth/session", Value::Null).await.faults(&["Authorization"]);
    let cleared = call(address, "", Method::DELETE, "/v1/auth/session", Value::Null).await;
    assert!(cleared.header("set-cookie").unwrap().contains("Max-Age=0"));
    // Never from the address.
    assert_eq!(status(address, &format!("GET /v1/rooms?token={token}"), &[], "").await, 401);
}

/// Texts of the sample room and of the sample user.
async fn samples(server: &Server, claims: Value, query: &str) -> [Vec<String>; 2] {
    let report = get(server.address(), &token(claims), &format!("/v1/stats/report{query}")).await.json();
    assert!(report["coreQueries"]["totalMessages"].as_u64().unwrap() >= 4, "{report}");
    ["sampleRoomMessages", "sampleUserHistory"].map(|list| names(&report["coreQueries"], list, "content"))
}

/// The scope `stats` tells how many messages there are, and no text that the token may not read as history.
#[tokio::test]
async fn a_report_has_texts_for_those_who_may_read_them() {
    const NOTHING: [&[&str]; 2] = [&[], &[]];
    let server = start().await;
    let counting = json!({"sub": "ops", "scopes": ["stats"]});
    let reading = json!({"sub": "ops", "rooms": {"team-*": "r", "club": "r"}, "scopes": ["stats"]});
    let admin = json!({"sub": "root", "admin": true});
    do_as_admin(&server, Method::PUT, "/v1/rooms/club", json!({"membersOnly": true})).await;
    do_as_admin(&server, Method::PUT, "/v1/rooms/club/members/ada", Value::Null).await;
    for (room, user, text) in [("club", "ada", "secret"), ("team-1", "ops", "mine"), ("zoo", "ops", "theirs")]
    {
        let message = json!({"userId": user, "message": text});
        do_as_admin(&server, Method::POST, &format!("/v1/rooms/{room}/messages"), message).await;
    }
    for query in ["", "?room=club&user=ada", "?room=team-1&user=root", "?room=lobby"] {
        assert_eq!(samples(&server, counting.clone(), query).await, NOTHING, "{query}");
    }
    for (claims, query, expected) in [
        (&reading, "?room=team-1&user=root", [&["mine", "to team-1"][..], &[]]),
        (&reading, "?room=lobby&user=ops", [&[], &["mine"]]),
        (&reading, "?room=club&user=ada", NOTHING),
        (&admin, "?room=club&user=ops", [&["secret"], &["theirs", "mine"]]),
    ] {
        assert_eq!(samples(&server, claims.clone(), query).await, expected, "{claims} {query}");
    }
    do_as_admin(&server, Method::PUT, "/v1/rooms/club/members/ops", Value::Null).await;
    let of_member = samples(&server, reading, "?room=club&user=ada").await;
    assert_eq!(of_member, [&["secret"][..], &[]], "what ada wrote is for ada");
}

/// A token that is for one thing neither shows where its user is logged in, nor logs the user out.
#[tokio::test]
async fn narrow_tokens_see_and_end_no_logins() {
    let server = Setup::new().with_tokens().set("auth.accounts=true").start();
    let address = server.address();
    let ask = async |token: &str, method: Method, path: &str, body: Value| {
        call(address, token, method, path, body).await
    };
    let draft = json!({"user": "ada", "password": "twelve small penguins"});
    assert_eq!(ask(&admin(), Method::POST, "/v1/auth/accounts", draft.clone()).await.status, 201);
    let login = ask("", Method::POST, "/v1/auth/login", draft).await.json();
    let (login, path) =
        (login["token"].as_str().unwrap(), format!("/v1/auth/logins/{}", login["loginId"].as_str().unwrap()));
    let draft = json!({"name": "n", "user": "ada", "rooms": {"team-*": "w"}});
    let key = ask(&admin(), Method::POST, "/v1/auth/keys", draft).await.json();
    for narrow in [key["apiKey"].as_str().unwrap(), &token(json!({"sub": "ada", "rooms": {"*": "rwm"}}))] {
        for list in ["/v1/auth/logins", "/v1/auth/logins?user=ada"] {
            get(address, narrow, list).await.problem(403, "forbidden");
        }
        ask(narrow, Method::DELETE, &path, Value::Null).await.problem(404, "not_found");
    }
    let count = async |token: &str| {
        let listed = get(address, token, "/v1/auth/logins?user=ada").await.json();
        listed["logins"].as_array().unwrap().len()
    };
    assert_eq!((count(login).await, count(&admin()).await), (1, 1));
    // An administrator who acts for the user is one all the same.
    let bearer = format!("Bearer {}", admin());
    let headers = [("authorization", bearer.as_str()), ("hubbub-user", "ada")];
    let listed = server.http().await.request(Method::GET, "/v1/auth/logins", &headers, String::new()).await;
    assert_eq!(listed.json()["logins"].as_array().unwrap().len(), 1, "{}", listed.text());
    assert_eq!(ask(login, Method::DELETE, &path, Value::Null).await.status, 204);
    assert_eq!(count(&admin()).await, 0);
}
