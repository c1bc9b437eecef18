//! Einsum: for every index of the result, the sum of products over the other labels, in index order.

use ndarray::ArrayD;
use shardgrad_core::TensorType;
use shardgrad_core::ops::{Einsum, Label, Labels};
use smallvec::SmallVec;

use super::number::Number;
use super::strided::{block_of, elements, offsets};
use super::{mismatch, overflow};
use crate::error::Error;
use crate::value::{Value, row_major_strides};

/// Strides by which an operand advances along `labels`; 0 where it lacks one.
fn strides_along(labels: &[Label], operand: &Labels, shape: &[usize]) -> Vec<usize> {
    let strides = row_major_strides(shape);
    labels
        .iter()
        .map(|l| operand.iter().position(|o| o == l).map_or(0, |dim| strides[dim]))
        .collect()
}

pub(super) fn einsum<T: Number>(
    spec: &Einsum,
    operands: &[&Value],
    local: &TensorType,
) -> Result<Value, Error> {
    let wrong = || mismatch("einsum", operands, local);
    let arrays: SmallVec<[&ArrayD<T>; 2]> =
        operands.iter().map(|v| T::unwrap(v)).collect::<Option<_>>().ok_or_else(wrong)?;
    if arrays.len() != spec.operands().len() || local.dtype != T::DTYPE {
        return Err(wrong());
    }
    // Extents by label, each operand and the result agreeing.
    let mut extents: SmallVec<[(Label, usize); 6]> = SmallVec::new();
    let tensors = spec.operands().iter().zip(&arrays).map(|(l, a)| (l, a.shape()));
    for (labels, shape) in tensors.chain([(spec.result(), local.shape.as_slice())]) {
        if labels.len() != shape.len() {
            return Err(wrong());
        }
        for (&label, &extent) in labels.iter().zip(shape) {
            match extents.iter().find(|(l, _)| *l == label) {
                Some(&(_, other)) if other != extent => return Err(wrong()),
                Some(_) => {}
                None => extents.push((label, extent)),
            }
        }
    }
    let reduced: SmallVec<[(Label, usize); 6]> =
        extents.iter().copied().filter(|(l, _)| !spec.result().contains(l)).collect();
    let inner_labels: Vec<Label> = reduced.iter().map(|(l, _)| *l).collect();
    let inner_extents: Vec<usize> = reduced.iter().map(|(_, n)| *n).collect();

    let one = ArrayD::from_elem(ndarray::IxDyn(&[]), T::ONE);
    let no_labels = Labels::new();
    let (a, a_labels) = (arrays[0], &spec.operands()[0]);
    let (b, b_labels) = match arrays.get(1) {
        Some(&b) => (b, &spec.operands()[1]),
        None => (&one, &no_labels),
    };
    let outer = |array: &ArrayD<T>, labels: &Labels| {
        offsets(&local.shape, &strides_along(spec.result(), labels, array.shape()))
    };
    let inner = |array: &ArrayD<T>, labels: &Labels| {
        offsets(&inner_extents, &strides_along(&inner_labels, labels, array.shape()))
    };
    let (a_outer, a_inner) = (outer(a, a_labels), inner(a, a_labels));
    let (b_outer, b_inner) = (outer(b, b_labels), inner(b, b_labels));
    let (a, b) = (elements(a), elements(b));
    let sums = a_outer
        .iter()
        .zip(&b_outer)
        .map(|(ao, bo)| {
            a_inner
                .iter()
                .zip(&b_inner)
                .try_fold(T::ZERO, |sum, (ai, bi)| sum.plus(a[ao + ai].times(b[bo + bi])?))
        })
        .collect::<Option<Vec<T>>>()
        .ok_or_else(|| overflow::<T>("einsum"))?;
    block_of("einsum", local, sums)
}
