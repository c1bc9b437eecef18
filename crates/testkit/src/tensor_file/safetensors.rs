//! Safetensors: the length of a header, the header (JSON: type, shape and place of each tensor), then the elements.

use std::collections::BTreeMap;

use safetensors::{Dtype, SafeTensors};
use shardgrad_core::DType;
use shardgrad_graph::Value;

use super::{Order, value};

/// Longer headers are refused before they are parsed, since parsing takes a multiple of their size.
const MAX_HEADER: u64 = 1 << 24;

/// The tensors of a `.safetensors` file, by name.
///
/// # Errors
/// One line: what is damaged, or not of the kinds that are read.
pub fn from_safetensors(bytes: &[u8]) -> Result<BTreeMap<String, Value>, String> {
    let length = bytes.first_chunk().copied().map(u64::from_le_bytes);
    if let Some(length) = length.filter(|&length| length > MAX_HEADER) {
        return Err(format!("has a header of {length} bytes; at most {MAX_HEADER} are read"));
    }
    let file =
        SafeTensors::deserialize(bytes).map_err(|e| format!("is no safetensors file: {e}"))?;
    file.iter()
        .map(|(name, view)| {
            let dtype = match view.dtype() {
                Dtype::F32 => DType::F32,
                Dtype::F64 => DType::F64,
                Dtype::I32 => DType::I32,
                Dtype::I64 => DType::I64,
                other => {
                    return Err(format!(
                        "`{name}` has the element type {other:?}; F32, F64, I32 and I64 are read"
                    ));
                }
            };
            value(dtype, view.shape(), view.data(), Order::default())
                .map(|value| (name.to_owned(), value))
                .map_err(|problem| format!("`{name}`: {problem}"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        let length = u64::try_from(header.len()).unwrap().to_le_bytes();
        [&length[..], header.as_bytes(), data].concat()
    }

    #[test]
    fn tensors_by_name() {
        let header = r#"{"w0":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"step":{"dtype":"I64","shape":[],"data_offsets":[8,16]}}"#;
        let data = [&1.5_f32.to_le_bytes()[..], &(-2.0_f32).to_le_bytes(), &7_i64.to_le_bytes()];
        let read = from_safetensors(&file(header, &data.concat())).unwrap();
        assert_eq!(read.keys().collect::<Vec<_>>(), ["step", "w0"]);
        assert_eq!(read["w0"].to_f64s(), [1.5, -2.0]);
        assert_eq!(read["step"].item(), Some(7.0));
    }

    #[test]
    fn damaged_files_are_refused_in_one_line() {
        let one = |dtype: &str, shape: &str, end: usize| {
            format!(r#"{{"w":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[0,{end}]}}}}"#)
        };
        let cases: Vec<(Vec<u8>, &str)> = vec![
            (vec![], "no safetensors file"),
            (vec![1, 2, 3], "no safetensors file"),
            (vec![255; 8], "18446744073709551615 bytes; at most 16777216"),
            (file("{", &[]), "no safetensors file"),
            (file(&one("F32", "[2]", 8), &[0; 4]), "no safetensors file"),
            (file(&one("F32", "[2]", 4), &[0; 4]), "no safetensors file"),
            (file(&one("F32", "[4294967296,4294967296,4]", 4), &[0; 4]), "no safetensors file"),
            (file(&one("F32", "[0,18446744073709551615,2]", 0), &[]), ""),
            (file(&one("BF16", "[2]", 4), &[0; 4]), "`w` has the element type BF16; F32"),
            (file(&one("U8", "[4]", 4), &[0; 4]), "`w` has the element type U8"),
        ];
        for (bytes, part) in cases {
            let error = from_safetensors(&bytes).unwrap_err();
            assert!(error.contains(part) && !error.contains('\n'), "{error:?} lacks {part:?}");
        }
    }
}
