//! Error analysis of nonlinear ops, for [`crate::rounding`]: functions of one operand by a bound of their slope, and
//! comparisons by what a perturbation could flip.

use ndarray::{ArrayD, Zip};
use shardgrad_core::ops::{Comparison, Unary};

use crate::rounding::{Estimate, Format, magnitude, tidy};

/// Relative error of a library function, in unit roundoffs: the usual ones are faithful to a few units in the last place.
const LIBRARY: f64 = 8.0;

pub(crate) fn function(unary: Unary, operand: &Estimate, format: Format) -> Estimate {
    if unary == Unary::Neg {
        return Estimate {
            value: operand.value.mapv(|v| -v),
            nonnegative: false,
            ..operand.clone()
        };
    }
    let a = operand.reduced();
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
            // s(1 − s) without the difference, which vanishes far out while the value does not.
            let tail = (-nearest).exp();
            let slope = tail / (1.0 + tail).powi(2);
            slope * e + library * (f + slope * reach).min(1.0) + tiny
        }
        Unary::Exp => {
            // Far below 0, where masked scores lie, the error may be large and both results are as good as 0.
            let largest = (x + reach).exp();
            largest * (e.exp_m1().min(1.0) + library) + tiny
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

pub(crate) fn compared(comparison: Comparison, a: &Estimate, b: &Estimate) -> Estimate {
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
pub(crate) fn tied_maximum(comparison: Comparison, x: &Estimate, maximum: &Estimate) -> Estimate {
    let (x, maximum) = (x.reduced(), maximum.reduced());
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
