//! Values, revisions, conditions, lists.

use hubbub_core::kv::{Condition, KEY_BYTES_MAX};
use hubbub_core::{KvOp, KvOutcome, Outcome, Refusal};

use super::super::Fixture;
use super::super::steps::Stage;
use super::steps::*;

/// What is put is read, wherever it is; what is overwritten or deleted is not.
pub async fn a_value_comes_back(fixture: &mut impl Fixture) {
    for stage in Stage::ALL {
        assert_eq!(value(fixture, "k").await, None, "{stage:?}");
        let (first, created) = put(fixture, "k", "one").await;
        assert!(created, "{stage:?}");
        put(fixture, "other", "").await;
        stage.reach(fixture).await;
        let got = entry(fixture, b"k").await.unwrap();
        assert_eq!((&*got.value, got.revision, got.expires_at), (&b"one"[..], first, None), "{stage:?}");
        assert_eq!(value(fixture, "other").await.as_deref(), Some(""), "{stage:?}");
        let (second, created) = put(fixture, "k", "two").await;
        assert!(!created && second > first, "{stage:?}");
        stage.reach(fixture).await;
        assert_eq!(value(fixture, "k").await.as_deref(), Some("two"), "{stage:?}");
        let third = delete(fixture, "k").await.unwrap();
        assert!(third > second, "{stage:?}");
        stage.reach(fixture).await;
        assert_eq!(value(fixture, "k").await, None, "{stage:?}");
        assert_eq!(delete(fixture, "k").await, None, "{stage:?}: deleted already");
        assert_eq!(names(&keys(fixture, "", None, 9).await), ["other"], "{stage:?}");
        assert_eq!(fixture.store().revision(), third, "{stage:?}");
    }
}

/// Keys are bytes, not text.
pub async fn any_bytes_are_a_key(fixture: &mut impl Fixture) {
    let longest = vec![0xFF; KEY_BYTES_MAX];
    let odd: [&[u8]; 6] =
        [b"\0", b"a/b c%", b"\xC3\x28", "ключ".as_bytes(), &longest, &longest[..KEY_BYTES_MAX - 1]];
    for key in odd {
        let op = KvOp::Put { key, value: key, ttl_ms: None, condition: Condition::Absent };
        assert!(matches!(done(fixture, op).await, KvOutcome::Put { created: true, .. }), "{key:?}");
    }
    for stage in Stage::ALL {
        stage.reach(fixture).await;
        for key in odd {
            assert_eq!(&*entry(fixture, key).await.unwrap().value, key, "{stage:?}");
        }
        let listed = fixture.store().keys(b"", None, 99).await.unwrap().keys;
        let mut sorted = odd;
        sorted.sort_unstable();
        assert!(listed.iter().map(|info| &*info.key).eq(sorted), "{stage:?}: {listed:?}");
        let last = fixture.store().keys(&longest, None, 9).await.unwrap().keys;
        assert_eq!(last.len(), 1, "{stage:?}");
    }
}

/// A condition that does not hold changes nothing, and says how the key stands.
pub async fn conditions_decide(fixture: &mut impl Fixture) {
    let put_if = |condition| KvOp::Put { key: b"k", value: b"v", ttl_ms: None, condition };
    let delete_if = |condition| KvOp::Delete { key: b"k", condition };
    for stage in Stage::ALL {
        for condition in [Condition::Present, Condition::Is(1)] {
            assert_eq!(refused(fixture, put_if(condition)).await, None, "{stage:?} {condition:?}");
            assert_eq!(refused(fixture, delete_if(condition)).await, None, "{stage:?} {condition:?}");
        }
        let made = done(fixture, put_if(Condition::Absent)).await;
        let KvOutcome::Put { revision, created: true, .. } = made else { panic!("{stage:?}: {made:?}") };
        stage.reach(fixture).await;
        for condition in [Condition::Absent, Condition::Is(revision + 1), Condition::IsNot(revision)] {
            assert_eq!(refused(fixture, put_if(condition)).await, Some(revision), "{stage:?} {condition:?}");
            assert_eq!(
                refused(fixture, delete_if(condition)).await,
                Some(revision),
                "{stage:?} {condition:?}"
            );
        }
        assert_eq!(fixture.store().revision(), revision, "{stage:?}: no revision is used");
        for condition in [Condition::Present, Condition::IsNot(revision)] {
            let next = done(fixture, put_if(condition)).await;
            assert!(matches!(next, KvOutcome::Put { created: false, .. }), "{stage:?} {condition:?}");
        }
        let head = fixture.store().revision();
        let gone = done(fixture, delete_if(Condition::Is(head))).await;
        assert_eq!(gone, KvOutcome::Deleted { revision: Some(head + 1) }, "{stage:?}");
        stage.reach(fixture).await;
    }
}

/// Revisions grow by one with each change of the store, over restarts, and are never used again.
pub async fn revisions_only_grow(fixture: &mut impl Fixture) {
    let mut last = fixture.store().revision();
    for stage in Stage::ALL {
        for key in ["a", "b", "a"] {
            let (revision, _) = put(fixture, key, "x").await;
            assert_eq!(revision, last + 1, "{stage:?}");
            last = revision;
        }
        last = delete(fixture, "a").await.unwrap();
        assert_eq!(delete(fixture, "b").await, Some(last + 1), "{stage:?}");
        last += 1;
        stage.reach(fixture).await;
        assert_eq!(fixture.store().revision(), last, "{stage:?}");
        assert_eq!(keys(fixture, "", None, 9).await, [], "{stage:?}");
    }
}

/// Keys come in the order of their bytes, in pages, by prefix.
pub async fn keys_are_listed_in_order(fixture: &mut impl Fixture) {
    for (round, stage) in Stage::ALL.into_iter().enumerate() {
        for n in (0..60).filter(|n| n % 4 == round) {
            put(fixture, &format!("k/{n:02}"), &"v".repeat(n)).await;
        }
        stage.reach(fixture).await;
    }
    for other in ["j", "k", "k0", "l"] {
        put(fixture, other, "x").await;
    }
    delete(fixture, "k/30").await;
    delete(fixture, "k/59").await;
    for stage in Stage::ALL {
        stage.reach(fixture).await;
        let all = keys(fixture, "k/", None, 999).await;
        let expected: Vec<String> = (0..59).filter(|n| *n != 30).map(|n| format!("k/{n:02}")).collect();
        assert_eq!(names(&all), expected, "{stage:?}");
        assert!(
            all.iter().all(|info| info.key.ends_with(format!("{:02}", info.bytes).as_bytes())),
            "{stage:?}"
        );
        let mut paged = Vec::new();
        while let some = keys(fixture, "k/", paged.last().map(String::as_str), 7).await
            && !some.is_empty()
        {
            assert!(some.len() <= 7 && paged.len() < 60, "{stage:?}: pages repeat");
            paged.extend(names(&some).into_iter().map(str::to_owned));
        }
        assert_eq!(paged, expected, "{stage:?}");
        assert_eq!(names(&keys(fixture, "", Some("k"), 2).await), ["k/00", "k/01"], "{stage:?}");
        assert_eq!(names(&keys(fixture, "", Some("k/58"), 9).await), ["k0", "l"], "{stage:?}");
        assert_eq!(names(&keys(fixture, "k/", Some("a"), 1).await), ["k/00"], "{stage:?}: a cursor before");
        assert_eq!(keys(fixture, "k/", Some("l"), 9).await, [], "{stage:?}: a cursor behind");
        assert_eq!(keys(fixture, "none", None, 9).await, [], "{stage:?}");
        let info = &keys(fixture, "k/17", None, 9).await[0];
        assert_eq!(
            Some(info.revision),
            entry(fixture, b"k/17").await.map(|entry| entry.revision),
            "{stage:?}"
        );
    }
}

/// Values of any size come back whole.
pub async fn large_values_come_back(fixture: &mut impl Fixture) {
    let sizes = [0_usize, 1, 4_095, 4_096, 70_000, 1 << 20];
    let value = |size: usize| (0..size).map(|n| u8::try_from(n * 7 % 251).unwrap()).collect::<Vec<u8>>();
    for size in sizes {
        let (key, value) = (size.to_string(), value(size));
        done(
            fixture,
            KvOp::Put { key: key.as_bytes(), value: &value, ttl_ms: None, condition: Condition::Always },
        )
        .await;
    }
    for stage in Stage::ALL {
        stage.reach(fixture).await;
        for size in sizes {
            let got = entry(fixture, size.to_string().as_bytes()).await.unwrap();
            assert!(*got.value == *value(size), "{stage:?}: {size}");
        }
    }
}

/// Operations of a batch are done one after another.
pub async fn a_batch_is_done_in_its_order(fixture: &mut impl Fixture) {
    let if_absent = |value| KvOp::Put { key: b"k", value, ttl_ms: None, condition: Condition::Absent };
    let outcomes = batch(
        fixture,
        &[
            if_absent(b"1"),
            if_absent(b"2"),
            delete_op("k"),
            delete_op("k"),
            if_absent(b"3"),
            put_op("k", "4"),
            put_op("l", "5"),
        ],
    )
    .await;
    let put = |revision, created| Outcome::Kv(KvOutcome::Put { revision, expires_at: None, created });
    let expected = [
        put(1, true),
        Outcome::Refused(Refusal::Condition { revision: Some(1) }),
        Outcome::Kv(KvOutcome::Deleted { revision: Some(2) }),
        Outcome::Kv(KvOutcome::Deleted { revision: None }),
        put(3, true),
        put(4, false),
        put(5, true),
    ];
    assert_eq!(outcomes, expected);
    for stage in Stage::ALL {
        stage.reach(fixture).await;
        assert_eq!(value(fixture, "k").await.as_deref(), Some("4"), "{stage:?}");
        assert_eq!(value(fixture, "l").await.as_deref(), Some("5"), "{stage:?}");
    }
}
