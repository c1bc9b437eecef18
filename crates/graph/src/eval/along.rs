//! Ops along one dim: slice, pad, concat, cumulative sum. A block is seen as [outer, dim, inner].

use shardgrad_core::TensorType;
use shardgrad_core::ops::{CumSum, Pad, Slice};

use super::number::Number;
use super::strided::{block_of, elements};
use super::{mismatch, overflow};
use crate::error::Error;
use crate::value::Value;

/// Elements before, along and behind a dim.
fn split(shape: &[usize], dim: usize) -> Option<(usize, usize, usize)> {
    let extent = *shape.get(dim)?;
    Some((shape[..dim].iter().product(), extent, shape[dim + 1..].iter().product()))
}

/// Whether two shapes agree but for one dim.
fn agree(a: &[usize], b: &[usize], dim: usize) -> bool {
    a.len() == b.len() && (0..a.len()).all(|d| d == dim || a[d] == b[d])
}

/// Element j along the dim is the operand's `start + j · step`.
pub(super) fn slice<T: Number>(
    op: &Slice,
    operands: &[&Value],
    local: &TensorType,
) -> Result<Value, Error> {
    let wrong = || mismatch("slice", operands, local);
    let [value] = operands else { return Err(wrong()) };
    let a = T::unwrap(value).filter(|_| local.dtype == T::DTYPE).ok_or_else(wrong)?;
    let ((outer, from, inner), (_, to, _)) =
        split(a.shape(), op.dim).zip(split(&local.shape, op.dim)).ok_or_else(wrong)?;
    let inside = to == 0 || op.start + (to - 1) * op.step < from;
    if !agree(a.shape(), &local.shape, op.dim) || !inside {
        return Err(wrong());
    }
    let data = elements(a);
    let mut result = Vec::with_capacity(local.elements());
    for o in 0..outer {
        for j in 0..to {
            let at = (o * from + op.start + j * op.step) * inner;
            result.extend_from_slice(&data[at..at + inner]);
        }
    }
    block_of("slice", local, result)
}

/// The operand's element j is the result's `before + j · (between + 1)`.
pub(super) fn pad<T: Number>(
    op: &Pad,
    operands: &[&Value],
    local: &TensorType,
) -> Result<Value, Error> {
    let wrong = || mismatch("pad", operands, local);
    let [value] = operands else { return Err(wrong()) };
    let a = T::unwrap(value).filter(|_| local.dtype == T::DTYPE).ok_or_else(wrong)?;
    let fill = T::constant(op.value.value()).ok_or_else(|| overflow::<T>("pad"))?;
    let ((outer, from, inner), (_, to, _)) =
        split(a.shape(), op.dim).zip(split(&local.shape, op.dim)).ok_or_else(wrong)?;
    let step = op.between + 1;
    let inside = from == 0 || op.before + (from - 1) * step < to;
    if !agree(a.shape(), &local.shape, op.dim) || !inside {
        return Err(wrong());
    }
    let data = elements(a);
    let mut result = vec![fill; local.elements()];
    for o in 0..outer {
        for j in 0..from {
            let (at, source) = ((o * to + op.before + j * step) * inner, (o * from + j) * inner);
            result[at..at + inner].copy_from_slice(&data[source..source + inner]);
        }
    }
    block_of("pad", local, result)
}

/// Operands one behind the other.
pub(super) fn concat<T: Number>(
    dim: usize,
    operands: &[&Value],
    local: &TensorType,
) -> Result<Value, Error> {
    let wrong = || mismatch("concat", operands, local);
    let arrays: Vec<_> = operands
        .iter()
        .map(|v| T::unwrap(v).filter(|a| agree(a.shape(), &local.shape, dim)))
        .collect::<Option<_>>()
        .filter(|_| local.dtype == T::DTYPE)
        .ok_or_else(wrong)?;
    let (outer, to, inner) = split(&local.shape, dim).ok_or_else(wrong)?;
    if arrays.iter().map(|a| a.shape()[dim]).sum::<usize>() != to {
        return Err(wrong());
    }
    let parts: Vec<_> = arrays.iter().map(|a| (elements(a), a.shape()[dim] * inner)).collect();
    let mut result = Vec::with_capacity(local.elements());
    for o in 0..outer {
        for (data, run) in &parts {
            result.extend_from_slice(&data[o * run..(o + 1) * run]);
        }
    }
    block_of("concat", local, result)
}

/// Running sums, from the first element on or from the last.
pub(super) fn cumsum<T: Number>(
    op: &CumSum,
    operands: &[&Value],
    local: &TensorType,
) -> Result<Value, Error> {
    let wrong = || mismatch("cumsum", operands, local);
    let [value] = operands else { return Err(wrong()) };
    let a = T::unwrap(value)
        .filter(|a| local.dtype == T::DTYPE && a.shape() == local.shape.as_slice())
        .ok_or_else(wrong)?;
    let (outer, n, inner) = split(&local.shape, op.dim).ok_or_else(wrong)?;
    let mut result = elements(a).into_owned();
    for o in 0..outer {
        for j in 1..n {
            let (at, before) = if op.reverse { (n - 1 - j, n - j) } else { (j, j - 1) };
            for i in 0..inner {
                let sum =
                    result[(o * n + before) * inner + i].plus(result[(o * n + at) * inner + i]);
                result[(o * n + at) * inner + i] = sum.ok_or_else(|| overflow::<T>("cumsum"))?;
            }
        }
    }
    block_of("cumsum", local, result)
}
