//! Ops that round: bounds of sums, products, quotients and maxima.

use ndarray::{ArrayD, Axis, IxDyn, Zip};

use super::{Estimate, Format, exponent_of_last_bit, is_zero, known, magnitude, tidy};

/// Sums of n products of two factors (or of one): |âb̂ − ab| ≤ |a|e_b + e_a(|b| + e_b), then γₙ of the terms.
#[allow(clippy::cast_precision_loss)]
pub(super) fn bilinear(
    operands: &[&Estimate],
    n: usize,
    format: Format,
    product: impl Fn(&[&ArrayD<f64>]) -> ArrayD<f64>,
) -> Estimate {
    let values: Vec<&ArrayD<f64>> = operands.iter().map(|o| &o.value).collect();
    let terms: Vec<&ArrayD<f64>> = operands.iter().map(|o| &o.terms).collect();
    let (value, terms) = (product(&values), product(&terms));
    let errors: Vec<ArrayD<f64>> = operands.iter().map(|o| o.error.clone()).collect();
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

pub(super) fn sum_of_two(a: &Estimate, b: &Estimate, sign: f64, format: Format) -> Estimate {
    let value = if sign > 0.0 { &a.value + &b.value } else { &a.value - &b.value };
    let terms = &a.terms + &b.terms;
    let quantum = a.quantum.zip(b.quantum).map(|(p, q)| p.min(q));
    let mut error = &a.error + &b.error;
    let nonnegative = sign > 0.0 && a.nonnegative && b.nonnegative;
    let parts = a.parts + b.parts;
    // Additions of terms that each operand was not charged for: the other's parts, or what the mesh leaves.
    let extra = |own: f64, other: f64| other.min(format.ranks - own.min(format.ranks) + 1.0);
    let (xa, xb) = (extra(a.parts, b.parts), extra(b.parts, a.parts));
    let mut estimate =
        Estimate { value, error: ArrayD::zeros(IxDyn(&[])), terms, parts, quantum, nonnegative };
    if !estimate.sums_are_exact(format) {
        // x + 0 = x.
        Zip::from(&mut error).and(&a.terms).and(&b.terms).for_each(|e, &ta, &tb| {
            if ta != 0.0 && tb != 0.0 {
                *e += format.gamma(xa) * ta + format.gamma(xb) * tb;
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
pub(super) fn total(
    a: &Estimate,
    n: usize,
    format: Format,
    summed: impl Fn(&ArrayD<f64>) -> ArrayD<f64>,
) -> Estimate {
    let mut error = summed(&a.error.clone());
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

pub(super) fn scaled(a: &Estimate, c: f64, format: Format) -> Estimate {
    let held = format.constant(c);
    let mut error = a.error.clone();
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

pub(super) fn shifted(a: &Estimate, c: f64, format: Format) -> Estimate {
    let a = a.reduced();
    let held = format.constant(c);
    let constant =
        Estimate { nonnegative: c >= 0.0, ..known(ArrayD::from_elem(a.value.raw_dim(), held)) };
    let estimate = sum_of_two(&a, &constant, 1.0, format);
    estimate.reduced()
}

/// a/b: the numerator may be pending, the divisor not.
pub(super) fn quotient(a: &Estimate, b: &Estimate, format: Format) -> Estimate {
    let (ea, b) = (a.error.clone(), b.reduced());
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

/// Maximum over dims: a run's lies between the maximum of all lower ends and that of all upper ends.
pub(super) fn maximum(a: &Estimate, dims: &[usize]) -> Estimate {
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
