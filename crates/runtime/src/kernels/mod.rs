//! Kernels: one op on the local blocks of one rank. Plain loops and GEMM on views; independent of the dense oracle.

pub mod along;
pub mod broadcast;
pub mod cast;
pub mod einsum;
pub mod elementwise;
pub mod gemm;
pub mod indices;
pub mod lookup;
pub mod one_hot;
pub mod reduce;
pub mod strided;

use shardgrad_core::ops::{Comparison, Const, Reduction, Unary};
use shardgrad_core::{Block, DType, Op, Shape};
use smallvec::SmallVec;

use crate::error::Error;
use crate::number::{Number, checked, with_number};
use crate::tensor::Data;
use along::{Joined, Part, Running};
use broadcast::Rearrange;
use einsum::Contraction;
use elementwise::{Functions, choose, compare, compare_const, map, zip};
use indices::{Count, Random};
use lookup::Rows;
use reduce::Reduce;

/// A local op, ready for blocks of fixed shapes.
#[derive(Clone, Debug)]
pub enum Kernel {
    /// The same constant everywhere.
    Fill(Const),
    /// Indices.
    Count(Count),
    /// Random numbers under a key.
    Random(Box<Random>),
    /// A sum of products.
    Einsum(Box<Contraction>),
    /// Arithmetic of two operands.
    Binary(Binary),
    /// c · a.
    Scale(Const),
    /// a + c.
    AddConst(Const),
    /// A function of one operand.
    Unary(Unary),
    /// 0/1 from two operands.
    Compare(Comparison),
    /// 0/1 from one operand and a constant.
    CompareConst(Comparison, Const),
    /// One of two operands, by a third.
    Choose,
    /// Another element type.
    Cast,
    /// A reduction over dims.
    Reduce(Reduce),
    /// Running sums along a dim.
    Running(Running),
    /// Broadcast or transpose.
    Rearrange(Rearrange),
    /// Some elements along a dim.
    Part(Box<Part>),
    /// Operands in their places, and a value elsewhere.
    Joined(Box<Joined>),
    /// Rows of a table by ids.
    Lookup(Rows),
    /// Terms added up by ids.
    ScatterAdd(Rows),
    /// Labels to rows: first local class, number of local classes.
    OneHot(usize, usize),
    /// The same elements.
    Copy,
}

/// Arithmetic of two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    /// a + b.
    Add,
    /// a − b.
    Sub,
    /// a · b.
    Mul,
    /// a / b.
    Div,
    /// The larger.
    Maximum,
    /// The smaller.
    Minimum,
}

impl Binary {
    /// The op with a scalar on the right (or the left) of every element.
    pub(crate) fn with_scalar<T: Number>(
        self,
        op: &'static str,
        c: T,
        right: bool,
        result: &mut [T],
        a: Option<&[T]>,
    ) -> Result<(), Error> {
        let mut overflow = false;
        match (self, right) {
            (Binary::Add, true) => map(result, a, |x| x.add(c, &mut overflow)),
            (Binary::Add, false) => map(result, a, |x| c.add(x, &mut overflow)),
            (Binary::Sub, true) => map(result, a, |x| x.sub(c, &mut overflow)),
            (Binary::Sub, false) => map(result, a, |x| c.sub(x, &mut overflow)),
            (Binary::Mul, true) => map(result, a, |x| x.mul(c, &mut overflow)),
            (Binary::Mul, false) => map(result, a, |x| c.mul(x, &mut overflow)),
            (Binary::Div, true) => map(result, a, |x| x.div(c, &mut overflow)),
            (Binary::Div, false) => map(result, a, |x| c.div(x, &mut overflow)),
            (Binary::Maximum, true) => map(result, a, |x| x.larger(c)),
            (Binary::Maximum, false) => map(result, a, |x| c.larger(x)),
            (Binary::Minimum, true) => map(result, a, |x| x.smaller(c)),
            (Binary::Minimum, false) => map(result, a, |x| c.smaller(x)),
        }
        checked(overflow, op, T::DTYPE)
    }
}

/// An operand's buffer; `None` if it is the result's buffer.
pub type Operands<'a> = SmallVec<[Option<&'a Data>; 2]>;

impl Kernel {
    /// The kernel of an op between these blocks; `None` for leaves and transitions, which are no kernels.
    #[must_use]
    pub fn new(op: &Op, operands: &[&Block], block: &Block) -> Option<Self> {
        let result = block.shape();
        let owned: SmallVec<[Shape; 2]> = operands.iter().map(|block| block.shape()).collect();
        let shapes: SmallVec<[&[usize]; 2]> = owned.iter().map(Shape::as_slice).collect();
        let first = shapes.first().copied().unwrap_or_default();
        let rows = |all: usize, table: Option<&Block>, ids: Option<&Block>| {
            let (table, ids) = (table?, ids?);
            let (held, row) = table.ranges.split_first()?;
            let width = row.iter().map(ExactSizeIterator::len).product();
            Some(Rows::new(all, held.clone(), width, ids))
        };
        Some(match op {
            Op::Leaf(_) | Op::Transition(_) => return None,
            Op::Fill(fill) => Kernel::Fill(fill.value),
            Op::Iota(iota) => Kernel::Count(Count::new(iota, block)),
            Op::Uniform(uniform) => Kernel::Random(Box::new(Random::new(uniform, block))),
            Op::Einsum(spec) => Kernel::Einsum(Box::new(Contraction::new(spec, &shapes))),
            Op::Add => Kernel::Binary(Binary::Add),
            Op::Sub => Kernel::Binary(Binary::Sub),
            Op::Mul => Kernel::Binary(Binary::Mul),
            Op::Div => Kernel::Binary(Binary::Div),
            Op::Maximum => Kernel::Binary(Binary::Maximum),
            Op::Minimum => Kernel::Binary(Binary::Minimum),
            Op::Where => Kernel::Choose,
            Op::Cast(_) => Kernel::Cast,
            Op::Scale(c) => Kernel::Scale(*c),
            Op::AddConst(c) => Kernel::AddConst(*c),
            Op::Unary(unary) => Kernel::Unary(*unary),
            Op::Compare(comparison) => Kernel::Compare(*comparison),
            Op::CompareConst(comparison, c) => Kernel::CompareConst(*comparison, *c),
            Op::Sum(dims) => Kernel::Reduce(Reduce::new(Reduction::Sum, dims.dims(), first)),
            Op::Max(dims) => Kernel::Reduce(Reduce::new(Reduction::Max, dims.dims(), first)),
            Op::CumSum(cumsum) => Kernel::Running(Running::new(cumsum, &result)),
            Op::Broadcast(broadcast) => {
                Kernel::Rearrange(Rearrange::broadcast(broadcast, first, &result))
            }
            Op::Transpose(perm) => Kernel::Rearrange(Rearrange::transpose(perm, first, &result)),
            Op::Slice(slice) => Kernel::Part(Box::new(Part::slice(slice, first, &result))),
            Op::Pad(pad) => Kernel::Joined(Box::new(Joined::pad(pad, first, &result))),
            Op::Concat(dim) => {
                Kernel::Joined(Box::new(Joined::concat(*dim, shapes.iter().copied(), &result)))
            }
            Op::Lookup { rows: all } => {
                let (table, ids) = (operands.first().copied(), operands.get(1).copied());
                Kernel::Lookup(rows(*all, table, ids)?)
            }
            Op::ScatterAdd { rows: all } => {
                Kernel::ScatterAdd(rows(*all, Some(block), operands.first().copied())?)
            }
            Op::OneHot { .. } => {
                let classes = block.ranges.last().cloned().unwrap_or(0..0);
                Kernel::OneHot(classes.start, classes.len())
            }
            Op::Reshape(_) | Op::StopGradient | Op::Constrain => Kernel::Copy,
        })
    }

    /// Whether every element of the result depends on the same element of the operands only, so that the result may be an
    /// operand's buffer and parts of it can be computed by themselves.
    #[must_use]
    pub fn is_elementwise(&self) -> bool {
        match self {
            Kernel::Fill(_)
            | Kernel::Count(_)
            | Kernel::Random(_)
            | Kernel::Einsum(_)
            | Kernel::Cast
            | Kernel::Reduce(_)
            | Kernel::Running(_)
            | Kernel::Rearrange(_)
            | Kernel::Part(_)
            | Kernel::Joined(_)
            | Kernel::Lookup(_)
            | Kernel::ScatterAdd(_)
            | Kernel::OneHot(..) => false,
            Kernel::Binary(_)
            | Kernel::Choose
            | Kernel::Scale(_)
            | Kernel::AddConst(_)
            | Kernel::Unary(_)
            | Kernel::Compare(_)
            | Kernel::CompareConst(..)
            | Kernel::Copy => true,
        }
    }

    /// Runs a kernel whose operands are not all of the result's type; `None` if it is none.
    fn mixed(
        &self,
        op: &'static str,
        operands: &Operands<'_>,
        result: &mut Data,
    ) -> Option<Result<(), Error>> {
        let operand = |i: usize| operands.get(i).copied().flatten();
        let dtype = result.dtype();
        with_number!(dtype, T => {
            let into = <T as Number>::slice_mut(result)?;
            let typed = |i: usize| operand(i).and_then(<T as Number>::slice).unwrap_or_default();
            let mut overflow = false;
            let done = match self {
                Kernel::Random(random) => {
                    random.run::<T>(operand(0)?, into);
                    Ok(())
                }
                Kernel::Cast => {
                    cast::run::<T>(operand(0)?, into, &mut overflow);
                    Ok(())
                }
                Kernel::OneHot(first, classes) => {
                    one_hot::run::<T>(operand(0)?, *first, *classes, into);
                    Ok(())
                }
                Kernel::Lookup(rows) => rows.lookup::<T>(typed(0), operand(1)?, into),
                Kernel::ScatterAdd(rows) => {
                    rows.scatter_add::<T>(operand(0)?, typed(1), into, &mut overflow)
                }
                Kernel::Fill(_)
                | Kernel::Count(_)
                | Kernel::Einsum(_)
                | Kernel::Binary(_)
                | Kernel::Scale(_)
                | Kernel::AddConst(_)
                | Kernel::Unary(_)
                | Kernel::Compare(_)
                | Kernel::CompareConst(..)
                | Kernel::Choose
                | Kernel::Reduce(_)
                | Kernel::Running(_)
                | Kernel::Rearrange(_)
                | Kernel::Part(_)
                | Kernel::Joined(_)
                | Kernel::Copy => return None,
            };
            Some(done.and_then(|()| checked(overflow, op, dtype)))
        })
    }

    /// Overwrites `result`.
    ///
    /// # Errors
    /// Integers that overflow; ids that are no rows; an op that the element type does not have; buffers of other types.
    pub fn run(
        &self,
        op: &'static str,
        operands: &Operands<'_>,
        result: &mut Data,
    ) -> Result<(), Error> {
        if let Some(done) = self.mixed(op, operands, result) {
            return done;
        }
        with_number!(result.dtype(), T => {
            let mut typed: SmallVec<[Option<&[T]>; 2]> = SmallVec::new();
            for operand in operands {
                let Some(data) = operand else {
                    typed.push(None);
                    continue;
                };
                let dtype = data.dtype();
                let elements = T::slice(data).ok_or_else(|| wrong(op, dtype, result.dtype()))?;
                typed.push(Some(elements));
            }
            match T::slice_mut(result) {
                Some(result) => self.typed::<T>(op, &typed, result),
                None => Ok(()), // The element type is the result's own.
            }
        })
    }

    pub(crate) fn typed<T: Functions + gemm::Gemm>(
        &self,
        op: &'static str,
        operands: &[Option<&[T]>],
        result: &mut [T],
    ) -> Result<(), Error> {
        let operand = |i: usize| operands.get(i).copied().flatten();
        let mut overflow = false;
        match self {
            Kernel::Fill(c) => result.fill(constant(op, *c)?),
            Kernel::Count(count) => count.run(result),
            Kernel::Einsum(contraction) => {
                let apart: SmallVec<[&[T]; 2]> = operands.iter().copied().flatten().collect();
                contraction.run(&apart, result, &mut overflow);
            }
            Kernel::Binary(binary) => {
                let (a, b) = (operand(0), operand(1));
                match binary {
                    Binary::Add => zip(result, a, b, |x, y| x.add(y, &mut overflow)),
                    Binary::Sub => zip(result, a, b, |x, y| x.sub(y, &mut overflow)),
                    Binary::Mul => zip(result, a, b, |x, y| x.mul(y, &mut overflow)),
                    Binary::Div => zip(result, a, b, |x, y| x.div(y, &mut overflow)),
                    Binary::Maximum => zip(result, a, b, T::larger),
                    Binary::Minimum => zip(result, a, b, T::smaller),
                }
            }
            Kernel::Scale(c) => {
                let c: T = constant(op, *c)?;
                map(result, operand(0), |x| c.mul(x, &mut overflow));
            }
            Kernel::AddConst(c) => {
                let c: T = constant(op, *c)?;
                map(result, operand(0), |x| x.add(c, &mut overflow));
            }
            Kernel::Unary(unary) => {
                if !T::unary(*unary, result, operand(0), &mut overflow) {
                    return Err(wrong(op, T::DTYPE, DType::F32));
                }
            }
            Kernel::Compare(comparison) => compare(*comparison, result, operand(0), operand(1)),
            Kernel::CompareConst(comparison, c) => {
                compare_const(*comparison, constant(op, *c)?, result, operand(0));
            }
            Kernel::Reduce(reduce) => {
                reduce.run(operand(0).unwrap_or_default(), result, &mut overflow);
            }
            Kernel::Choose => choose(result, operand(0), operand(1), operand(2)),
            Kernel::Running(running) => {
                running.run(operand(0).unwrap_or_default(), result, &mut overflow);
            }
            Kernel::Part(part) => part.run(operand(0).unwrap_or_default(), result),
            Kernel::Joined(joined) => {
                let fill = joined.fill().map(|c| constant(op, c)).transpose()?;
                joined.run(operands, fill, result);
            }
            Kernel::Rearrange(rearrange) => {
                rearrange.run(operand(0).unwrap_or_default(), result);
            }
            Kernel::Copy => {
                if let Some(a) = operand(0) {
                    result.copy_from_slice(a);
                }
            }
            // Done by `mixed`.
            Kernel::Random(_)
            | Kernel::Cast
            | Kernel::OneHot(..)
            | Kernel::Lookup(_)
            | Kernel::ScatterAdd(_) => {}
        }
        checked(overflow, op, T::DTYPE)
    }
}

fn wrong(op: &'static str, found: DType, expected: DType) -> Error {
    Error::WrongBuffer {
        what: "an operand",
        expected: format!("{expected} elements for {op}"),
        found: found.to_string(),
    }
}

/// A constant in an element type: floats are rounded, integers must be exact.
fn constant<T: Number>(op: &'static str, c: Const) -> Result<T, Error> {
    let value = T::from_f64(c.value());
    if T::DTYPE.is_float() || value.to_f64() == c.value() {
        Ok(value)
    } else {
        Err(Error::WrongBuffer {
            what: "a constant",
            expected: format!("a value of {} for {op}", T::DTYPE),
            found: c.to_string(),
        })
    }
}
