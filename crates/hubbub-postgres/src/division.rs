//! Divides operations that failed together for their content, until each culprit stands alone.

use std::collections::HashSet;

/// Most rooms of a batch of which one operation is found and refused, and most further operations of these rooms. Where
/// more fail, what is still together is refused together.
const REFUSED_SINGLY_MAX: usize = 16;

/// Operations of which some failed for their content.
pub(crate) struct Division<'a> {
    /// The room of each operation, where their order is that of their room only.
    rooms: Vec<Option<&'a str>>,
    /// Rooms of which an operation was refused.
    suspects: HashSet<&'a str>,
    /// Operations that were refused singly: the first of their rooms.
    first_refusals: usize,
    /// The same, further ones of these rooms.
    further_refusals: usize,
}

impl<'a> Division<'a> {
    /// Of operations of these rooms; `None` where more than the order within a room counts.
    pub(crate) fn new(rooms: Vec<Option<&'a str>>) -> Self {
        Self { rooms, suspects: HashSet::new(), first_refusals: 0, further_refusals: 0 }
    }

    fn is_suspect(&self, index: usize) -> bool {
        let room = self.rooms.get(index).copied().flatten();
        room.is_some_and(|room| self.suspects.contains(room))
    }

    /// Divides what failed together: the second part is to be done first. `None` where it is refused.
    ///
    /// Once an operation of a room was refused, the others of the room are likely to be: they are kept apart, so that
    /// other rooms are not refused with them.
    pub(crate) fn divide(&mut self, indexes: &[usize]) -> Option<(Vec<usize>, Vec<usize>)> {
        let is_suspect = |index: &usize| self.is_suspect(*index);
        let suspects = indexes.iter().filter(|index| is_suspect(index)).count();
        if let [index] = indexes {
            let refusals = if suspects == 0 { &mut self.first_refusals } else { &mut self.further_refusals };
            *refusals += 1;
            self.suspects.extend(self.rooms.get(*index).copied().flatten());
            return None;
        }
        if suspects > 0 && suspects < indexes.len() {
            return Some(indexes.iter().copied().partition(is_suspect));
        }
        let tried = if suspects > 0 { self.further_refusals } else { self.first_refusals };
        let (first, second) = indexes.split_at(indexes.len() / 2);
        (tried < REFUSED_SINGLY_MAX).then(|| (second.to_vec(), first.to_vec()))
    }
}
