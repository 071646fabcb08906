use std::time::Duration;

use hubbub_core::clock::ManualClock;
use serde_json::json;

use super::*;
use crate::auth::session::Ended;
use crate::fixture::{self, DAY, LIFETIME_DAYS, now, token};

fn of_user(user: &str, before: i64) -> StoredRevocation {
    StoredRevocation { subject: user.to_owned(), before }
}

/// All that were issued before then, also those that are issued after the revocation.
#[tokio::test]
async fn a_revocation_until_a_time_in_the_future_is_kept_for_its_last_token() {
    let clock = Arc::new(ManualClock::at(now()));
    let gateway = fixture::gateway(clock.clone()).await;
    let before = now().as_micros() + 60 * DAY;
    revoke(&gateway, Revoked::User, of_user("ada", before)).await.unwrap();
    // A later one until now takes nothing back.
    let kept = revoke(&gateway, Revoked::User, of_user("ada", now().as_micros())).await.unwrap();
    assert_eq!(kept.before, before);
    let seconds = |days: i64| (now().as_micros() + days * DAY) / 1_000_000;
    let last = token(json!({"sub": "ada", "iat": seconds(60) - 1, "exp": seconds(60 + LIFETIME_DAYS) - 1}));
    clock.advance_micros((60 + LIFETIME_DAYS - 1) * DAY);
    // As after a restart.
    gateway.auth.credentials.load().await.unwrap();
    let refused = gateway.auth.verify(&last).unwrap_err();
    assert_eq!(refused.detail(), Ended::Revoked.reason());
}

#[tokio::test]
async fn how_long_a_revocation_is_kept_has_a_limit() {
    let gateway = fixture::gateway(Arc::new(ManualClock::at(now()))).await;
    let lifetime_ms = u64::try_from(gateway.auth.lifetime_max().as_millis()).unwrap();
    for (before, expected) in
        [(i64::MIN, lifetime_ms), (now().as_micros() + 1, lifetime_ms + 1), (i64::MAX, TTL_MS_MAX)]
    {
        assert_eq!(kept_ms(&gateway, before), expected, "{before}");
    }
    revoke(&gateway, Revoked::User, of_user("ada", i64::MAX)).await.unwrap();
    assert!(gateway.auth.verify(&token(json!({"sub": "ada"}))).is_err());
}

/// Each of them sees that nothing is revoked yet.
#[tokio::test]
async fn of_revocations_that_come_together_the_latest_counts() {
    let gateway = fixture::gateway(Arc::new(ManualClock::at(now()))).await;
    let (today, yesterday) = (now().as_micros(), now().as_micros() - DAY);
    for (user, [first, second]) in [("ada", [today, yesterday]), ("bob", [yesterday, today])] {
        let revoke = |before| revoke(&gateway, Revoked::User, of_user(user, before));
        let (first, second) = tokio::join!(revoke(first), revoke(second));
        assert!(first.unwrap().before == today || second.unwrap().before == today);
        let entry = gateway.store.value(&Revoked::User.key(user)).await.unwrap().unwrap();
        let stored: StoredRevocation = serde_json::from_slice(&entry.value).unwrap();
        assert_eq!(stored.before, today, "{user}");
        assert_eq!(gateway.auth.credentials.revocation(Revoked::User, user).unwrap().before, today, "{user}");
    }
}

/// One that nobody can read may be of any time until now, and is written over.
#[tokio::test]
async fn a_revocation_that_cannot_be_read_is_added_again() {
    let gateway = fixture::gateway(Arc::new(ManualClock::at(now()))).await;
    fixture::put(&*gateway.store, &Revoked::User.key("ada"), "nonsense", 1_000_000);
    gateway.auth.refresh().await.unwrap();
    let kept = revoke(&gateway, Revoked::User, of_user("ada", 5)).await.unwrap();
    assert_eq!((kept.before, gateway.auth.credentials.fault()), (now().as_micros(), None));
}

/// Whoever issues tokens may have a clock that is ahead.
#[tokio::test]
async fn what_was_issued_by_a_clock_that_is_ahead_is_revoked() {
    let (clock, leeway) = (Arc::new(ManualClock::at(now())), 30_i64);
    let verifier = fixture::verifier_with(Duration::from_secs(leeway.unsigned_abs()));
    let gateway = fixture::gateway_with(clock.clone(), verifier).await;
    let issued_in =
        |seconds: i64| token(json!({"sub": "ada", "iat": now().as_micros() / 1_000_000 + seconds}));
    let before = issued_in(leeway - 1);
    assert!(gateway.auth.verify(&before).is_ok());
    let until = until_now(&gateway).as_micros();
    assert_eq!(until, now().as_micros() + leeway * 1_000_000);
    revoke(&gateway, Revoked::User, of_user("ada", until)).await.unwrap();
    assert!(gateway.auth.verify(&before).is_err());
    assert!(gateway.auth.verify(&issued_in(leeway)).is_ok(), "the next one");
}
