//! Writes segments anew without what is hidden in them.
//!
//! What somebody deleted or erased is gone from the segments after
//! [`EngineOptions::scrub_interval`](super::EngineOptions::scrub_interval) and the time a rewrite takes. What has only expired may
//! stay until it is a worthwhile part of its segment: of a room that forgets a message every few seconds, a large segment would be
//! written anew without end. After a start all that is hidden passes for deleted once, as nothing says why it is.

use hubbub_core::invariant::saturate;

use crate::embedded::error::MaintainError;
use crate::embedded::segment::Segment;
use crate::embedded::shared::Shared;

/// A segment is written anew for what has expired once that is one part of its messages in so many.
const EXPIRED_PART: u64 = 8;

/// What of a segment is hidden, in messages.
#[derive(Debug, Default)]
struct HiddenPart {
    all: u64,
    /// Of those, what has only expired.
    expired: u64,
}

impl HiddenPart {
    fn is_worth_a_rewrite(&self, segment: &Segment) -> bool {
        let Self { all, expired } = *self;
        all > expired || (all > 0 && all.saturating_mul(EXPIRED_PART) >= segment.messages())
    }

    /// About how many bytes the segment has once it is written anew.
    fn visible_bytes(&self, segment: &Segment) -> u64 {
        let all = u128::from(segment.messages());
        let visible = u128::from(segment.bytes()) * all.saturating_sub(u128::from(self.all));
        saturate(visible.checked_div(all).unwrap_or(0))
    }
}

impl Shared {
    /// Rewrites a segment that holds something hidden. Says whether it did. Each is written once at most for what was hidden when
    /// it was looked for such segments, which is done once an interval.
    pub(crate) fn scrub_one(&self) -> Result<bool, MaintainError> {
        let mut merging = self.merging.lock();
        let view = self.view();
        if merging.to_scrub.is_empty() {
            let hidings = self.rooms.read().hidings;
            let now = self.clock.monotonic();
            if merging.scrubbed == Some(hidings) || now < merging.scrub_at {
                return Ok(false);
            }
            merging.scrubbed = Some(hidings);
            merging.scrub_at = now.saturating_add(self.options.scrub_interval);
            let found = view.segments.iter().filter(|segment| self.worth_scrubbing(segment).is_some());
            merging.to_scrub = found.map(Segment::number).collect();
        }
        while let Some(number) = merging.to_scrub.pop() {
            // A merge may have removed it, or it has become worthless meanwhile.
            let segment = view.segments.iter().find(|segment| segment.number() == number);
            let part = segment.and_then(|segment| Some((segment, self.worth_scrubbing(segment)?)));
            let Some((segment, part)) = part else { continue };
            let fits = part.visible_bytes(segment) <= self.bytes_for_deletion();
            let rewritten =
                fits.then(|| self.rewrite(std::slice::from_ref(segment), &mut merging)).transpose();
            match rewritten {
                Ok(Some(rewritten)) => return Ok(rewritten),
                // It was larger than it seemed, or others need the space, too. Merges of smaller ones can go on.
                Err(error) if !error.is_disk_full() => {
                    merging.scrubbed = None;
                    return Err(error);
                }
                Ok(None) | Err(_) => merging.scrubbed = None,
            }
        }
        Ok(false)
    }

    /// What is hidden of a segment that is worth a rewrite.
    fn worth_scrubbing(&self, segment: &Segment) -> Option<HiddenPart> {
        let part = self.hidden_part(segment);
        (part.is_worth_a_rewrite(segment) && !self.is_damaged(segment)).then_some(part)
    }

    fn hidden_part(&self, segment: &Segment) -> HiddenPart {
        let rooms = self.rooms.read();
        let mut part = HiddenPart::default();
        for (name, span) in segment.rooms() {
            let Some(room) = rooms.number(name).and_then(|number| rooms.get(number)) else { continue };
            if room.hides_any() {
                // A room's numbers are dense but for what is hidden.
                let visible = room.hidden().visible(span.first_seq, span.last_seq);
                part.all += u64::from(span.count).saturating_sub(visible);
                part.expired += room.expired(span.first_seq, span.last_seq);
            }
        }
        part
    }
}
