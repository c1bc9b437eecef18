//! One-hot: a block marks the labels that fall into its range of global classes.

use shardgrad_core::{Block, TensorType};

use super::mismatch;
use super::number::Number;
use super::strided::block_of;
use crate::error::Error;
use crate::value::Value;

/// Labels as i64, in row-major order.
pub(super) fn labels(value: &Value) -> Option<Vec<i64>> {
    match value {
        Value::I32(a) => Some(a.iter().map(|&l| i64::from(l)).collect()),
        Value::I64(a) => Some(a.iter().copied().collect()),
        Value::F32(_) | Value::F64(_) => None,
    }
}

/// The first label that is no class: its row (index along the first dim) and the label.
pub(super) fn first_bad_label(value: &Value, classes: usize) -> Option<(usize, i64)> {
    let shape = value.ty().shape;
    let per_row = shape.iter().skip(1).product::<usize>().max(1);
    let bad = |l: &i64| usize::try_from(*l).map_or(true, |l| l >= classes);
    labels(value)?.iter().position(bad).map(|i| (i / per_row, labels(value).unwrap_or_default()[i]))
}

/// `name` is that of the labels, for the error.
pub(super) fn one_hot<T: Number>(
    classes: usize,
    operands: &[&Value],
    local: &TensorType,
    block: &Block,
    name: &str,
) -> Result<Value, Error> {
    let wrong = || mismatch("one_hot", operands, local);
    let [value] = operands else { return Err(wrong()) };
    let marks = labels(value).ok_or_else(wrong)?;
    let (Some(range), Some((_, rows))) = (block.ranges.last(), local.shape.split_last()) else {
        return Err(wrong());
    };
    if value.ty().shape.as_slice() != rows
        || block.shape() != local.shape
        || local.dtype != T::DTYPE
    {
        return Err(wrong());
    }
    if let Some((row, label)) = first_bad_label(value, classes) {
        let first_row = if block.ranges.len() > 1 { block.ranges[0].start } else { 0 };
        return Err(Error::LabelOutOfRange {
            name: name.to_owned(),
            row: first_row + row,
            label,
            classes,
        });
    }
    let elements =
        marks
            .iter()
            .flat_map(|&label| {
                range.clone().map(move |class| {
                    if usize::try_from(label) == Ok(class) { T::ONE } else { T::ZERO }
                })
            })
            .collect();
    block_of("one_hot", local, elements)
}
