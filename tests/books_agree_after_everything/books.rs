//! The books: the history of a room as it was read, which only grows, and what is counted of it.

use std::collections::{BTreeMap, BTreeSet};

use hyper::Method;
use serde_json::json;

use super::readers::{END, Reader, Seen};
use super::world::Client;
use super::writers::Ledger;
use crate::harness::until;

/// A room from which nothing is ever deleted.
pub(super) struct Book {
    pub(super) room: &'static str,
    pub(super) entries: Vec<Seen>,
    /// Of each sender in the ledger, the `seq` of each message.
    senders: BTreeMap<String, Vec<u64>>,
}

impl Book {
    pub(super) fn new(room: &'static str) -> Self {
        Self { room, entries: Vec::new(), senders: BTreeMap::new() }
    }

    /// Reads what came since.
    async fn read_on(&mut self, client: &mut Client) {
        loop {
            let after = self.entries.last().map_or(0, |last| last.seq);
            let path = format!("/v1/rooms/{}/messages?limit=1000&after={after}", self.room);
            let page = client.get(&path).await;
            let messages = page["messages"].as_array().unwrap();
            for message in messages {
                self.enter(Seen::new(message));
            }
            if page["next"].is_null() {
                return;
            }
        }
    }

    fn enter(&mut self, entry: Seen) {
        if let Some(last) = self.entries.last() {
            assert!(last.seq < entry.seq, "{}: {entry:?} behind {last:?}", self.room);
            assert!(last.received_at <= entry.received_at, "{}: {entry:?} behind {last:?}", self.room);
        }
        if let Some((sender, number)) = &entry.number {
            let seqs = self.senders.entry(sender.clone()).or_default();
            if *number as usize >= seqs.len() {
                seqs.resize(*number as usize + 1, 0);
            }
            let before = std::mem::replace(&mut seqs[*number as usize], entry.seq);
            assert_eq!(before, 0, "{}: {entry:?} is there twice", self.room);
        }
        self.entries.push(entry);
    }

    /// While nobody writes: what is acknowledged is stored, and nothing else; each sender's in its order.
    async fn agree(&mut self, client: &mut Client, ledger: &Ledger) {
        let acked = ledger.of(self.room);
        let total: usize = acked.values().map(Vec::len).sum();
        // A broker may have some of it still.
        until(&format!("{} has all {total}", self.room), async || {
            self.read_on(client).await;
            self.entries.iter().filter(|entry| entry.number.is_some()).count() >= total
        })
        .await;
        for (sender, told) in &acked {
            let stored = self.senders.get(sender).map(Vec::as_slice).unwrap_or_default();
            assert_eq!(stored.len(), told.len(), "{} of {sender}: not as many as acknowledged", self.room);
            for (number, (stored, told)) in stored.iter().zip(told).enumerate() {
                let is_same = *stored > 0 && told.is_none_or(|told| told == *stored);
                assert!(is_same, "{}: {sender}-{number} is at {stored}, told {told:?}", self.room);
            }
            // Behind a broker a refusal lets those sent after it be faster, where several are unanswered at a time.
            let has_window = sender == "chat20" && told.iter().all(Option::is_none);
            assert!(has_window || stored.is_sorted(), "{} of {sender}: out of order", self.room);
        }
        let extra = self.senders.keys().find(|sender| !acked.contains_key(*sender));
        assert_eq!(extra, None, "{}: nobody was told of it", self.room);
    }

    /// The whole history read anew is the same.
    async fn read_again(&self, client: &mut Client) {
        let mut again = Self::new(self.room);
        again.read_on(client).await;
        assert!(again.entries == self.entries, "{}: the history has changed", self.room);
    }

    /// Who follows saw just this.
    pub(super) fn check(&self, reader: &Reader) {
        let (seen, stored) = (reader.seen.len(), self.entries.len());
        let first = reader.seen.iter().zip(&self.entries).find(|(seen, stored)| seen != stored);
        assert!(first.is_none() && seen == stored, "{}: saw {seen} of {stored}, {first:?}", self.room);
    }
}

/// While nobody changes anything: histories, counts and the audit agree.
pub(super) async fn agree(books: &mut [Book], client: &mut Client, ledger: &Ledger) {
    for book in books.iter_mut() {
        book.agree(client, ledger).await;
    }
    let mut users: BTreeMap<&str, usize> = BTreeMap::new();
    for book in books.iter() {
        let names: BTreeSet<&str> = book.entries.iter().map(|entry| entry.user.as_str()).collect();
        for entry in &book.entries {
            *users.entry(&entry.user).or_default() += 1;
        }
        let path = format!("/v1/stats/rooms?room={}", book.room);
        let expected = (json!(book.entries.len()), json!(names.len()));
        until(&format!("{path} says {expected:?}"), async || {
            let told = &client.get(&path).await["rooms"][0];
            (&told["messages"], &told["uniqueUsers"]) == (&expected.0, &expected.1)
        })
        .await;
    }
    for (user, count) in users {
        let path = format!("/v1/stats/users?user={user}");
        until(&format!("{path} says {count}"), async || {
            client.get(&path).await["users"][0]["messages"] == count
        })
        .await;
    }
    let audit = client.request_again(Method::POST, "/v1/stats/audit", "{}").await.json();
    assert_eq!(audit["differences"], json!([]), "{audit}");
}

/// Ends each room, and reads it all again.
pub(super) async fn close(books: &mut [Book], client: &mut Client, ledger: &Ledger) {
    let rooms: Vec<&str> = books.iter().map(|book| book.room).chain([super::BRIEF]).collect();
    for room in rooms {
        // What becomes of the last one where messages are gone soon must not matter to what is counted of users.
        let user = if room == super::BRIEF { "end.brief" } else { "end" };
        let body = json!({"userId": user, "message": END, "messageId": END}).to_string();
        let answer = client.request_again(Method::POST, &format!("/v1/rooms/{room}/messages"), &body).await;
        assert!(answer.status < 300, "{}", answer.text());
    }
    for book in books.iter_mut() {
        until("the end of a room", async || {
            book.read_on(client).await;
            book.entries.last().is_some_and(|last| last.user == "end")
        })
        .await;
    }
    agree(books, client, ledger).await;
    for book in books.iter() {
        book.read_again(client).await;
    }
}
