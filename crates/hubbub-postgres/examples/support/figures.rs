//! What the examples that measure do with their figures.

/// The middle of values; 0 when there are none.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |index: usize| sorted.get(index).copied().unwrap_or(0.0);
    (at(sorted.len() / 2) + at(sorted.len().saturating_sub(1) / 2)) / 2.0
}

/// The median of the ratios of each round, which is steadier than the ratio of medians where the machine is not.
pub(crate) fn paired(values: &[f64], against: &[f64]) -> f64 {
    median(&values.iter().zip(against).map(|(value, other)| value / other).collect::<Vec<_>>())
}
