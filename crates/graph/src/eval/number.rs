//! Arithmetic of elements. Integers never wrap: an operation without a result is `None`, and becomes a typed error.

use shardgrad_core::ops::Unary;

use crate::value::Element;

/// An element type with arithmetic. Floats follow IEEE 754 and always have a result.
pub(crate) trait Number: Element {
    /// 0, the identity of sums.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// The identity of maxima: −∞, or the least integer.
    const LOWEST: Self;
    /// a + b.
    fn plus(self, other: Self) -> Option<Self>;
    /// a − b.
    fn minus(self, other: Self) -> Option<Self>;
    /// a · b.
    fn times(self, other: Self) -> Option<Self>;
    /// a / b, towards zero for integers.
    fn over(self, other: Self) -> Option<Self>;
    /// A constant in this type: rounded for floats, exact for integers.
    fn constant(value: f64) -> Option<Self>;
    /// The number in f64; integers beyond 2⁵³ are rounded.
    fn wide(self) -> f64;
    /// Whether two elements are the same to the last bit.
    fn same_bits(self, other: Self) -> bool;

    /// The larger; NaN if one is NaN; the first of equals.
    #[inline]
    #[allow(clippy::eq_op)]
    fn larger(self, other: Self) -> Self {
        if other > self || other != other { other } else { self }
    }

    /// The smaller; NaN if one is NaN; the first of equals.
    #[inline]
    #[allow(clippy::eq_op)]
    fn smaller(self, other: Self) -> Self {
        if other < self || other != other { other } else { self }
    }
}

/// A float.
pub(crate) trait Real: Number {
    /// A function of one element. NaN stays NaN.
    fn unary(self, unary: Unary) -> Self;
}

macro_rules! float {
    ($t:ty) => {
        impl Number for $t {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const LOWEST: Self = <$t>::NEG_INFINITY;
            #[inline]
            fn plus(self, other: Self) -> Option<Self> {
                Some(self + other)
            }
            #[inline]
            fn minus(self, other: Self) -> Option<Self> {
                Some(self - other)
            }
            #[inline]
            fn times(self, other: Self) -> Option<Self> {
                Some(self * other)
            }
            #[inline]
            fn over(self, other: Self) -> Option<Self> {
                Some(self / other)
            }
            #[allow(clippy::cast_possible_truncation)]
            fn constant(value: f64) -> Option<Self> {
                Some(value as $t)
            }
            fn wide(self) -> f64 {
                f64::from(self)
            }
            fn same_bits(self, other: Self) -> bool {
                self.to_bits() == other.to_bits()
            }
        }

        impl Real for $t {
            fn unary(self, unary: Unary) -> Self {
                let x = self;
                match unary {
                    Unary::Neg => -x,
                    Unary::Relu => {
                        if x <= 0.0 {
                            0.0
                        } else {
                            x
                        }
                    }
                    Unary::Gelu => {
                        let slope = (2.0 / std::f64::consts::PI).sqrt() as $t;
                        0.5 * x * (1.0 + (slope * (x + 0.044_715 * x * x * x)).tanh())
                    }
                    Unary::Tanh => x.tanh(),
                    Unary::Sigmoid => 1.0 / (1.0 + (-x).exp()),
                    Unary::Exp => x.exp(),
                    Unary::Log => x.ln(),
                    Unary::Sqrt => x.sqrt(),
                    Unary::Square => x * x,
                    Unary::Abs => x.abs(),
                    Unary::Reciprocal => 1.0 / x,
                }
            }
        }
    };
}
float!(f32);
float!(f64);

macro_rules! integer {
    ($t:ty) => {
        impl Number for $t {
            const ZERO: Self = 0;
            const ONE: Self = 1;
            const LOWEST: Self = <$t>::MIN;
            #[inline]
            fn plus(self, other: Self) -> Option<Self> {
                self.checked_add(other)
            }
            #[inline]
            fn minus(self, other: Self) -> Option<Self> {
                self.checked_sub(other)
            }
            #[inline]
            fn times(self, other: Self) -> Option<Self> {
                self.checked_mul(other)
            }
            #[inline]
            fn over(self, other: Self) -> Option<Self> {
                self.checked_div(other)
            }
            #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
            fn constant(value: f64) -> Option<Self> {
                // The range test keeps the cast from saturating; 2⁶³ itself is out of i64's range.
                let fits = value.fract() == 0.0
                    && value >= <$t>::MIN as f64
                    && value < -(<$t>::MIN as f64);
                fits.then_some(value as $t)
            }
            #[allow(clippy::cast_precision_loss, clippy::cast_lossless)]
            fn wide(self) -> f64 {
                self as f64
            }
            fn same_bits(self, other: Self) -> bool {
                self == other
            }
        }
    };
}
integer!(i32);
integer!(i64);
