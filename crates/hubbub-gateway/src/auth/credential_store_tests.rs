use hubbub_core::clock::ManualClock;
use hubbub_core::queue::LeaseReceipt;
use hubbub_core::{Timestamp, UserId};

use super::super::caller::RightsSource;
use super::super::credential_records::key_of_key;
use super::super::grants::GrantsText;
use super::super::receipts;
use super::super::secrets::make_secret;
use super::*;

fn list() -> CredentialStore {
    let clock = Arc::new(ManualClock::default());
    let (entries, catching_up) = (RwLock::default(), CoalescedRead::new());
    CredentialStore { store: None, entries, catching_up, clock, ahead_max: AtomicI64::new(0) }
}

fn apply(list: &CredentialStore, key: &[u8], value: Option<&str>) {
    list.entries.write().unwrap().apply(key, value.map(str::as_bytes));
}

fn token(id: &str, user: &str, issued_at: i64) -> Access {
    Access {
        subject: Some(UserId::new(user).unwrap()),
        grants: GrantsText::default().parse().unwrap(),
        expires_at: None,
        leeway: std::time::Duration::ZERO,
        source: RightsSource::Token {
            id: Some(id.into()),
            issued_at: Some(Timestamp::from_micros(issued_at)),
        },
    }
}

/// The key of a revocation says what is revoked, even where its value says nothing any more.
#[test]
fn what_an_unreadable_revocation_names_is_revoked() {
    let list = list();
    let (ada, bob) = (token("t-1", "ada", 5), token("t-2", "bob", 5));
    let is_revoked = || (list.is_revoked(&ada), list.is_revoked(&bob));
    assert_eq!((is_revoked(), list.fault()), ((false, false), None));
    for (key, revoked) in
        [(Revoked::Token.key("t-1"), (true, false)), (Revoked::User.key("bob"), (false, true))]
    {
        for damaged in ["", "{", "{\"subject\":7}", "\0\0\0"] {
            apply(&list, &key, Some(damaged));
            assert_eq!(is_revoked(), revoked, "{damaged:?}");
            assert!(list.fault().unwrap().starts_with("1 API keys, accounts, logins or revocations"));
        }
        apply(&list, &key, None);
        assert_eq!((is_revoked(), list.fault()), ((false, false), None));
    }
    // One that can be read again says from when on.
    let key = Revoked::User.key("ada");
    apply(&list, &key, Some("nonsense"));
    apply(&list, &key, Some("{\"subject\":\"ada\",\"before\":5}"));
    assert_eq!((is_revoked(), list.fault()), ((false, false), None));
    apply(&list, &key, Some("{\"subject\":\"ada\",\"before\":6}"));
    assert_eq!(is_revoked(), (true, false));
    // What becomes unreadable later stays revoked.
    apply(&list, &key, Some("nonsense"));
    assert_eq!(is_revoked(), (true, false));
}

/// Where the list has a gap, any revocation may be; what is in front of it and behind it is as it is known.
#[test]
fn what_a_gap_may_hold_is_revoked() {
    let list = list();
    let mut names: Vec<String> = (0..5).map(|number| format!("t-{number}")).collect();
    names.sort_by_key(|name| Revoked::Token.key(name));
    let key = |number: usize| -> Arc<[u8]> { Revoked::Token.key(&names[number]).into() };
    let revoked = |after, before| -> Vec<usize> {
        list.entries.write().unwrap().gaps = vec![Gap { after, before }];
        assert!(list.fault().unwrap().starts_with("a part of the list"));
        (0..5).filter(|number| list.is_revoked(&token(&names[*number], "ada", 5))).collect()
    };
    assert_eq!(revoked(Some(key(1)), Some(key(3))), [2]);
    assert_eq!(revoked(None, Some(key(2))), [0, 1]);
    // Users are behind tokens.
    assert_eq!(revoked(Some(key(3)), None), [0, 1, 2, 3, 4]);
    list.entries.write().unwrap().gaps.clear();
    assert!(!list.is_revoked(&token(&names[2], "ada", 5)) && list.fault().is_none());
}

#[test]
fn an_api_key_that_becomes_unreadable_is_refused() {
    let list = list();
    let (id, text, hash) = make_secret(PREFIX).unwrap();
    let whose = ("importer".to_owned(), "ada".to_owned());
    let stored = StoredKey::new(whose, GrantsText::default(), (Timestamp::from_micros(0), None), hash);
    let key = key_of_key(&id);
    apply(&list, &key, Some(&serde_json::to_string(&stored).unwrap()));
    let access = list.key(&text).unwrap();
    assert!(!list.is_revoked(&access) && list.fault().is_none());
    apply(&list, &key, Some("{\"name\":\"importer\"}"));
    assert!(list.key(&text).is_none() && list.is_revoked(&access) && list.fault().is_some());
    apply(&list, &key, None);
    assert!(list.key(&text).is_none() && list.fault().is_none());
}

#[test]
fn unreadable_accounts_and_logins_are_told_of() {
    let list = list();
    for key in [accounts::key_of_account("ada"), accounts::key_of_login("1")] {
        apply(&list, &key, Some("nonsense"));
        assert!(list.fault().is_some());
        apply(&list, &key, None);
        assert!(list.fault().is_none());
    }
}

/// However many people log in, tokens can still be revoked.
#[test]
fn logins_take_no_room_from_other_entries() {
    let list = list();
    let account = StoredAccount {
        user: "ada".into(),
        id: "a".into(),
        generation: 1,
        kept: None,
        hash: String::new(),
        created_at: 0,
        password_at: 0,
        grants: GrantsText::default(),
    };
    apply(&list, &accounts::key_of_account("ada"), Some(&serde_json::to_string(&account).unwrap()));
    for number in 0..3 {
        let at = (Timestamp::from_micros(0), std::time::Duration::from_secs(1));
        let login = serde_json::to_string(&StoredLogin::new(&account, at, "hash".into())).unwrap();
        apply(&list, &accounts::key_of_login(&number.to_string()), Some(&login));
    }
    assert_eq!([4, 5].map(|most| list.has_room(true, most)), [false, true]);
    assert_eq!([1, 2].map(|most| list.has_room(false, most)), [false, true]);
    apply(&list, &Revoked::Token.key("t-1"), Some("{\"subject\":\"t-1\"}"));
    assert!(!list.has_room(true, 5) && !list.has_room(false, 2) && list.has_room(false, 3));
}

#[test]
fn the_key_of_receipts_is_what_the_store_says() {
    let list = list();
    let receipt = LeaseReceipt { id: 7, delivery: 2, epoch: 5 };
    let text = || Some(list.receipt_format()?.write(receipt));
    assert_eq!(text(), None);
    apply(&list, receipts::KEY, Some(&"a".repeat(32)));
    let first = text();
    apply(&list, receipts::KEY, Some(&"b".repeat(32)));
    assert!(first.is_some() && text().is_some() && text() != first);
    // Nobody has lost a right, and it is none of the entries that somebody has made.
    assert!(list.has_room(true, 1) && list.fault().is_none());
    for none in [Some(""), None] {
        apply(&list, receipts::KEY, none);
        assert_eq!(text(), None);
    }
}
