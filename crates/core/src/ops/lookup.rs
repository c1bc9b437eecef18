//! Row lookup and its transpose.
//!
//! `lookup` takes rows of a table by ids: result[i.., d..] = table[ids[i..], d..]. The rows' label v is *summed away*: it is
//! the product of the table with the ids' one-hot rows, without that matrix. So a table that is split by rows makes a
//! pending result, each rank giving the rows that it holds and zeros else.
//!
//! `scatter_add` is the transpose: result[v, d..] = Σ of terms[i.., d..] over the places i.. whose id is v. Here v is new
//! and splittable, each rank keeping the rows of its range, and the places are summed away.

use smallvec::{SmallVec, smallvec};

use super::signature::{Labels, Linearity, Reduction, Signature, plain_labels};
use super::{expect_operands, operand_error};
use crate::dtype::TensorType;
use crate::error::Error;

fn expect_ids(op: &'static str, operands: &[TensorType], ids: &TensorType) -> Result<(), Error> {
    if ids.dtype.is_float() {
        return Err(operand_error(op, operands, "ids must be i32 or i64"));
    }
    Ok(())
}

/// Table `[v, d..]` and ids `[i..]` make `[i.., d..]`.
pub(super) fn infer(rows: usize, operands: &[TensorType]) -> Result<TensorType, Error> {
    let [table, ids] = expect_operands("lookup", operands)?;
    expect_ids("lookup", operands, ids)?;
    let Some((&v, row)) = table.shape.split_first() else {
        return Err(operand_error("lookup", operands, "a table needs a first dim of rows"));
    };
    if v != rows {
        return Err(operand_error("lookup", operands, format!("the table must have {rows} rows")));
    }
    Ok(TensorType::new(ids.shape.iter().chain(row).copied(), table.dtype))
}

/// Ids `[i..]` and terms `[i.., d..]` make `[rows, d..]`.
pub(super) fn infer_scatter_add(rows: usize, operands: &[TensorType]) -> Result<TensorType, Error> {
    let [ids, terms] = expect_operands("scatter_add", operands)?;
    expect_ids("scatter_add", operands, ids)?;
    if !terms.shape.starts_with(&ids.shape) {
        return Err(operand_error(
            "scatter_add",
            operands,
            "the dims of the ids must be the first dims of the terms",
        ));
    }
    let row = &terms.shape[ids.rank()..];
    Ok(TensorType::new([rows].into_iter().chain(row.iter().copied()), terms.dtype))
}

/// Labels of ids, of what is left of a row, and of the rows.
fn labels(ids: usize, row: usize) -> (Labels, Labels, Labels) {
    let all = plain_labels(ids + row + 1);
    let part = |range: std::ops::Range<usize>| all[range].iter().copied().collect();
    (part(0..ids), part(ids..ids + row), part(ids + row..ids + row + 1))
}

fn joined(first: &Labels, second: &Labels) -> Labels {
    first.iter().chain(second).copied().collect()
}

/// Linear in the table.
pub(super) fn signature(operands: &[TensorType]) -> Signature {
    let (ids, row, rows) = labels(operands[1].rank(), operands[0].rank() - 1);
    let operands: SmallVec<[Labels; 2]> = smallvec![joined(&rows, &row), ids.clone()];
    Signature::new(operands, joined(&ids, &row))
        .reducing(Reduction::Sum)
        .linear(Linearity::OneOf(0b01))
}

/// Linear in the terms. A scalar id leaves nothing to sum.
pub(super) fn signature_scatter_add(operands: &[TensorType]) -> Signature {
    let (ids, row, rows) = labels(operands[0].rank(), operands[1].rank() - operands[0].rank());
    let reduces = !ids.is_empty();
    let operands: SmallVec<[Labels; 2]> = smallvec![ids.clone(), joined(&ids, &row)];
    let signature = Signature::new(operands, joined(&rows, &row)).linear(Linearity::OneOf(0b10));
    if reduces { signature.reducing(Reduction::Sum) } else { signature }
}
