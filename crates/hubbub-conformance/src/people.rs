//! Members, read marks and what is unread; changing, deleting and erasing.

use hubbub_core::clock::SeededRandom;
use hubbub_core::{
    Change, Clock, Op, OpBatch, Outcome, RandomSource, Refusal, RoomChange, RoomSettings, UserId,
};

use super::Fixture;
use super::model::{Model, Post};
use super::steps::{
    Stage, apply, apply_batch, are_dense, change, check_everything, check_people, everything, info, store,
    store_one,
};

const ROOMS: [&str; 3] = ["r0", "r1", "r2"];
const USERS: [&str; 4] = ["u0", "u1", "u2", "u3"];
const STEPS: u64 = 250;

fn by(user: &'static str, what: RoomChange<'static>) -> Change<'static> {
    Change { by: Some(user), what }
}

fn admin(what: RoomChange<'static>) -> Change<'static> {
    Change { by: None, what }
}

fn put(room: &'static str, settings: RoomSettings<'static>) -> RoomChange<'static> {
    RoomChange::PutRoom { room, settings }
}

/// Compares everything that a store tells with the model: for tests that drive a store by other means.
pub async fn agrees(fixture: &impl Fixture, model: &Model, rooms: &[&str], users: &[&str]) {
    check_people(fixture, model, rooms, users).await;
    check_everything(fixture, model).await;
}

/// Who may do what in an open room and in one for members only.
pub async fn only_members_may_change_a_room(fixture: &mut impl Fixture) {
    let closed = RoomSettings { members_only: Some(true), title: Some("Team"), ..RoomSettings::default() };
    let refused = || Outcome::Refused(Refusal::NotMember);
    let yes = || Outcome::Changed { changed: true };
    let no = || Outcome::Changed { changed: false };
    let add = |user| RoomChange::AddMember { room: "r", user };
    let remove = |user| RoomChange::RemoveMember { room: "r", user };
    for (n, (made, expected)) in [
        (by("ada", put("r", RoomSettings::default())), Outcome::Room { created: true }),
        (by("bob", put("r", closed)), refused()),
        (by("bob", add("bob")), yes()),
        (by("bob", add("bob")), no()),
        (by("eve", add("carl")), refused()),
        (by("ada", put("r", closed)), Outcome::Room { created: false }),
        (by("eve", add("eve")), refused()),
        (by("bob", add("carl")), yes()),
        (by("eve", remove("carl")), refused()),
        (by("eve", remove("eve")), no()),
        (by("carl", remove("carl")), yes()),
        (admin(add("eve")), yes()),
        (admin(remove("eve")), yes()),
        (by("eve", RoomChange::DeleteRoom { room: "r" }), refused()),
        (by("eve", RoomChange::MarkRead { room: "r", user: "eve", seq: 1 }), refused()),
        (admin(RoomChange::DeleteRoom { room: "other" }), Outcome::Refused(Refusal::UnknownRoom)),
        (admin(RoomChange::AddMember { room: "other", user: "u" }), Outcome::Refused(Refusal::UnknownRoom)),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(change(fixture, &[made]).await, [expected], "{n}: {made:?}");
    }
    let told = info(fixture, "r").await.unwrap();
    assert_eq!((told.title.as_deref(), told.members_only, told.members), (Some("Team"), true, 2));
    let sent = apply(fixture, &[Post::new("r", "m1").user("eve"), Post::new("r", "m2")]).await;
    assert!(sent[0] == refused() && matches!(sent[1], Outcome::Stored(_)), "{sent:?}");
}

/// Who joined or left earlier in a batch did so for the rest of it.
pub async fn a_batch_is_judged_in_its_order(fixture: &mut impl Fixture) {
    let closed = RoomSettings { members_only: Some(true), ..RoomSettings::default() };
    change(fixture, &[admin(put("r", closed))]).await;
    let (mut batch, mut numbers) = (OpBatch::default(), Vec::new());
    let (m1, m2) = (Post::new("r", "m1"), Post::new("r", "m2"));
    let ada = |what| Op::Change(admin(what));
    for op in [
        Op::Send(m1.as_send()),
        ada(RoomChange::AddMember { room: "r", user: "ada" }),
        Op::Send(m1.as_send()),
        Op::Change(by("ada", RoomChange::AddMember { room: "r", user: "bob" })),
        ada(RoomChange::MarkRead { room: "r", user: "bob", seq: 1_000_000 }),
        ada(RoomChange::RemoveMember { room: "r", user: "ada" }),
        Op::Send(m2.as_send()),
        ada(RoomChange::MarkRead { room: "r", user: "ada", seq: 1 }),
    ] {
        numbers.push(fixture.push(&mut batch, &op));
    }
    let outcomes = apply_batch(fixture, batch).await;
    let refused = Outcome::Refused(Refusal::NotMember);
    let changed = Outcome::Changed { changed: true };
    assert!([0, 6, 7].iter().all(|n| outcomes[*n] == refused), "{outcomes:?}");
    assert!([1, 3, 5].iter().all(|n| outcomes[*n] == changed), "{outcomes:?}");
    let seq = numbers[2].unwrap_or(1);
    assert!(matches!(outcomes[2], Outcome::Stored(receipt) if receipt.seq == seq), "{outcomes:?}");
    let read = hubbub_core::ReadMark { seq, unread: 0, head: seq, moved: false };
    assert_eq!(outcomes[4], Outcome::Read(read), "bob joined behind the message");
}

/// Where the list of memberships names others than members, it tells each join from the ones before.
pub async fn who_joins_again_is_listed_anew(fixture: &mut impl Fixture) {
    if !fixture.store().is_shared() {
        return;
    }
    change(fixture, &[admin(put("r", RoomSettings::default()))]).await;
    let users = || ["ada", "bob", "nobody"].map(|user| UserId::new(user).unwrap()).to_vec();
    let mut before = None;
    for round in 0..4 {
        change(fixture, &[admin(RoomChange::AddMember { room: "r", user: "bob" })]).await;
        let listed = fixture.store().memberships(users()).await.unwrap();
        let [Some(ada), Some(bob), Some(nobody)] = &listed[..] else { panic!("{listed:?}") };
        assert!(ada.is_empty() && nobody.is_empty() && bob.len() == 1, "{listed:?}");
        let version = bob[0].version;
        assert!(version.is_none() || before != Some(version), "{round}: {listed:?}");
        before = Some(version);
        change(fixture, &[admin(RoomChange::RemoveMember { room: "r", user: "bob" })]).await;
    }
}

/// A deleted room is gone with everything but its numbers.
pub async fn a_deleted_room_goes_on_counting(fixture: &mut impl Fixture) {
    let (are_dense, mut last) = (are_dense(fixture), 0);
    for (round, stage) in (1..).zip(Stage::ALL) {
        change(fixture, &[by("ada", put("r", RoomSettings { title: Some("T"), ..RoomSettings::default() }))])
            .await;
        let receipts = store(fixture, &[Post::new("r", "m1"), Post::new("r", "m2")]).await;
        let seqs: Vec<u64> = receipts.iter().map(|receipt| receipt.seq).collect();
        assert!(last < seqs[0] && seqs[0] < seqs[1], "{seqs:?} after {last}");
        if are_dense {
            assert_eq!(seqs, [2 * round - 1, 2 * round]);
        }
        last = seqs[1];
        stage.reach(fixture).await;
        assert_eq!(everything(fixture, "r").await.len(), 2);
        change(fixture, &[admin(RoomChange::DeleteRoom { room: "r" })]).await;
        stage.reach(fixture).await;
        assert_eq!(info(fixture, "r").await, None, "{stage:?}");
        assert!(super::steps::is_unknown(fixture, "r").await, "{stage:?}");
    }
    let receipt = store_one(fixture, &Post::new("r", "m1")).await;
    assert!(if are_dense { receipt.seq == 9 } else { receipt.seq > last }, "{receipt:?} after {last}");
    let told = info(fixture, "r").await.unwrap();
    assert_eq!((told.oldest, told.messages, told.title, told.members), (last + 1, 1, None, 0));
}

/// An erased user's messages are nowhere, their ids may be used again, and nobody's count is wrong.
pub async fn an_erased_user_leaves_nothing(fixture: &mut impl Fixture) {
    for stage in Stage::ALL {
        change(fixture, &[admin(put("r", RoomSettings::default()))]).await;
        change(fixture, &["ada", "eve"].map(|user| admin(RoomChange::AddMember { room: "r", user }))).await;
        let posts: Vec<Post> = (0..200)
            .map(|n| Post::new("r", &format!("{stage:?}-{n}")).user(if n % 3 == 0 { "eve" } else { "ada" }))
            .collect();
        for some in posts.chunks(50) {
            store(fixture, some).await;
        }
        stage.reach(fixture).await;
        let erased = change(fixture, &[admin(RoomChange::EraseUser { user: "eve" })]).await;
        assert_eq!(erased, [Outcome::Erased { messages: 67, more: false }], "{stage:?}");
        stage.reach(fixture).await;
        let left = everything(fixture, "r").await;
        assert!(left.iter().all(|kept| kept.post.user == "ada"), "{stage:?}");
        let told = info(fixture, "r").await.unwrap();
        assert_eq!(told.messages, left.len() as u64, "{stage:?}");
        if are_dense(fixture) {
            assert_eq!(told.oldest, left[0].seq, "{stage:?}");
        }
        assert_eq!(told.members, 1);
        let again = apply(fixture, &[posts[0].clone(), posts[1].clone()]).await;
        assert!(matches!(again[..], [Outcome::Stored(_), Outcome::Duplicate(_)]), "{stage:?}: {again:?}");
        change(fixture, &[admin(RoomChange::EraseUser { user: "eve" })]).await;
    }
}

/// Messages, changes, restarts and settling in any order; what everybody is told is compared after each.
/// `CONFORMANCE_SEED=n` in the environment chooses another run.
pub async fn any_changes_agree_with_the_model(fixture: &mut impl Fixture) {
    let seed = std::env::var("CONFORMANCE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    run(fixture, seed, STEPS).await;
}

/// The run that belongs to `seed`.
pub async fn run(fixture: &mut impl Fixture, seed: u64, steps: u64) {
    // Shown when the run fails.
    eprintln!("CONFORMANCE_SEED={seed}");
    let random = SeededRandom::new(seed);
    let below = |end: u64| random.next_u64() % end;
    let pick = |from: &[&'static str]| from[usize::try_from(below(from.len() as u64)).unwrap()];
    let mut model = Model::default();
    for step in 0..steps {
        match below(20) {
            0 => fixture.seal_all().await,
            1 => fixture.restart(true).await,
            2 => fixture.clock().advance_micros(i64::try_from(below(1_000_000)).unwrap()),
            3 => {
                let what = match below(4) {
                    0 => RoomChange::DeleteRoom { room: pick(&ROOMS) },
                    1 => RoomChange::EraseUser { user: pick(&USERS) },
                    _ => put(
                        pick(&ROOMS),
                        RoomSettings {
                            title: (below(2) == 0).then(|| pick(&["", "Team", "Ünal \u{1F600}"])),
                            members_only: (below(3) == 0).then(|| below(3) == 0),
                            retention_s: (below(4) == 0).then(|| 100_000_000_000 * below(3)),
                        },
                    ),
                };
                let made = Change { by: (below(2) == 0).then(|| pick(&USERS)), what };
                let expected = model.change(&made);
                assert_eq!(change(fixture, &[made]).await, [expected], "{step}: {made:?}");
            }
            _ => mixed_batch(fixture, &mut model, step, &below).await,
        }
        check_people(fixture, &model, &ROOMS, &USERS).await;
        if step % 50 == 49 {
            check_everything(fixture, &model).await;
        }
    }
    check_everything(fixture, &model).await;
}

/// Messages and changes that take company, in one batch.
async fn mixed_batch(fixture: &impl Fixture, model: &mut Model, step: u64, below: &impl Fn(u64) -> u64) {
    let pick = |from: &[&'static str]| from[usize::try_from(below(from.len() as u64)).unwrap()];
    let mut batch = OpBatch::default();
    let mut expected = Vec::new();
    for n in 0..1 + below(12) {
        let (room, user) = (pick(&ROOMS), pick(&USERS));
        let what = match below(10) {
            0 => RoomChange::AddMember { room, user },
            1 => RoomChange::RemoveMember { room, user },
            2..5 => RoomChange::MarkRead { room, user, seq: below(model.head(room) + 3) },
            _ => {
                let id = if below(8) == 0 { format!("m{}", below(step + 1)) } else { format!("m{step}-{n}") };
                let post = Post::new(room, &id).user(user);
                let number = fixture.push(&mut batch, &Op::Send(post.as_send()));
                expected.push(model.apply_one(&post, number, fixture.clock().now(), true));
                continue;
            }
        };
        let made = Change { by: (below(3) > 0).then_some(user), what };
        fixture.push(&mut batch, &Op::Change(made));
        expected.push(model.change(&made));
    }
    assert_eq!(apply_batch(fixture, batch).await, expected, "step {step}");
}
