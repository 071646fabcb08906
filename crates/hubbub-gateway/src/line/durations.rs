//! How long commands of one connection took.

use std::collections::VecDeque;
use std::time::Duration;

use hubbub_core::invariant::saturate;
use hubbub_pipeline::histogram::Histogram;

/// Reads that an idle connection keeps memory for.
const KEPT: usize = 8;

/// When the commands came that are not answered yet. Answers are in their order.
#[derive(Debug, Default)]
pub(super) struct Durations {
    /// Times by the monotonic clock, each with how many commands came then; the oldest first.
    came: VecDeque<(Duration, usize)>,
    /// When the last read was, or the time for the rest of a command ended.
    begun: Duration,
}

impl Durations {
    /// Notes a read. The commands that come until the next one became whole by it.
    pub(super) fn begin(&mut self, now: Duration) {
        self.begun = now;
    }

    /// Notes commands that are to be answered.
    pub(super) fn came(&mut self, count: usize) {
        if count > 0 {
            self.came.push_back((self.begun, count));
        }
    }

    /// Records how long the `count` oldest ones took.
    pub(super) fn answered(&mut self, now: Duration, mut count: usize, times: &Histogram) {
        while count > 0
            && let Some((came, waiting)) = self.came.front_mut()
        {
            let answered = count.min(*waiting);
            times.record(saturate(now.saturating_sub(*came).as_micros()), answered as u64);
            (count, *waiting) = (count - answered, *waiting - answered);
            if *waiting == 0 {
                self.came.pop_front();
            }
        }
        if self.came.is_empty() {
            self.came.shrink_to(KEPT);
        }
    }
}

#[cfg(test)]
mod tests {
    use hubbub_pipeline::metrics::Readable;

    use super::*;

    #[test]
    fn each_command_counts_from_the_read_that_brought_it() {
        let (mut durations, times) = (Durations::default(), Histogram::of_micros());
        let at = Duration::from_millis;
        let nothing = times.read();
        let seen = || {
            let now = times.read();
            let mean = now.mean_since(&nothing).map_or(0.0, |seconds| (1e3 * seconds).round());
            (now.count_since(&nothing), mean)
        };
        durations.begin(at(10));
        durations.came(2);
        durations.begin(at(20));
        durations.came(0);
        durations.begin(at(30));
        durations.came(3);
        durations.answered(at(40), 1, &times);
        assert_eq!(seen(), (1, 30.0));
        durations.answered(at(50), 3, &times);
        // 30 and 40 of the first read, twice 20 of the second.
        assert_eq!(seen(), (4, 28.0));
        // Held back until there was room for its answer.
        durations.came(1);
        durations.answered(at(130), 9, &times);
        assert_eq!(seen(), (6, 52.0), "the last ones took 100 each; of others nothing is known");
        assert!(durations.came.is_empty());
    }
}
