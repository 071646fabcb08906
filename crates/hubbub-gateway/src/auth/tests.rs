use std::net::Ipv4Addr;

use hubbub_core::clock::{ManualClock, SteadyClock, TRUST_AFTER};
use hubbub_store::embedded::sim::SimDisk;
use serde_json::json;

use super::credential_records::{Revoked, StoredKey, key_of_key};
use super::open_connections::{ConnectionKind, Listed};
use super::secrets::make_secret;
use super::session::Session;
use super::*;
use crate::fixture::{self, DAY, LIFETIME_DAYS, caller, now, put, token, until};

/// Time that is over for a while: what expires in it is stored, and no change says that it is there again.
#[tokio::test]
async fn a_start_with_a_clock_that_is_ahead_forgets_nothing() {
    const TTL_MS: u64 = LIFETIME_DAYS.unsigned_abs() * 86_400_000;
    let (disk, machine) = (SimDisk::new(), Arc::new(ManualClock::at(now())));
    let steady = || -> Arc<dyn Clock> { Arc::new(SteadyClock::new(machine.clone(), TRUST_AFTER)) };
    let revoked = token(json!({"sub": "ada", "jti": "t-1"}));
    let (id, key, hash) = make_secret(credential_store::PREFIX).unwrap();
    let whose = ("importer".to_owned(), "importer".to_owned());
    let stored = StoredKey::new(whose, GrantsText::default(), (now(), None), hash);
    let clock = steady();
    let store = fixture::store(&disk, &clock);
    put(&*store, &Revoked::Token.key("t-1"), "{\"subject\":\"t-1\"}", TTL_MS);
    put(&*store, &key_of_key(&id), &serde_json::to_string(&stored).unwrap(), TTL_MS);
    store.close();
    drop(store);
    machine.step_micros(40 * DAY);
    let clock = steady();
    let store = fixture::store(&disk, &clock);
    let auth = Auth::open(Some(fixture::verifier()), None, store, clock.clone()).await.unwrap();
    let auth = Arc::new(auth);
    assert!(clock.anomaly().is_some() && auth.verify(&key).is_err(), "it has expired by this clock");
    let running = tokio::spawn(auth.clone().run(None));
    machine.step_micros(-40 * DAY);
    let reason = || auth.verify(&revoked).err().map(|problem| problem.detail().into_owned());
    until("the revocation", || reason().as_deref() == Some(Ended::Revoked.reason())).await;
    assert!(auth.verify(&key).is_ok());
    running.abort();
}

#[tokio::test]
async fn a_session_that_takes_the_place_of_another_was_closed_with_it() {
    let gateway = fixture::gateway(Arc::new(ManualClock::at(now()))).await;
    let auth = &gateway.auth;
    let listed = Listed::new(auth, ConnectionKind::WebSocket, Ipv4Addr::LOCALHOST.into());
    let begin =
        |id: &str| Session::listed(auth, &caller(&gateway, json!({"sub": "ada", "jti": id})), &listed);
    let first = begin("t-1");
    put(&*gateway.store, &Revoked::Token.key("t-1"), "{\"subject\":\"t-1\"}", 1_000_000);
    auth.refresh().await.unwrap();
    auth.sessions.check(|access| auth.verdict(access));
    let second = begin("t-2");
    assert_eq!((first.ended(), second.ended()), (Some(Ended::Revoked), None), "each ends with its own token");
    drop(first);
    assert!(auth.close_connection(listed.number()), "the end of the first one does not end its place");
    let third = begin("t-3");
    assert_eq!(third.ended(), Some(Ended::Closed));
    drop((second, third));
    assert!(!auth.close_connection(listed.number()));
}

/// What was verified before is not asked for again, until something was revoked.
#[tokio::test]
async fn a_token_that_was_accepted_is_refused_once_it_is_revoked() {
    let gateway = fixture::gateway(Arc::new(ManualClock::at(now()))).await;
    let auth = &gateway.auth;
    let (ended, other) =
        (token(json!({"sub": "ada", "jti": "t-1"})), token(json!({"sub": "ada", "jti": "t-2"})));
    assert!(auth.verify(&ended).is_ok() && auth.verify(&other).is_ok());
    put(&*gateway.store, &Revoked::Token.key("t-1"), "{\"subject\":\"t-1\"}", 1_000_000);
    let seen = (auth.generation.load(Ordering::SeqCst), auth.verify(&ended).unwrap());
    auth.refresh().await.unwrap();
    // By a request that verified it while it was revoked.
    auth.tokens.insert(ended.as_str().into(), seen);
    let reason = auth.verify(&ended).err().map(|problem| problem.detail().into_owned());
    assert_eq!(reason.as_deref(), Some(Ended::Revoked.reason()));
    assert!(auth.verify(&other).is_ok());
}
