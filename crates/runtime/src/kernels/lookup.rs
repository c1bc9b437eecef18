//! Row lookup and its transpose, on the rows of a table that a rank holds.

use std::ops::Range;

use shardgrad_graph::Error as GraphError;

use crate::error::Error;
use crate::number::Number;
use crate::tensor::Data;

/// The rows that a rank holds.
#[derive(Clone, Debug)]
pub struct Rows {
    /// Rows of the whole table.
    all: usize,
    /// Those held here.
    held: Range<usize>,
    /// Elements of a row.
    width: usize,
    /// Index of the first id's row in the whole, and ids of each row: for errors.
    first: usize,
    per_row: usize,
}

impl Rows {
    /// Rows `held` of a table of `all` rows, of `width` local elements each; `ids` is the block of ids.
    #[must_use]
    pub fn new(all: usize, held: Range<usize>, width: usize, ids: &shardgrad_core::Block) -> Self {
        let first = ids.ranges.first().map_or(0, |range| range.start);
        let per_row = ids.ranges.iter().skip(1).map(ExactSizeIterator::len).product();
        Self { all, held, width, first, per_row }
    }

    /// Calls `f` with the place of each id and where its row is held here, if it is.
    fn each(
        &self,
        op: &'static str,
        ids: &Data,
        mut f: impl FnMut(usize, Option<usize>),
    ) -> Result<(), Error> {
        let mut one = |(place, id): (usize, i64)| match usize::try_from(id) {
            Ok(row) if row < self.all => {
                f(place, self.held.contains(&row).then(|| row - self.held.start));
                Ok(())
            }
            _ => Err(Error::from(GraphError::LabelOutOfRange {
                name: format!("the ids of {op}"),
                row: self.first + place / self.per_row.max(1),
                label: id,
                classes: self.all,
            })),
        };
        match ids {
            Data::I32(ids) => {
                ids.iter().map(|&id| i64::from(id)).enumerate().try_for_each(&mut one)
            }
            Data::I64(ids) => ids.iter().copied().enumerate().try_for_each(&mut one),
            Data::F32(_) | Data::F64(_) => Ok(()),
        }
    }

    /// Overwrites `result` with the rows of `table` that the ids name; rows of other ranks are zeros.
    ///
    /// # Errors
    /// An id that is no row of the whole table.
    pub fn lookup<T: Number>(
        &self,
        table: &[T],
        ids: &Data,
        result: &mut [T],
    ) -> Result<(), Error> {
        let width = self.width;
        self.each("lookup", ids, |place, row| {
            let target = &mut result[place * width..(place + 1) * width];
            match row {
                Some(row) => target.copy_from_slice(&table[row * width..(row + 1) * width]),
                None => target.fill(T::ZERO),
            }
        })
    }

    /// Overwrites `result` with the sums of the terms by row, in the order of places.
    ///
    /// # Errors
    /// An id that is no row of the whole table.
    pub fn scatter_add<T: Number>(
        &self,
        ids: &Data,
        terms: &[T],
        result: &mut [T],
        overflow: &mut bool,
    ) -> Result<(), Error> {
        let width = self.width;
        result.fill(T::ZERO);
        self.each("scatter_add", ids, |place, row| {
            let Some(row) = row else { return };
            let term = &terms[place * width..(place + 1) * width];
            for (sum, &t) in result[row * width..(row + 1) * width].iter_mut().zip(term) {
                *sum = sum.add(t, overflow);
            }
        })
    }
}
