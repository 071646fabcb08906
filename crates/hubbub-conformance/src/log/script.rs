//! A log whose repetition is seen: what it adds is removed again, what it names is used again.

use hubbub_core::{Change, RoomChange, RoomSettings, log_partition};

use super::super::model::Post;
use super::steps::{Content, PARTITIONS, Record};

/// When the first record was appended: long before the stores' clock, which must not matter.
const BEGIN_MICROS: i64 = 1_600_000_000_000_000;

/// Writes records, each into its room's partition.
pub(super) struct Writer {
    records: Vec<Record>,
    next: [u64; PARTITIONS as usize],
    micros: i64,
}

impl Writer {
    /// A writer into partitions that begin with these offsets.
    pub(super) fn at(next: [u64; PARTITIONS as usize]) -> Self {
        Self { records: Vec::new(), next, micros: BEGIN_MICROS }
    }

    pub(super) fn into_records(self) -> Vec<Record> {
        self.records
    }

    fn append(&mut self, room: &str, content: Content) {
        self.append_to(log_partition::of_room(room, PARTITIONS), content);
    }

    fn append_to(&mut self, partition: u32, content: Content) {
        let next = &mut self.next[partition as usize];
        // Now and then a number is missing, and the clock steps back.
        *next += if *next % 5 == 3 { 2 } else { 1 };
        self.micros += if *next % 7 == 4 { -3_000_000 } else { 1_000_000 };
        self.records.push(Record::new(partition, *next - 1, self.micros, content));
    }

    pub(super) fn send(&mut self, room: &str, user: &str, id: &str) {
        self.append(room, Content::Send(Post::new(room, id).user(user)));
    }

    pub(super) fn change(&mut self, by: Option<&'static str>, what: RoomChange<'static>) {
        let change = Change { by, what };
        self.append(change.room().expect("an erasure is in each partition"), Content::Change(change));
    }

    /// An erasure in one of the partitions, all of which must have it.
    pub(super) fn erase_in(&mut self, partition: u32, user: &'static str) {
        let change = Change { by: None, what: RoomChange::EraseUser { user } };
        self.append_to(partition, Content::Change(change));
    }

    fn put(&mut self, room: &'static str, title: &'static str, members_only: bool) {
        let settings =
            RoomSettings { title: Some(title), members_only: Some(members_only), retention_s: None };
        self.change(None, RoomChange::PutRoom { room, settings });
    }

    pub(super) fn add(&mut self, room: &'static str, user: &'static str) {
        self.change(None, RoomChange::AddMember { room, user });
    }

    pub(super) fn remove(&mut self, room: &'static str, user: &'static str) {
        self.change(Some(user), RoomChange::RemoveMember { room, user });
    }

    fn read_all(&mut self, room: &'static str, user: &'static str) {
        self.change(Some(user), RoomChange::MarkRead { room, user, seq: u64::MAX });
    }

    /// A round of everything. `round` distinguishes the ids of its messages.
    fn round(&mut self, round: usize) {
        let id = |name: &str| format!("{name}-{round}");
        self.put("a0", "first", false);
        self.add("a0", "bob");
        self.send("a0", "ada", &id("m1"));
        self.send("d1", "eve", &id("m1"));
        self.read_all("a0", "bob");
        self.send("a0", "ada", &id("m2"));
        self.put("p2", "closed", true);
        self.send("p2", "eve", &id("refused"));
        self.add("p2", "eve");
        self.send("p2", "eve", &id("m1"));
        self.add("d1", "zoe");
        self.send("d1", "eve", &id("m2"));
        self.remove("d1", "zoe");
        self.send("a0", "ada", &id("m2"));
        self.remove("p2", "eve");
        self.send("p2", "eve", &id("late"));
        self.put("a0", "second", false);
        // A room that is deleted and made again, with the same ids.
        self.send("c0", "ada", &id("m1"));
        self.add("c0", "bob");
        self.send("c0", "zoe", &id("m2"));
        self.change(None, RoomChange::DeleteRoom { room: "c0" });
        self.send("c0", "ada", &id("m1"));
        self.add("c0", "zoe");
        self.send("c0", "bob", &id("m3"));
        // Whoever is erased writes again, also where other partitions have the erasure later.
        self.add("d1", "zoe");
        self.send("d1", "zoe", &id("m4"));
        self.erase_in(0, "zoe");
        self.send("c0", "zoe", &id("m4"));
        self.add("a0", "zoe");
        self.erase_in(2, "zoe");
        self.send("p2", "zoe", &id("refused-too"));
        self.erase_in(1, "zoe");
        self.send("d1", "zoe", &id("m5"));
        self.change(Some("eve"), RoomChange::DeleteRoom { room: "c0" });
        self.change(None, RoomChange::AddMember { room: "d1", user: "ada" });
        self.send("d1", "ada", &id("m3"));
        self.send("a0", "bob", &id("m4"));
    }
}

/// The log of most cases.
pub(super) fn script() -> Vec<Record> {
    let mut writer = Writer::at([0; PARTITIONS as usize]);
    (0..3).for_each(|round| writer.round(round));
    writer.into_records()
}
