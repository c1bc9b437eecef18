//! Row lookup and its transpose, on the rows of a table that a block holds.

use std::ops::Range;

use shardgrad_core::TensorType;

use super::number::Number;
use super::one_hot::{first_bad_label, labels};
use super::strided::{block_of, elements};
use super::{mismatch, overflow};
use crate::error::Error;
use crate::value::Value;

/// What the ids are called, and where they start, for errors.
pub(super) struct Ids<'a> {
    pub(super) name: &'a str,
    /// The first row of the block of ids in the whole.
    pub(super) first: usize,
}

impl Ids<'_> {
    /// The ids, if all are rows of a table of so many.
    fn read(&self, value: &Value, rows: usize) -> Result<Vec<i64>, Error> {
        if let Some((row, label)) = first_bad_label(value, rows) {
            return Err(Error::LabelOutOfRange {
                name: self.name.to_owned(),
                row: self.first + row,
                label,
                classes: rows,
            });
        }
        Ok(labels(value).unwrap_or_default())
    }
}

/// The place of a global row among the rows of a block.
fn place(id: i64, held: &Range<usize>) -> Option<usize> {
    let id = usize::try_from(id).ok().filter(|id| held.contains(id))?;
    Some(id - held.start)
}

/// Rows of `held` by id; zeros for ids of other blocks.
pub(super) fn lookup<T: Number>(
    rows: usize,
    operands: &[&Value],
    local: &TensorType,
    held: Range<usize>,
    ids: &Ids<'_>,
) -> Result<Value, Error> {
    let wrong = || mismatch("lookup", operands, local);
    let [table, places] = operands else { return Err(wrong()) };
    let array = T::unwrap(table).ok_or_else(wrong)?;
    let (taken, shape) = (places.ty(), array.shape());
    let fits = shape.first() == Some(&held.len())
        && local.dtype == T::DTYPE
        && !taken.dtype.is_float()
        && local.shape.starts_with(&taken.shape)
        && local.shape[taken.rank()..] == shape[1..];
    if !fits {
        return Err(wrong());
    }
    let width: usize = shape[1..].iter().product();
    let data = elements(array);
    let mut result = Vec::with_capacity(local.elements());
    for id in ids.read(places, rows)? {
        match place(id, &held) {
            Some(row) => result.extend_from_slice(&data[row * width..(row + 1) * width]),
            None => result.extend(std::iter::repeat_n(T::ZERO, width)),
        }
    }
    block_of("lookup", local, result)
}

/// Sums of the terms whose id is a row of `held`, in the order of places.
pub(super) fn scatter_add<T: Number>(
    rows: usize,
    operands: &[&Value],
    local: &TensorType,
    held: Range<usize>,
    ids: &Ids<'_>,
) -> Result<Value, Error> {
    let wrong = || mismatch("scatter_add", operands, local);
    let [places, terms] = operands else { return Err(wrong()) };
    let array = T::unwrap(terms).ok_or_else(wrong)?;
    let (taken, shape) = (places.ty(), array.shape());
    let fits = local.shape.first() == Some(&held.len())
        && local.dtype == T::DTYPE
        && !taken.dtype.is_float()
        && shape.starts_with(&taken.shape)
        && shape[taken.rank()..] == local.shape[1..];
    if !fits {
        return Err(wrong());
    }
    let width: usize = local.shape[1..].iter().product();
    let data = elements(array);
    let mut result = vec![T::ZERO; local.elements()];
    for (at, id) in ids.read(places, rows)?.into_iter().enumerate() {
        let Some(row) = place(id, &held) else { continue };
        let term = &data[at * width..(at + 1) * width];
        for (sum, &t) in result[row * width..(row + 1) * width].iter_mut().zip(term) {
            *sum = sum.plus(t).ok_or_else(|| overflow::<T>("scatter_add"))?;
        }
    }
    block_of("scatter_add", local, result)
}
