//! Both tensors side by side, and what counts as equal.

use shardgrad_graph::Value;

use super::{Context, default_tolerance};

/// Both tensors in f64, and what counts as equal.
pub(super) struct Picture {
    pub(super) expected: Vec<f64>,
    pub(super) actual: Vec<f64>,
    /// Largest expected element.
    pub(super) scale: f64,
    bound: Vec<f64>,
}

impl Picture {
    pub(super) fn new(expected: &Value, actual: &Value, context: &Context<'_>) -> Self {
        let tolerance =
            context.tolerance.unwrap_or_else(|| default_tolerance(&expected.ty(), &actual.ty()));
        let (expected, actual) = (expected.to_f64s(), actual.to_f64s());
        let scale = expected.iter().filter(|v| v.is_finite()).fold(0.0, |m: f64, v| m.max(v.abs()));
        let bound = match context.bound {
            Some(bound) if bound.len() == expected.len() => bound.to_vec(),
            _ => vec![tolerance * scale; expected.len()],
        };
        Self { expected, actual, scale, bound }
    }

    pub(super) fn len(&self) -> usize {
        self.expected.len()
    }

    pub(super) fn close(&self, i: usize, predicted: f64, slack: f64) -> bool {
        let a = self.actual[i];
        a == predicted || (a - predicted).abs() <= self.bound[i] * slack
    }

    /// Whether a prediction explains every element.
    pub(super) fn all_close(&self, predicted: impl Fn(usize) -> f64) -> bool {
        (0..self.len()).all(|i| self.close(i, predicted(i), 1.0))
    }

    /// Pairs of elements, as parts of the largest expected one, so that squares neither overflow nor vanish.
    pub(super) fn scaled(&self) -> impl Iterator<Item = (f64, f64)> {
        let unit = if self.scale > 0.0 { self.scale } else { 1.0 };
        self.expected.iter().zip(&self.actual).map(move |(e, a)| (e / unit, a / unit))
    }

    pub(super) fn largest_difference(&self) -> f64 {
        self.expected.iter().zip(&self.actual).fold(0.0, |m, (e, a)| m.max((e - a).abs()))
    }

    pub(super) fn largest_ratio(&self) -> f64 {
        (0..self.len())
            .map(|i| (self.expected[i] - self.actual[i]).abs() / self.bound[i])
            .filter(|r| !r.is_nan())
            .fold(0.0, f64::max)
    }

    /// Whether reading `expected` at these places explains every element of which the place is known, and says something:
    /// most are known, and some differ from their own place. Stops at the first element that is not explained.
    pub(super) fn moved(&self, known: usize, source: impl Fn(usize) -> Option<usize>) -> bool {
        let explained = |i: usize, s: usize| {
            // The moved element brings its own bound along.
            self.close(i, self.expected[s], 1.0)
                || (self.actual[i] - self.expected[s]).abs() <= self.bound[s]
        };
        known * 2 > self.len()
            && (0..self.len()).all(|i| source(i).is_none_or(|s| explained(i, s)))
            && (0..self.len())
                .any(|i| source(i).is_some_and(|s| s != i && !self.close(i, self.expected[i], 1.0)))
    }

    /// As [`Picture::moved`], where rows of one dim are read from other rows.
    pub(super) fn moved_rows(&self, shape: &[usize], dim: usize, rows: &[Option<usize>]) -> bool {
        let stride = strides(shape)[dim];
        let known = rows.iter().flatten().count() * (self.len() / rows.len().max(1));
        self.moved(known, |i| {
            let row = i / stride % shape[dim];
            rows[row].map(|from| i - row * stride + from * stride)
        })
    }
}

/// Row-major strides.
pub(super) fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for d in (1..shape.len()).rev() {
        strides[d - 1] = strides[d] * shape[d];
    }
    strides
}
