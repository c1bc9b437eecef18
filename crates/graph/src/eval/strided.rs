//! Index arithmetic of the loops: offsets of elements in row-major data, and data as a slice.

use std::borrow::Cow;

use ndarray::{ArrayD, IxDyn};
use shardgrad_core::TensorType;

use crate::error::Error;
use crate::value::{Element, Value};

/// Offsets of all indices of a box with these extents, in row-major order, where dim d advances by `strides[d]`.
/// A stride of 0 repeats.
pub(super) fn offsets(extents: &[usize], strides: &[usize]) -> Vec<usize> {
    let mut offsets = vec![0];
    for (&extent, &stride) in extents.iter().zip(strides) {
        offsets = offsets.iter().flat_map(|o| (0..extent).map(move |i| o + i * stride)).collect();
    }
    offsets
}

/// Elements in row-major order.
pub(super) fn elements<T: Element>(array: &ArrayD<T>) -> Cow<'_, [T]> {
    match array.as_slice() {
        Some(slice) => Cow::Borrowed(slice),
        None => Cow::Owned(array.iter().copied().collect()),
    }
}

/// A block of the given type from its elements in row-major order.
pub(super) fn block_of<T: Element>(
    op: &'static str,
    ty: &TensorType,
    elements: Vec<T>,
) -> Result<Value, Error> {
    ArrayD::from_shape_vec(IxDyn(&ty.shape), elements).map(T::wrap).map_err(|_| Error::Blocks {
        op,
        operands: "with too few elements".to_owned(),
        result: ty.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::offsets;

    #[test]
    fn offsets_are_row_major_and_repeat_along_stride_0() {
        assert_eq!(offsets(&[2, 3], &[3, 1]), [0, 1, 2, 3, 4, 5]);
        assert_eq!(offsets(&[3, 2], &[1, 3]), [0, 3, 1, 4, 2, 5]);
        assert_eq!(offsets(&[2, 2], &[0, 5]), [0, 5, 0, 5]);
        assert_eq!(offsets(&[], &[]), [0]);
        assert!(offsets(&[2, 0], &[0, 1]).is_empty());
    }
}
