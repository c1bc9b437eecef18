//! Tensors in files that other programs write: `.npy` (one array) and `.safetensors` (several, by name).
//!
//! Files are not trusted. A header is read before anything is allocated, extents are multiplied with checks, and the bytes
//! that follow must be those of the shape, neither more nor less; so memory is bounded by the size of the file, and that by
//! [`MAX_BYTES`]. Element types are those of programs: f32, f64, i32, i64.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use ndarray::{ArrayD, IxDyn, ShapeBuilder};
use shardgrad_core::DType;
use shardgrad_graph::{Element, Value};

use crate::Error;

mod npy;
mod safetensors;

pub use npy::from_npy;
pub use safetensors::from_safetensors;

/// Larger files are refused.
pub const MAX_BYTES: u64 = 1 << 30;

/// Dims of a tensor, as many as NumPy has.
const MAX_DIMS: usize = 64;

/// Reads the tensors of a file, by name; the one of an `.npy` file has the file's stem.
///
/// # Errors
/// E504: a file that cannot be read, of another kind, too large, or damaged.
pub fn read(path: &Path) -> Result<BTreeMap<String, Value>, Error> {
    let failed = |problem: String| Error::TensorFile { path: path.display().to_string(), problem };
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
    if !matches!(extension, "npy" | "safetensors") {
        return Err(failed("its name must end in .npy or .safetensors".to_owned()));
    }
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|e| failed(format!("cannot be read: {e}")))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(failed(format!("is larger than {} MiB", MAX_BYTES >> 20)));
    }
    if extension == "npy" {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        return Ok(BTreeMap::from([(stem, from_npy(&bytes).map_err(failed)?)]));
    }
    from_safetensors(&bytes).map_err(failed)
}

/// How elements lie in a buffer.
#[derive(Clone, Copy, Debug, Default)]
struct Order {
    /// The first dim runs fastest.
    fortran: bool,
    /// The most significant byte comes first.
    big_endian: bool,
}

/// The value in a buffer, which must hold exactly the elements of the shape.
fn value(dtype: DType, shape: &[usize], bytes: &[u8], order: Order) -> Result<Value, String> {
    if shape.len() > MAX_DIMS {
        return Err(format!("has {} dims; at most {MAX_DIMS} are read", shape.len()));
    }
    let bytes_of = |least: usize| {
        let extents = shape.iter().map(|&n| n.max(least));
        let mut extents = std::iter::once(dtype.size()).chain(extents);
        extents.try_fold(1, usize::checked_mul).filter(|&bytes| isize::try_from(bytes).is_ok())
    };
    // Extents of 0 must not hide others that no address space holds.
    let wanted = bytes_of(1)
        .and_then(|_| bytes_of(0))
        .ok_or_else(|| format!("shape {shape:?} has more elements than there are addresses"))?;
    if bytes.len() != wanted {
        return Err(format!(
            "shape {shape:?} of {dtype} needs {wanted} bytes, but {} are there",
            bytes.len()
        ));
    }
    match dtype {
        DType::F32 => array(shape, bytes, order, f32::from_le_bytes),
        DType::F64 => array(shape, bytes, order, f64::from_le_bytes),
        DType::I32 => array(shape, bytes, order, i32::from_le_bytes),
        DType::I64 => array(shape, bytes, order, i64::from_le_bytes),
    }
}

fn array<T: Element, const N: usize>(
    shape: &[usize],
    bytes: &[u8],
    order: Order,
    element: fn([u8; N]) -> T,
) -> Result<Value, String> {
    let (chunks, _) = bytes.as_chunks::<N>();
    let elements = chunks
        .iter()
        .map(|chunk| {
            let mut chunk = *chunk;
            if order.big_endian {
                chunk.reverse();
            }
            element(chunk)
        })
        .collect();
    ArrayD::from_shape_vec(IxDyn(shape).set_f(order.fortran), elements)
        .map(|array| T::wrap(array.as_standard_layout().into_owned()))
        .map_err(|e| e.to_string())
}
