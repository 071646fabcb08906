//! Going through all messages once, and comparing with what is counted.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use hubbub_core::Message;
use hubbub_core::stats::{AUDIT_DIFFERENCES_MAX, Audit, Counted};
use hubbub_core::store::ReadError;

use super::answers::{hour_stats, room_stats, totals, user_stats};
use super::source::{each_message, hidden_changes};
use super::summary::{KnownRooms, Summary};
use crate::embedded::engine::Engine;
use crate::embedded::error::MaintainError;
use crate::embedded::shared::Shared;
use crate::embedded::view::View;

/// How often the audit begins anew because something was deleted meanwhile.
const ATTEMPTS: u32 = 3;

impl Engine {
    /// See [`hubbub_core::StatsStore::audit`]. Holds the counts three times in memory.
    pub fn audit(&self) -> Result<Counted<Audit>, ReadError> {
        for _ in 0..ATTEMPTS {
            if let Some(audit) = self.shared.try_audit().map_err(|error| self.shared.unreadable(error))? {
                return Ok(audit);
            }
        }
        let reason = "messages were deleted while they were counted; audit again later".to_owned();
        Err(ReadError::Unavailable { reason })
    }
}

impl Shared {
    /// `None` when something was deleted meanwhile.
    fn try_audit(&self) -> Result<Option<Counted<Audit>>, MaintainError> {
        let hidden = hidden_changes(self);
        self.recount_if_outdated()?;
        let (view, ends, counted, as_of) = {
            let current = self.current()?;
            if current.state.is_outdated(hidden) {
                return Ok(None);
            }
            let ends: BTreeMap<u64, u64> =
                current.state.tails.iter().map(|part| (part.journal, part.position)).collect();
            (Arc::clone(&current.view), ends, current.summary().clone(), current.as_of)
        };
        let (recount, messages) = self.recount(&view, &ends)?;
        if hidden_changes(self) != hidden {
            return Ok(None);
        }
        Ok(Some(Counted { value: Audit { messages, differences: differences(&counted, &recount) }, as_of }))
    }

    /// Counts all messages of the segments, and those of the tails up to where they are counted.
    fn recount(&self, view: &View, ends: &BTreeMap<u64, u64>) -> Result<(Summary, u64), MaintainError> {
        let (mut summary, mut rooms, mut messages) = (Summary::default(), KnownRooms::new(), 0);
        let mut count = |message: &Message<'_>| {
            messages += u64::from(summary.add_message(self, &mut rooms, message).is_some());
        };
        for segment in &view.segments {
            let mut scan = segment.scan();
            while let Some(message) = scan.next()? {
                count(&message);
            }
        }
        for tail in &view.tails {
            let end = ends.get(&tail.journal).copied().unwrap_or(0);
            each_message(self, tail, 0, end, |_, message| count(message))?;
        }
        Ok((summary, messages))
    }
}

fn differences(counted: &Summary, recount: &Summary) -> Vec<String> {
    let mut found = Vec::new();
    let (ours, theirs) = (totals(counted), totals(recount));
    if ours != theirs {
        found.push(format!("totals: {ours:?} counted, {theirs:?} found"));
    }
    let rooms = |summary: &Summary| -> BTreeMap<_, _> {
        let rooms = summary.rooms().filter_map(|(_, room)| room_stats(room));
        rooms.map(|room| (room.room.to_string(), room)).collect()
    };
    compare("room", &rooms(counted), &rooms(recount), &mut found);
    let users = |summary: &Summary| -> BTreeMap<_, _> {
        let users = summary.users().filter_map(|(_, user)| user_stats(user));
        users.map(|user| (user.user.to_string(), user)).collect()
    };
    compare("user", &users(counted), &users(recount), &mut found);
    let pairs = |summary: &Summary| -> BTreeMap<_, _> {
        let pairs = summary.pairs();
        pairs.map(|(room, user, messages)| (format!("{} of {}", room.name, user.name), messages)).collect()
    };
    compare("room and user", &pairs(counted), &pairs(recount), &mut found);
    let hours = |summary: &Summary| -> BTreeMap<_, _> {
        let hours = summary.hours.iter().map(|(hour, total)| hour_stats(*hour, total));
        hours.map(|hour| (hour.hour.to_string(), hour)).collect()
    };
    compare("hour", &hours(counted), &hours(recount), &mut found);
    found.truncate(AUDIT_DIFFERENCES_MAX);
    found
}

/// Tells of each thing what is counted of it and what was found, where they differ.
fn compare<T: PartialEq + Debug>(
    what: &str,
    counted: &BTreeMap<String, T>,
    recount: &BTreeMap<String, T>,
    found: &mut Vec<String>,
) {
    let missing = recount.keys().filter(|name| !counted.contains_key(*name));
    for name in counted.keys().chain(missing) {
        let (ours, theirs) = (counted.get(name), recount.get(name));
        if ours != theirs && found.len() < AUDIT_DIFFERENCES_MAX {
            found.push(format!("{what} {name}: {ours:?} counted, {theirs:?} found"));
        }
    }
}
