//! What is counted so far: of which segments, and how far of which tails.

use std::collections::HashSet;

use super::source::add_segment;
use super::summary::Summary;
use super::tail::TailPart;
use crate::embedded::error::MaintainError;
use crate::embedded::shared::Shared;
use crate::embedded::tail::Tail;
use crate::embedded::view::View;

/// Segments of which one takes the place.
pub(super) type Replaced = (Vec<u64>, Option<u64>);

#[derive(Debug, Default)]
pub(crate) struct State {
    /// Whether it was counted from the beginning. Nothing else holds when it was not.
    pub(super) is_loaded: bool,
    pub(super) summary: Summary,
    pub(super) tails: Vec<TailPart>,
    segments: HashSet<u64>,
    /// Whether something is counted that is gone.
    has_gone: bool,
    /// How often something had been hidden when counting began.
    hidden: u64,
    /// What was replaced since a count from the beginning, which [`Self::end_rebuild`] puts in the place of this one, is
    /// under way.
    pub(super) replaced: Option<Vec<Replaced>>,
}

impl State {
    /// Whether everything readers can see is counted.
    pub(super) fn covers(&self, view: &View) -> bool {
        self.is_loaded
            && view.segments.iter().all(|segment| self.segments.contains(&segment.number()))
            && view.tails.iter().all(|tail| self.part(tail).is_some_and(|part| part.is_complete(tail)))
    }

    /// Whether something is counted that is gone or hidden.
    pub(super) fn is_outdated(&self, hidden: u64) -> bool {
        self.has_gone || self.hidden != hidden
    }

    pub(super) fn part(&self, tail: &Tail) -> Option<&TailPart> {
        self.tails.iter().find(|part| part.journal == tail.journal)
    }

    /// Counts what is not counted yet. After an error nothing is counted any more.
    pub(super) fn catch_up(&mut self, shared: &Shared, view: &View) -> Result<(), MaintainError> {
        let result = view
            .segments
            .iter()
            .try_for_each(|segment| {
                if !self.segments.contains(&segment.number()) {
                    add_segment(shared, segment, &mut self.summary)?;
                    self.segments.insert(segment.number());
                }
                Ok(())
            })
            .and_then(|()| view.tails.iter().try_for_each(|tail| self.catch_up_tail(shared, tail)));
        self.forget_after_error(result)
    }

    /// Counts segments that are not counted yet; says whether there were any.
    pub(super) fn catch_up_segments(&mut self, shared: &Shared, view: &View) -> Result<bool, MaintainError> {
        let missing = view.segments.iter().any(|segment| !self.segments.contains(&segment.number()));
        if self.is_loaded && missing {
            self.catch_up(shared, &View { tails: Vec::new(), ..View::clone(view) })?;
        }
        Ok(self.is_loaded && missing)
    }

    fn catch_up_tail(&mut self, shared: &Shared, tail: &Tail) -> Result<(), MaintainError> {
        let place = self.tails.iter().position(|part| part.journal == tail.journal);
        let place = place.unwrap_or_else(|| {
            self.tails.push(TailPart::new(tail.journal));
            self.tails.len() - 1
        });
        match self.tails.get_mut(place) {
            Some(part) => part.catch_up(shared, tail, &mut self.summary),
            None => Ok(()),
        }
    }

    /// Counts the rest of a tail, if some of it is counted, so that a segment can stand for it.
    pub(crate) fn finish_tail(&mut self, shared: &Shared, tail: &Tail) -> Result<(), MaintainError> {
        if self.part(tail).is_none_or(|part| part.position == 0) {
            return Ok(());
        }
        let result = self.catch_up_tail(shared, tail);
        self.forget_after_error(result)
    }

    /// A segment stands where a tail was that is finished; `None` when the tail was empty.
    pub(crate) fn sealed(&mut self, tail: &Tail, segment: Option<u64>) {
        if self.part(tail).is_some_and(|part| part.position > 0) {
            self.segments.extend(segment);
        }
        self.tails.retain(|part| part.journal != tail.journal);
    }

    /// A segment, or nothing, stands where others were. What it lacks of them was hidden before, or is gone.
    pub(crate) fn replaced(&mut self, old: &[u64], by: Option<u64>) {
        if let Some(replaced) = &mut self.replaced {
            replaced.push((old.to_vec(), by));
        }
        let counted = old.iter().filter(|number| self.segments.remove(number)).count();
        match by {
            None => self.has_gone |= counted > 0,
            Some(by) if counted == old.len() => {
                self.segments.insert(by);
            }
            Some(_) if counted == 0 => {}
            // Some of its messages are counted and some are not, and nobody can tell which.
            Some(_) => self.forget(),
        }
    }

    /// Takes over what was counted beside from these segments; answers what was here before.
    pub(super) fn end_rebuild(&mut self, summary: Summary, counted: &View, hidden: u64) -> Self {
        let replaced = self.replaced.take().unwrap_or_default();
        let segments = counted.segments.iter().map(|segment| segment.number()).collect();
        let next = Self { is_loaded: true, summary, segments, hidden, ..Self::default() };
        let before = std::mem::replace(self, next);
        for (old, by) in replaced {
            self.replaced(&old, by);
        }
        before
    }

    fn forget_after_error(&mut self, result: Result<(), MaintainError>) -> Result<(), MaintainError> {
        if result.is_err() {
            self.forget();
        }
        result
    }

    fn forget(&mut self) {
        *self = Self { replaced: self.replaced.take(), ..Self::default() };
    }
}
