//! Linear least squares by the normal equations, with what is needed for confidence intervals.
//!
//! Columns are scaled to the same length first, so that coefficients of very different sizes can be fitted together. After
//! N. R. Draper and H. Smith, Applied Regression Analysis, 3rd edition, chapters 4 to 6.

use crate::statistics::student_t_975;

/// One observation: the values of the columns, and what was seen there.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Observation {
    pub(crate) columns: Vec<f64>,
    pub(crate) seen: f64,
}

/// Coefficients, one for each column.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Fit {
    pub(crate) coefficients: Vec<f64>,
    /// (XᵀX)⁻¹ times the variance of the residuals; `None` without more observations than columns.
    pub(crate) covariance: Option<Vec<Vec<f64>>>,
    /// Observations beyond the number of columns.
    pub(crate) freedom: f64,
}

impl Fit {
    /// Fits as many coefficients as there are columns. `None` with fewer observations than columns, or columns that depend
    /// on each other.
    pub(crate) fn of(observations: &[Observation]) -> Option<Self> {
        let width = observations.first()?.columns.len();
        if width == 0 || observations.len() < width {
            return None;
        }
        let column = |index: usize| observations.iter().map(move |one| value(&one.columns, index));
        let lengths: Vec<f64> =
            (0..width).map(|index| column(index).map(|x| x * x).sum::<f64>().sqrt()).collect();
        if lengths.iter().any(|length| !length.is_normal()) {
            return None;
        }
        let scaled = |index: usize| {
            let length = value(&lengths, index);
            column(index).map(move |x| x / length)
        };
        let cosines = |a: usize| -> Vec<f64> { (0..width).map(|b| dot(scaled(a), scaled(b))).collect() };
        let inverse = inverse((0..width).map(cosines).collect())?;
        let right: Vec<f64> =
            (0..width).map(|index| dot(scaled(index), observations.iter().map(|one| one.seen))).collect();
        let solved = inverse.iter().map(|row| dot(row.iter().copied(), right.iter().copied()));
        let coefficients: Vec<f64> = solved.zip(&lengths).map(|(x, length)| x / length).collect();

        let residual =
            |one: &Observation| one.seen - dot(one.columns.iter().copied(), coefficients.iter().copied());
        let squares: f64 = observations.iter().map(|one| residual(one).powi(2)).sum();
        let freedom = (observations.len() - width) as f64;
        let covariance = (freedom > 0.0).then(|| {
            let cell = |row: usize, (index, x): (usize, &f64)| {
                x / value(&lengths, row) / value(&lengths, index) * squares / freedom
            };
            let rows = inverse.iter().enumerate();
            rows.map(|(row, cells)| cells.iter().enumerate().map(|one| cell(row, one)).collect()).collect()
        });
        Some(Self { coefficients, covariance, freedom })
    }

    /// Half the width of the 95 % interval of a linear function of the coefficients, with these derivatives.
    pub(crate) fn half_width(&self, derivatives: &[f64]) -> Option<f64> {
        let covariance = self.covariance.as_ref()?;
        let rows = covariance.iter().map(|row| dot(row.iter().copied(), derivatives.iter().copied()));
        let variance = dot(rows, derivatives.iter().copied());
        Some(student_t_975(self.freedom) * variance.max(0.0).sqrt())
    }
}

fn value(values: &[f64], index: usize) -> f64 {
    values.get(index).copied().unwrap_or(0.0)
}

fn dot(a: impl Iterator<Item = f64>, b: impl Iterator<Item = f64>) -> f64 {
    a.zip(b).map(|(a, b)| a * b).sum()
}

/// Smallest pivot of a matrix of cosines that is told from 0.
const PIVOT_MIN: f64 = 1e-12;

/// By Gauss and Jordan, with the largest pivot of each column.
fn inverse(matrix: Vec<Vec<f64>>) -> Option<Vec<Vec<f64>>> {
    let width = matrix.len();
    let unit = |row: usize| (0..width).map(move |column| f64::from(u8::from(row == column)));
    let mut rows: Vec<Vec<f64>> = matrix
        .into_iter()
        .enumerate()
        .map(|(row, cells)| cells.into_iter().chain(unit(row)).collect())
        .collect();
    for column in 0..width {
        let largest = (column..width)
            .max_by(|a, b| pivot(&rows, *a, column).abs().total_cmp(&pivot(&rows, *b, column).abs()))?;
        rows.swap(column, largest);
        let divisor = pivot(&rows, column, column);
        if divisor.abs() < PIVOT_MIN {
            return None;
        }
        let leading: Vec<f64> = rows.get(column)?.iter().map(|x| x / divisor).collect();
        for (row, cells) in rows.iter_mut().enumerate() {
            let factor = if row == column { divisor - 1.0 } else { value(cells, column) };
            cells.iter_mut().zip(&leading).for_each(|(cell, x)| *cell -= factor * x);
        }
    }
    Some(rows.into_iter().map(|row| row.into_iter().skip(width).collect()).collect())
}

fn pivot(rows: &[Vec<f64>], row: usize, column: usize) -> f64 {
    rows.get(row).map_or(0.0, |cells| value(cells, column))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observations(columns: &[&[f64]], seen: &[f64]) -> Vec<Observation> {
        columns
            .iter()
            .zip(seen)
            .map(|(columns, seen)| Observation { columns: columns.to_vec(), seen: *seen })
            .collect()
    }

    /// Draper and Smith's steam data would be long; this is the smallest case with an answer that can be worked out.
    #[test]
    fn a_line_has_the_interval_of_the_textbook() {
        // y = 1, 3, 2, 5 at x = 1, 2, 3, 4: slope 1.1, intercept 0, residuals squared 2.7, s² = 1.35, Sxx = 5, t(2) = 4.303.
        let fit = Fit::of(&observations(
            &[&[1.0, 1.0], &[1.0, 2.0], &[1.0, 3.0], &[1.0, 4.0]],
            &[1.0, 3.0, 2.0, 5.0],
        ))
        .unwrap();
        assert!((fit.coefficients[0]).abs() < 1e-9 && (fit.coefficients[1] - 1.1).abs() < 1e-9, "{fit:?}");
        let half = fit.half_width(&[0.0, 1.0]).unwrap();
        assert!((half / (1.35_f64 / 5.0).sqrt() / 4.303 - 1.0).abs() < 0.01, "{half}");
    }

    #[test]
    fn sizes_that_differ_by_far_are_fitted_together() {
        let columns: Vec<[f64; 3]> = (1..9).map(f64::from).map(|n| [1.0, 1e6 * n, 1e-6 * n * n]).collect();
        let of = |[a, b, c]: [f64; 3]| 3.0 * a + 2e-6 * b - 5e5 * c;
        let seen: Vec<f64> = columns.iter().map(|one| of(*one)).collect();
        let columns: Vec<&[f64]> = columns.iter().map(|one| &one[..]).collect();
        let fit = Fit::of(&observations(&columns, &seen)).unwrap();
        for (found, wanted) in fit.coefficients.iter().zip([3.0, 2e-6, -5e5]) {
            assert!((found / wanted - 1.0).abs() < 1e-6, "{found} {wanted}");
        }
    }

    #[test]
    fn what_cannot_be_told_apart_is_not_fitted() {
        assert_eq!(Fit::of(&observations(&[&[1.0, 2.0], &[2.0, 4.0], &[3.0, 6.0]], &[1.0, 2.0, 3.0])), None);
        assert_eq!(Fit::of(&observations(&[&[1.0, 2.0]], &[1.0])), None);
        assert_eq!(Fit::of(&observations(&[&[1.0, 0.0], &[1.0, 0.0]], &[1.0, 2.0])), None);
        let exact = Fit::of(&observations(&[&[1.0, 1.0], &[1.0, 2.0]], &[1.0, 2.0])).unwrap();
        assert_eq!(exact.half_width(&[1.0, 0.0]), None, "nothing is left to tell how sure it is");
    }
}
