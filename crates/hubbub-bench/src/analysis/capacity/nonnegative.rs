//! Least squares whose coefficients are not negative: costs.

use crate::statistics::models::least_squares::{Fit, Observation};
use crate::statistics::models::usl::Estimate;

/// Coefficients that are not negative; `None` where they cannot be told apart.
pub(super) fn fit(rows: &[Observation]) -> Option<Vec<Estimate>> {
    let width = rows.first()?.columns.len();
    let mut used: Vec<usize> = (0..width).collect();
    loop {
        let narrowed = |row: &Observation| Observation {
            columns: used.iter().filter_map(|index| row.columns.get(*index).copied()).collect(),
            seen: row.seen,
        };
        let fit = Fit::of(&rows.iter().map(narrowed).collect::<Vec<_>>())?;
        // That whose absence matters most: its size times the length of its column.
        let weight = |place: usize, coefficient: f64| {
            let index = used.get(place).copied().unwrap_or(0);
            let squares = rows.iter().filter_map(|row| row.columns.get(index)).map(|x| x * x).sum::<f64>();
            coefficient * squares.sqrt()
        };
        let weights = fit.coefficients.iter().enumerate().map(|(place, one)| (place, weight(place, *one)));
        let lowest = weights.filter(|(_, weight)| *weight < 0.0).min_by(|a, b| a.1.total_cmp(&b.1));
        if let Some((place, _)) = lowest {
            used.remove(place);
            continue;
        }
        let mut estimates = vec![Estimate { value: 0.0, interval: None }; width];
        for (place, (index, value)) in used.iter().zip(&fit.coefficients).enumerate() {
            let unit: Vec<f64> = (0..used.len()).map(|other| f64::from(u8::from(other == place))).collect();
            let interval =
                fit.half_width(&unit).map(|half| [(value - half).max(0.0), value + half].map(rounded));
            let estimate = Estimate { value: rounded(*value), interval };
            estimates.iter_mut().skip(*index).take(1).for_each(|one| *one = estimate);
        }
        return Some(estimates);
    }
}

/// To a tenth of a nanosecond: what is written is what is read.
pub(super) fn rounded(us: f64) -> f64 {
    (us * 1e4).round() / 1e4
}
