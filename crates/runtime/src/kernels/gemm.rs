//! C = A·B on views of any strides, so that transposed operands are not copied.

use ndarray::linalg::general_mat_mul;
use ndarray::{ArrayView2, ArrayViewMut2, Zip};

use crate::number::Number;

/// Element types with a matrix product.
pub trait Gemm: Number {
    /// Overwrites C with A·B. Integers that overflow raise the flag.
    fn gemm(
        c: ArrayViewMut2<'_, Self>,
        a: ArrayView2<'_, Self>,
        b: ArrayView2<'_, Self>,
        overflow: &mut bool,
    );

    /// Adds c·A·B to C. Integers that overflow raise the flag.
    fn gemm_add(
        c: ArrayViewMut2<'_, Self>,
        factor: Self,
        a: ArrayView2<'_, Self>,
        b: ArrayView2<'_, Self>,
        overflow: &mut bool,
    );
}

macro_rules! float {
    ($t:ty) => {
        impl Gemm for $t {
            fn gemm(
                mut c: ArrayViewMut2<'_, Self>,
                a: ArrayView2<'_, Self>,
                b: ArrayView2<'_, Self>,
                _: &mut bool,
            ) {
                if a.ncols() == 0 {
                    c.fill(0.0);
                } else if !c.is_empty() {
                    general_mat_mul(1.0, &a, &b, 0.0, &mut c);
                }
            }
            fn gemm_add(
                mut c: ArrayViewMut2<'_, Self>,
                factor: Self,
                a: ArrayView2<'_, Self>,
                b: ArrayView2<'_, Self>,
                _: &mut bool,
            ) {
                if a.ncols() > 0 && !c.is_empty() {
                    general_mat_mul(factor, &a, &b, 1.0, &mut c);
                }
            }
        }
    };
}
float!(f32);
float!(f64);

macro_rules! integer {
    ($t:ty) => {
        impl Gemm for $t {
            fn gemm(
                mut c: ArrayViewMut2<'_, Self>,
                a: ArrayView2<'_, Self>,
                b: ArrayView2<'_, Self>,
                overflow: &mut bool,
            ) {
                c.fill(0);
                Self::gemm_add(c, 1, a, b, overflow);
            }
            fn gemm_add(
                mut c: ArrayViewMut2<'_, Self>,
                factor: Self,
                a: ArrayView2<'_, Self>,
                b: ArrayView2<'_, Self>,
                overflow: &mut bool,
            ) {
                for (mut row, a) in c.rows_mut().into_iter().zip(a.rows()) {
                    for (&a, b) in a.iter().zip(b.rows()) {
                        let factor = factor.mul(a, overflow);
                        Zip::from(&mut row).and(b).for_each(|c, &b| {
                            *c = c.add(factor.mul(b, overflow), overflow);
                        });
                    }
                }
            }
        }
    };
}
integer!(i32);
integer!(i64);
