//! The parts of a batch's time, from what was measured.

use crate::figures::{median, paired};

/// Round trips of a batch: `begin` with the locks, the statements together, `commit`.
const ROUND_TRIPS: f64 = 3.0;

/// Milliseconds of a batch, means of one round but for the empty statement.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Measured {
    /// From `begin` to the answer to `commit`, at the client.
    pub(crate) whole: f64,
    /// `commit`, at the client.
    pub(crate) commit: f64,
    /// An empty statement, at the client.
    pub(crate) empty: f64,
    /// In the server.
    pub(crate) planning: f64,
    pub(crate) execution: f64,
    pub(crate) wal_write: f64,
    pub(crate) wal_sync: f64,
}

/// A part of a batch's time.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Part {
    name: &'static str,
    how: &'static str,
    ms: f64,
}

/// Divides a round with indexes, by one without in the same minute. Parts add up to the whole.
pub(crate) fn parts(with: &Measured, without: &Measured) -> Vec<Part> {
    let indexes = with.execution - without.execution;
    let commit = with.commit - with.empty;
    let network = with.empty * ROUND_TRIPS;
    let rest = with.whole - with.planning - with.execution - commit - network;
    let (measured, difference) = ("measured", "difference");
    [
        ("planning", measured, with.planning),
        ("execution without indexes", measured, without.execution),
        ("index maintenance", difference, indexes),
        ("commit: sync of the WAL", measured, with.wal_sync),
        ("commit: write of the WAL, and the rest", difference, commit - with.wal_sync),
        ("network: three empty round trips", measured, network),
        ("parameters, waking, what is left", difference, rest),
    ]
    .map(|(name, how, ms)| Part { name, how, ms })
    .into()
}

/// Prints the medians over the rounds.
pub(crate) fn print(size: usize, batches: usize, with: &[Measured], without: &[Measured]) {
    let whole: Vec<f64> = with.iter().map(|round| round.whole).collect();
    let rounds: Vec<Vec<Part>> =
        with.iter().zip(without).map(|(with, without)| parts(with, without)).collect();
    println!(
        "batches of {size} rows, {batches} in a round, {} rounds in turn with and without indexes: median {:.2} ms at the \
         client, {:.0} rows/s on one connection\n\n| part of a batch | how | ms | share | lowest, highest |\n\
         | --- | --- | --- | --- | --- |",
        rounds.len(),
        median(&whole),
        1e3 * size as f64 / median(&whole)
    );
    for (index, part) in rounds.first().into_iter().flatten().enumerate() {
        let times: Vec<f64> =
            rounds.iter().filter_map(|parts| parts.get(index)).map(|part| part.ms).collect();
        let low = times.iter().copied().fold(f64::INFINITY, f64::min);
        let high = times.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (ms, share) = (median(&times), 100.0 * paired(&times, &whole));
        println!("| {} | {} | {ms:.3} | {share:.1} % | {low:.3}, {high:.3} |", part.name, part.how);
    }
    let writes: Vec<f64> = with.iter().map(|round| round.wal_write).collect();
    println!(
        "\nWriting the WAL took {:.3} ms a batch, partly before the commit, when its buffers are full, and then within \
         execution. The medians of parts need not add up to the median of the whole.",
        median(&writes)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_to_the_whole() {
        let with = Measured {
            whole: 20.0,
            commit: 2.5,
            empty: 0.25,
            planning: 0.2,
            execution: 12.0,
            wal_write: 0.5,
            wal_sync: 1.5,
        };
        let without = Measured { execution: 7.0, ..with };
        let parts = parts(&with, &without);
        assert!((parts.iter().map(|part| part.ms).sum::<f64>() - 20.0).abs() < 1e-9, "{parts:?}");
        let ms = |name: &str| parts.iter().find(|part| part.name.starts_with(name)).map(|part| part.ms);
        assert_eq!((ms("index"), ms("network"), ms("commit: sync")), (Some(5.0), Some(0.75), Some(1.5)));
        assert!((ms("parameters").unwrap() - 4.8).abs() < 1e-9, "{parts:?}");
    }
}
