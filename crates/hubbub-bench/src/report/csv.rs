//! `throughput.csv`. The other table of a run, `metrics.csv`, is written while it goes on ([`crate::results::message_rows`]).

use hubbub_core::Timestamp;

use super::Report;
use crate::load::run::Run;

/// `startTime,endTime,messageCount,messagesPerSecond`; the last row ends with the run, and its rate is
/// scaled to its length.
pub(super) fn throughput(report: &Report, run: &Run) -> String {
    let mut out = "startTime,endTime,messageCount,messagesPerSecond\n".to_owned();
    for bucket in &report.throughput {
        let [from, to] = [bucket.start_s, bucket.end_s]
            .map(|s| Timestamp::from_micros(run.main_wall_us((s * 1e6) as u64)));
        out.push_str(&format!("{from},{to},{},{:.1}\n", bucket.messages, bucket.per_second));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Target;
    use crate::load::message_plan::Shape;
    use crate::options::arguments;
    use crate::results::record::Bucket;

    #[test]
    fn times_count_from_the_start_of_what_is_measured() {
        let rules = arguments("rules", &[]).unwrap();
        let run = Run::new(Target::parse("127.0.0.1:1").unwrap(), Shape::new(1, 10, None, ""), rules);
        let made_us = run.wall_us(0);
        // The warm-up.
        std::thread::sleep(std::time::Duration::from_millis(5));
        run.begin();
        let bucket = Bucket { start_s: 1.0, end_s: 1.5, messages: 10, per_second: 20.0, partial: true };
        let report = Report { throughput: vec![bucket], ..Report::default() };
        let [from, to] = [1_000_000, 1_500_000].map(|us| Timestamp::from_micros(run.wall_us(us)));
        assert!(from.as_micros() >= made_us + 1_005_000);
        let wanted = format!("startTime,endTime,messageCount,messagesPerSecond\n{from},{to},10,20.0\n");
        assert_eq!(throughput(&report, &run), wanted);
    }
}
