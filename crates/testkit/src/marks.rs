//! The marks that faults leave, for [`crate::diagnose`]. Each function returns a fault that predicts every element, with
//! the evidence, or nothing.

use ndarray::{ArrayD, IxDyn};
use shardgrad_core::{DType, Layout, Mesh, TensorType, geometry};
use shardgrad_graph::Value;

use crate::diagnose::{Fault, Group};

type Found = Option<(Fault, String)>;

/// Both tensors in f64, and what counts as equal.
pub(crate) struct Picture {
    pub(crate) expected: Vec<f64>,
    pub(crate) actual: Vec<f64>,
    /// Largest expected element.
    pub(crate) scale: f64,
    bound: Vec<f64>,
}

/// Without a bound: so many unit roundoffs of the largest element.
const ROUNDOFFS: f64 = 512.0;

impl Picture {
    pub(crate) fn new(expected: &Value, actual: &Value, bound: Option<&[f64]>) -> Self {
        let u = expected.ty().dtype.unit_roundoff().max(actual.ty().dtype.unit_roundoff());
        let (expected, actual) = (expected.to_f64s(), actual.to_f64s());
        let scale = expected.iter().filter(|v| v.is_finite()).fold(0.0, |m: f64, v| m.max(v.abs()));
        let bound = match bound {
            Some(bound) if bound.len() == expected.len() => bound.to_vec(),
            _ => vec![ROUNDOFFS * u * scale; expected.len()],
        };
        Self { expected, actual, scale, bound }
    }

    pub(crate) fn len(&self) -> usize {
        self.expected.len()
    }

    fn close(&self, i: usize, predicted: f64, slack: f64) -> bool {
        let a = self.actual[i];
        a == predicted || (a - predicted).abs() <= self.bound[i] * slack
    }

    /// Whether a prediction explains every element.
    pub(crate) fn all_close(&self, predicted: impl Fn(usize) -> f64) -> bool {
        (0..self.len()).all(|i| self.close(i, predicted(i), 1.0))
    }

    pub(crate) fn largest_difference(&self) -> f64 {
        self.expected.iter().zip(&self.actual).fold(0.0, |m, (e, a)| m.max((e - a).abs()))
    }

    pub(crate) fn largest_ratio(&self) -> f64 {
        (0..self.len())
            .map(|i| (self.expected[i] - self.actual[i]).abs() / self.bound[i])
            .filter(|r| !r.is_nan())
            .fold(0.0, f64::max)
    }

    /// Whether reading `expected` at these places explains every element, and says something: most elements are
    /// predicted, and some differ from their own place.
    fn moved(&self, source: &[Option<usize>]) -> bool {
        let known = source.iter().flatten().count();
        known * 2 > self.len()
            && source.iter().enumerate().all(|(i, s)| {
                s.is_none_or(|s| {
                    // The moved element brings its own bound along.
                    self.close(i, self.expected[s], 1.0)
                        || (self.actual[i] - self.expected[s]).abs() <= self.bound[s]
                })
            })
            && source
                .iter()
                .enumerate()
                .any(|(i, s)| s.is_some_and(|s| !self.close(i, self.expected[i], 1.0) && s != i))
    }
}

/// actual = c · expected.
pub(crate) fn scale(p: &Picture, groups: &[Group]) -> Found {
    let (mut ae, mut ee) = (0.0, 0.0);
    for (e, a) in p.expected.iter().zip(&p.actual) {
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
        "all {} elements are {factor:.6} times the expected ones (largest deviation from that {:e})",
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
pub(crate) fn partial(p: &Picture) -> Found {
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

fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for d in (1..shape.len()).rev() {
        strides[d - 1] = strides[d] * shape[d];
    }
    strides
}

fn permutations(n: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![Vec::new()];
    }
    permutations(n - 1)
        .into_iter()
        .flat_map(|p| {
            (0..n).map(move |at| {
                let mut longer = p.clone();
                longer.insert(at, n - 1);
                longer
            })
        })
        .collect()
}

/// Row-major source index of each element of the transpose.
fn transpose_sources(shape: &[usize], perm: &[usize]) -> Vec<usize> {
    let n: usize = shape.iter().product();
    let index = ArrayD::from_shape_vec(IxDyn(shape), (0..n).collect());
    index.map_or_else(|_| Vec::new(), |a| a.permuted_axes(IxDyn(perm)).iter().copied().collect())
}

/// The transpose in the same shape: of a square tensor, or of another whose buffer was read as if it were this one.
pub(crate) fn transposed(p: &Picture, shape: &[usize]) -> Found {
    if shape.len() > 4 {
        return None;
    }
    for perm in permutations(shape.len()) {
        let permuted: Vec<usize> = perm.iter().map(|&d| shape[d]).collect();
        let sources: Vec<Option<usize>> =
            transpose_sources(shape, &perm).into_iter().map(Some).collect();
        if !perm.is_sorted() && p.moved(&sources) {
            let how = if permuted == shape { "" } else { ", read as a buffer of the old shape" };
            let evidence = format!("every element stands where transpose({perm:?}) puts it{how}");
            return Some((Fault::Transposed { perm }, evidence));
        }
    }
    None
}

/// The permutation, if one tensor is the transpose of the other.
pub(crate) fn transposed_shape(expected: &Value, actual: &Value) -> Option<Vec<usize>> {
    let (te, ta) = (expected.ty(), actual.ty());
    if te.rank() != ta.rank() || te.rank() > 4 {
        return None;
    }
    let picture = Picture::new(expected, actual, None);
    permutations(te.rank()).into_iter().find(|perm| {
        let permuted: Vec<usize> = perm.iter().map(|&d| te.shape[d]).collect();
        let sources = transpose_sources(&te.shape, perm);
        permuted == ta.shape.as_slice()
            && sources.iter().enumerate().all(|(i, &s)| picture.close(i, picture.expected[s], 1.0))
    })
}

/// Index of every element when rows of one dim are read from other rows.
fn rows(shape: &[usize], dim: usize, source: &[Option<usize>]) -> Vec<Option<usize>> {
    let strides = strides(shape);
    let n: usize = shape.iter().product();
    (0..n)
        .map(|i| {
            let row = i / strides[dim] % shape[dim];
            source[row].map(|from| i - row * strides[dim] + from * strides[dim])
        })
        .collect()
}

/// Blocks of one dim in another order.
pub(crate) fn reordered(
    p: &Picture,
    shape: &[usize],
    groups: &[Group],
    mesh: Option<&Mesh>,
) -> Found {
    for (dim, &n) in shape.iter().enumerate() {
        for group in groups {
            let blocks: Vec<_> =
                (0..group.size).map(|r| geometry::split(n, group.size, r)).collect();
            for order in orders(group.size) {
                if let Some(found) = in_order(p, shape, dim, &blocks, order, &group.name) {
                    return Some(found);
                }
            }
        }
        // A dim split by two axes, gathered with the inner one outermost.
        let Some(mesh) = mesh else { continue };
        for outer in 0..mesh.rank() {
            for inner in outer + 1..mesh.rank() {
                let (a, b) = (mesh.axis_size(outer), mesh.axis_size(inner));
                if a < 2 || b < 2 {
                    continue;
                }
                let blocks: Vec<_> = (0..a * b)
                    .map(|i| {
                        let first = geometry::split(n, a, i / b);
                        let second = geometry::split(first.len(), b, i % b);
                        first.start + second.start..first.start + second.end
                    })
                    .collect();
                let order: Vec<usize> = (0..a * b).map(|i| i % a * b + i / a).collect();
                let name = format!("{}, {}", mesh.axes()[outer].name, mesh.axes()[inner].name);
                if let Some(found) = in_order(p, shape, dim, &blocks, order, &name) {
                    return Some(found);
                }
            }
        }
    }
    gathered_as_rows(p, shape, groups)
}

/// All orders of few blocks; of many, rotations, the reverse and exchanges of two.
fn orders(parts: usize) -> Vec<Vec<usize>> {
    if parts <= 5 {
        return permutations(parts);
    }
    let plain: Vec<usize> = (0..parts).collect();
    let mut orders = vec![plain.iter().rev().copied().collect::<Vec<_>>()];
    for turn in 1..parts {
        let mut order = plain.clone();
        order.rotate_left(turn);
        orders.push(order);
    }
    for i in 0..parts {
        for j in i + 1..parts {
            let mut order = plain.clone();
            order.swap(i, j);
            orders.push(order);
        }
    }
    // Two nested splits, the inner one first.
    for a in (2..parts).filter(|a| parts.is_multiple_of(*a)) {
        orders.push((0..parts).map(|i| i % a * (parts / a) + i / a).collect());
    }
    orders
}

fn in_order(
    p: &Picture,
    shape: &[usize],
    dim: usize,
    blocks: &[std::ops::Range<usize>],
    order: Vec<usize>,
    group: &str,
) -> Found {
    let source: Vec<Option<usize>> =
        order.iter().flat_map(|&b| blocks[b].clone()).map(Some).collect();
    if order.is_sorted() || source.len() != shape[dim] || !p.moved(&rows(shape, dim, &source)) {
        return None;
    }
    let evidence = format!(
        "dim {dim} of {} in {} blocks over {group}: place i holds block {order:?}[i], element for element",
        shape[dim],
        blocks.len()
    );
    Some((Fault::BlocksReordered { dim, order }, evidence))
}

/// Blocks of an inner dim, their buffers laid one after the other as if they were rows.
fn gathered_as_rows(p: &Picture, shape: &[usize], groups: &[Group]) -> Found {
    let strides = strides(shape);
    for dim in 1..shape.len() {
        for group in groups {
            let mut source = Vec::with_capacity(p.len());
            for rank in 0..group.size {
                let block = geometry::split(shape[dim], group.size, rank);
                source.extend(
                    (0..p.len())
                        .filter(|i| block.contains(&(i / strides[dim] % shape[dim])))
                        .map(Some),
                );
            }
            if p.moved(&source) {
                let evidence = format!(
                    "blocks of dim {dim} over {}, their buffers one after the other as if dim 0 had been split",
                    group.name
                );
                let order = (0..group.size).collect();
                return Some((Fault::BlocksReordered { dim, order }, evidence));
            }
        }
    }
    None
}

/// Other rules to split n over p that one meets: name, and the range of a block.
type Rule = (&'static str, fn(usize, usize, usize) -> std::ops::Range<usize>);

const RULES: [Rule; 3] = [
    ("blocks of ceil(n/p), the last ones short or empty", |n, p, r| {
        let size = n.div_ceil(p);
        (r * size).min(n)..((r + 1) * size).min(n)
    }),
    ("blocks of floor(n/p), the last one with the rest", |n, p, r| {
        let size = n / p;
        r * size..if r + 1 == p { n } else { (r + 1) * size }
    }),
    ("the last n mod p blocks one longer", |n, p, r| {
        let (size, longer) = (n / p, n % p);
        let start = |r: usize| r * size + r.saturating_sub(p - longer);
        start(r)..start(r + 1)
    }),
];

/// Blocks cut by another rule than they were placed by, in both directions, and offsets of another rule with the right
/// lengths.
pub(crate) fn split(p: &Picture, shape: &[usize], groups: &[Group]) -> Found {
    for (dim, &n) in shape.iter().enumerate() {
        for group in groups {
            let parts = group.size;
            for (rule, other) in RULES {
                let ours = |r| geometry::split(n, parts, r);
                let theirs = |r| other(n, parts, r);
                let mut candidates = [vec![None; n], vec![None; n], vec![None; n]];
                for r in 0..parts {
                    let (right, wrong) = (ours(r), theirs(r));
                    for j in 0..right.len().min(wrong.len()) {
                        candidates[0][right.start + j] = Some(wrong.start + j);
                        candidates[1][wrong.start + j] = Some(right.start + j);
                    }
                    for (j, place) in right.enumerate() {
                        candidates[2][place] = Some((wrong.start + j).min(n - 1));
                    }
                }
                for source in candidates {
                    if p.moved(&rows(shape, dim, &source)) {
                        let evidence = format!(
                            "dim {dim} of {n} over {} ({parts} devices): rows are those of `{rule}`",
                            group.name
                        );
                        return Some((Fault::WrongSplit { dim, parts, rule }, evidence));
                    }
                }
            }
        }
    }
    None
}

/// Whether a number has at most so many bits of significand.
fn has_bits(v: f64, bits: u32) -> bool {
    v.to_bits().trailing_zeros() >= 53 - bits
}

/// All elements have the few bits of a narrower type, and the expected ones have not.
pub(crate) fn precision(p: &Picture, dtype: DType) -> Found {
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
pub(crate) fn statistics(p: &Picture, dtype: DType) -> Found {
    let (mut ae, mut ee, mut aa, mut dd) = (0.0, 0.0, 0.0, 0.0);
    for (e, a) in p.expected.iter().zip(&p.actual) {
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
            format!("{numbers}: part of a sum; give the blocks of all ranks to be certain"),
        ));
    }
    None
}

/// A global tensor from blocks: each element from the sum over the ranks named for its first holder.
pub(crate) fn assemble(
    ty: &TensorType,
    layout: &Layout,
    mesh: &Mesh,
    blocks: &[Value],
    ranks: &dyn Fn(usize) -> Vec<usize>,
) -> Value {
    let strides = strides(&ty.shape);
    let mut whole: Vec<Option<f64>> = vec![None; ty.elements()];
    for rank in 0..mesh.size() {
        let block = geometry::block(&ty.shape, layout, mesh, rank);
        let members: Vec<Vec<f64>> = ranks(rank).into_iter().map(|r| blocks[r].to_f64s()).collect();
        let local = block.shape();
        let local_strides = self::strides(&local);
        for i in 0..block.len() {
            let at: usize = (0..local.len())
                .map(|d| (block.ranges[d].start + i / local_strides[d] % local[d]) * strides[d])
                .sum();
            whole[at].get_or_insert_with(|| members.iter().map(|m| m[i]).sum());
        }
    }
    Value::from_fn(ty, |i| whole[i].unwrap_or(f64::NAN))
}
