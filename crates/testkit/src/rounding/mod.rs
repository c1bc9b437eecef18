//! One step of the error analysis in [`crate::tolerance`]: from operands' estimates to the result's.
//!
//! Of every value x̂ that a run computes for the exact x, and the f64 value v at hand, an [`Estimate`] promises
//! |x̂ − x| ≤ e for every run in the program's type (so |v − x| ≤ e as well), terms reduced, and Σ|term| ≤ t for the terms
//! of every pending decomposition. `parts` bounds how many ranks can hold a term other than 0.
//!
//! An elementary product of a contraction of length n goes through at most n roundings until its sum is reduced, wherever
//! the n products are cut into terms: a rank with m of them adds m − 1 times, and the reduction adds at most the number of
//! the other ranks that hold any. So e counts the reduction where the terms arise, and linear ops on terms add only their own
//! rounding, relative to t. Only where terms are *added* can a value meet a reduction that it was not charged for: the sum of
//! values with N and M parts has at most N + M − 1 additions of terms, of which N − 1 and M − 1 are charged. `quantum` q says that all elements are multiples of 2^q in every run.

use ndarray::{ArrayD, Axis, IxDyn, Zip};
use shardgrad_core::{DType, Op, TensorType};
use shardgrad_graph::Value;

use crate::contraction::{contract, summands};
use crate::slopes::{compared, function};

mod arithmetic;
mod choice;
mod places;

use arithmetic::{bilinear, maximum, quotient, scaled, shifted, sum_of_two, total};

/// The arithmetic of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    /// Unit roundoff; 0 for integers.
    pub(crate) u: f64,
    /// Bits of the significand.
    pub(crate) precision: i32,
    /// Largest finite number.
    pub(crate) largest: f64,
    /// Absolute error of an underflow.
    pub(crate) tiny: f64,
    /// Most terms that a reduction adds.
    pub(crate) ranks: f64,
}

impl Format {
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn of(dtype: DType, ranks: usize) -> Self {
        let u = dtype.unit_roundoff();
        let ranks = ranks as f64;
        match dtype {
            DType::F32 => Self {
                u,
                precision: 24,
                largest: f64::from(f32::MAX),
                tiny: f64::from(f32::MIN_POSITIVE),
                ranks,
            },
            DType::F64 => {
                Self { u, precision: 53, largest: f64::MAX, tiny: f64::MIN_POSITIVE, ranks }
            }
            DType::I32 => Self { u, precision: 31, largest: f64::from(i32::MAX), tiny: 0.0, ranks },
            DType::I64 => Self { u, precision: 53, largest: 2f64.powi(63), tiny: 0.0, ranks },
        }
    }

    /// γₙ = nu/(1 − nu), infinite when nu ≥ 1.
    pub(crate) fn gamma(self, n: f64) -> f64 {
        let nu = n * self.u;
        if nu < 1.0 { nu / (1.0 - nu) } else { f64::INFINITY }
    }

    /// A constant as the run sees it.
    #[allow(clippy::cast_possible_truncation)]
    fn constant(self, c: f64) -> f64 {
        if self.precision == 24 { f64::from(c as f32) } else { c }
    }
}

/// A value with what is known about the runs that compute it.
#[derive(Clone, Debug)]
pub(crate) struct Estimate {
    pub(crate) value: ArrayD<f64>,
    /// Error of a run that has reduced the value.
    pub(crate) error: ArrayD<f64>,
    /// Size of the terms.
    pub(crate) terms: ArrayD<f64>,
    pub(crate) parts: f64,
    pub(crate) quantum: Option<i32>,
    /// No element is negative, in any run.
    pub(crate) nonnegative: bool,
}

impl Estimate {
    /// Whether sums of terms are exact: all are multiples of 2^q and none exceeds 2^(q + precision).
    pub(crate) fn sums_are_exact(&self, format: Format) -> bool {
        self.quantum.is_some_and(|q| {
            let largest = self.terms.iter().copied().fold(0.0, f64::max);
            largest <= 2f64.powi(q.saturating_add(format.precision).min(1023))
        })
    }

    /// The value as a nonlinear op sees it: reduced, one term.
    pub(crate) fn reduced(&self) -> Self {
        Self { terms: magnitude(&self.value, &self.error), parts: 1.0, ..self.clone() }
    }
}

/// NaN says that nothing is known.
pub(crate) fn tidy(bound: f64) -> f64 {
    if bound.is_nan() { f64::INFINITY } else { bound }
}

/// Bound of what any run, and the exact program, hold at each element.
pub(crate) fn magnitude(value: &ArrayD<f64>, error: &ArrayD<f64>) -> ArrayD<f64> {
    Zip::from(value).and(error).map_collect(|v, &e| tidy(v.abs() + 2.0 * e))
}

/// The largest q such that all elements are multiples of 2^q.
fn quantum_of(value: &ArrayD<f64>) -> Option<i32> {
    let mut quantum = 1023;
    for &v in value.iter().filter(|v| **v != 0.0) {
        if !v.is_finite() {
            return None;
        }
        quantum = quantum.min(exponent_of_last_bit(v));
    }
    Some(if quantum == 1023 { 0 } else { quantum })
}

/// The exponent of the last 1 in the binary form of a finite number other than 0.
#[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
fn exponent_of_last_bit(v: f64) -> i32 {
    let bits = v.to_bits();
    let exponent = ((bits >> 52) & 0x7ff) as i32;
    let fraction = bits & ((1 << 52) - 1);
    let significand = if exponent == 0 { fraction } else { fraction | 1 << 52 };
    exponent.max(1) - 1075 + significand.trailing_zeros() as i32
}

pub(crate) fn leaf(value: &Value) -> Estimate {
    let ty = value.ty();
    let elements = value.to_f64s();
    let value = ArrayD::from_shape_vec(IxDyn(&ty.shape), elements)
        .unwrap_or_else(|_| ArrayD::zeros(IxDyn(&ty.shape)));
    known(value)
}

/// A value that every run holds exactly.
fn known(value: ArrayD<f64>) -> Estimate {
    Estimate {
        error: ArrayD::zeros(value.raw_dim()),
        terms: value.mapv(f64::abs),
        parts: 1.0,
        quantum: quantum_of(&value),
        nonnegative: value.iter().all(|&v| v >= 0.0),
        value,
    }
}

/// The estimate of a result. Operands fit the op; leaves are given to [`leaf`].
pub(crate) fn propagate(
    op: &Op,
    operands: &[&Estimate],
    ty: &TensorType,
    format: Format,
) -> Estimate {
    let estimate = match op {
        // Leaves are given, not computed; a leaf without a value is refused before.
        Op::Leaf(_) => known(ArrayD::zeros(IxDyn(&ty.shape))),
        Op::Fill(fill) => {
            known(ArrayD::from_elem(IxDyn(&ty.shape), format.constant(fill.value.value())))
        }
        Op::Iota(op) => places::iota(op),
        Op::Uniform(op) => places::uniform(op, operands[0]),
        Op::Einsum(einsum) => {
            let n = summands(einsum, &operands.iter().map(|o| &o.value).collect::<Vec<_>>());
            bilinear(operands, n, format, |arrays| contract(einsum, arrays))
        }
        Op::Mul => bilinear(operands, 1, format, |arrays| match arrays {
            [a, b, ..] => *a * *b,
            _ => ArrayD::zeros(IxDyn(&ty.shape)),
        }),
        Op::Add => sum_of_two(operands[0], operands[1], 1.0, format),
        Op::Sub => sum_of_two(operands[0], operands[1], -1.0, format),
        Op::Div => quotient(operands[0], operands[1], format),
        Op::Maximum => choice::extreme(operands[0], operands[1], true),
        Op::Minimum => choice::extreme(operands[0], operands[1], false),
        Op::Where => choice::choose(operands[0], operands[1], operands[2]),
        Op::Cast(dtype) => choice::cast(operands[0], *dtype, format),
        Op::Scale(c) => scaled(operands[0], c.value(), format),
        Op::AddConst(c) => shifted(operands[0], c.value(), format),
        Op::Unary(unary) => function(*unary, operands[0], format),
        Op::Compare(comparison) => {
            let (a, b) = (operands[0].reduced(), operands[1].reduced());
            compared(*comparison, &a, &b)
        }
        Op::CompareConst(comparison, c) => {
            let a = operands[0].reduced();
            let b = known(ArrayD::from_elem(a.value.raw_dim(), format.constant(c.value())));
            compared(*comparison, &a, &b)
        }
        Op::Sum(dims) => {
            let n: usize = dims.dims().iter().map(|&d| operands[0].value.shape()[d]).product();
            let summed = |array: &ArrayD<f64>| {
                dims.dims().iter().rev().fold(array.clone(), |a, &d| a.sum_axis(Axis(d)))
            };
            total(operands[0], n, format, summed)
        }
        Op::Max(dims) => maximum(&operands[0].reduced(), dims.dims()),
        Op::CumSum(op) => places::cumsum(operands[0], op, format),
        Op::Slice(op) => places::slice(operands[0], op),
        Op::Pad(op) => places::pad(operands[0], op, ty, format),
        Op::Concat(dim) => places::concat(operands, *dim),
        Op::Lookup { .. } => places::lookup(operands[0], operands[1], ty),
        Op::ScatterAdd { .. } => places::scatter_add(operands[0], operands[1], ty, format),
        Op::Broadcast(broadcast) => moved(operands[0], |array| {
            let mut view = array.view();
            for dim in broadcast.new_dims() {
                view = view.insert_axis(Axis(dim));
            }
            view.broadcast(IxDyn(&ty.shape)).map(|v| v.to_owned()).unwrap_or_else(|| array.clone())
        }),
        Op::Transpose(perm) => moved(operands[0], |array| {
            array.view().permuted_axes(IxDyn(perm)).as_standard_layout().into_owned()
        }),
        Op::Reshape(shape) => moved(operands[0], |array| {
            let elements = array.iter().copied().collect();
            ArrayD::from_shape_vec(IxDyn(shape), elements).unwrap_or_else(|_| array.clone())
        }),
        Op::OneHot { classes, .. } => {
            let labels = &operands[0].value;
            let mut value = ArrayD::zeros(IxDyn(&ty.shape));
            for (row, &label) in value.lanes_mut(Axis(ty.rank() - 1)).into_iter().zip(labels) {
                let mut row = row;
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                if label >= 0.0 && (label as usize) < *classes {
                    row[label as usize] = 1.0;
                }
            }
            known(value)
        }
        Op::StopGradient | Op::Constrain | Op::Transition(_) => (*operands[0]).clone(),
    };
    beyond_range(estimate, format)
}

/// Where a run may overflow, nothing is known.
fn beyond_range(mut estimate: Estimate, format: Format) -> Estimate {
    Zip::from(&mut estimate.error).and(&estimate.value).and(&mut estimate.terms).for_each(
        |e, &v, t| {
            let inexact = *e > 0.0 || v.is_finite() && *t > 0.0;
            if inexact && (!e.is_finite() || t.is_nan() || *t >= format.largest || !v.is_finite()) {
                *e = f64::INFINITY;
                *t = f64::INFINITY;
            }
        },
    );
    estimate
}

/// An op that only moves elements.
fn moved(a: &Estimate, by: impl Fn(&ArrayD<f64>) -> ArrayD<f64>) -> Estimate {
    Estimate {
        value: by(&a.value),
        error: by(&a.error),
        terms: by(&a.terms),
        parts: a.parts,
        quantum: a.quantum,
        nonnegative: a.nonnegative,
    }
}

fn is_zero(array: &ArrayD<f64>) -> bool {
    array.iter().all(|&e| e == 0.0)
}
