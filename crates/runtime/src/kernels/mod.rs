//! Kernels: one op on the local blocks of one rank. Plain loops and GEMM on views; independent of the dense oracle.

pub mod broadcast;
pub mod einsum;
pub mod elementwise;
pub mod gemm;
pub mod one_hot;
pub mod reduce;
pub mod strided;

use shardgrad_core::ops::{Comparison, Const, Reduction, Unary};
use shardgrad_core::{Block, DType, Op};
use smallvec::SmallVec;

use crate::error::Error;
use crate::number::{Number, checked, with_number};
use crate::tensor::Data;
use broadcast::Rearrange;
use einsum::Contraction;
use elementwise::{Functions, compare, compare_const, map, zip};
use reduce::Reduce;

/// A local op, ready for blocks of fixed shapes.
#[derive(Clone, Debug)]
pub enum Kernel {
    /// The same constant everywhere.
    Fill(Const),
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
    /// A reduction over dims.
    Reduce(Reduce),
    /// Broadcast or transpose.
    Rearrange(Rearrange),
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
        }
        checked(overflow, op, T::DTYPE)
    }
}

/// An operand's buffer; `None` if it is the result's buffer.
pub type Operands<'a> = SmallVec<[Option<&'a Data>; 2]>;

impl Kernel {
    /// The kernel of an op between blocks of these shapes; `None` for leaves and transitions, which are no kernels.
    #[must_use]
    pub fn new(op: &Op, operands: &[&[usize]], block: &Block) -> Option<Self> {
        let result = block.shape();
        Some(match op {
            Op::Leaf(_) | Op::Transition(_) => return None,
            Op::Fill(fill) => Kernel::Fill(fill.value),
            Op::Einsum(spec) => Kernel::Einsum(Box::new(Contraction::new(spec, operands))),
            Op::Add => Kernel::Binary(Binary::Add),
            Op::Sub => Kernel::Binary(Binary::Sub),
            Op::Mul => Kernel::Binary(Binary::Mul),
            Op::Div => Kernel::Binary(Binary::Div),
            Op::Scale(c) => Kernel::Scale(*c),
            Op::AddConst(c) => Kernel::AddConst(*c),
            Op::Unary(unary) => Kernel::Unary(*unary),
            Op::Compare(comparison) => Kernel::Compare(*comparison),
            Op::CompareConst(comparison, c) => Kernel::CompareConst(*comparison, *c),
            Op::Sum(dims) => Kernel::Reduce(Reduce::new(
                Reduction::Sum,
                dims.dims(),
                operands.first().copied().unwrap_or_default(),
            )),
            Op::Max(dims) => Kernel::Reduce(Reduce::new(
                Reduction::Max,
                dims.dims(),
                operands.first().copied().unwrap_or_default(),
            )),
            Op::Broadcast(broadcast) => Kernel::Rearrange(Rearrange::broadcast(
                broadcast,
                operands.first().copied().unwrap_or_default(),
                &result,
            )),
            Op::Transpose(perm) => Kernel::Rearrange(Rearrange::transpose(
                perm,
                operands.first().copied().unwrap_or_default(),
                &result,
            )),
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
            | Kernel::Einsum(_)
            | Kernel::Reduce(_)
            | Kernel::Rearrange(_)
            | Kernel::OneHot(..) => false,
            Kernel::Binary(_)
            | Kernel::Scale(_)
            | Kernel::AddConst(_)
            | Kernel::Unary(_)
            | Kernel::Compare(_)
            | Kernel::CompareConst(..)
            | Kernel::Copy => true,
        }
    }

    /// Overwrites `result`.
    ///
    /// # Errors
    /// Integers that overflow; an op that the element type does not have; buffers of other types.
    pub fn run(
        &self,
        op: &'static str,
        operands: &Operands<'_>,
        result: &mut Data,
    ) -> Result<(), Error> {
        if let Kernel::OneHot(first, classes) = self {
            return with_number!(result.dtype(), T => {
                if let (Some(Some(labels)), Some(result)) = (operands.first(), T::slice_mut(result)) {
                    one_hot::run::<T>(labels, *first, *classes, result);
                }
                Ok(())
            });
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
            Kernel::Rearrange(rearrange) => {
                rearrange.run(operand(0).unwrap_or_default(), result);
            }
            Kernel::Copy => {
                if let Some(a) = operand(0) {
                    result.copy_from_slice(a);
                }
            }
            Kernel::OneHot(..) => {} // Done by `run`: its operand has another element type.
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
