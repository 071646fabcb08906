//! Whom a message to everybody is for.

use std::collections::BTreeMap;

use hubbub_core::invariant::saturate;

use super::{ANYBODY, CHUNK, Members, Need, WorkingSet, chunk_of};

/// Clients by the chunks of their numbers, then those who have no number yet.
#[derive(Debug, Default)]
pub(crate) struct Recipients {
    pub(crate) chunks: BTreeMap<i32, Members>,
    pub(crate) new: Vec<i32>,
}

impl Recipients {
    pub(crate) fn count(&self) -> i64 {
        let new: i64 = saturate(self.new.len());
        self.chunks.values().map(Members::count).sum::<i64>().saturating_add(new)
    }

    /// In the order of the copies' ids.
    pub(crate) fn numbers(&self) -> Vec<i32> {
        let numbered = self
            .chunks
            .iter()
            .flat_map(|(chunk, members)| members.bits().map(move |bit| chunk * CHUNK + bit));
        numbered.chain(self.new.iter().copied()).collect()
    }
}

impl WorkingSet {
    /// Whom a message to everybody of this sender is for.
    pub(crate) fn recipients(&self, sender: Option<i32>) -> Result<Recipients, Need> {
        let mut chunks = self.registered.clone().ok_or(Need::Registered)?;
        let mut new = Vec::new();
        for client in self.clients.values() {
            let is_meant = client.is_registered && Some(client.no) != sender;
            if client.no > ANYBODY {
                let (chunk, bit) = chunk_of(client.no);
                chunks.entry(chunk).or_default().set(bit, is_meant);
            } else if is_meant {
                new.push(client.no);
            }
        }
        // New ones in the order in which they registered.
        new.sort_unstable_by_key(|no| -no);
        Ok(Recipients { chunks, new })
    }

    /// Whether copies of a message to everybody are made bit by bit. A group orders each copy among others of its
    /// receiver, which takes all of them.
    pub(crate) fn is_made_later(&self, group: Option<&str>, copies: i64) -> bool {
        group.is_none() && copies > i64::from(self.broadcasts.at_once)
    }

    /// Whether one more message whose copies are made later can be taken on.
    pub(crate) fn has_room_for_pending(&self, copies: i64) -> bool {
        let new = self.pending.values().filter(|pending| pending.is_new);
        let (messages, unmade) =
            new.fold(self.pending_before, |(messages, unmade), one| (messages + 1, unmade + one.unmade));
        let limits = &self.broadcasts;
        let fits = messages < limits.messages_max && unmade.saturating_add(copies) <= limits.copies_max;
        fits || messages == 0
    }
}
