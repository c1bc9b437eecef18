//! Spare buffers: what one collective leaves, the next one uses, so that a step allocates no tensor.

use shardgrad_core::DType;

use crate::number::Number;
use crate::tensor::Data;

/// Most buffers that are kept; the oldest go first.
const MOST: usize = 32;

/// Buffers that nobody uses at the moment.
#[derive(Debug, Default)]
pub struct Pool {
    buffers: Vec<Data>,
}

impl Pool {
    /// A buffer of this length, of any content.
    pub(crate) fn take(&mut self, dtype: DType, len: usize) -> Data {
        let fits = |data: &Data| data.dtype() == dtype && data.len() == len;
        match self.buffers.iter().position(fits) {
            Some(at) => self.buffers.swap_remove(at),
            None => Data::zeros(dtype, len),
        }
    }

    /// An empty vector with room for so many elements.
    pub(crate) fn empty<T: Number>(&mut self, len: usize) -> Vec<T> {
        let fits = |data: &Data| data.dtype() == T::DTYPE && data.len() == len;
        let found = self.buffers.iter().position(fits).map(|at| self.buffers.swap_remove(at));
        let mut buffer = found.and_then(T::from_data).unwrap_or_default();
        buffer.clear();
        buffer.reserve_exact(len);
        buffer
    }

    /// Keeps a buffer.
    pub(crate) fn put(&mut self, buffer: Data) {
        if buffer.is_empty() {
            return;
        }
        if self.buffers.len() == MOST {
            self.buffers.remove(0);
        }
        self.buffers.push(buffer);
    }

    /// Frees all buffers.
    pub fn clear(&mut self) {
        self.buffers.clear();
    }
}
