//! Ops that choose between operands, and conversions.

use ndarray::{ArrayD, Zip};
use shardgrad_core::DType;

use super::{Estimate, Format, exponent_of_last_bit, magnitude, tidy};

/// The larger or smaller of two: no farther off than the worse operand.
pub(super) fn extreme(a: &Estimate, b: &Estimate, larger: bool) -> Estimate {
    let (a, b) = (a.reduced(), b.reduced());
    let mut value = a.value.clone();
    Zip::from(&mut value).and(&b.value).for_each(|x, &y| {
        let wins = if larger { y > *x } else { y < *x };
        if wins || y.is_nan() {
            *x = y;
        }
    });
    let mut error = a.error.clone();
    Zip::from(&mut error).and(&b.error).for_each(|e, &f| *e = tidy(e.max(f)));
    let nonnegative = match larger {
        true => a.nonnegative || b.nonnegative,
        false => a.nonnegative && b.nonnegative,
    };
    Estimate {
        terms: magnitude(&value, &error),
        value,
        error,
        parts: 1.0,
        quantum: a.quantum.zip(b.quantum).map(|(p, q)| p.min(q)),
        nonnegative,
    }
}

/// b where the mask is not 0, else c; either where the mask may or may not be 0.
pub(super) fn choose(mask: &Estimate, b: &Estimate, c: &Estimate) -> Estimate {
    let (mask, b, c) = (mask.reduced(), b.reduced(), c.reduced());
    let (mut value, mut error) = (b.value.clone(), b.error.clone());
    let at = |array: &ArrayD<f64>| array.iter().copied().collect::<Vec<f64>>();
    let others = at(&c.value).into_iter().zip(at(&c.error));
    let masks = at(&mask.value).into_iter().zip(at(&mask.error));
    for (((v, e), (w, f)), (m, doubt)) in value.iter_mut().zip(&mut error).zip(others).zip(masks) {
        let certain = doubt == 0.0 || m.abs() > 2.0 * doubt;
        if !certain {
            *e = tidy(e.max(f) + (*v - w).abs());
        } else if m == 0.0 {
            *e = f;
        }
        if m == 0.0 {
            *v = w;
        }
    }
    Estimate {
        terms: magnitude(&value, &error),
        value,
        error,
        parts: 1.0,
        quantum: b.quantum.zip(c.quantum).map(|(p, q)| p.min(q)),
        nonnegative: b.nonnegative && c.nonnegative,
    }
}

/// Floats are rounded unless they fit; integers are cut, so that an error may cost one more.
pub(super) fn cast(a: &Estimate, to: DType, format: Format) -> Estimate {
    if !to.is_float() {
        let a = a.reduced();
        let value = a.value.mapv(f64::trunc);
        let error = a.error.mapv(|e| if e == 0.0 { 0.0 } else { tidy(e + 1.0) });
        return Estimate {
            terms: magnitude(&value, &error),
            value,
            error,
            parts: 1.0,
            quantum: Some(a.quantum.unwrap_or(0).max(0)),
            nonnegative: a.nonnegative,
        };
    }
    let mut estimate = a.clone();
    let fits = |v: f64| v == 0.0 || !v.is_finite() || f64::from(v as f32) == v;
    let exact = estimate.sums_are_exact(format)
        || a.parts <= 1.0
            && a.error.iter().all(|&e| e == 0.0)
            && (format.precision > 24 || a.value.iter().all(|&v| fits(v)));
    if !exact {
        Zip::from(&mut estimate.error).and(&a.terms).for_each(|e, &t| {
            *e = tidy(*e + if t == 0.0 { 0.0 } else { format.u * t + format.tiny })
        });
        estimate.quantum = None;
    }
    estimate
}

/// The quantum of values next to a constant.
pub(super) fn beside(quantum: Option<i32>, constant: f64) -> Option<i32> {
    match constant {
        0.0 => quantum,
        c if c.is_finite() => quantum.map(|q| q.min(exponent_of_last_bit(c))),
        _ => None,
    }
}
