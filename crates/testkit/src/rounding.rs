//! One step of the error analysis in [`crate::tolerance`]: from operands' estimates to the result's.
//!
//! Of every value x̂ that a run computes for the exact x, and the f64 value v at hand, an [`Estimate`] promises
//! |x̂ − x| ≤ e for every run in the program's type (so |v − x| ≤ e as well), and Σ|term| ≤ t for the terms of every pending
//! decomposition. `parts` bounds how many ranks can hold a term other than 0: reducing them adds
//! γ(parts − 1)·t. `quantum` q says that all elements are multiples of 2^q in every run.

use ndarray::{ArrayD, Axis, IxDyn, Zip};
use shardgrad_core::ops::{Comparison, Unary};
use shardgrad_core::{DType, Op, TensorType};
use shardgrad_graph::Value;

use crate::contraction::{contract, summands};

/// The arithmetic of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    /// Unit roundoff; 0 for integers.
    u: f64,
    /// Bits of the significand.
    precision: i32,
    /// Largest finite number.
    largest: f64,
    /// Absolute error of an underflow.
    tiny: f64,
    /// Most terms that a reduction adds.
    ranks: f64,
}

/// Relative error of a library function, in unit roundoffs: the usual ones are faithful to a few units in the last place.
const LIBRARY: f64 = 8.0;

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
    fn gamma(self, n: f64) -> f64 {
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
    /// Error of a run, rounding in outstanding reductions excepted.
    error: ArrayD<f64>,
    /// Size of the terms.
    terms: ArrayD<f64>,
    parts: f64,
    quantum: Option<i32>,
    /// No element is negative, in any run.
    nonnegative: bool,
}

impl Estimate {
    /// Error of a run that has reduced the value.
    pub(crate) fn reduced_error(&self, format: Format) -> ArrayD<f64> {
        let additions = self.parts.min(format.ranks) - 1.0;
        if additions <= 0.0 || self.sums_are_exact(format) {
            return self.error.clone();
        }
        let gamma = format.gamma(additions);
        Zip::from(&self.error).and(&self.terms).map_collect(|&e, &t| tidy(e + gamma * t))
    }

    /// Whether sums of terms are exact: all are multiples of 2^q and none exceeds 2^(q + precision).
    fn sums_are_exact(&self, format: Format) -> bool {
        self.quantum.is_some_and(|q| {
            let largest = self.terms.iter().copied().fold(0.0, f64::max);
            largest <= 2f64.powi(q.saturating_add(format.precision).min(1023))
        })
    }

    /// The value as a nonlinear op sees it: reduced, one term.
    fn reduced(&self, format: Format) -> Self {
        let error = self.reduced_error(format);
        let terms = magnitude(&self.value, &error);
        Self { error, terms, parts: 1.0, ..self.clone() }
    }
}

/// NaN says that nothing is known.
fn tidy(bound: f64) -> f64 {
    if bound.is_nan() { f64::INFINITY } else { bound }
}

/// Bound of what any run, and the exact program, hold at each element.
fn magnitude(value: &ArrayD<f64>, error: &ArrayD<f64>) -> ArrayD<f64> {
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

/// The estimate of a result. Operands fit the op.
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
        Op::Scale(c) => scaled(operands[0], c.value(), format),
        Op::AddConst(c) => shifted(operands[0], c.value(), format),
        Op::Unary(unary) => function(*unary, operands[0], format),
        Op::Compare(comparison) => {
            let (a, b) = (operands[0].reduced(format), operands[1].reduced(format));
            compared(*comparison, &a, &b)
        }
        Op::CompareConst(comparison, c) => {
            let a = operands[0].reduced(format);
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
        Op::Max(dims) => maximum(&operands[0].reduced(format), dims.dims()),
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

/// Sums of n products of two factors (or of one): |âb̂ − ab| ≤ |a|e_b + e_a(|b| + e_b), then γₙ of the terms.
#[allow(clippy::cast_precision_loss)]
fn bilinear(
    operands: &[&Estimate],
    n: usize,
    format: Format,
    product: impl Fn(&[&ArrayD<f64>]) -> ArrayD<f64>,
) -> Estimate {
    let values: Vec<&ArrayD<f64>> = operands.iter().map(|o| &o.value).collect();
    let terms: Vec<&ArrayD<f64>> = operands.iter().map(|o| &o.terms).collect();
    let (value, terms) = (product(&values), product(&terms));
    let errors: Vec<ArrayD<f64>> = operands.iter().map(|o| o.reduced_error(format)).collect();
    let quantum = operands.iter().map(|o| o.quantum).try_fold(0_i32, |q, o| Some(q + o?));
    let mut error = match (operands, errors.as_slice()) {
        ([_], [ea]) if !is_zero(ea) => product(&[ea]),
        ([a, b], [ea, eb]) => {
            let mut error = ArrayD::zeros(value.raw_dim());
            if !is_zero(eb) {
                error += &product(&[&magnitude(&a.value, ea), eb]);
            }
            if !is_zero(ea) {
                let mut reach = magnitude(&b.value, eb);
                reach += eb;
                error += &product(&[ea, &reach]);
            }
            error
        }
        _ => ArrayD::zeros(value.raw_dim()),
    };
    let parts = operands.iter().map(|o| o.parts).product::<f64>() * n as f64;
    let nonnegative = operands.iter().all(|o| o.nonnegative);
    // A single factor is copied, not multiplied.
    let roundings = if operands.len() == 1 { n as f64 - 1.0 } else { n as f64 };
    let mut estimate =
        Estimate { value, error: ArrayD::zeros(IxDyn(&[])), terms, parts, quantum, nonnegative };
    if roundings > 0.0 && !estimate.sums_are_exact(format) {
        let (gamma, tiny) = (format.gamma(roundings), format.tiny * n as f64);
        // A product of which one factor is 0 is exact.
        Zip::from(&mut error)
            .and(&estimate.terms)
            .for_each(|e, &t| *e += if t == 0.0 { 0.0 } else { gamma * t + tiny });
        // Rounding can break the grid of multiples.
        estimate.quantum = None;
    }
    error.mapv_inplace(tidy);
    estimate.error = error;
    estimate
}

fn sum_of_two(a: &Estimate, b: &Estimate, sign: f64, format: Format) -> Estimate {
    let value = if sign > 0.0 { &a.value + &b.value } else { &a.value - &b.value };
    let terms = &a.terms + &b.terms;
    let quantum = a.quantum.zip(b.quantum).map(|(p, q)| p.min(q));
    let mut error = a.reduced_error(format) + b.reduced_error(format);
    let nonnegative = sign > 0.0 && a.nonnegative && b.nonnegative;
    // Terms of both can meet on one rank; a sum of two plain values is one.
    let parts = if a.parts <= 1.0 && b.parts <= 1.0 { 2.0 } else { a.parts + b.parts };
    let mut estimate =
        Estimate { value, error: ArrayD::zeros(IxDyn(&[])), terms, parts, quantum, nonnegative };
    if !estimate.sums_are_exact(format) {
        // x + 0 = x.
        Zip::from(&mut error).and(&a.terms).and(&b.terms).for_each(|e, &ta, &tb| {
            if ta != 0.0 && tb != 0.0 {
                *e += format.u * (ta + tb);
            }
        });
        estimate.quantum = None;
    }
    error.mapv_inplace(tidy);
    estimate.error = error;
    estimate
}

/// Sum of n elements.
#[allow(clippy::cast_precision_loss)]
fn total(
    a: &Estimate,
    n: usize,
    format: Format,
    summed: impl Fn(&ArrayD<f64>) -> ArrayD<f64>,
) -> Estimate {
    let mut error = summed(&a.reduced_error(format));
    let mut estimate = Estimate {
        value: summed(&a.value),
        error: ArrayD::zeros(IxDyn(&[])),
        terms: summed(&a.terms),
        parts: a.parts * n as f64,
        quantum: a.quantum,
        nonnegative: a.nonnegative,
    };
    if n > 1 && !estimate.sums_are_exact(format) {
        let gamma = format.gamma(n as f64 - 1.0);
        Zip::from(&mut error).and(&estimate.terms).for_each(|e, &t| *e += gamma * t);
        estimate.quantum = None;
    }
    error.mapv_inplace(tidy);
    estimate.error = error;
    estimate
}

fn scaled(a: &Estimate, c: f64, format: Format) -> Estimate {
    let held = format.constant(c);
    let mut error = a.reduced_error(format);
    let power_of_two = held != 0.0 && quantum_power(held);
    let terms = a.terms.mapv(|t| held.abs() * t);
    let mut estimate = Estimate {
        value: a.value.mapv(|v| held * v),
        error: ArrayD::zeros(IxDyn(&[])),
        terms,
        parts: a.parts,
        quantum: a.quantum.and_then(|q| {
            if held == 0.0 { Some(q) } else { q.checked_add(exponent_of_last_bit(held)) }
        }),
        nonnegative: a.nonnegative && c >= 0.0,
    };
    let exact = power_of_two || held == 0.0 || estimate.sums_are_exact(format);
    let u = if exact { 0.0 } else { format.u };
    let tiny = if exact { 0.0 } else { format.tiny };
    Zip::from(&mut error).and(&estimate.terms).for_each(|e, &t| {
        let rounding = if t == 0.0 { 0.0 } else { u * t + tiny };
        *e = tidy(held.abs() * *e + rounding);
    });
    if !exact {
        estimate.quantum = None;
    }
    estimate.error = error;
    estimate
}

/// Whether a number is ± a power of two.
fn quantum_power(c: f64) -> bool {
    c.is_normal() && c.to_bits() & ((1 << 52) - 1) == 0
}

fn shifted(a: &Estimate, c: f64, format: Format) -> Estimate {
    let a = a.reduced(format);
    let held = format.constant(c);
    let constant =
        Estimate { nonnegative: c >= 0.0, ..known(ArrayD::from_elem(a.value.raw_dim(), held)) };
    let estimate = sum_of_two(&a, &constant, 1.0, format);
    estimate.reduced(format_of_one_rank(format))
}

/// The format of a run on one rank: nothing is outstanding.
fn format_of_one_rank(format: Format) -> Format {
    Format { ranks: 1.0, ..format }
}

/// a/b: the numerator may be pending, the divisor not.
fn quotient(a: &Estimate, b: &Estimate, format: Format) -> Estimate {
    let (ea, b) = (a.reduced_error(format), b.reduced(format));
    let value = &a.value / &b.value;
    let mut terms = a.terms.clone();
    Zip::from(&mut terms).and(&b.value).and(&b.error).for_each(|t, v, &e| {
        let least = v.abs() - 2.0 * e;
        *t = if *t == 0.0 && least > 0.0 { 0.0 } else { *t / least.max(0.0) };
    });
    let mut error = ea;
    Zip::from(&mut error).and(&value).and(&b.value).and(&b.error).and(&terms).for_each(
        |e, q, v, &eb, &t| {
            let least = v.abs() - 2.0 * eb;
            *e = if *e == 0.0 && (*q == 0.0 && least > 0.0 || eb == 0.0 && *v == 0.0) {
                0.0
            } else if least <= 0.0 {
                f64::INFINITY
            } else {
                // |â/b̂ − a/b| ≤ (e_a + |a/b| e_b) / |b̂|, with the error of v's own quotient in the margin.
                tidy(
                    (*e + (q.abs() + 2.0 * (*e + q.abs() * eb) / least) * eb) / least
                        + format.u * t
                        + format.tiny,
                )
            };
        },
    );
    Estimate {
        value,
        error,
        terms,
        parts: a.parts,
        quantum: None,
        nonnegative: a.nonnegative && b.nonnegative,
    }
}

fn function(unary: Unary, operand: &Estimate, format: Format) -> Estimate {
    if unary == Unary::Neg {
        return Estimate {
            value: operand.value.mapv(|v| -v),
            nonnegative: false,
            ..operand.clone()
        };
    }
    let a = operand.reduced(format);
    let value = a.value.mapv(|v| evaluate(unary, v));
    let quantum = match unary {
        Unary::Relu | Unary::Abs => a.quantum,
        Unary::Square => a.quantum.map(|q| 2 * q),
        _ => None,
    };
    let nonnegative = match unary {
        Unary::Relu | Unary::Sigmoid | Unary::Exp | Unary::Sqrt | Unary::Square | Unary::Abs => {
            true
        }
        Unary::Tanh | Unary::Reciprocal => a.nonnegative,
        Unary::Neg | Unary::Gelu | Unary::Log => false,
    };
    let mut estimate = Estimate {
        error: ArrayD::zeros(value.raw_dim()),
        terms: value.mapv(f64::abs),
        value,
        parts: 1.0,
        quantum,
        nonnegative,
    };
    let exact = estimate.sums_are_exact(format);
    let format = if exact { Format { u: 0.0, tiny: 0.0, ..format } } else { format };
    Zip::from(&mut estimate.error).and(&a.value).and(&a.error).and(&estimate.value).for_each(
        |e, &x, &ex, &f| *e = tidy(function_error(unary, x, ex, f, a.nonnegative, format)),
    );
    if !exact && unary == Unary::Square {
        estimate.quantum = None;
    }
    estimate.terms = magnitude(&estimate.value, &estimate.error);
    estimate
}

fn evaluate(unary: Unary, x: f64) -> f64 {
    match unary {
        Unary::Neg => -x,
        Unary::Relu => x.max(0.0),
        Unary::Gelu => {
            let c = (2.0 / std::f64::consts::PI).sqrt();
            0.5 * x * (1.0 + (c * (x + 0.044_715 * x * x * x)).tanh())
        }
        Unary::Tanh => x.tanh(),
        Unary::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Unary::Exp => x.exp(),
        Unary::Log => x.ln(),
        Unary::Sqrt => x.sqrt(),
        Unary::Square => x * x,
        Unary::Abs => x.abs(),
        Unary::Reciprocal => 1.0 / x,
    }
}

/// Bound of |f̂(x̂) − f(x)| for |x̂ − x| ≤ e: slope over the reach times e, and the rounding of the function.
fn function_error(unary: Unary, x: f64, e: f64, f: f64, nonnegative: bool, format: Format) -> f64 {
    let (u, tiny) = (format.u, format.tiny);
    let library = LIBRARY * u;
    // Both the given x and the run's lie within e of the exact one.
    let reach = 2.0 * e;
    let nearest = (x.abs() - reach).max(0.0);
    match unary {
        Unary::Neg | Unary::Abs => e,
        Unary::Relu => {
            if x + reach <= 0.0 {
                0.0
            } else {
                e
            }
        }
        // |gelu′| < 1.13; 1 + tanh(…) has an absolute error of a few u, times |x|/2.
        Unary::Gelu => {
            if x == 0.0 && e == 0.0 {
                0.0
            } else {
                1.13 * e + 12.0 * u * (x.abs() + reach) + tiny
            }
        }
        Unary::Tanh => {
            let slope = 1.0 - nearest.tanh().powi(2);
            if x == 0.0 && e == 0.0 {
                0.0
            } else {
                slope * e + library * (f.abs() + slope * reach).min(1.0) + tiny
            }
        }
        Unary::Sigmoid => {
            let s = 1.0 / (1.0 + (-nearest).exp());
            let slope = s * (1.0 - s);
            slope * e + library * (f + slope * reach).min(1.0) + tiny
        }
        Unary::Exp => {
            let largest = f * reach.exp();
            largest * (e.exp_m1() + library) + tiny
        }
        Unary::Log => {
            if e == 0.0 {
                return if f.is_finite() { library * f.abs() } else { 0.0 };
            }
            let least = x - reach;
            if least <= 0.0 {
                return f64::INFINITY;
            }
            (e / least) * (1.0 + library) + library * f.abs()
        }
        Unary::Sqrt => {
            if e == 0.0 {
                return if f.is_finite() { u * f } else { 0.0 };
            }
            let least = x - reach;
            if least > 0.0 {
                e / (2.0 * least.sqrt()) + u * (x + reach).sqrt()
            } else if nonnegative {
                (x.max(0.0) + reach).sqrt() * (1.0 + u)
            } else {
                f64::INFINITY
            }
        }
        Unary::Square => {
            let largest = x.abs() + reach;
            2.0 * largest * e
                + if x == 0.0 && e == 0.0 { 0.0 } else { u * largest * largest + tiny }
        }
        Unary::Reciprocal => {
            if e == 0.0 && x == 0.0 {
                return 0.0;
            }
            let least = x.abs() - reach;
            if least <= 0.0 { f64::INFINITY } else { e / (least * least) + u / least + tiny }
        }
    }
}

fn compared(comparison: Comparison, a: &Estimate, b: &Estimate) -> Estimate {
    let mut value = ArrayD::zeros(a.value.raw_dim());
    Zip::from(&mut value)
        .and(&a.value)
        .and(&b.value)
        .for_each(|v, x, y| *v = f64::from(u8::from(comparison.holds(x, y))));
    let mut error = ArrayD::zeros(value.raw_dim());
    Zip::from(&mut error).and(&a.value).and(&b.value).and(&a.error).and(&b.error).for_each(
        |e, x, y, ex, ey| {
            let reach = 2.0 * (ex + ey);
            // Not the negation: a NaN can flip.
            let certain = reach == 0.0 || (x - y).abs() > reach;
            *e = f64::from(u8::from(!certain));
        },
    );
    flags(value, error)
}

/// A 0/1 mask.
fn flags(value: ArrayD<f64>, error: ArrayD<f64>) -> Estimate {
    Estimate {
        terms: magnitude(&value, &error),
        value,
        error,
        parts: 1.0,
        quantum: Some(0),
        nonnegative: true,
    }
}

/// `x = max(x)` or `x ≥ max(x)` where both sides come from one run: certain where x is the largest by more than rounding,
/// or smaller by more than rounding.
pub(crate) fn tied_maximum(
    comparison: Comparison,
    x: &Estimate,
    maximum: &Estimate,
    format: Format,
) -> Estimate {
    let (x, maximum) = (x.reduced(format), maximum.reduced(format));
    let mut estimate = compared(comparison, &x, &maximum);
    if estimate.value.ndim() == 0 {
        return estimate;
    }
    // An element at the maximum is certain if no other element that shares the maximum can reach it. Elements that share
    // it have the same entry in `maximum`; comparing by that value alone errs on the safe side.
    let others: Vec<(f64, f64, f64)> =
        x.value.iter().zip(&x.error).zip(&maximum.value).map(|((&v, &e), &m)| (v, e, m)).collect();
    for (index, (certain, &flag)) in estimate.error.iter_mut().zip(&estimate.value).enumerate() {
        if flag != 1.0 || *certain == 0.0 {
            continue;
        }
        let (v, e, m) = others[index];
        let rivals = others
            .iter()
            .enumerate()
            .any(|(i, &(w, f, n))| i != index && n == m && w + 2.0 * f >= v - 2.0 * e);
        *certain = f64::from(u8::from(rivals));
    }
    estimate.terms = magnitude(&estimate.value, &estimate.error);
    estimate
}

/// Maximum over dims: a run's lies between the maximum of all lower ends and that of all upper ends.
fn maximum(a: &Estimate, dims: &[usize]) -> Estimate {
    let largest =
        |array: ArrayD<f64>| {
            dims.iter().rev().fold(array, |a, &d| {
                a.fold_axis(Axis(d), f64::NEG_INFINITY, |m, v| {
                    if v.is_nan() { f64::NAN } else { m.max(*v) }
                })
            })
        };
    let value = largest(a.value.clone());
    if is_zero(&a.error) {
        return Estimate {
            terms: value.mapv(f64::abs),
            error: ArrayD::zeros(value.raw_dim()),
            value,
            ..a.clone()
        };
    }
    let (upper, lower) = (largest(&a.value + &a.error), largest(&a.value - &a.error));
    let mut error = ArrayD::zeros(value.raw_dim());
    Zip::from(&mut error)
        .and(&value)
        .and(&upper)
        .and(&lower)
        .for_each(|e, v, up, low| *e = tidy((up - v).max(v - low)));
    Estimate {
        terms: magnitude(&value, &error),
        value,
        error,
        parts: 1.0,
        quantum: a.quantum,
        nonnegative: a.nonnegative,
    }
}
