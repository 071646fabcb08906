//! The rules of rooms without a store: one room in memory, and what must hold after any operations.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::message::MessageType;

/// One room in memory, with the messages it keeps.
#[derive(Debug, Clone, PartialEq)]
struct Memory {
    state: RoomState,
    oldest: u64,
    marks: BTreeMap<String, u64>,
    kept: Vec<(Send<'static>, Receipt)>,
}

impl Default for Memory {
    fn default() -> Self {
        let state = RoomState { exists: false, members_only: false, head: 0, last_received: Timestamp::MIN };
        Self { state, oldest: 1, marks: BTreeMap::new(), kept: Vec::new() }
    }
}

impl View for Memory {
    fn room(&self) -> Option<RoomState> {
        (self.state.exists || self.state.head > 0).then_some(self.state)
    }

    fn is_member(&self, user: &str) -> bool {
        self.marks.contains_key(user)
    }
}

/// The room while the message with the id `damaged` cannot be read.
struct Ids<'m> {
    memory: &'m Memory,
    autocreates: bool,
    damaged: Option<&'m str>,
}

impl View for Ids<'_> {
    fn room(&self) -> Option<RoomState> {
        self.memory.room().or(self.autocreates.then_some(Memory::default().state))
    }

    fn is_member(&self, user: &str) -> bool {
        self.memory.is_member(user)
    }
}

impl SendView for Ids<'_> {
    type LoadRequest = ();

    fn id_holder(&self, send: &Send<'_>) -> Result<Option<IdHolder>, ()> {
        if self.damaged == Some(send.id) {
            return Err(());
        }
        let found = self.memory.kept.iter().find(|(kept, _)| kept.id == send.id);
        Ok(found.map(|(kept, receipt)| IdHolder { receipt: *receipt, is_same: kept.same_content(send) }))
    }
}

impl RoomMut for Memory {
    fn state(&self) -> RoomState {
        self.state
    }

    fn mark(&self, user: &str) -> Option<u64> {
        self.marks.get(user).copied()
    }

    fn set_mark(&mut self, user: &str, mark: Option<u64>) -> Result<(), BrokenInvariant> {
        match mark {
            Some(mark) => self.marks.insert(user.to_owned(), mark),
            None => self.marks.remove(user),
        };
        Ok(())
    }

    fn unread(&mut self, mark: u64) -> u64 {
        self.kept.iter().filter(|(_, receipt)| receipt.seq > mark).count() as u64
    }

    fn put(&mut self, settings: &RoomSettings<'_>) {
        self.state.exists = true;
        self.state.members_only = settings.members_only.unwrap_or(self.state.members_only);
    }

    fn clear(&mut self) {
        (self.state.exists, self.state.members_only, self.oldest) = (false, false, self.state.head + 1);
        self.marks.clear();
        self.kept.clear();
    }
}

impl Memory {
    fn send(&mut self, send: &Send<'static>, now: Timestamp, autocreate: bool) -> Outcome {
        let ids = Ids { memory: self, autocreates: autocreate, damaged: None };
        let decision = decide_send(&ids, send, now, autocreate).expect("nothing is damaged");
        if let SendDecision::Store(receipt) = decision {
            let head = self.state.head;
            if let Some(mark) = self.marks.get_mut(send.user).filter(|mark| is_caught_up(**mark, head)) {
                *mark = receipt.seq;
            }
            (self.state.head, self.state.last_received) = (receipt.seq, receipt.received_at);
            self.state.exists = true;
            self.kept.push((*send, receipt));
        }
        decision.into()
    }

    fn change(&mut self, change: &Change<'static>) -> Outcome {
        match decide_change(self, change) {
            Ok(()) => apply_change(self, change).expect("no invariant is broken"),
            Err(refusal) => Outcome::Refused(refusal),
        }
    }
}

const USERS: [&str; 3] = ["ada", "bob", "cyn"];

#[derive(Debug, Clone)]
enum Step {
    Send(Send<'static>, i64),
    Change(Change<'static>),
}

fn sends() -> impl Strategy<Value = Step> {
    let ids = proptest::sample::select(&["1", "2", "3", "4", "5", "6"][..]);
    let texts = proptest::sample::select(&["x", "x", "x", "y"][..]);
    let users = proptest::sample::select(&USERS[..]);
    (ids, texts, users, 0_i64..100).prop_map(|(id, text, user, now)| {
        let (kind, timestamp) = (MessageType::Text, Timestamp::default());
        Step::Send(Send { room: "r", user, id, username: None, text, kind, timestamp }, now)
    })
}

fn changes() -> impl Strategy<Value = Step> {
    let by = proptest::option::weighted(0.8, proptest::sample::select(&USERS[..]));
    let user = proptest::sample::select(&USERS[..]);
    let settings = proptest::option::of(any::<bool>())
        .prop_map(|members_only| RoomSettings { members_only, ..RoomSettings::default() });
    let room = "r";
    let what = prop_oneof![
        2 => settings.prop_map(move |settings| RoomChange::PutRoom { room, settings }),
        1 => Just(RoomChange::DeleteRoom { room }),
        3 => user.clone().prop_map(move |user| RoomChange::AddMember { room, user }),
        2 => user.clone().prop_map(move |user| RoomChange::RemoveMember { room, user }),
        3 => (user, 0_u64..9).prop_map(move |(user, seq)| RoomChange::MarkRead { room, user, seq }),
    ];
    (by, what).prop_map(|(by, what)| Step::Change(Change { by, what }))
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec(prop_oneof![sends(), changes()], 1..60)
}

/// What no outcome may break, whatever it is.
fn check_invariants(before: &Memory, after: &Memory) -> Result<(), TestCaseError> {
    prop_assert!(after.state.head >= before.state.head, "numbers never go back");
    prop_assert!(after.state.last_received >= before.state.last_received, "times never go back");
    for (user, mark) in &after.marks {
        prop_assert!(*mark <= after.state.head, "no mark is beyond the head");
        let former = before.marks.get(user).copied().unwrap_or(before.state.head);
        prop_assert!(*mark >= former, "marks never go back, and members begin at the head");
    }
    prop_assert!(after.state.exists || after.marks.is_empty(), "only rooms that exist have members");
    Ok(())
}

fn check_send(
    before: &Memory,
    after: &Memory,
    send: &Send<'_>,
    outcome: &Outcome,
    autocreate: bool,
) -> Result<(), TestCaseError> {
    let holder = before.kept.iter().find(|(kept, _)| kept.id == send.id);
    match outcome {
        Outcome::Stored(receipt) => {
            prop_assert!(holder.is_none() && receipt.seq == before.state.head + 1);
            prop_assert!(before.state.exists || autocreate);
            prop_assert!(!before.state.members_only || before.is_member(send.user));
            for user in before.marks.keys() {
                let read_all = before.marks[user] == before.state.head && user == send.user;
                let expected = if read_all { receipt.seq } else { before.marks[user] };
                prop_assert_eq!(
                    after.marks[user],
                    expected,
                    "only a sender who has read everything moves on"
                );
            }
            return Ok(());
        }
        Outcome::Duplicate(receipt) => {
            prop_assert!(holder.is_some_and(|(kept, first)| kept.same_content(send) && first == receipt));
        }
        Outcome::Refused(Refusal::IdReused { seq }) => {
            prop_assert!(holder.is_some_and(|(kept, first)| !kept.same_content(send) && first.seq == *seq));
        }
        Outcome::Refused(Refusal::NotMember) => {
            prop_assert!(before.state.members_only && !before.is_member(send.user));
        }
        outcome => prop_assert!(
            *outcome == Outcome::Refused(Refusal::UnknownRoom) && !before.state.exists && !autocreate
        ),
    }
    prop_assert_eq!(before, after, "what stores nothing changes nothing");
    Ok(())
}

fn check_change(
    before: &Memory,
    after: &Memory,
    change: &Change<'_>,
    outcome: &Outcome,
) -> Result<(), TestCaseError> {
    let is_admin = change.by.is_none();
    match outcome {
        Outcome::Refused(refusal) => {
            prop_assert_eq!(before, after, "what is refused changes nothing");
            let is_unknown = *refusal == Refusal::UnknownRoom;
            prop_assert_eq!(is_unknown, !before.state.exists);
            let is_mark = matches!(change.what, RoomChange::MarkRead { .. });
            prop_assert!(
                is_unknown || is_mark || !is_admin,
                "an administrator is no member but may do everything"
            );
        }
        Outcome::Room { created } => {
            prop_assert_eq!(*created, !before.state.exists);
            prop_assert!(after.state.exists && change.by.is_none_or(|by| after.is_member(by)));
        }
        Outcome::Changed { changed } => prop_assert_eq!(*changed, before != after),
        Outcome::Read(mark) => {
            prop_assert_eq!(mark.moved, before != after);
            prop_assert_eq!(mark.unread, after.clone().unread(mark.seq));
        }
        outcome => prop_assert!(false, "{outcome:?}"),
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_operations_keep_the_invariants_and_answers_say_what_changed(steps in steps(), autocreate: bool) {
        let mut room = Memory::default();
        for step in &steps {
            let before = room.clone();
            match step {
                Step::Send(send, now) => {
                    let outcome = room.send(send, Timestamp::from_micros(*now), autocreate);
                    check_send(&before, &room, send, &outcome, autocreate)?;
                }
                Step::Change(change) => {
                    let outcome = room.change(change);
                    check_change(&before, &room, change, &outcome)?;
                }
            }
            check_invariants(&before, &room)?;
        }
    }

    #[test]
    fn messages_that_are_sent_again_are_duplicates(sends in proptest::collection::vec(sends(), 1..20)) {
        let mut room = Memory::default();
        let mut first = Vec::new();
        for _ in 0..2 {
            for step in &sends {
                let Step::Send(send, now) = step else { continue };
                first.push(room.send(send, Timestamp::from_micros(*now), true));
            }
        }
        let (first, again) = first.split_at(sends.len());
        for (first, again) in first.iter().zip(again) {
            let expected = first.receipt().map_or(first.clone(), |(receipt, _)| Outcome::Duplicate(*receipt));
            prop_assert_eq!(again, &expected);
        }
    }

    #[test]
    fn records_that_are_applied_again_come_to_the_same(steps in steps()) {
        let (mut room, mut again) = (Memory::default(), Memory::default());
        for step in &steps {
            match step {
                Step::Send(send, now) => {
                    let now = Timestamp::from_micros(*now);
                    prop_assert_eq!(room.send(send, now, true), again.send(send, now, true));
                }
                Step::Change(change) => {
                    if decide_change(&room, change).is_err() {
                        continue;
                    }
                    let outcome = apply_change(&mut room, change);
                    prop_assert_eq!(outcome, apply_change(&mut again, change));
                }
            }
            prop_assert_eq!(&room, &again);
        }
    }
}

#[test]
fn an_id_that_cannot_be_looked_up_is_not_decided_about() {
    let memory = Memory::default();
    let Step::Send(send, _) = sends_example() else { unreachable!() };
    let ids = Ids { memory: &memory, autocreates: true, damaged: Some(send.id) };
    assert_eq!(decide_send(&ids, &send, Timestamp::default(), true), Err(()));
}

fn sends_example() -> Step {
    let (kind, timestamp) = (MessageType::Text, Timestamp::default());
    Step::Send(Send { room: "r", user: "ada", id: "1", username: None, text: "x", kind, timestamp }, 0)
}
