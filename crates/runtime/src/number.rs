//! Element types of local buffers, and their arithmetic.
//!
//! Integer arithmetic never wraps silently: every op that can overflow raises a flag, which the caller turns into an
//! error once per loop. For floats the flag is never touched and the optimiser drops it.

use shardgrad_core::DType;
use shardgrad_graph::Element;

use crate::tensor::Data;

/// An element type.
pub trait Number: Element + Default + PartialEq {
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// The identity of max: −∞, or the least integer.
    const LOWEST: Self;
    /// Sum.
    fn add(self, other: Self, overflow: &mut bool) -> Self;
    /// Difference.
    fn sub(self, other: Self, overflow: &mut bool) -> Self;
    /// Product.
    fn mul(self, other: Self, overflow: &mut bool) -> Self;
    /// Quotient; of integers rounded towards zero, and an overflow if the divisor is 0.
    fn div(self, other: Self, overflow: &mut bool) -> Self;
    /// The larger; NaN if one of them is, the first of equals.
    fn larger(self, other: Self) -> Self;
    /// The smaller; NaN if one of them is, the first of equals.
    fn smaller(self, other: Self) -> Self;
    /// The nearest value of this type; integers are rounded towards zero.
    fn from_f64(value: f64) -> Self;
    /// The value as f64.
    fn to_f64(self) -> f64;
    /// Wraps a buffer.
    fn into_data(buffer: Vec<Self>) -> Data;
    /// The buffer, if it has this type.
    fn from_data(data: Data) -> Option<Vec<Self>>;
    /// The elements, if they have this type.
    fn slice(data: &Data) -> Option<&[Self]>;
    /// The elements, if they have this type.
    fn slice_mut(data: &mut Data) -> Option<&mut Vec<Self>>;
}

macro_rules! storage {
    ($variant:ident) => {
        fn into_data(buffer: Vec<Self>) -> Data {
            Data::$variant(buffer)
        }
        fn from_data(data: Data) -> Option<Vec<Self>> {
            if let Data::$variant(buffer) = data { Some(buffer) } else { None }
        }
        fn slice(data: &Data) -> Option<&[Self]> {
            if let Data::$variant(buffer) = data { Some(buffer) } else { None }
        }
        fn slice_mut(data: &mut Data) -> Option<&mut Vec<Self>> {
            if let Data::$variant(buffer) = data { Some(buffer) } else { None }
        }
    };
}

macro_rules! float {
    ($t:ty, $variant:ident) => {
        impl Number for $t {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const LOWEST: Self = <$t>::NEG_INFINITY;
            #[inline(always)]
            fn add(self, other: Self, _: &mut bool) -> Self {
                self + other
            }
            #[inline(always)]
            fn sub(self, other: Self, _: &mut bool) -> Self {
                self - other
            }
            #[inline(always)]
            fn mul(self, other: Self, _: &mut bool) -> Self {
                self * other
            }
            #[inline(always)]
            fn div(self, other: Self, _: &mut bool) -> Self {
                self / other
            }
            #[inline(always)]
            fn larger(self, other: Self) -> Self {
                if other > self || other.is_nan() { other } else { self }
            }
            #[inline(always)]
            fn smaller(self, other: Self) -> Self {
                if other < self || other.is_nan() { other } else { self }
            }
            #[inline(always)]
            #[allow(clippy::cast_possible_truncation)]
            fn from_f64(value: f64) -> Self {
                value as $t
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                f64::from(self)
            }
            storage!($variant);
        }
    };
}
float!(f32, F32);
float!(f64, F64);

macro_rules! integer {
    ($t:ty, $variant:ident) => {
        impl Number for $t {
            const ZERO: Self = 0;
            const ONE: Self = 1;
            const LOWEST: Self = <$t>::MIN;
            #[inline]
            fn add(self, other: Self, overflow: &mut bool) -> Self {
                let (value, wrapped) = self.overflowing_add(other);
                *overflow |= wrapped;
                value
            }
            #[inline]
            fn sub(self, other: Self, overflow: &mut bool) -> Self {
                let (value, wrapped) = self.overflowing_sub(other);
                *overflow |= wrapped;
                value
            }
            #[inline]
            fn mul(self, other: Self, overflow: &mut bool) -> Self {
                let (value, wrapped) = self.overflowing_mul(other);
                *overflow |= wrapped;
                value
            }
            #[inline]
            fn div(self, other: Self, overflow: &mut bool) -> Self {
                self.checked_div(other).unwrap_or_else(|| {
                    *overflow = true;
                    0
                })
            }
            #[inline]
            fn larger(self, other: Self) -> Self {
                self.max(other)
            }
            #[inline]
            fn smaller(self, other: Self) -> Self {
                self.min(other)
            }
            #[inline]
            #[allow(clippy::cast_possible_truncation)]
            fn from_f64(value: f64) -> Self {
                value as $t
            }
            #[inline]
            #[allow(clippy::cast_precision_loss, clippy::cast_lossless)]
            fn to_f64(self) -> f64 {
                self as f64
            }
            storage!($variant);
        }
    };
}
integer!(i32, I32);
integer!(i64, I64);

/// Runs a block with `$t` bound to the element type of a [`DType`].
macro_rules! with_number {
    ($dtype:expr, $t:ident => $body:expr) => {
        match $dtype {
            shardgrad_core::DType::F32 => {
                type $t = f32;
                $body
            }
            shardgrad_core::DType::F64 => {
                type $t = f64;
                $body
            }
            shardgrad_core::DType::I32 => {
                type $t = i32;
                $body
            }
            shardgrad_core::DType::I64 => {
                type $t = i64;
                $body
            }
        }
    };
}
pub(crate) use with_number;

/// An error if the flag is up.
pub(crate) fn checked(
    overflow: bool,
    op: &'static str,
    dtype: DType,
) -> Result<(), crate::error::Error> {
    if overflow { Err(crate::error::Error::Overflow { op, dtype }) } else { Ok(()) }
}
