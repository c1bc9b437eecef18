//! The two textbook distributed products, over any communicator and any number of ranks.
//!
//! *Data parallel*: A is split by rows, B is whole on every rank; rank 0 gathers the row chunks of C.
//! *Fully sharded*: A is split by rows, B by columns. In round k rank r holds the block of B that belongs to rank
//! (r + k) mod p, multiplies it into those columns of its rows of C, and hands it to rank r − 1, with its owner's index.
//! After p rounds each rank has its rows of C whole. Beside the block that its caller owns it has never held more than two
//! blocks of B, the one that leaves and the one that arrives. (One-dimensional Cannon: Cannon 1969.) Blocks follow the split rule of [`shardgrad_core::geometry`]; they may be uneven or empty.

use std::fmt;
use std::ops::Range;

use ndarray::{Array2, ArrayView2, ArrayViewMut2, s};
use shardgrad_core::geometry::split;

use crate::comm::{Communicator, Incoming, Outgoing, Tag};
use crate::error::Error;
use crate::kernels::gemm::Gemm;
use crate::number::{Number, checked};

/// Tag of the chunks of C that rank 0 gathers.
const CHUNK: Tag = Tag::User(0xC0);
/// Tag of the blocks of B that rotate, and of their owners.
const BLOCK: Tag = Tag::User(0xB0);
const OWNER: Tag = Tag::User(0xB1);

fn check(a: &[usize], b: &[usize]) -> Result<(), Error> {
    if a[1] == b[0] {
        return Ok(());
    }
    Err(Error::Matrices {
        a: format!("{a:?}"),
        b: format!("{b:?}"),
        problem: format!("the left one has {} columns, the right one {} rows", a[1], b[0]),
    })
}

fn product<T: Gemm>(
    c: ArrayViewMut2<'_, T>,
    a: ArrayView2<'_, T>,
    b: ArrayView2<'_, T>,
) -> Result<(), Error> {
    let mut overflow = false;
    T::gemm(c, a, b, &mut overflow);
    checked(overflow, "matmul", T::DTYPE)
}

/// C = A·B, where every rank holds A and B and computes a chunk of rows; `Some` on rank 0, which gathers them.
///
/// # Errors
/// Inner extents that differ, an integer overflow, or whatever the communicator reports.
pub fn data_parallel_matmul<T: Gemm>(
    comm: &mut (impl Communicator + ?Sized),
    a: ArrayView2<'_, T>,
    b: ArrayView2<'_, T>,
) -> Result<Option<Array2<T>>, Error> {
    check(a.shape(), b.shape())?;
    let (p, me) = (comm.size(), comm.rank());
    let rows = |rank: usize| split(a.nrows(), p, rank);
    let own = a.slice(s![rows(me), ..]);
    if me > 0 {
        let mut mine = Array2::from_elem((own.nrows(), b.ncols()), T::ZERO);
        product(mine.view_mut(), own, b)?;
        comm.send(0, CHUNK, T::into_data(mine.into_raw_vec_and_offset().0))?;
        return Ok(None);
    }
    let mut c = Array2::from_elem((a.nrows(), b.ncols()), T::ZERO);
    product(c.slice_mut(s![rows(0), ..]), own, b)?;
    for rank in 1..p {
        let chunk = comm.recv(rank, CHUNK)?;
        let chunk = matrix::<T>(chunk, rows(rank).len(), b.ncols())?;
        c.slice_mut(s![rows(rank), ..]).assign(&chunk);
    }
    Ok(Some(c))
}

fn matrix<T: Number>(data: crate::Data, rows: usize, columns: usize) -> Result<Array2<T>, Error> {
    let found = format!("{} elements of {}", data.len(), data.dtype());
    T::from_data(data).and_then(|v| Array2::from_shape_vec((rows, columns), v).ok()).ok_or_else(
        || Error::WrongBuffer {
            what: "a block of a matrix",
            expected: format!("{rows} × {columns} elements of {}", T::DTYPE),
            found,
        },
    )
}

/// This rank's rows of C = A·B, from its rows of A and its columns of B. `columns` is the number of columns of B.
///
/// # Errors
/// Blocks that do not follow the split rule, inner extents that differ, an integer overflow, or whatever the
/// communicator reports.
pub fn fully_sharded_matmul<T: Gemm>(
    comm: &mut (impl Communicator + ?Sized),
    a_rows: ArrayView2<'_, T>,
    b_columns: ArrayView2<'_, T>,
    columns: usize,
) -> Result<Array2<T>, Error> {
    check(a_rows.shape(), b_columns.shape())?;
    let (p, me) = (comm.size(), comm.rank());
    let width = |owner: usize| split(columns, p, owner).len();
    if b_columns.ncols() != width(me) {
        return Err(Error::WrongBuffer {
            what: "the block of B",
            expected: format!("{} of the {columns} columns on rank {me} of {p}", width(me)),
            found: format!("{} columns", b_columns.ncols()),
        });
    }
    let mut c = Array2::from_elem((a_rows.nrows(), columns), T::ZERO);
    // Row-major, whatever the caller's strides are.
    let mut block = matrix::<T>(
        T::into_data(b_columns.iter().copied().collect()),
        b_columns.nrows(),
        b_columns.ncols(),
    )?;
    let mut owner = me;
    for round in 0..p {
        product(c.slice_mut(s![.., split(columns, p, owner)]), a_rows, block.view())?;
        if round + 1 < p {
            let (next, previous) = ((me + 1) % p, (me + p - 1) % p);
            // Blocks travel towards lower ranks.
            let (to, from) = (previous, next);
            let pass = |comm: &mut _, tag, payload| -> Result<crate::Data, Error> {
                Communicator::exchange(
                    comm,
                    Some(Outgoing { to, tag, payload }),
                    Some(Incoming { from, tag }),
                )
                .map(|arrived| arrived.unwrap_or(crate::Data::I64(Vec::new())))
            };
            let label = crate::Data::I64(vec![i64::try_from(owner).unwrap_or(i64::MAX)]);
            owner = owner_of(&pass(comm, OWNER, label)?, p)?;
            let arrived = pass(comm, BLOCK, T::into_data(block.into_raw_vec_and_offset().0))?;
            block = matrix::<T>(arrived, a_rows.ncols(), width(owner))?;
        }
    }
    Ok(c)
}

fn owner_of(label: &crate::Data, p: usize) -> Result<usize, Error> {
    match label {
        crate::Data::I64(v) if v.len() == 1 => usize::try_from(v[0]).ok().filter(|&o| o < p),
        _ => None,
    }
    .ok_or_else(|| Error::WrongBuffer {
        what: "the owner of a block",
        expected: format!("a rank below {p}"),
        found: format!("{label:?}"),
    })
}

/// Which block of B each rank multiplies in each round of [`fully_sharded_matmul`].
///
/// ```
/// let table = shardgrad_runtime::matmul::Rotation::new(2, 5);
/// assert_eq!(table.owner(1, 1), 0);
/// assert_eq!(table.columns(1, 1), 0..3);
/// assert!(table.to_string().contains("round 1"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    ranks: usize,
    columns: usize,
}

impl Rotation {
    /// The rotation over `ranks` ranks of a B with `columns` columns.
    #[must_use]
    pub fn new(ranks: usize, columns: usize) -> Self {
        Self { ranks, columns }
    }

    /// Whose block `rank` holds in a round.
    #[must_use]
    pub fn owner(&self, round: usize, rank: usize) -> usize {
        (rank + round) % self.ranks
    }

    /// Its columns.
    #[must_use]
    pub fn columns(&self, round: usize, rank: usize) -> Range<usize> {
        split(self.columns, self.ranks, self.owner(round, rank))
    }
}

impl fmt::Display for Rotation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:9}", "")?;
        (0..self.ranks).try_for_each(|rank| write!(f, " {:>16}", format!("rank {rank}")))?;
        for round in 0..self.ranks {
            write!(f, "\nround {round:<3}")?;
            for rank in 0..self.ranks {
                let cell = format!("B{} {:?}", self.owner(round, rank), self.columns(round, rank));
                write!(f, " {cell:>16}")?;
            }
        }
        Ok(())
    }
}
