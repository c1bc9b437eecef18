//! Elementwise ops.

use shardgrad_core::ops::{Comparison, Const, Unary};
use shardgrad_core::{DType, Op};

use super::Var;
use crate::error::Error;

impl<'g> Var<'g> {
    #[track_caller]
    fn unary(self, unary: Unary) -> Result<Self, Error> {
        self.graph.apply(Op::Unary(unary), &[self])
    }

    /// a + b, elementwise.
    ///
    /// # Errors
    /// Types differ.
    #[track_caller]
    #[allow(clippy::should_implement_trait)]
    pub fn add(self, other: Var<'_>) -> Result<Var<'g>, Error> {
        self.graph.apply(Op::Add, &[self, other])
    }

    /// a − b, elementwise.
    ///
    /// # Errors
    /// Types differ.
    #[track_caller]
    #[allow(clippy::should_implement_trait)]
    pub fn sub(self, other: Var<'_>) -> Result<Var<'g>, Error> {
        self.graph.apply(Op::Sub, &[self, other])
    }

    /// a · b, elementwise.
    ///
    /// # Errors
    /// Types differ.
    #[track_caller]
    #[allow(clippy::should_implement_trait)]
    pub fn mul(self, other: Var<'_>) -> Result<Var<'g>, Error> {
        self.graph.apply(Op::Mul, &[self, other])
    }

    /// a / b, elementwise.
    ///
    /// # Errors
    /// Types differ.
    #[track_caller]
    #[allow(clippy::should_implement_trait)]
    pub fn div(self, other: Var<'_>) -> Result<Var<'g>, Error> {
        self.graph.apply(Op::Div, &[self, other])
    }

    /// −a.
    ///
    /// # Errors
    /// None in practice; the signature is that of all ops.
    #[track_caller]
    #[allow(clippy::should_implement_trait)]
    pub fn neg(self) -> Result<Var<'g>, Error> {
        self.unary(Unary::Neg)
    }

    /// c · a.
    ///
    /// # Errors
    /// None in practice; the signature is that of all ops.
    #[track_caller]
    pub fn scale(self, c: f64) -> Result<Var<'g>, Error> {
        self.graph.apply(Op::Scale(Const::new(c)), &[self])
    }

    /// a + c.
    ///
    /// # Errors
    /// None in practice; the signature is that of all ops.
    #[track_caller]
    pub fn add_const(self, c: f64) -> Result<Var<'g>, Error> {
        self.graph.apply(Op::AddConst(Const::new(c)), &[self])
    }

    /// 1 where `comparison` holds between the operands, else 0.
    ///
    /// # Errors
    /// Types differ.
    #[track_caller]
    pub fn compare(self, comparison: Comparison, other: Var<'_>) -> Result<Var<'g>, Error> {
        self.graph.apply(Op::Compare(comparison), &[self, other])
    }

    /// 1 where `comparison` holds against a constant, else 0.
    ///
    /// # Errors
    /// None in practice; the signature is that of all ops.
    #[track_caller]
    pub fn compare_const(self, comparison: Comparison, c: f64) -> Result<Var<'g>, Error> {
        self.graph.apply(Op::CompareConst(comparison, Const::new(c)), &[self])
    }

    /// The larger of a and b, elementwise; NaN where one is. Where they are equal, each has half of the gradient.
    ///
    /// # Errors
    /// Types differ.
    #[track_caller]
    pub fn maximum(self, other: Var<'_>) -> Result<Var<'g>, Error> {
        self.graph.apply(Op::Maximum, &[self, other])
    }

    /// The smaller of a and b, elementwise; NaN where one is. Where they are equal, each has half of the gradient.
    ///
    /// # Errors
    /// Types differ.
    #[track_caller]
    pub fn minimum(self, other: Var<'_>) -> Result<Var<'g>, Error> {
        self.graph.apply(Op::Minimum, &[self, other])
    }

    /// `a` where this mask is not 0, else `b`, elementwise. The mask, of the same type, has no gradient; the value that is
    /// not taken gets none, and may be NaN or infinite.
    ///
    /// ```
    /// use shardgrad_core::DType;
    /// use shardgrad_core::ops::Comparison;
    /// use shardgrad_graph::Graph;
    /// let g = Graph::new("hidden from the past", DType::F32);
    /// let scores = g.input("scores", [4, 4])?;
    /// let (row, column) = (g.iota(0, [4, 4])?, g.iota(1, [4, 4])?);
    /// let future = column.compare(Comparison::Gt, row)?;
    /// let masked = future.choose(g.fill(f64::NEG_INFINITY, [4, 4])?, scores)?;
    /// assert_eq!(masked.ty(), scores.ty());
    /// # Ok::<(), shardgrad_graph::Error>(())
    /// ```
    ///
    /// # Errors
    /// Types differ.
    #[track_caller]
    pub fn choose(self, a: Var<'_>, b: Var<'_>) -> Result<Var<'g>, Error> {
        self.graph.apply(Op::Where, &[self, a, b])
    }

    /// The same numbers in another element type. Integers are made by rounding towards zero. Gradients flow between floats.
    ///
    /// # Errors
    /// None in practice; the signature is that of all ops.
    #[track_caller]
    pub fn cast(self, dtype: DType) -> Result<Var<'g>, Error> {
        self.graph.apply(Op::Cast(dtype), &[self])
    }

    /// 1/√a.
    ///
    /// # Errors
    /// The operand is not a float.
    #[track_caller]
    pub fn rsqrt(self) -> Result<Var<'g>, Error> {
        self.sqrt()?.reciprocal()
    }
}

macro_rules! unary_methods {
    ($($(#[$doc:meta])* $method:ident => $variant:ident;)*) => {
        impl<'g> Var<'g> {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// The operand is not a float.
                #[track_caller]
                pub fn $method(self) -> Result<Var<'g>, Error> {
                    self.unary(Unary::$variant)
                }
            )*
        }
    };
}
unary_methods! {
    /// max(a, 0).
    relu => Relu;
    /// The tanh form of gelu.
    gelu => Gelu;
    /// tanh a.
    tanh => Tanh;
    /// 1 / (1 + e⁻ᵃ).
    sigmoid => Sigmoid;
    /// eᵃ.
    exp => Exp;
    /// ln a.
    log => Log;
    /// √a.
    sqrt => Sqrt;
    /// a².
    square => Square;
    /// |a|.
    abs => Abs;
    /// 1/a.
    reciprocal => Reciprocal;
}
