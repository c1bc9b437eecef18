//! Dense values: an n-dimensional array of one of the element types.

use ndarray::{ArrayD, Axis, IxDyn, Slice};
use shardgrad_core::{DType, TensorType};

/// A dense array.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// f32 elements.
    F32(ArrayD<f32>),
    /// f64 elements.
    F64(ArrayD<f64>),
    /// i32 elements.
    I32(ArrayD<i32>),
    /// i64 elements.
    I64(ArrayD<i64>),
}

/// An element type of dense values.
pub trait Element: Copy + Send + Sync + PartialOrd + std::fmt::Debug + 'static {
    /// The tag of the type.
    const DTYPE: DType;
    /// Wraps an array.
    fn wrap(array: ArrayD<Self>) -> Value;
    /// The array, if the value has this type.
    fn unwrap(value: &Value) -> Option<&ArrayD<Self>>;
}

macro_rules! element {
    ($t:ty, $variant:ident) => {
        impl Element for $t {
            const DTYPE: DType = DType::$variant;
            fn wrap(array: ArrayD<Self>) -> Value {
                Value::$variant(array)
            }
            fn unwrap(value: &Value) -> Option<&ArrayD<Self>> {
                match value {
                    Value::$variant(array) => Some(array),
                    _ => None,
                }
            }
        }
    };
}
element!(f32, F32);
element!(f64, F64);
element!(i32, I32);
element!(i64, I64);

impl Value {
    /// A float value of the given type (F32 or F64) computed element by element from the row-major index; integers are
    /// rounded towards zero.
    pub fn from_fn(ty: &TensorType, f: impl Fn(usize) -> f64) -> Self {
        let shape = IxDyn(&ty.shape);
        let values = (0..ty.elements()).map(f);
        macro_rules! collect {
            ($t:ty, $variant:ident) => {{
                #[allow(clippy::cast_possible_truncation)]
                let data: Vec<$t> = values.map(|v| v as $t).collect();
                Value::$variant(ArrayD::from_shape_fn(shape, {
                    let strides = row_major_strides(&ty.shape);
                    move |index| {
                        data[strides.iter().enumerate().map(|(d, s)| index[d] * s).sum::<usize>()]
                    }
                }))
            }};
        }
        match ty.dtype {
            DType::F32 => collect!(f32, F32),
            DType::F64 => collect!(f64, F64),
            DType::I32 => collect!(i32, I32),
            DType::I64 => collect!(i64, I64),
        }
    }

    /// A scalar of the given type.
    #[must_use]
    pub fn scalar(value: f64, dtype: DType) -> Self {
        Self::from_fn(&TensorType::new([], dtype), |_| value)
    }

    /// Shape and element type.
    #[must_use]
    pub fn ty(&self) -> TensorType {
        let (shape, dtype) = match self {
            Value::F32(a) => (a.shape(), DType::F32),
            Value::F64(a) => (a.shape(), DType::F64),
            Value::I32(a) => (a.shape(), DType::I32),
            Value::I64(a) => (a.shape(), DType::I64),
        };
        TensorType::new(shape.iter().copied(), dtype)
    }

    /// The elements in row-major order, as f64.
    #[must_use]
    pub fn to_f64s(&self) -> Vec<f64> {
        match self {
            Value::F32(a) => a.iter().map(|&v| f64::from(v)).collect(),
            Value::F64(a) => a.iter().copied().collect(),
            Value::I32(a) => a.iter().map(|&v| f64::from(v)).collect(),
            #[allow(clippy::cast_precision_loss)]
            Value::I64(a) => a.iter().map(|&v| v as f64).collect(),
        }
    }

    /// The element of a scalar, as f64.
    #[must_use]
    pub fn item(&self) -> Option<f64> {
        if self.ty().elements() == 1 { self.to_f64s().first().copied() } else { None }
    }

    /// Some rows: a range of the first dim, which is cut to the rows there are. A scalar has no rows and stays whole.
    #[must_use]
    pub fn rows(&self, range: std::ops::Range<usize>) -> Self {
        fn cut<T: Clone>(array: &ArrayD<T>, range: &std::ops::Range<usize>) -> ArrayD<T> {
            let Some(&rows) = array.shape().first() else { return array.clone() };
            let (start, end) = (range.start.min(rows), range.end.min(rows));
            array.slice_axis(Axis(0), Slice::from(start..end.max(start))).to_owned()
        }
        match self {
            Value::F32(a) => Value::F32(cut(a, &range)),
            Value::F64(a) => Value::F64(cut(a, &range)),
            Value::I32(a) => Value::I32(cut(a, &range)),
            Value::I64(a) => Value::I64(cut(a, &range)),
        }
    }

    /// The same values in another float type.
    #[must_use]
    pub fn cast(&self, dtype: DType) -> Self {
        let values = self.to_f64s();
        let ty = TensorType { shape: self.ty().shape, dtype };
        Self::from_fn(&ty, |i| values[i])
    }
}

/// Row-major strides of a shape.
pub(crate) fn row_major_strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for d in (1..shape.len()).rev() {
        strides[d - 1] = strides[d] * shape[d];
    }
    strides
}
