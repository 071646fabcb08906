//! The table of users against a plain grouping of the messages.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{Owned, TestDirectory, examples};
use crate::embedded::file::{FileError, SortedFileWriter};
use crate::embedded::segment::{Codec, Posting, Segment, merge};

type Users = BTreeMap<String, Vec<Posting>>;

/// Every user with all messages, by one pass; what is said about a user must agree with the messages.
pub(super) fn read_users(segment: &Segment) -> Result<Users, FileError> {
    let (mut scan, mut users) = (segment.users(), Users::new());
    while let Some((name, part)) = scan.next()? {
        let (name, mut postings) = (name.to_owned(), Vec::new());
        scan.postings(&part, |posting| postings.push(posting))?;
        assert_eq!(postings.len() as u64, part.count);
        assert_eq!(postings.iter().map(|posting| posting.received).min(), Some(part.first));
        assert_eq!(postings.iter().map(|posting| posting.received).max(), Some(part.last));
        users.insert(name, postings);
    }
    Ok(users)
}

/// The same, each user looked up by name.
pub(super) fn look_up_users<'a>(
    segment: &Segment,
    names: impl Iterator<Item = &'a String>,
) -> Result<Users, FileError> {
    let mut users = Users::new();
    for name in names {
        let Some(part) = segment.user(name)? else { continue };
        let (mut list, mut postings) = (segment.postings(&part), Vec::new());
        while let Some(posting) = list.next()? {
            postings.push(posting);
        }
        users.insert(name.clone(), postings);
    }
    Ok(users)
}

fn expected(messages: &[Owned]) -> Users {
    let mut users = Users::new();
    for (ordinal, message) in (0..).zip(messages) {
        let posting = Posting { ordinal, received: message.received, kind: message.kind };
        users.entry(message.user.clone()).or_default().push(posting);
    }
    users
}

#[track_caller]
fn check(segment: &Segment, messages: &[Owned]) {
    let users = expected(messages);
    assert_eq!(read_users(segment).unwrap(), users);
    assert_eq!(look_up_users(segment, users.keys()).unwrap(), users);
    for stranger in ["", "a", "user-", "user-00", "zzz"] {
        let name = stranger.to_owned();
        assert_eq!(segment.user(stranger).unwrap().is_some(), users.contains_key(&name), "{stranger}");
    }
}

/// Messages of `users` users, the first of whom writes half of all.
fn crowd(count: u64, users: u64) -> Vec<Owned> {
    let mut all = examples(count);
    for (n, message) in (0..).zip(&mut all) {
        message.user = if n % 2 == 0 { "user-0".into() } else { format!("user-{:x}", n * 7919 % users) };
        message.text.clear();
    }
    all
}

#[test]
fn many_users_and_long_lists_come_back() {
    let directory = TestDirectory::new();
    for (number, users) in [(1, 1), (2, 70), (3, 5_000)] {
        let all = crowd(20_000, users);
        directory.write(number, Codec::Lz4, &all);
        check(&directory.open(number).unwrap(), &all);
    }
}

#[test]
fn a_segment_without_messages_has_no_users() {
    let directory = TestDirectory::new();
    directory.write(1, Codec::Lz4, &[]);
    check(&directory.open(1).unwrap(), &[]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn merged_users_are_those_of_the_messages_kept(
        count in 1_u64..600,
        users in 1_u64..200,
        sources in 1_u64..5,
        dropped in proptest::option::of(0_u64..5),
    ) {
        let (directory, all) = (TestDirectory::new(), crowd(count, users));
        let mut parts = Vec::new();
        for number in 0..sources {
            let part: Vec<Owned> = all.iter().filter(|m| m.seq % sources == number).cloned().collect();
            directory.write(number + 1, Codec::Lz4, &part);
            parts.push(directory.open(number + 1).unwrap());
        }
        let keep = |seq: u64| dropped.is_none_or(|dropped| seq % 5 != dropped);
        let mut writer = directory.writer(9, Codec::Zstd);
        merge(&parts, &mut writer, |message| keep(message.seq)).unwrap();
        writer.finish().unwrap();
        let kept: Vec<Owned> = all.into_iter().filter(|message| keep(message.seq)).collect();
        check(&directory.open(9).unwrap(), &kept);
    }
}
