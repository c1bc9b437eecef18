//! Marks of faults that leave every element in its place: another factor, terms that are missing, fewer bits, noise.
//! Each function returns a fault that predicts every element, with the evidence, or nothing; `statistics` guesses.

use shardgrad_core::DType;

use super::picture::Picture;
use super::{Fault, Found, Group};

/// actual = c · expected.
pub(super) fn scale(p: &Picture, groups: &[Group]) -> Found {
    let (mut ae, mut ee) = (0.0, 0.0);
    for (e, a) in p.scaled() {
        ae += a * e;
        ee += e * e;
    }
    if ee == 0.0 || ae == 0.0 {
        return None;
    }
    let factor = ae / ee;
    let fits = |c: f64| (0..p.len()).all(|i| p.close(i, c * p.expected[i], c.abs().max(1.0)));
    if !fits(factor) {
        return None;
    }
    let evidence = format!(
        "all {} elements are {factor:.6} times the expected ones (largest deviation from that {:.1e})",
        p.len(),
        (0..p.len()).fold(0.0, |m: f64, i| m.max((p.actual[i] - factor * p.expected[i]).abs()))
    );
    if fits(-1.0) {
        return Some((Fault::Negated, evidence));
    }
    for times in 1..=4 {
        for group in groups {
            #[allow(clippy::cast_precision_loss)]
            let c = (group.size as f64).powi(times);
            let (axis, size, times) = (group.name.clone(), group.size, times.unsigned_abs());
            if fits(c) && (factor - c).abs() < 0.01 * c {
                return Some((Fault::ReductionRepeated { axis, size, times }, evidence));
            }
            if fits(1.0 / c) && (factor * c - 1.0).abs() < 0.01 {
                return Some((Fault::Averaged { axis, size, times }, evidence));
            }
        }
    }
    Some((Fault::Scaled { factor }, evidence))
}

/// Some elements right, all others 0: one rank's block of a sum whose other terms are missing.
pub(super) fn partial(p: &Picture) -> Found {
    let zero = |i: usize| p.actual[i] == 0.0;
    let right = |i: usize| p.close(i, p.expected[i], 1.0);
    if !(0..p.len()).all(|i| zero(i) || right(i)) {
        return None;
    }
    let missing = (0..p.len()).filter(|&i| !right(i)).count();
    Some((
        Fault::ReductionMissing { axis: None },
        format!("{missing} of {} elements are 0 and should not be, the others are right", p.len()),
    ))
}

/// Whether a number has at most so many bits of significand.
fn has_bits(v: f64, bits: u32) -> bool {
    v.to_bits().trailing_zeros() >= 53 - bits
}

/// All elements have the few bits of a narrower type, and the expected ones have not.
pub(super) fn precision(p: &Picture, dtype: DType) -> Found {
    let types: &[(&'static str, u32, f64)] = match dtype {
        DType::F64 => &[("bf16", 8, 0.2), ("f16", 11, 0.03), ("f32", 24, 1e-3)],
        DType::F32 => &[("bf16", 8, 0.2), ("f16", 11, 0.03)],
        DType::I32 | DType::I64 => &[],
    };
    let level = p.largest_difference() / p.scale;
    types.iter().find_map(|&(dtype, bits, most)| {
        let fits = |values: &[f64]| values.iter().filter(|v| **v != 0.0).all(|&v| has_bits(v, bits));
        (level <= most && fits(&p.actual) && !fits(&p.expected)).then(|| {
            let evidence = format!(
                "every element has {bits} bits of significand, as {dtype} has; differences are up to {level:.1e} of the largest element"
            );
            (Fault::Precision { dtype }, evidence)
        })
    })
}

/// What statistics can tell: errors of the size of a narrower type's rounding, noise about the right value, one term of a
/// sum.
pub(super) fn statistics(p: &Picture, dtype: DType) -> Found {
    let (mut ae, mut ee, mut aa, mut dd) = (0.0, 0.0, 0.0, 0.0);
    for (e, a) in p.scaled() {
        ae += a * e;
        ee += e * e;
        aa += a * a;
        dd += (a - e) * (a - e);
    }
    if ee == 0.0 {
        return None;
    }
    let (slope, away) = (ae / ee, (dd / ee).sqrt());
    let level = p.largest_difference() / p.scale;
    if dtype == DType::F64 && level < 1e-5 {
        let evidence = format!(
            "differences are up to {level:.1e} of the largest element, of the size of f32 rounding (6e-8 each), far above f64's"
        );
        return Some((Fault::Precision { dtype: "f32" }, evidence));
    }
    let cosine = if aa > 0.0 { ae / (aa * ee).sqrt() } else { 0.0 };
    let numbers = format!(
        "projection on the expected value {slope:.3}, cosine {cosine:.3}, distance {away:.3} of its norm"
    );
    if away < 0.35 && (slope - 1.0).abs() < 0.3 {
        return Some((Fault::Noise, numbers));
    }
    if aa == 0.0 || (0.05..0.95).contains(&slope) && cosine > 0.25 {
        return Some((
            Fault::ReductionMissing { axis: None },
            format!(
                "{numbers}: part of a sum; the blocks of all ranks would make it certain (`diagnose_ranks`)"
            ),
        ));
    }
    None
}
