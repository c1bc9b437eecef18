//! Elementwise ops: operands and result have the same shape.

use shardgrad_core::ops::{Comparison, Const, Unary};
use shardgrad_core::{DType, TensorType};

use super::number::{Number, Real};
use super::strided::block_of;
use super::{mismatch, overflow};
use crate::error::Error;
use crate::value::Value;

/// A function of one operand, element by element; `None` from `f` is an arithmetic error.
pub(super) fn map<T: Number>(
    op: &'static str,
    operands: &[&Value],
    local: &TensorType,
    f: impl Fn(T) -> Option<T>,
) -> Result<Value, Error> {
    let [value] = operands else { return Err(mismatch(op, operands, local)) };
    let a = T::unwrap(value)
        .filter(|a| a.shape() == local.shape.as_slice() && local.dtype == T::DTYPE)
        .ok_or_else(|| mismatch(op, operands, local))?;
    let elements =
        a.iter().map(|&x| f(x)).collect::<Option<Vec<T>>>().ok_or_else(|| overflow::<T>(op))?;
    block_of(op, local, elements)
}

/// A function of two operands, element by element; `None` from `f` is an arithmetic error.
pub(super) fn zip<T: Number>(
    op: &'static str,
    operands: &[&Value],
    local: &TensorType,
    f: impl Fn(T, T) -> Option<T>,
) -> Result<Value, Error> {
    let wrong = || mismatch(op, operands, local);
    let [first, second] = operands else { return Err(wrong()) };
    let (Some(a), Some(b)) = (T::unwrap(first), T::unwrap(second)) else { return Err(wrong()) };
    let shape = local.shape.as_slice();
    if a.shape() != shape || b.shape() != shape || local.dtype != T::DTYPE {
        return Err(wrong());
    }
    let elements = a
        .iter()
        .zip(b)
        .map(|(&x, &y)| f(x, y))
        .collect::<Option<Vec<T>>>()
        .ok_or_else(|| overflow::<T>(op))?;
    block_of(op, local, elements)
}

/// The second operand's element where the first's is not 0, else the third's.
pub(super) fn choose<T: Number>(operands: &[&Value], local: &TensorType) -> Result<Value, Error> {
    let wrong = || mismatch("where", operands, local);
    let arrays: Vec<_> = operands
        .iter()
        .map(|v| T::unwrap(v).filter(|a| a.shape() == local.shape.as_slice()))
        .collect::<Option<_>>()
        .filter(|_| local.dtype == T::DTYPE)
        .ok_or_else(wrong)?;
    let [mask, a, b] = arrays[..] else { return Err(wrong()) };
    let elements =
        mask.iter().zip(a).zip(b).map(|((&m, &x), &y)| if m == T::ZERO { y } else { x }).collect();
    block_of("where", local, elements)
}

/// The numbers in this type: rounded to the nearest float, or towards zero; `None` beyond the integers of the type.
pub(super) fn cast<T: Number>(operands: &[&Value], local: &TensorType) -> Result<Value, Error> {
    fn from<S: Number, T: Number>(a: &Value, local: &TensorType) -> Result<Value, Error> {
        let source = S::unwrap(a).filter(|a| a.shape() == local.shape.as_slice());
        let source = source.ok_or_else(|| mismatch("cast", &[a], local))?;
        let number = |x: &S| {
            let wide = x.wide();
            T::constant(if T::DTYPE.is_float() { wide } else { wide.trunc() })
        };
        let elements = source.iter().map(number).collect::<Option<Vec<T>>>();
        block_of("cast", local, elements.ok_or_else(|| overflow::<T>("cast"))?)
    }
    let [value] = operands else { return Err(mismatch("cast", operands, local)) };
    // Between integers nothing is rounded.
    match value {
        Value::F32(_) => from::<f32, T>(value, local),
        Value::F64(_) => from::<f64, T>(value, local),
        Value::I32(_) => from::<i32, T>(value, local),
        Value::I64(a) if T::DTYPE == DType::I64 => Ok(Value::I64(a.clone())),
        Value::I64(_) => from::<i64, T>(value, local),
    }
}

/// A constant in the operand's element type.
fn constant<T: Number>(op: &'static str, c: Const) -> Result<T, Error> {
    T::constant(c.value()).ok_or_else(|| Error::Arithmetic {
        op,
        problem: format!("the constant {c} is no {}; use an integer in its range", T::DTYPE),
    })
}

/// c · a.
pub(super) fn scale<T: Number>(c: Const, a: &[&Value], local: &TensorType) -> Result<Value, Error> {
    let c = constant::<T>("scale", c)?;
    map("scale", a, local, |x: T| c.times(x))
}

/// a + c.
pub(super) fn add_const<T: Number>(
    c: Const,
    a: &[&Value],
    local: &TensorType,
) -> Result<Value, Error> {
    let c = constant::<T>("add_const", c)?;
    map("add_const", a, local, |x: T| x.plus(c))
}

fn mask<T: Number>(holds: bool) -> Option<T> {
    Some(if holds { T::ONE } else { T::ZERO })
}

/// 1 where the comparison of two operands holds.
pub(super) fn compare<T: Number>(
    comparison: Comparison,
    operands: &[&Value],
    local: &TensorType,
) -> Result<Value, Error> {
    zip(comparison.name(), operands, local, |x: T, y: T| mask(comparison.holds(x, y)))
}

/// 1 where the comparison with a constant holds.
pub(super) fn compare_const<T: Number>(
    comparison: Comparison,
    c: Const,
    operands: &[&Value],
    local: &TensorType,
) -> Result<Value, Error> {
    let c = constant::<T>(comparison.name(), c)?;
    map(comparison.name(), operands, local, |x: T| mask(comparison.holds(x, c)))
}

/// −a for every element type; the other functions for floats.
pub(super) fn unary(unary: Unary, operands: &[&Value], local: &TensorType) -> Result<Value, Error> {
    fn real<T: Real>(
        unary: Unary,
        operands: &[&Value],
        local: &TensorType,
    ) -> Result<Value, Error> {
        map(unary.name(), operands, local, |x: T| Some(x.unary(unary)))
    }
    fn neg<T: Number>(operands: &[&Value], local: &TensorType) -> Result<Value, Error> {
        map("neg", operands, local, |x: T| T::ZERO.minus(x))
    }
    match operands {
        [Value::F32(_)] => real::<f32>(unary, operands, local),
        [Value::F64(_)] => real::<f64>(unary, operands, local),
        [Value::I32(_)] if unary == Unary::Neg => neg::<i32>(operands, local),
        [Value::I64(_)] if unary == Unary::Neg => neg::<i64>(operands, local),
        _ => Err(mismatch(unary.name(), operands, local)),
    }
}
