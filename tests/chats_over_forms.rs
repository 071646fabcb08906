//! The form interface (`--compat chats`): users, chats and messages as forms, and every message of a user's chats over a socket.

use hyper::Method;
use serde_json::Value;

use crate::harness::{Answer, Http, Server, Setup, hubbub};

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

fn start() -> Server {
    Setup::new().set("server.compat=chats").start()
}

/// Sends a form, as somebody if a name is given.
async fn post(http: &mut Http, path: &str, user: Option<&str>, form: &str) -> Answer {
    let cookie = user.map(|user| format!("theme=dark; user_id={user}"));
    let mut headers = vec![FORM];
    headers.extend(cookie.as_deref().map(|cookie| ("cookie", cookie)));
    http.request(Method::POST, path, &headers, form.to_owned()).await
}

async fn chat(http: &mut Http, user: Option<&str>, form: &str) -> String {
    let made = post(http, "/chats", user, form).await;
    assert_eq!(made.status, 201, "{}", made.text());
    made.json()["chat_id"].as_str().unwrap().to_owned()
}

async fn send(http: &mut Http, chat: &str, user: &str, form: &str) -> Answer {
    post(http, &format!("/chats/{chat}/messages"), Some(user), form).await
}

fn said(frame: &Value) -> (&str, &str, &str) {
    assert_eq!(frame["type"], "message", "messages only: {frame}");
    (frame["roomId"].as_str().unwrap(), frame["userId"].as_str().unwrap(), frame["message"].as_str().unwrap())
}

#[tokio::test]
async fn everybody_of_a_chat_gets_every_message() {
    let mut server = start();
    let mut http = server.http().await;
    for user in ["ada", "bob", "eve"] {
        assert_eq!(post(&mut http, "/users", None, &format!("username={user}")).await.status, 201);
    }
    let taken = post(&mut http, "/users", None, "username=ada").await;
    assert_eq!(taken.status, 409, "{}", taken.text());
    let login = post(&mut http, "/login", None, "username=ada&password=x").await;
    assert_eq!(login.status, 303);
    assert!(login.header("set-cookie").unwrap().starts_with("user_id=ada;"), "{login:?}");
    assert_eq!(http.get(login.header("location").unwrap()).await.status, 200, "the page exists");

    let first = chat(&mut http, Some("ada"), "name=Tea+%26+cake&members=bob").await;
    let (mut ada, mut bob) = (server.ws("/ws/connect/ada").await, server.ws("/ws/connect/bob").await);
    let mut eve = server.ws("/ws/connect/eve").await;
    // What a socket says is dropped.
    ada.send_text("anything").await;
    for n in 0..50 {
        let sent = send(&mut http, &first, "ada", &format!("content=text+{n}")).await;
        assert_eq!((sent.status, sent.text().as_str()), (200, ""));
    }
    // A chat that is made while the sockets are open.
    let second = chat(&mut http, None, "name=later&members=eve&members=bob&members=eve").await;
    assert_eq!(send(&mut http, &second, "bob", "content=hello").await.status, 200);
    for socket in [&mut ada, &mut bob] {
        for n in 0..50 {
            assert_eq!(said(&socket.receive().await), (first.as_str(), "ada", &*format!("text {n}")));
        }
    }
    for socket in [&mut bob, &mut eve] {
        assert_eq!(said(&socket.receive().await), (second.as_str(), "bob", "hello"));
    }
    let room = server.get(&format!("/v1/rooms/{first}")).await.json();
    assert_eq!((&room["title"], &room["membersOnly"]), (&"Tea & cake".into(), &true.into()), "{room}");
    // Nothing else came: presence, read marks and the end of a chat are no messages.
    let deleted = http.request(Method::DELETE, &format!("/v1/rooms/{second}"), &[], "").await;
    assert_eq!(deleted.status, 204);
    assert_eq!(send(&mut http, &first, "bob", "content=end").await.status, 200);
    for socket in [&mut ada, &mut bob] {
        assert_eq!(said(&socket.receive().await), (first.as_str(), "bob", "end"));
    }
    // Names stay taken.
    server.restart();
    let again = post(&mut server.http().await, "/users", None, "username=bob").await;
    assert_eq!(again.status, 409);
}

#[tokio::test]
async fn what_is_wrong_is_named() {
    let server = start();
    let mut http = server.http().await;
    post(&mut http, "/users", None, "").await.faults(&["username"]);
    post(&mut http, "/users", None, "username=a+b").await.faults(&["username"]);
    post(&mut http, "/login", None, "username=bob").await.problem(403, "forbidden");
    post(&mut http, "/chats", None, "members=ada").await.faults(&["name"]);
    post(&mut http, "/chats", None, "name=x").await.faults(&["members"]);
    post(&mut http, "/chats", None, "name=x&members=ada&members=").await.faults(&["members"]);
    let chat = chat(&mut http, Some("ada"), "name=x").await;
    let path = format!("/chats/{chat}/messages");
    post(&mut http, &path, None, "content=x").await.faults(&["user_id"]);
    post(&mut http, &path, Some("a b"), "content=x").await.faults(&["user_id"]);
    post(&mut http, &path, Some("ada"), "").await.faults(&["message"]);
    post(&mut http, &path, Some("bob"), "content=x").await.problem(403, "not_member");
    // A message makes no chat.
    send(&mut http, "nowhere", "ada", "content=x").await.problem(404, "unknown_room");
    assert!(server.get("/v1/rooms/nowhere").await.status == 404);
    http.request(Method::GET, "/users", &[], "").await.problem(405, "method_not_allowed");
    http.get("/ws/connect/ada").await.problem(400, "malformed");
    // Pages of other sites may not use somebody's cookie.
    let headers = [FORM, ("origin", "https://evil.example"), ("cookie", "user_id=ada")];
    http.request(Method::POST, &path, &headers, "content=x").await.problem(403, "forbidden");
    assert!(server.history(&chat).await.is_empty());
}

/// Whoever makes a chat counts for none of the members that are named.
#[tokio::test]
async fn a_thousand_members_may_be_named() {
    let server = start();
    let mut http = server.http().await;
    let named = |count: usize| {
        let members = (0..count).map(|number| format!("&members=u{number}"));
        format!("name=x{}", members.collect::<String>())
    };
    let whole = chat(&mut http, Some("ada"), &named(1_000)).await;
    for member in ["ada", "u0", "u999"] {
        assert_eq!(send(&mut http, &whole, member, "content=here").await.status, 200, "{member}");
    }
    for user in [Some("ada"), Some("u0"), None] {
        post(&mut http, "/chats", user, &named(1_001)).await.faults(&["members"]);
    }
}

#[tokio::test]
async fn it_is_served_only_where_it_is_wanted() {
    let server = Server::start();
    for path in ["/users", "/login", "/chats", "/chats/x/messages"] {
        post(&mut server.http().await, path, None, "username=ada").await.problem(404, "not_found");
    }
    let data = Setup::new().data().display().to_string();
    let serve = ["serve", "--compat", "chats", "--listen", "0.0.0.0:0", "--data", &data];
    let reason = hubbub(&serve, "").refusal(2);
    assert!(reason.contains("--insecure"), "{reason}");
    let config = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(config.path(), "auth.secret = \"nobody has to know this one, it is a test's\"").unwrap();
    let config = config.path().to_str().unwrap();
    let reason = hubbub(&["serve", "--compat", "chats", "--config", config, "--data", &data], "").refusal(2);
    assert!(reason.contains("server.compat"), "{reason}");
}
