//! Servers that go on with a partition they lost, and servers that are cut at any write: what is stored is what the records
//! say, once.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, missing_docs, unreachable_pub)]

#[allow(dead_code)]
mod support;

use std::sync::Arc;

use hubbub_conformance::Fixture;
use hubbub_conformance::model::{Model, Post, without_gap};
use hubbub_conformance::people;
use hubbub_core::clock::SeededRandom;
use hubbub_core::log_position::Attached;
use hubbub_core::stats::{ActiveUsersQuery, UserHistoryQuery};
use hubbub_core::store::{ApplyError, StoreHealth};
use hubbub_core::{
    Change, LogIdentity, LogPosition, LogStore, MessageType, Op, OpBatch, Outcome, RandomSource, RoomChange,
    RoomSettings, StatsStore, Store, Timestamp,
};
use hubbub_scylla::Scylla;
use support::{Opened, START};

const ROOMS: [&str; 3] = ["r0", "r1", "r2"];
const USERS: [&str; 4] = ["u0", "u1", "u2", "u3"];

enum Content {
    Send(Post),
    Change(Change<'static>),
}

struct Record {
    content: Content,
    appended_at: Timestamp,
}

impl Record {
    fn op(&self) -> Op<'_> {
        match &self.content {
            Content::Send(post) => Op::Send(post.as_send()),
            Content::Change(change) => Op::Change(*change),
        }
    }
}

/// Records of one partition in which everything happens, ids come again, and hours pass.
fn script(random: &SeededRandom, count: usize) -> Vec<Record> {
    let below = |end: u64| random.next_u64() % end;
    let pick = |from: &[&'static str]| from[usize::try_from(below(from.len() as u64)).unwrap()];
    let mut micros = START;
    let mut records = Vec::new();
    for n in 0..count as u64 {
        micros += i64::try_from(below(400_000_000)).unwrap() - 50_000_000;
        let (room, user) = (pick(&ROOMS), pick(&USERS));
        let settings = || RoomSettings {
            members_only: (below(4) == 0).then(|| below(3) == 0),
            retention_s: (below(3) == 0).then(|| below(2) * 4_000),
            ..RoomSettings::default()
        };
        let what = match below(40) {
            0 => RoomChange::DeleteRoom { room },
            1 => RoomChange::EraseUser { user },
            2 | 3 => RoomChange::PutRoom { room, settings: settings() },
            4..8 => RoomChange::AddMember { room, user },
            8 | 9 => RoomChange::RemoveMember { room, user },
            10..14 => RoomChange::MarkRead { room, user, seq: below(n + 2) },
            14 => {
                let (retention_s, is_own) = if below(2) == 0 { (4_000, true) } else { (below(4_000), false) };
                let age = i64::try_from(retention_s * 1_000_000 + below(4_000_000_000)).unwrap();
                let before = Timestamp::from_micros(micros - age);
                RoomChange::ExpireMessages { room, before, retention_s, is_own }
            }
            _ => {
                let id = if below(4) == 0 { format!("m{}", below(n + 1)) } else { format!("m{n}") };
                let kind = MessageType::from_u8(u8::try_from(below(3)).unwrap()).unwrap();
                let content = Content::Send(Post::new(room, &id).user(user).kind(kind));
                records.push(Record { content, appended_at: Timestamp::from_micros(micros) });
                continue;
            }
        };
        let content = Content::Change(Change { by: None, what });
        records.push(Record { content, appended_at: Timestamp::from_micros(micros) });
    }
    records
}

/// What the records make of nothing, and their outcomes.
fn execute(records: &[Record]) -> (Model, Vec<Outcome>) {
    let mut model = Model::default();
    let outcomes = records.iter().zip(1..).map(|(record, seq)| match &record.content {
        Content::Send(post) => model.apply_one(post, Some(seq), record.appended_at, true),
        Content::Change(change) => model.change(change),
    });
    let outcomes = outcomes.collect();
    (model, outcomes)
}

fn attach(store: &Scylla) -> impl Future<Output = Attached> + '_ {
    let attaching = store.attach(LogIdentity { id: "cluster/topic".into(), partitions: 1 });
    async { attaching.await.unwrap() }
}

/// Applies the records from `from` on.
async fn apply(
    store: &Arc<Scylla>,
    records: &[Record],
    from: usize,
    to: usize,
) -> Result<Vec<Outcome>, ApplyError> {
    let mut batch = OpBatch::default();
    for (offset, record) in (0..).zip(records).skip(from).take(to - from) {
        let position = LogPosition { partition: 0, offset, appended_at: record.appended_at };
        batch.push_at(&record.op(), position);
    }
    let store = store.clone();
    tokio::task::spawn_blocking(move || store.apply(&batch)).await.unwrap()
}

/// What an owner answers is what the model says, or that the record was executed before.
fn check(outcomes: &[Outcome], expected: &[Outcome], from: usize) {
    for (n, (outcome, wanted)) in outcomes.iter().zip(&expected[from..]).enumerate() {
        let is_right = without_gap(outcome.clone()) == *wanted || *outcome == Outcome::Accepted;
        // Somebody else may have erased some of it before.
        let is_right =
            is_right || matches!((outcome, wanted), (Outcome::Erased { .. }, Outcome::Erased { .. }));
        assert!(is_right, "record {}: {outcome:?}, not {wanted:?}", from + n);
    }
}

/// A server that lost its partition long ago applies the same records with its own caches, always behind or a little ahead
/// of the one that has the partition. Nobody can tell from what is stored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zombie_committer_is_harmless() {
    for seed in 1..=2 {
        eprintln!("seed {seed}");
        let random = SeededRandom::new(seed);
        let below = |end: usize| usize::try_from(random.next_u64() % end as u64).unwrap();
        let opened = Opened::alone_behind(1).await;
        let owner = opened.store.clone();
        let zombie = opened.keyspace.open(true, &opened.clock).await;
        assert_eq!(attach(&zombie).await, Attached::Same);
        zombie.become_zombie();
        let records = script(&random, 260);
        let (model, expected) = execute(&records);
        let (mut owned, mut zombied) = (0, 0);
        while owned < records.len() || zombied < records.len() {
            let count = 1 + below(9);
            // The zombie is slow at first, and later overtakes.
            if owned < records.len() && (zombied >= owned + 20 || below(5) > 1 || zombied == records.len()) {
                let to = (owned + count).min(records.len());
                check(&apply(&owner, &records, owned, to).await.unwrap(), &expected, owned);
                owned = to;
            } else if zombied < records.len() {
                let to = (zombied + count).min(records.len());
                check(&apply(&zombie, &records, zombied, to).await.unwrap(), &expected, zombied);
                zombied = to;
            }
            // Some of it comes again.
            if below(12) == 0 && owned > 0 {
                let from = below(owned);
                let to = (from + 5).min(owned);
                assert_eq!(
                    apply(&owner, &records, from, to).await.unwrap(),
                    vec![Outcome::Accepted; to - from]
                );
            }
        }
        people::agrees(&opened, &model, &ROOMS, &USERS).await;
        let mut opened = opened;
        opened.restart(true).await;
        opened.seal_all().await;
        people::agrees(&opened, &model, &ROOMS, &USERS).await;
    }
}

/// Every batch is cut at some write, as if the server died there; another one, or the same, repeats it, in batches of
/// other sizes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_at_any_write_changes_nothing() {
    for seed in 11..=12 {
        eprintln!("seed {seed}");
        let random = SeededRandom::new(seed);
        let below = |end: usize| usize::try_from(random.next_u64() % end as u64).unwrap();
        let mut opened = Opened::alone_behind(1).await;
        let records = script(&random, 200);
        let (model, expected) = execute(&records);
        let (mut done, mut cuts) = (0, 0);
        while done < records.len() {
            let to = (done + 1 + below(12)).min(records.len());
            if below(3) > 0 {
                opened.store.fail_after(Some(u32::try_from(below(14)).unwrap()));
            }
            let applied = apply(&opened.store, &records, done, to).await;
            opened.store.fail_after(None);
            match applied {
                Ok(outcomes) => {
                    check(&outcomes, &expected, done);
                    done = to;
                }
                Err(error) => {
                    assert!(matches!(error, ApplyError::Unconfirmed { .. }), "{error:?}");
                    cuts += 1;
                    if below(2) == 0 {
                        opened.restart(true).await;
                    }
                }
            }
        }
        assert!(cuts > 10, "{cuts} cuts");
        people::agrees(&opened, &model, &ROOMS, &USERS).await;
    }
}

/// A change of a room may be written and not confirmed. It is repeated then, and not read back: another replica might not have it,
/// or only its first part.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_confirmed_is_written_again() {
    let opened = Opened::alone_behind(1).await;
    let records = script(&SeededRandom::new(31), 60);
    let (model, expected) = execute(&records);
    for (number, record) in records.iter().enumerate() {
        opened.store.lose_confirmations(u64::from(number % 3 == 0) * 2);
        let outcomes = apply(&opened.store, &records, number, number + 1).await.unwrap();
        let [outcome] = outcomes.as_slice() else { panic!("{outcomes:?}") };
        assert_eq!(
            without_gap(outcome.clone()),
            expected[number],
            "record {number}, {:?}",
            record.appended_at
        );
    }
    assert_eq!(opened.store.health(), StoreHealth::Up);
    people::agrees(&opened, &model, &ROOMS, &USERS).await;
}

/// What members have read of an erased user is taken off their counts in several batches, and once, wherever it is cut.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_erasure_that_is_cut_between_members_lowers_each_count_once() {
    let mut opened = Opened::alone_behind(1).await;
    let record = |content| Record { content, appended_at: Timestamp::from_micros(START) };
    let change = |what| record(Content::Change(Change { by: None, what }));
    let mut records = vec![
        record(Content::Send(Post::new("r0", "m1").user("u0"))),
        record(Content::Send(Post::new("r0", "m2").user("u0"))),
        record(Content::Send(Post::new("r0", "m3").user("u1"))),
    ];
    // Whoever joins has read what is there.
    records.extend(["u1", "u2", "u3"].map(|user| change(RoomChange::AddMember { room: "r0", user })));
    records.push(change(RoomChange::EraseUser { user: "u0" }));
    let (model, expected) = execute(&records);
    let last = records.len() - 1;
    check(&apply(&opened.store, &records, 0, last).await.unwrap(), &expected, 0);
    let mut cuts = 0;
    loop {
        opened.store.fail_after(Some(cuts));
        let applied = apply(&opened.store, &records, last, last + 1).await;
        opened.store.fail_after(None);
        match applied {
            Ok(outcomes) => break check(&outcomes, &expected, last),
            Err(_) => cuts += 1,
        }
        opened.restart(true).await;
    }
    assert!(cuts > 4, "{cuts} cuts");
    people::agrees(&opened, &model, &ROOMS, &USERS).await;
}

/// A database that lost writes it had confirmed is noticed, and nothing is applied past the hole. Reading the log again from
/// where the database stands heals it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_forgot_is_not_written_past() {
    let opened = Opened::alone_behind(1).await;
    let records = script(&SeededRandom::new(5), 60);
    let (model, _) = execute(&records);
    apply(&opened.store, &records, 0, 40).await.unwrap();
    opened.keyspace.execute("truncate positions").await;
    let refused = apply(&opened.store, &records, 40, 50).await;
    assert!(
        matches!(&refused, Err(ApplyError::Unattached { reason }) if reason.contains("lost")),
        "{refused:?}"
    );
    let refused = apply(&opened.store, &records, 40, 50).await;
    assert!(matches!(&refused, Err(ApplyError::Unattached { .. })), "{refused:?}");
    assert_eq!(attach(&opened.store).await, Attached::Same);
    assert_eq!(opened.store.next_offsets().await.unwrap(), [Ok(0)]);
    apply(&opened.store, &records, 0, 60).await.unwrap();
    people::agrees(&opened, &model, &ROOMS, &USERS).await;
}

/// Messages of others that have expired go from the tables when an erasure empties their room: nothing else would take them
/// along.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_erasure_that_empties_a_room_leaves_no_rows() {
    let opened = Opened::alone_behind(1).await;
    let record = |seconds: i64, content| Record {
        content,
        appended_at: Timestamp::from_micros(START + seconds * 1_000_000),
    };
    let change = |seconds, what| record(seconds, Content::Change(Change { by: None, what }));
    let send = |seconds, id, user| record(seconds, Content::Send(Post::new("r0", id).user(user)));
    let before = Timestamp::from_micros(START + 100_000_000);
    let expired = RoomChange::ExpireMessages { room: "r0", before, retention_s: 100, is_own: false };
    let records = [
        send(0, "m1", "u0"),
        send(150, "m2", "u1"),
        change(202, expired),
        change(203, RoomChange::EraseUser { user: "u1" }),
        send(204, "m3", "u0"),
    ];
    let outcomes = apply(&opened.store, &records, 0, 4).await.unwrap();
    assert_eq!(outcomes[2], Outcome::Changed { changed: true });
    assert!(matches!(outcomes[3], Outcome::Erased { messages: 1, .. }), "{outcomes:?}");
    opened.store.finish_cleanup().await.unwrap();
    for rows in ["messages", "message_ids", "user_firsts where user = 'u0'", "deleted_rooms"] {
        assert_eq!(opened.keyspace.count(rows).await, 0, "{rows}");
    }
    // The room goes on in a bucket of its own.
    apply(&opened.store, &records, 4, 5).await.unwrap();
    opened.store.finish_cleanup().await.unwrap();
    assert_eq!(opened.keyspace.count("messages").await, 1);
    let audit = opened.store.audit().await.unwrap().value;
    assert_eq!((audit.messages, audit.differences), (1, Vec::new()));
}

/// What is read of a user afterwards passes as many marks as rows were there: Cassandra refuses to read past 100,000.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_not_listed_leaves_no_mark() {
    let opened = Opened::alone_behind(1).await;
    let at = |n: i64| Timestamp::from_micros(START + n * 1_000_000);
    let mut records: Vec<Record> = (0..120)
        .map(|n| Record {
            content: Content::Send(Post::new("r0", &format!("m{n}")).user("u0")),
            appended_at: at(n),
        })
        .collect();
    let delete = Change { by: None, what: RoomChange::DeleteRoom { room: "r0" } };
    records.push(Record { content: Content::Change(delete), appended_at: at(120) });
    apply(&opened.store, &records, 0, 120).await.unwrap();
    let firsts = opened.keyspace.count("user_firsts where user = 'u0'").await;
    assert!((1..20).contains(&firsts), "{firsts}");
    apply(&opened.store, &records, 120, 121).await.unwrap();
    opened.store.finish_cleanup().await.unwrap();
    for rows in ["messages", "user_firsts where user = 'u0'"] {
        assert_eq!(opened.keyspace.count(rows).await, 0, "{rows}");
    }
    let marks = opened.keyspace.tombstones("select seq from user_firsts where user = 'u0'").await;
    assert_eq!(i64::try_from(marks).unwrap(), firsts);
}

/// The places of erased messages go as a whole. What older servers left of them leads nowhere, and hinders nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_of_places_that_expired() {
    let opened = Opened::alone_behind(1).await;
    let at = |seconds: i64| Timestamp::from_micros(START + seconds * 1_000_000);
    let send = |seconds, id, user| Record {
        content: Content::Send(Post::new("r0", id).user(user)),
        appended_at: at(seconds),
    };
    let erase = || Record {
        content: Content::Change(Change { by: None, what: RoomChange::EraseUser { user: "u0" } }),
        appended_at: at(10),
    };
    let records = [
        send(0, "m1", "u0"),
        send(1, "m2", "u1"),
        erase(),
        send(20, "m3", "u0"),
        send(60, "m4", "u0"),
        erase(),
    ];
    let outcomes = apply(&opened.store, &records, 0, 5).await.unwrap();
    assert!(matches!(outcomes[2], Outcome::Erased { messages: 1, .. }), "{outcomes:?}");
    let lives = opened.keyspace.numbers("select ttl(part) from user_firsts where user = 'u0'").await;
    assert_eq!(lives.iter().filter(|life| life.is_some()).count(), 1, "seconds to live: {lives:?}");
    // So it was when only this cell did not expire.
    for (seconds, room) in [(0, "r0"), (30, "r0"), (0, "gone")] {
        let place = format!("'u0', {}, '{room}', 1, 0", at(seconds).as_micros());
        let columns = "user, received_at, room, seq, part";
        let insert = format!("insert into user_firsts ({columns}) values ({place}) using timestamp 1");
        opened.keyspace.execute(&insert).await;
    }
    let user = hubbub_core::UserId::new("u0").unwrap();
    let history = |user| {
        let query = UserHistoryQuery { before: None, from: None, to: None, limit: 9, bytes_max: 1 << 20 };
        opened.store.user_history(user, query)
    };
    let page = history(user.clone()).await.unwrap();
    let ids: Vec<String> = page.messages.iter().map(|message| message.sent.id.to_string()).collect();
    assert_eq!((ids, page.more), (vec!["m3".to_owned(), "m4".to_owned()], false));
    let query = ActiveUsersQuery { from: Some(at(25)), to: Some(at(35)), after: None, limit: 9 };
    assert!(opened.store.active_users(query).await.unwrap().value.users.is_empty());
    let outcomes = apply(&opened.store, &records, 5, 6).await.unwrap();
    assert!(matches!(outcomes[0], Outcome::Erased { messages: 2, .. }), "{outcomes:?}");
    assert!(history(user).await.unwrap().messages.is_empty());
    assert!(opened.store.audit().await.unwrap().value.differences.is_empty());
}

/// Wherever it is cut off, the repeat tells how many messages went: that they did not is what others go on by.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_erasure_that_is_repeated_tells_of_all_it_erased() {
    let opened = Opened::alone_behind(1).await;
    let send = |room, id| Record {
        content: Content::Send(Post::new(room, id).user("u0")),
        appended_at: Timestamp::from_micros(START),
    };
    let mut records: Vec<Record> = Vec::new();
    for writes in 1.. {
        let first = records.len();
        records.extend([send("r0", format!("a{writes}").leak()), send("r0", format!("b{writes}").leak())]);
        records.push(send("r1", format!("c{writes}").leak()));
        let what = RoomChange::EraseUser { user: "u0" };
        records.push(Record {
            content: Content::Change(Change { by: None, what }),
            appended_at: Timestamp::from_micros(START),
        });
        let to = records.len();
        apply(&opened.store, &records, first, to - 1).await.unwrap();
        opened.store.fail_after(Some(writes));
        let cut = apply(&opened.store, &records, to - 1, to).await;
        opened.store.fail_after(None);
        let outcomes = match cut {
            Ok(outcomes) => outcomes,
            Err(_) => apply(&opened.store, &records, to - 1, to).await.unwrap(),
        };
        assert!(matches!(outcomes[0], Outcome::Erased { messages: 3, .. }), "{outcomes:?} after {writes}");
        if writes > 40 {
            break;
        }
    }
    assert!(opened.store.audit().await.unwrap().value.differences.is_empty());
}

/// Where an erased user was is not listed for good, also where nothing was written; where the user came later, it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rooms_of_an_erased_user_are_forgotten() {
    let opened = Opened::alone_behind(1).await;
    let record = |content| Record { content, appended_at: Timestamp::from_micros(START) };
    let change = |what| record(Content::Change(Change { by: None, what }));
    let join = |room| change(RoomChange::AddMember { room, user: "u0" });
    let records = [
        record(Content::Send(Post::new("r0", "m1").user("u1"))),
        record(Content::Send(Post::new("r1", "m2").user("u1"))),
        join("r0"),
        join("r1"),
        change(RoomChange::EraseUser { user: "u0" }),
        join("r1"),
    ];
    apply(&opened.store, &records, 0, records.len()).await.unwrap();
    let lives = "select ttl(part) from user_rooms where user = 'u0' and room = ";
    let life = async |room| opened.keyspace.numbers(&format!("{lives}'{room}'")).await;
    assert!(matches!(life("r0").await[..], [Some(1..=600)]), "seconds to live");
    assert_eq!(life("r1").await, [None], "for good");
}

/// What a server takes for expired is removed once it has expired by the log's clock, too, and only by the retention that the
/// room still has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_expire_by_the_logs_clock() {
    let opened = Opened::alone_behind(1).await;
    let at = |seconds: i64| Timestamp::from_micros(START + seconds * 1_000_000);
    let change = |seconds, what| Record {
        content: Content::Change(Change { by: None, what }),
        appended_at: at(seconds),
    };
    let expire = |seconds, retention_s, is_own| {
        change(seconds, RoomChange::ExpireMessages { room: "r0", before: at(1_000_000), retention_s, is_own })
    };
    let settings = RoomSettings { retention_s: Some(200), ..RoomSettings::default() };
    let records = [
        Record { content: Content::Send(Post::new("r0", "m1")), appended_at: at(0) },
        expire(99, 100, false),
        change(99, RoomChange::PutRoom { room: "r0", settings }),
        expire(500, 100, false),
        expire(500, 100, true),
        expire(199, 200, true),
        Record { content: Content::Send(Post::new("r0", "m2")), appended_at: at(150) },
        expire(202, 200, true),
        expire(300, 200, true),
        expire(601, 200, true),
    ];
    let outcomes = apply(&opened.store, &records, 0, records.len()).await.unwrap();
    let removed: Vec<usize> = outcomes
        .iter()
        .zip(0..)
        .filter(|(outcome, _)| **outcome == Outcome::Changed { changed: true })
        .map(|(_, n)| n)
        .filter(|n| *n != 2)
        .collect();
    assert_eq!(removed, [7, 9], "{outcomes:?}");
}
