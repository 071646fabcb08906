//! Tokens, keys that verify them, and what the store says of API keys and revocations. An input names its kind in the first
//! line: `token`, the text of a token; `signed`, header and claims in one line each, which are signed here, so that what is
//! behind the signature is reached; `set`, a JSON Web Key Set; `pem`, a public key; `key`, `revoked-token` and
//! `revoked-user`, an entry of the store.

#![no_main]

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hubbub_core::clock::{ManualClock, SeededRandom};
use hubbub_core::kv::Condition;
use hubbub_core::{KvOp, Op, OpBatch, Outcome, Store, Timestamp};
use hubbub_gateway::auth::{Auth, TokenRules, Verifier, unverified};
use hubbub_store::embedded::disk::FileDisk;
use hubbub_store::embedded::{Durability, Embedded, Engine, EngineOptions};
use libfuzzer_sys::fuzz_target;
use tokio::runtime::Runtime;

const SECRET: &str = "a secret that is known to the fuzzer, too";
const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

fn rules(audience: Option<&str>) -> TokenRules {
    TokenRules {
        audience: audience.map(str::to_owned),
        issuer: None,
        leeway: Duration::from_secs(30),
        max_lifetime: Duration::from_secs(30 * 86_400),
    }
}

fn verifier(audience: Option<&str>) -> Verifier {
    Verifier::new(rules(audience), Some(SECRET), None, true).expect("the secret is long enough")
}

/// Whatever is accepted expires, and not later than the rules allow.
fn check(token: &str) {
    let _ = unverified(token);
    for audience in [None, Some("hubbub")] {
        if verifier(audience).check(token, NOW).is_err() {
            continue;
        }
        let (header, claims) = unverified(token).expect("what is accepted can be read");
        assert_eq!(header["alg"], "HS256", "{header}");
        let exp = claims["exp"].as_f64().expect("it expires");
        assert!((1_699_999_970.0..=1_702_592_060.0).contains(&exp), "{claims}");
        assert!(claims["admin"] == true || claims["sub"].is_string(), "{claims}");
        assert_eq!(claims.get("aud").is_some_and(|aud| !aud.is_null()), audience.is_some(), "{claims}");
    }
}

fn signed(input: &[u8]) -> Option<String> {
    let (header, claims) = str::from_utf8(input).ok()?.split_once('\n')?;
    let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let content = format!("{}.{}", encode(header), encode(claims));
    let key = jsonwebtoken::EncodingKey::from_secret(SECRET.as_bytes());
    let algorithm = jsonwebtoken::Algorithm::HS256;
    let signature = jsonwebtoken::crypto::sign(content.as_bytes(), &key, algorithm).ok()?;
    Some(format!("{content}.{signature}"))
}

/// A store, and what waits for its reads.
struct Opened {
    store: Arc<Embedded>,
    runtime: Runtime,
    _dir: tempfile::TempDir,
}

static OPENED: LazyLock<Opened> = LazyLock::new(|| {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let disk = Arc::new(FileDisk::new(dir.path()));
    let options = EngineOptions {
        slot_bytes: 1 << 20,
        reserve_bytes: 0,
        durability: Durability::Os,
        ..EngineOptions::default()
    };
    let engine = Engine::open(options, disk, Arc::new(ManualClock::at(NOW)), &SeededRandom::new(3));
    let store = Arc::new(Embedded::in_line(engine.expect("a new store")));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    Opened { store, runtime, _dir: dir }
});

/// Opens what the store says while it holds one entry.
fn open_with(key: &[u8], value: &[u8]) {
    let Opened { store, runtime, .. } = &*OPENED;
    let apply = |op: KvOp<'_>| {
        let mut ops = OpBatch::default();
        ops.push(&Op::Kv(op));
        let outcomes = store.apply(&ops).expect("the store is there");
        assert!(!matches!(outcomes.first(), Some(Outcome::Refused(_)) | None), "{outcomes:?}");
    };
    apply(KvOp::Put { key, value, ttl_ms: None, condition: Condition::Always });
    let auth = Auth::open(Some(verifier(None)), None, store.clone(), Arc::new(ManualClock::at(NOW)));
    let auth = runtime.block_on(auth).expect("the store can be read");
    assert!(auth.is_on());
    apply(KvOp::Delete { key, condition: Condition::Always });
    store.work_in_line();
}

fuzz_target!(|input: &[u8]| {
    let Some(end) = input.iter().position(|byte| *byte == b'\n') else { return };
    let (kind, rest) = (&input[..end], &input[end + 1..]);
    match kind {
        b"token" => str::from_utf8(rest).into_iter().for_each(check),
        b"signed" => signed(rest).iter().for_each(|token| check(token)),
        b"set" => drop(verifier(None).replace_set(rest)),
        b"pem" => drop(Verifier::new(rules(None), None, Some(rest), false)),
        b"key" => open_with(b"\0hubbub/key/0f3a9c1b2d4e5f60", rest),
        b"revoked-token" => open_with(b"\0hubbub/revoked/token/00", rest),
        b"revoked-user" => open_with(b"\0hubbub/revoked/user/00", rest),
        _ => {}
    }
});
