//! Element types, shapes, and the type of a tensor (both together).

use std::fmt;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// Extents of a tensor's dims, outermost first. A scalar has none.
pub type Shape = SmallVec<[usize; 4]>;

/// The type of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
    /// 32-bit signed integer: labels and indices.
    I32,
    /// 64-bit signed integer.
    I64,
}

impl DType {
    /// Bytes of one element.
    #[must_use]
    pub fn size(self) -> usize {
        match self {
            DType::F32 | DType::I32 => 4,
            DType::F64 | DType::I64 => 8,
        }
    }

    /// Whether values of this type can be differentiated.
    #[must_use]
    pub fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F64)
    }

    /// Unit roundoff u = 2⁻ᵗ of a float type (half the distance from 1 to the next number); 0 for integers.
    #[must_use]
    pub fn unit_roundoff(self) -> f64 {
        match self {
            DType::F32 => f64::from(f32::EPSILON) / 2.0,
            DType::F64 => f64::EPSILON / 2.0,
            DType::I32 | DType::I64 => 0.0,
        }
    }

    /// Whether a number is still positive and finite when it is rounded to this type.
    ///
    /// ```
    /// use shardgrad_core::DType;
    /// assert!(DType::F64.is_positive(1e39) && DType::F64.is_positive(1e-50));
    /// assert!(!DType::F32.is_positive(1e39) && !DType::F32.is_positive(1e-50));
    /// ```
    #[must_use]
    #[allow(clippy::cast_possible_truncation)]
    pub fn is_positive(self, number: f64) -> bool {
        let rounded = if self == DType::F32 { f64::from(number as f32) } else { number };
        rounded > 0.0 && rounded.is_finite()
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::I32 => "i32",
            DType::I64 => "i64",
        })
    }
}

/// Shape and element type of a tensor.
///
/// ```
/// use shardgrad_core::{DType, TensorType};
/// let t = TensorType::new([64, 10], DType::F32);
/// assert_eq!(t.to_string(), "f32[64, 10]");
/// assert_eq!(t.bytes(), 2560);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TensorType {
    /// Extents of the dims.
    pub shape: Shape,
    /// Element type.
    pub dtype: DType,
}

impl TensorType {
    /// A tensor type.
    pub fn new(shape: impl IntoIterator<Item = usize>, dtype: DType) -> Self {
        Self { shape: shape.into_iter().collect(), dtype }
    }

    /// Number of dims.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Number of elements; 1 for a scalar.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Bytes of the whole tensor.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.elements() * self.dtype.size()
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.shape.as_slice())
    }
}
