//! Elementwise ops, into a buffer of their own or over an operand.

use shardgrad_core::ops::{Comparison, Unary};

use crate::number::Number;

/// A function of one operand; without one, of the result's own elements.
#[inline(always)]
pub fn map<T: Number>(result: &mut [T], a: Option<&[T]>, mut f: impl FnMut(T) -> T) {
    match a {
        Some(a) => result.iter_mut().zip(a).for_each(|(r, &a)| *r = f(a)),
        None => result.iter_mut().for_each(|r| *r = f(*r)),
    }
}

/// A function of two operands; one that is missing is the result's own elements.
#[inline(always)]
pub fn zip<T: Number>(
    result: &mut [T],
    a: Option<&[T]>,
    b: Option<&[T]>,
    mut f: impl FnMut(T, T) -> T,
) {
    match (a, b) {
        (Some(a), Some(b)) => {
            result.iter_mut().zip(a).zip(b).for_each(|((r, &a), &b)| *r = f(a, b));
        }
        (Some(a), None) => result.iter_mut().zip(a).for_each(|(r, &a)| *r = f(a, *r)),
        (None, Some(b)) => result.iter_mut().zip(b).for_each(|(r, &b)| *r = f(*r, b)),
        (None, None) => result.iter_mut().for_each(|r| *r = f(*r, *r)),
    }
}

/// 1 where a comparison holds, else 0.
pub fn compare<T: Number>(
    comparison: Comparison,
    result: &mut [T],
    a: Option<&[T]>,
    b: Option<&[T]>,
) {
    let mask = |holds: bool| if holds { T::ONE } else { T::ZERO };
    match comparison {
        Comparison::Lt => zip(result, a, b, |x, y| mask(x < y)),
        Comparison::Le => zip(result, a, b, |x, y| mask(x <= y)),
        Comparison::Gt => zip(result, a, b, |x, y| mask(x > y)),
        Comparison::Ge => zip(result, a, b, |x, y| mask(x >= y)),
        Comparison::Eq => zip(result, a, b, |x, y| mask(x == y)),
        Comparison::Ne => zip(result, a, b, |x, y| mask(x != y)),
    }
}

/// 1 where a comparison with a constant holds, else 0.
pub fn compare_const<T: Number>(comparison: Comparison, c: T, result: &mut [T], a: Option<&[T]>) {
    let mask = |holds: bool| if holds { T::ONE } else { T::ZERO };
    match comparison {
        Comparison::Lt => map(result, a, |x| mask(x < c)),
        Comparison::Le => map(result, a, |x| mask(x <= c)),
        Comparison::Gt => map(result, a, |x| mask(x > c)),
        Comparison::Ge => map(result, a, |x| mask(x >= c)),
        Comparison::Eq => map(result, a, |x| mask(x == c)),
        Comparison::Ne => map(result, a, |x| mask(x != c)),
    }
}

/// The second operand where the first is not 0, else the third; one that is missing is the result's own elements.
pub fn choose<T: Number>(result: &mut [T], mask: Option<&[T]>, a: Option<&[T]>, b: Option<&[T]>) {
    for (i, r) in result.iter_mut().enumerate() {
        let from = |operand: Option<&[T]>| operand.map_or(*r, |operand| operand[i]);
        *r = if from(mask) == T::ZERO { from(b) } else { from(a) };
    }
}

/// Element types with the functions of [`Unary`].
pub trait Functions: Number {
    /// Applies a function; `false` if the type does not have it (integers have negation only).
    fn unary(unary: Unary, result: &mut [Self], a: Option<&[Self]>, overflow: &mut bool) -> bool;
}

macro_rules! float {
    ($t:ty) => {
        impl Functions for $t {
            fn unary(unary: Unary, result: &mut [Self], a: Option<&[Self]>, _: &mut bool) -> bool {
                match unary {
                    Unary::Neg => map(result, a, |x| -x),
                    Unary::Relu => map(result, a, |x| if x <= 0.0 { 0.0 } else { x }),
                    Unary::Gelu => {
                        #[allow(clippy::cast_possible_truncation)]
                        let slope = (2.0 / std::f64::consts::PI).sqrt() as $t;
                        map(result, a, |x| {
                            0.5 * x * (1.0 + (slope * (x + 0.044_715 * x * x * x)).tanh())
                        });
                    }
                    Unary::Tanh => map(result, a, <$t>::tanh),
                    Unary::Sigmoid => map(result, a, |x| 1.0 / (1.0 + (-x).exp())),
                    Unary::Exp => map(result, a, <$t>::exp),
                    Unary::Log => map(result, a, <$t>::ln),
                    Unary::Sqrt => map(result, a, <$t>::sqrt),
                    Unary::Square => map(result, a, |x| x * x),
                    Unary::Abs => map(result, a, <$t>::abs),
                    Unary::Reciprocal => map(result, a, |x| 1.0 / x),
                }
                true
            }
        }
    };
}
float!(f32);
float!(f64);

macro_rules! integer {
    ($t:ty) => {
        impl Functions for $t {
            fn unary(
                unary: Unary,
                result: &mut [Self],
                a: Option<&[Self]>,
                overflow: &mut bool,
            ) -> bool {
                match unary {
                    Unary::Neg => map(result, a, |x| Self::ZERO.sub(x, overflow)),
                    Unary::Relu
                    | Unary::Gelu
                    | Unary::Tanh
                    | Unary::Sigmoid
                    | Unary::Exp
                    | Unary::Log
                    | Unary::Sqrt
                    | Unary::Square
                    | Unary::Abs
                    | Unary::Reciprocal => return false,
                }
                true
            }
        }
    };
}
integer!(i32);
integer!(i64);
