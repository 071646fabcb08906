//! The keys of an identity provider change: its new tokens are taken, the old ones are not, and while it cannot be
//! reached the keys there are stay.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hyper::Method;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::harness::tokens::{call, get, now};
use crate::harness::{Setup, Ws, until};

struct Key {
    id: &'static str,
    private: EncodingKey,
    jwk: Value,
}

impl Key {
    fn new(id: &'static str) -> Self {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&aws_lc_rs::rand::SystemRandom::new()).unwrap();
        let pair = Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap();
        let x = URL_SAFE_NO_PAD.encode(pair.public_key().as_ref());
        let jwk = json!({"kty": "OKP", "crv": "Ed25519", "use": "sig", "kid": id, "x": x});
        Self { id, private: EncodingKey::from_ed_der(pkcs8.as_ref()), jwk }
    }

    fn token(&self, audience: &str) -> String {
        let header = Header { kid: Some(self.id.to_owned()), ..Header::new(Algorithm::EdDSA) };
        let claims = json!({"sub": "ada", "aud": audience, "iss": "idp", "exp": now() + 3_600.0, "rooms": {"*": "rw"}});
        jsonwebtoken::encode(&header, &claims, &self.private).unwrap()
    }
}

/// Answers every request with what it has now; `None` = 500.
struct Provider {
    address: SocketAddr,
    set: Arc<Mutex<Option<Value>>>,
    asked: Arc<AtomicUsize>,
}

impl Provider {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (set, asked) = (Arc::new(Mutex::new(None::<Value>)), Arc::new(AtomicUsize::new(0)));
        let (answers, count) = (set.clone(), asked.clone());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") && stream.read_buf(&mut head).await.unwrap_or(0) > 0 {}
                let set = answers.lock().unwrap().clone();
                let status = if set.is_some() { "200 OK" } else { "500 Internal Server Error" };
                let body = set.map(|set| set.to_string()).unwrap_or_default();
                let answer = format!(
                    "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                );
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        Self { address, set, asked }
    }

    fn serve(&self, keys: &[&Key]) {
        let keys: Vec<&Value> = keys.iter().map(|key| &key.jwk).collect();
        *self.set.lock().unwrap() = Some(json!({"keys": keys}));
    }
}

#[tokio::test]
async fn jwks_rotation() {
    let provider = Provider::start().await;
    let [old, new, foreign] = [Key::new("1"), Key::new("2"), Key::new("3")];
    let url = format!("auth.jwks=http://{}/keys", provider.address);
    let server = Setup::new().set(&url).set("auth.audience=chat").set("auth.issuer=idp").start();
    let status = async |token: String| get(server.address(), &token, "/v1/rooms").await.status;
    // Before the keys are known nobody is told that a good token is bad.
    assert_eq!(status(old.token("chat")).await, 503);
    // Nor that a login has ended, while nobody knows whether the token is one.
    let (path, token) = ("/v1/auth/session", old.token("chat"));
    let ended = call(server.address(), &token, Method::DELETE, path, Value::Null).await;
    ended.problem(503, "unavailable");
    provider.serve(&[&old]);
    until("the first keys", async || status(old.token("chat")).await == 200).await;
    assert_eq!(status(old.token("mail")).await, 401, "for another application");
    assert_eq!(status(foreign.token("chat")).await, 401);
    let mut socket = Ws::with_token(server.address(), "/v1/ws", &old.token("chat")).await;
    // Both for a while, then the old one goes.
    provider.serve(&[&old, &new]);
    until("the new key", async || status(new.token("chat")).await == 200).await;
    assert_eq!(status(old.token("chat")).await, 200);
    provider.serve(&[&new]);
    // A token of an unknown key has the set fetched.
    until("the end of the old key", async || {
        status(foreign.token("chat")).await;
        status(old.token("chat")).await == 401
    })
    .await;
    // Who was let in before stays until the token expires.
    socket.send(&json!({"type": "ping"})).await;
    assert_eq!(socket.next().await.unwrap()["type"], "pong");
    // However many tokens of unknown keys come, the provider is asked now and then only.
    *provider.set.lock().unwrap() = None;
    let before = provider.asked.load(Ordering::SeqCst);
    for _ in 0..200 {
        assert_eq!(status(foreign.token("chat")).await, 401);
    }
    assert!(provider.asked.load(Ordering::SeqCst) - before < 20);
    assert_eq!(status(new.token("chat")).await, 200, "the keys there are stay");
}
