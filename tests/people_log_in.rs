//! Accounts with passwords: who logs in, what ends a login, and how often a password may be tried.

use hyper::Method;
use serde_json::{Value, json};

use crate::harness::tokens::{admin, call, get};
use crate::harness::{Answer, Http, Postgres, Server, Setup, Ws};

const PASSWORD: &str = "twelve small penguins";

fn setup() -> Setup {
    Setup::new().with_tokens().set("auth.accounts=true")
}

async fn add(server: &Server, draft: Value) {
    let made = call(server.address(), &admin(), Method::POST, "/v1/auth/accounts", draft).await;
    assert_eq!(made.status, 201, "{}", made.text());
}

async fn try_login(server: &Server, user: &str, password: &str) -> Answer {
    let body = json!({"user": user, "password": password});
    call(server.address(), "", Method::POST, "/v1/auth/login", body).await
}

/// The token of a new login.
async fn log_in(server: &Server, user: &str) -> String {
    let answer = try_login(server, user, PASSWORD).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["token"].as_str().unwrap().to_owned()
}

async fn is_good(server: &Server, token: &str) -> bool {
    let status = get(server.address(), token, "/v1/auth/me").await.status;
    assert!(matches!(status, 200 | 401), "{status}");
    status == 200
}

async fn subscribed(server: &Server, token: &str) -> Ws {
    let mut socket = Ws::with_token(server.address(), "/v1/ws", token).await;
    socket.send(&json!({"type": "subscribe", "roomId": "lobby"})).await;
    assert_eq!(socket.next().await.unwrap()["type"], "subscribed");
    socket
}

async fn logins(server: &Server, token: &str, query: &str) -> Vec<Value> {
    let listed = get(server.address(), token, &format!("/v1/auth/logins{query}")).await;
    assert_eq!(listed.status, 200, "{}", listed.text());
    listed.json()["logins"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_login_is_like_a_token() {
    let mut server = setup().start();
    add(&server, json!({"user": "ada", "password": PASSWORD})).await;
    add(&server, json!({"user": "eve", "password": PASSWORD, "rooms": {"team-*": "r"}})).await;
    let answer = try_login(&server, "ada", PASSWORD).await;
    // It is of the tab or program that logged in: no cookie makes others the same user.
    assert_eq!(answer.header("set-cookie"), None);
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let ada = answer.json()["token"].as_str().unwrap().to_owned();
    let me = get(server.address(), &ada, "/v1/auth/me").await.json();
    assert_eq!((&me["userId"], &me["account"], &me["admin"]), (&json!("ada"), &json!("ada"), &json!(false)));
    let mut http = server.http().await;
    // A page of another site logs nobody in.
    let body = json!({"user": "ada", "password": PASSWORD}).to_string();
    let foreign = [("origin", "https://evil.example")];
    http.request(Method::POST, "/v1/auth/login", &foreign, body).await.problem(403, "forbidden");
    // Rooms, by default; what the account says, otherwise.
    let send = async |server: &Server, token: &str, room: &str| {
        let path = format!("/v1/rooms/{room}/messages");
        call(server.address(), token, Method::POST, &path, json!({"message": "x"})).await.status
    };
    assert_eq!(send(&server, &ada, "lobby").await, 201);
    get(server.address(), &ada, "/kv/a").await.problem(403, "forbidden");
    get(server.address(), &ada, "/v1/auth/accounts").await.problem(403, "forbidden");
    let eve = log_in(&server, "eve").await;
    assert_eq!(send(&server, &eve, "lobby").await, 403);
    assert_eq!(send(&server, &eve, "team-1").await, 403);
    // Logins outlive a restart. Secrets are nowhere.
    let secret = ada.rsplit_once('_').unwrap().1;
    let check_log = |log: &str| assert!(!log.contains(secret) && !log.contains(PASSWORD), "{log}");
    check_log(&server.log());
    server.restart();
    assert!(is_good(&server, &ada).await && is_good(&server, &eve).await);
    for path in ["/v1/auth/logins", "/v1/auth/accounts", "/v1/kv"] {
        let text = get(server.address(), &admin(), path).await.text();
        assert!(!text.contains(secret) && !text.contains("argon2"), "{path}: {text}");
    }
    assert!(!is_good(&server, &ada[..ada.len() - 1]).await);
    check_log(&server.log());
    // Where accounts are off, logins are nothing.
    server.restart_with(&["auth.accounts=false"]);
    assert!(!is_good(&server, &ada).await);
    try_login(&server, "ada", PASSWORD).await.problem(501, "not_supported");
    server.stop().await;
    check_log(&server.log());
}

/// A misspelt right is refused, and who is given none has none.
#[tokio::test]
async fn rights_are_those_that_were_named() {
    let server = setup().start();
    let ask = async |method: Method, path: &str, body: Value| {
        call(server.address(), &admin(), method, path, body).await
    };
    let (accounts, ada) = ("/v1/auth/accounts", "/v1/auth/accounts/ada");
    let draft = |rights: (&str, Value)| json!({"user": "ada", "password": PASSWORD, rights.0: rights.1});
    let refused = ask(Method::POST, accounts, draft(("room", json!({"lobby": "r"})))).await;
    assert!(refused.problem(400, "malformed")["detail"].as_str().unwrap().contains("`room`"));
    let added = ask(Method::POST, accounts, draft(("rooms", json!({})))).await;
    assert_eq!((added.status, added.json().get("rooms")), (201, None), "{}", added.text());
    let refused = ask(Method::PUT, ada, json!({"room": {"lobby": "r"}})).await;
    assert!(refused.problem(400, "malformed")["detail"].as_str().unwrap().contains("`room`"));
    let given = ask(Method::PUT, ada, json!({"rooms": {"lobby": "r"}, "scopes": ["stats"]})).await;
    assert_eq!((given.status, &given.json()["rooms"]), (200, &json!({"lobby": "r"})), "{}", given.text());
    for nothing in [json!({}), json!({"rooms": {}})] {
        let taken = ask(Method::PUT, ada, nothing).await;
        assert_eq!((taken.status, taken.json().get("rooms")), (200, None), "{}", taken.text());
    }
    let token = log_in(&server, "ada").await;
    get(server.address(), &token, "/v1/rooms/lobby/messages").await.problem(403, "forbidden");
}

#[tokio::test]
async fn drafts_of_accounts_are_checked() {
    let server = setup().start();
    let add =
        async |draft: Value| call(server.address(), &admin(), Method::POST, "/v1/auth/accounts", draft).await;
    add(json!({"user": "a b", "password": "short", "rooms": {"a*b": "r"}}))
        .await
        .faults(&["user", "password", "rooms"]);
    add(json!({"user": "ada", "password": "x".repeat(257)})).await.faults(&["password"]);
    add(json!({"user": "ada"})).await.problem(400, "malformed");
    assert_eq!(add(json!({"user": "ada", "password": PASSWORD})).await.status, 201);
    let twice = add(json!({"user": "ada", "password": "another long password"})).await;
    assert!(twice.problem(412, "condition_failed")["detail"].as_str().unwrap().contains("already"));
    log_in(&server, "ada").await;
    try_login(&server, "a b", PASSWORD).await.faults(&["user"]);
    // What cannot be understood costs nobody an attempt, and none is counted as wrong.
    assert_eq!(counted(&server, "hubbub_logins_refused_total").await, 0);
    let path = "/v1/auth/accounts/ada/password";
    let change =
        async |token: &str, body: Value| call(server.address(), token, Method::PUT, path, body).await;
    change(&admin(), json!({"password": "short"})).await.faults(&["password"]);
    let ada = log_in(&server, "ada").await;
    change(&ada, json!({"password": "another long password"})).await.faults(&["current"]);
    change(&ada, json!({"password": "another long password", "current": "wrong"})).await.faults(&["current"]);
    let nobody = "/v1/auth/accounts/nobody";
    call(server.address(), &admin(), Method::DELETE, nobody, Value::Null).await.problem(404, "not_found");
    call(server.address(), &admin(), Method::PUT, nobody, json!({})).await.problem(404, "not_found");
}

async fn counted(server: &Server, metric: &str) -> u64 {
    let text = get(server.address(), &admin(), "/metrics").await.text();
    let line = text.lines().find_map(|line| line.strip_prefix(metric)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{metric}: {text}")).parse().unwrap()
}

/// Whoever guesses is slowed down, by account and by address, and learns nothing: neither which names there are, nor whether
/// the last guess was right.
#[tokio::test]
async fn login_is_rate_limited() {
    // Half a minute to earn one more.
    let server = limited(2, 1_000);
    add(&server, json!({"user": "ada", "password": PASSWORD})).await;
    let ada = log_in_from(&server, "ada", PASSWORD, "192.0.2.1").await;
    assert_eq!(ada.status, 200, "{}", ada.text());
    for (user, wrong) in [("ada", 1), ("nobody", 2)] {
        for _ in 0..wrong {
            let refused = log_in_from(&server, user, "not the right one", "192.0.2.1").await;
            let problem = refused.problem(401, "unauthorized");
            assert_eq!(problem["detail"], "the name or the password is wrong");
        }
        // From now on not even the right one, from anywhere.
        for address in ["192.0.2.1", "192.0.2.2"] {
            let limited = log_in_from(&server, user, PASSWORD, address).await;
            limited.problem(429, "too_many_requests");
            let seconds: u64 = limited.header("retry-after").unwrap().parse().unwrap();
            assert!((1..=30).contains(&seconds), "{seconds}");
        }
    }
    // Others log in, and who is logged in notices nothing.
    log_in_from(&server, "bob", PASSWORD, "192.0.2.1").await.problem(401, "unauthorized");
    assert!(is_good(&server, ada.json()["token"].as_str().unwrap()).await);
    assert_eq!(counted(&server, "hubbub_logins_total").await, 1);
    assert_eq!(counted(&server, "hubbub_logins_refused_total").await, 4);
    assert_eq!(counted(&server, "hubbub_logins_limited_total").await, 4);
}

/// Whoever tries one password with many names.
#[tokio::test]
async fn an_address_tries_few_names() {
    let server = limited(1_000, 2);
    for user in ["a", "b"] {
        log_in_from(&server, user, PASSWORD, "192.0.2.1").await.problem(401, "unauthorized");
    }
    log_in_from(&server, "c", PASSWORD, "192.0.2.1").await.problem(429, "too_many_requests");
    // What the client says of itself before the proxy is not believed.
    log_in_from(&server, "c", PASSWORD, "192.0.2.9, 192.0.2.1").await.problem(429, "too_many_requests");
    log_in_from(&server, "c", PASSWORD, "192.0.2.2").await.problem(401, "unauthorized");
    assert_eq!(counted(&server, "hubbub_logins_limited_total").await, 2);
}

/// Behind a proxy, with so many attempts each minute.
fn limited(account: usize, address: usize) -> Server {
    let setup = setup().set(&format!("auth.login_attempts={account}"));
    setup
        .set(&format!("auth.login_attempts_address={address}"))
        .set("server.trusted_proxies=127.0.0.0/8")
        .start()
}

async fn log_in_from(server: &Server, user: &str, password: &str, address: &str) -> Answer {
    let body = json!({"user": user, "password": password}).to_string();
    let mut http = Http::connect(server.address()).await;
    http.request(Method::POST, "/v1/auth/login", &[("x-forwarded-for", address)], body).await
}

/// On every server of the store: no request from the answer on, and sockets close within moments.
#[tokio::test]
async fn removed_user_is_out_at_once() {
    let postgres = Postgres::start("");
    let [one, two] = [(); 2].map(|()| setup().store(&postgres.url("postgres")).start());
    for round in 0..3 {
        add(&one, json!({"user": "ada", "password": PASSWORD})).await;
        let token = log_in(&two, "ada").await;
        assert!(is_good(&one, &token).await, "{round}: at once");
        let (mut here, mut there) = (subscribed(&one, &token).await, subscribed(&two, &token).await);
        let path = "/v1/auth/accounts/ada";
        assert_eq!(call(one.address(), &admin(), Method::DELETE, path, Value::Null).await.status, 204);
        for server in [&two, &one] {
            assert!(!is_good(server, &token).await, "{round}");
            try_login(server, "ada", PASSWORD).await.problem(401, "unauthorized");
        }
        assert_eq!((here.close_code().await, there.close_code().await), (Some(4401), Some(4401)), "{round}");
        // Another account of the name is not the one that was logged in.
        add(&two, json!({"user": "ada", "password": PASSWORD})).await;
        assert!(!is_good(&one, &token).await && !is_good(&two, &token).await, "{round}");
        assert_eq!(logins(&one, &admin(), "").await, [] as [Value; 0]);
        assert_eq!(call(two.address(), &admin(), Method::DELETE, path, Value::Null).await.status, 204);
    }
}

#[tokio::test]
async fn a_new_password_ends_the_other_logins() {
    let server = setup().start();
    add(&server, json!({"user": "ada", "password": PASSWORD})).await;
    let (own, other) = (log_in(&server, "ada").await, log_in(&server, "ada").await);
    let (mut kept, mut ended) = (subscribed(&server, &own).await, subscribed(&server, &other).await);
    let path = "/v1/auth/accounts/ada/password";
    let draft = json!({"password": "thirteen tall herons", "current": PASSWORD});
    assert_eq!(call(server.address(), &own, Method::PUT, path, draft).await.status, 204);
    assert_eq!(ended.close_code().await, Some(4401));
    assert!(is_good(&server, &own).await && !is_good(&server, &other).await);
    kept.send(&json!({"type": "send", "roomId": "lobby", "message": "still here"})).await;
    assert_ne!(kept.next().await.unwrap()["type"], "error");
    try_login(&server, "ada", PASSWORD).await.problem(401, "unauthorized");
    assert_eq!(logins(&server, &own, "").await.len(), 1);
    // An administrator needs no old one, and ends all.
    let draft = json!({"password": PASSWORD});
    assert_eq!(call(server.address(), &admin(), Method::PUT, path, draft).await.status, 204);
    assert_eq!(kept.close_code().await, Some(4401));
    // So do other rights, which the next login has.
    let token = log_in(&server, "ada").await;
    let mut socket = subscribed(&server, &token).await;
    let rights = json!({"rooms": {"team-*": "r"}});
    let changed = call(server.address(), &admin(), Method::PUT, "/v1/auth/accounts/ada", rights).await;
    assert_eq!((changed.status, &changed.json()["rooms"]), (200, &json!({"team-*": "r"})));
    assert_eq!(socket.close_code().await, Some(4401));
    let token = log_in(&server, "ada").await;
    get(server.address(), &token, "/v1/rooms/lobby/messages").await.problem(403, "forbidden");
}

/// Who is logged in where is for oneself and for administrators; each may end what each sees.
#[tokio::test]
async fn logins_are_listed_and_ended() {
    let server = setup().set("auth.login_attempts=1000").set("auth.login_attempts_address=1000").start();
    for user in ["ada", "eve"] {
        add(&server, json!({"user": user, "password": PASSWORD})).await;
    }
    let (ada, eve) = (log_in(&server, "ada").await, log_in(&server, "eve").await);
    let own = logins(&server, &eve, "").await;
    assert_eq!((own.len(), &own[0]["user"], &own[0]["address"]), (1, &json!("eve"), &json!("127.0.0.1")));
    get(server.address(), &eve, "/v1/auth/logins?user=ada").await.problem(403, "forbidden");
    assert_eq!(logins(&server, &admin(), "").await.len(), 2);
    let of_ada = logins(&server, &admin(), "?user=ada").await;
    let path = format!("/v1/auth/logins/{}", of_ada[0]["loginId"].as_str().unwrap());
    let end = async |token: &str, path: &str| {
        call(server.address(), token, Method::DELETE, path, Value::Null).await
    };
    end(&eve, &path).await.problem(404, "not_found");
    assert!(is_good(&server, &ada).await);
    let mut socket = subscribed(&server, &ada).await;
    assert_eq!(end(&admin(), &path).await.status, 204);
    assert!(!is_good(&server, &ada).await);
    assert_eq!(socket.close_code().await, Some(4401));
    end(&admin(), &path).await.problem(404, "not_found");
    // Logging out ends it, and forgets the cookie.
    let out = end(&eve, "/v1/auth/session").await;
    assert!(out.status == 204 && out.header("set-cookie").unwrap().contains("Max-Age=0"));
    assert!(!is_good(&server, &eve).await);
    // The oldest goes when there are too many.
    let mut tokens = Vec::new();
    for _ in 0..21 {
        tokens.push(log_in(&server, "ada").await);
    }
    assert_eq!(logins(&server, &tokens[20], "").await.len(), 20);
    assert!(!is_good(&server, &tokens[0]).await && is_good(&server, &tokens[1]).await);
    let page = get(server.address(), &admin(), "/v1/auth/logins?limit=15").await.json();
    let after = page["next"].as_str().unwrap();
    assert_eq!(logins(&server, &admin(), &format!("?limit=15&after={after}")).await.len(), 5);
}

/// A login ends by itself, by the server's clock.
#[tokio::test]
async fn a_login_expires() {
    let server = setup().set("auth.login_lifetime=1h").set("clock.trust_after=1ms").start();
    add(&server, json!({"user": "ada", "password": PASSWORD})).await;
    let token = log_in(&server, "ada").await;
    let mut socket = subscribed(&server, &token).await;
    server.set_clock(3_500);
    assert!(is_good(&server, &token).await);
    server.set_clock(3_700);
    assert_eq!(socket.close_code().await, Some(4401));
    assert!(!is_good(&server, &token).await);
}

/// `hubbub user`: the password comes over standard input, never as an argument.
#[tokio::test]
async fn user_commands_work() {
    let setup = setup();
    let file = setup.beside("token");
    let server = setup.start();
    let (url, path) = (server.url(), file.display().to_string());
    std::fs::write(&file, admin()).unwrap();
    let run = async |arguments: &[&str], input: &str| {
        let all = [&["user"], arguments, &["--server", &url, "--token-file", &path]].concat();
        crate::harness::hubbub_aside(all.into_iter().map(str::to_owned).collect(), input.to_owned()).await
    };
    let added = run(&["add", "ada", "--rooms", "team-*=rw"], &format!("{PASSWORD}\n")).await.success();
    assert_eq!(added, "added: ada\n");
    run(&["add", "root", "--admin"], PASSWORD).await.success();
    let refused = run(&["add", "eve"], "short\n").await;
    assert!(refused.code == Some(1) && refused.stderr.contains("password must be 12 to 256"), "{refused:?}");
    let refused = run(&["add", "eve"], "").await;
    assert!(
        refused.code == Some(1) && refused.stderr.contains("no password on standard input"),
        "{refused:?}"
    );
    let listed = run(&["list"], "").await.success();
    assert!(listed.contains("Z  rooms team-*=rw\n") && listed.contains("Z  administrator\n"), "{listed}");
    let token = log_in(&server, "ada").await;
    let found = run(&["logins", "ada"], "").await.success();
    let id = found.lines().nth(1).unwrap().split(' ').next().unwrap();
    assert!(found.contains("127.0.0.1") && token.contains(id), "{found}");
    run(&["logout", id], "").await.success();
    assert!(!is_good(&server, &token).await);
    assert_eq!(run(&["logins"], "").await.success().lines().count(), 1, "the head");
    // Rights are not taken away by leaving something out.
    let refused = run(&["rights", "ada"], "").await;
    for option in ["--rooms", "--queues", "--kv", "--scope", "--admin", "--none"] {
        assert!(refused.code == Some(2) && refused.stderr.contains(option), "{refused:?}");
    }
    assert_eq!(run(&["rights", "ada", "--none", "--rooms", "*=r"], "").await.code, Some(2));
    let rights = async || {
        let listed = run(&["list"], "").await.success();
        let line = listed.lines().find(|line| line.starts_with("ada ")).unwrap();
        line.rsplit("  ").next().unwrap().to_owned()
    };
    assert_eq!(rights().await, "rooms team-*=rw");
    for (options, left) in
        [(&["--rooms", "*=r", "--scope", "stats"][..], "rooms *=r, scope stats"), (&["--none"], "no rights")]
    {
        let changed = run(&[&["rights", "ada"], options].concat(), "").await.success();
        assert_eq!((changed.as_str(), rights().await.as_str()), ("updated: ada\n", left));
    }
    run(&["password", "ada"], "thirteen tall herons").await.success();
    assert_eq!(try_login(&server, "ada", "thirteen tall herons").await.status, 200);
    run(&["remove", "ada"], "").await.success();
    try_login(&server, "ada", "thirteen tall herons").await.problem(401, "unauthorized");
    let refused = crate::harness::hubbub(&["config", "check", "--set", "auth.accounts=true"], "").refusal(2);
    assert!(refused.contains("auth.secret"), "{refused}");
}
