//! Local buffers: the row-major elements of one rank's block.

use ndarray::{ArrayD, ArrayViewMutD, IxDyn, Slice};
use shardgrad_core::{Block, DType};
use shardgrad_graph::Value;

use crate::error::Error;
use crate::number::{Number, with_number};

/// Row-major elements of one of the element types.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// f32 elements.
    F32(Vec<f32>),
    /// f64 elements.
    F64(Vec<f64>),
    /// i32 elements.
    I32(Vec<i32>),
    /// i64 elements.
    I64(Vec<i64>),
}

impl Data {
    /// A buffer of zeros.
    #[must_use]
    pub fn zeros(dtype: DType, len: usize) -> Self {
        with_number!(dtype, T => T::into_data(vec![T::ZERO; len]))
    }

    /// An empty buffer, without memory.
    #[must_use]
    pub fn empty(dtype: DType) -> Self {
        Self::zeros(dtype, 0)
    }

    /// The element type.
    #[must_use]
    pub fn dtype(&self) -> DType {
        match self {
            Data::F32(_) => DType::F32,
            Data::F64(_) => DType::F64,
            Data::I32(_) => DType::I32,
            Data::I64(_) => DType::I64,
        }
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Data::F32(v) => v.len(),
            Data::F64(v) => v.len(),
            Data::I32(v) => v.len(),
            Data::I64(v) => v.len(),
        }
    }

    /// Whether there is no element.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the elements.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.len() * self.dtype().size()
    }

    /// The elements of a block of a global value.
    ///
    /// # Errors
    /// The value has another shape than the block lies in.
    pub fn of_block(value: &Value, block: &Block) -> Result<Self, Error> {
        let ty = value.ty();
        let mut data = Self::zeros(ty.dtype, block.len());
        data.copy_block(value, block)?;
        Ok(data)
    }

    /// Overwrites the elements with a block of a global value, without allocating.
    ///
    /// # Errors
    /// The value's element type or shape does not fit.
    pub fn copy_block(&mut self, value: &Value, block: &Block) -> Result<(), Error> {
        let ty = value.ty();
        let fits = ty.dtype == self.dtype()
            && ty.rank() == block.ranges.len()
            && ty.shape.iter().zip(&block.ranges).all(|(&n, r)| r.end <= n)
            && block.len() == self.len();
        if !fits {
            return Err(Error::WrongBuffer {
                what: "a block",
                expected: format!("{} elements of {}", self.len(), self.dtype()),
                found: format!("block {:?} of {ty}", block.ranges.as_slice()),
            });
        }
        with_number!(ty.dtype, T => {
            if let (Some(array), Some(buffer)) =
                (<T as shardgrad_graph::Element>::unwrap(value), T::slice_mut(self))
            {
                copy_view(array, block, buffer);
            }
        });
        Ok(())
    }

    /// The elements as a dense value of this shape.
    ///
    /// # Errors
    /// The shape has another number of elements.
    pub fn to_value(&self, shape: &[usize]) -> Result<Value, Error> {
        with_number!(self.dtype(), T => {
            let elements = <T as Number>::slice(self).unwrap_or_default().to_vec();
            ArrayD::from_shape_vec(IxDyn(shape), elements)
                .map(<T as shardgrad_graph::Element>::wrap)
                .map_err(|_| Error::WrongBuffer {
                    what: "a buffer",
                    expected: format!("the elements of shape {shape:?}"),
                    found: format!("{} elements", self.len()),
                })
        })
    }
}

fn copy_view<T: Clone>(array: &ArrayD<T>, block: &Block, buffer: &mut [T]) {
    let part = array.slice_each_axis(|axis| {
        let range = &block.ranges[axis.axis.index()];
        Slice::new(range.start.cast_signed(), Some(range.end.cast_signed()), 1)
    });
    if let Ok(mut target) = ArrayViewMutD::from_shape(IxDyn(part.shape()), buffer) {
        target.assign(&part);
    }
}
