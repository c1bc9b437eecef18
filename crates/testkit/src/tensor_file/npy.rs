//! NumPy's array file: a magic number, a version, the length of a header, the header (a Python dict literal with the keys
//! `descr`, `fortran_order` and `shape`), then the elements.
//! Source: the format's description in NumPy Enhancement Proposal 1; versions 1.0, 2.0 and 3.0.

use shardgrad_core::DType;
use shardgrad_graph::Value;

use super::{MAX_DIMS, Order, value};

const MAGIC: &[u8] = b"\x93NUMPY";
/// NumPy refuses longer headers as well.
const MAX_HEADER: usize = 10_000;

/// The array in an `.npy` file.
///
/// # Errors
/// One line: what is damaged, or not of the kinds that are read.
pub fn from_npy(bytes: &[u8]) -> Result<Value, String> {
    let rest =
        bytes.strip_prefix(MAGIC).ok_or("is no .npy file: it does not begin with \\x93NUMPY")?;
    let (version, rest) = rest.split_at_checked(2).ok_or("ends before its version")?;
    let wide = match version[0] {
        1 => 2,
        2 | 3 => 4,
        other => return Err(format!("has .npy version {other}; 1, 2 and 3 are read")),
    };
    let (length, rest) = rest.split_at_checked(wide).ok_or("ends before its header")?;
    let length = length.iter().rev().fold(0_usize, |n, &byte| n << 8 | usize::from(byte));
    if length > MAX_HEADER {
        return Err(format!("has a header of {length} bytes; at most {MAX_HEADER} are read"));
    }
    let (header, data) = rest
        .split_at_checked(length)
        .ok_or_else(|| format!("ends within its header of {length} bytes"))?;
    let header = std::str::from_utf8(header).map_err(|_| "has a header that is not text")?;
    let header = Header::parse(header)?;
    value(header.dtype, &header.shape, data, header.order)
}

#[derive(Debug)]
struct Header {
    dtype: DType,
    order: Order,
    shape: Vec<usize>,
}

impl Header {
    /// `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`: each key once, in any order.
    fn parse(text: &str) -> Result<Self, String> {
        let mut rest = Rest(text);
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        rest.expect("{")?;
        while !rest.take("}") {
            let key = rest.string()?;
            rest.expect(":")?;
            let again = match key {
                "descr" => {
                    if rest.take("[") || rest.take("(") {
                        return Err(format!("has records; {TYPES}"));
                    }
                    descr.replace(element(rest.string()?)?).is_some()
                }
                "fortran_order" => fortran.replace(rest.boolean()?).is_some(),
                "shape" => shape.replace(rest.tuple()?).is_some(),
                other => {
                    return Err(format!(
                        "has the unknown key `{}` in its header",
                        other.escape_debug()
                    ));
                }
            };
            if again {
                return Err(format!("has the key `{key}` twice in its header"));
            }
            if !rest.take(",") {
                rest.expect("}")?;
                break;
            }
        }
        if !rest.0.trim().is_empty() {
            return Err(format!("has `{}` after its header's dict", rest.shown()));
        }
        let missing = |key: &str| format!("lacks the key `{key}` in its header");
        let (dtype, big_endian) = descr.ok_or_else(|| missing("descr"))?;
        let fortran = fortran.ok_or_else(|| missing("fortran_order"))?;
        let shape = shape.ok_or_else(|| missing("shape"))?;
        Ok(Self { dtype, order: Order { fortran, big_endian }, shape })
    }
}

const TYPES: &str = "f4, f8, i4 and i8 are read; save with .astype(numpy.float32), for example";

/// Element type, and whether the most significant byte comes first.
fn element(descr: &str) -> Result<(DType, bool), String> {
    let refused = || format!("has the element type `{}`; {TYPES}", descr.escape_debug());
    let (order, name) = descr.split_at_checked(1).ok_or_else(refused)?;
    let big_endian = match order {
        "<" => false,
        ">" => true,
        _ => return Err(refused()),
    };
    let dtype = match name {
        "f4" => DType::F32,
        "f8" => DType::F64,
        "i4" => DType::I32,
        "i8" => DType::I64,
        _ => return Err(refused()),
    };
    Ok((dtype, big_endian))
}

/// What is left of a header.
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    /// Takes a token, if it comes next.
    fn take(&mut self, token: &str) -> bool {
        self.0 = self.0.trim_start();
        self.0.strip_prefix(token).map(|rest| self.0 = rest).is_some()
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.take(token) { Ok(()) } else { Err(self.unexpected(&format!("`{token}`"))) }
    }

    /// A text in single or double quotes, without escapes.
    fn string(&mut self) -> Result<&'a str, String> {
        for quote in ["'", "\""] {
            if self.0.trim_start().starts_with(quote) {
                self.expect(quote)?;
                let (text, rest) =
                    self.0.split_once(quote).ok_or("has a text without end in its header")?;
                self.0 = rest;
                return Ok(text);
            }
        }
        Err(self.unexpected("a text in quotes"))
    }

    fn boolean(&mut self) -> Result<bool, String> {
        if self.take("True") {
            Ok(true)
        } else if self.take("False") {
            Ok(false)
        } else {
            Err(self.unexpected("`True` or `False`"))
        }
    }

    /// `()`, `(3,)`, `(3, 4)`.
    fn tuple(&mut self) -> Result<Vec<usize>, String> {
        self.expect("(")?;
        let mut extents = Vec::new();
        while !self.take(")") {
            self.0 = self.0.trim_start();
            let end = self.0.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.0.len());
            let (digits, rest) = self.0.split_at(end);
            if digits.is_empty() {
                return Err(self.unexpected("an extent"));
            }
            extents.push(
                digits.parse().map_err(|_| {
                    format!("has the extent {digits}, which no address space holds")
                })?,
            );
            self.0 = rest;
            if extents.len() > MAX_DIMS {
                return Err(format!("has more than {MAX_DIMS} dims"));
            }
            if !self.take(",") {
                self.expect(")")?;
                break;
            }
        }
        Ok(extents)
    }

    fn unexpected(&self, wanted: &str) -> String {
        format!("has `{}` in its header where {wanted} was expected", self.shown())
    }

    /// The beginning of what is left, for messages.
    fn shown(&self) -> String {
        self.0.trim_start().chars().take(20).flat_map(char::escape_debug).collect()
    }
}

#[cfg(test)]
mod tests {
    use ndarray::arr2;

    use super::*;

    fn file(version: u8, header: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = [MAGIC, &[version, 0]].concat();
        let length = u32::try_from(header.len()).unwrap().to_le_bytes();
        bytes.extend(&length[..if version == 1 { 2 } else { 4 }]);
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        bytes
    }

    fn le<const N: usize>(values: impl IntoIterator<Item = [u8; N]>) -> Vec<u8> {
        values.into_iter().flatten().collect()
    }

    #[test]
    fn every_type_order_and_version() {
        let rows = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }  \n";
        let data = le([0.5_f32, 1.0, 2.0, 3.0, 4.0, -5.0].map(f32::to_le_bytes));
        let expected = Value::F32(arr2(&[[0.5, 1.0, 2.0], [3.0, 4.0, -5.0]]).into_dyn());
        for version in [1, 2, 3] {
            assert_eq!(from_npy(&file(version, rows, &data)), Ok(expected.clone()));
        }
        let columns = "{\"shape\":(2,3),\"fortran_order\":True,\"descr\":\">i8\"}";
        let data = le([1_i64, 4, 2, 5, 3, -6].map(i64::to_be_bytes));
        let expected = Value::I64(arr2(&[[1, 2, 3], [4, 5, -6]]).into_dyn());
        assert_eq!(from_npy(&file(1, columns, &data)), Ok(expected));
        let scalar = "{'descr': '<f8', 'fortran_order': False, 'shape': ()}";
        let read = from_npy(&file(1, scalar, &2.5_f64.to_le_bytes())).unwrap();
        assert_eq!(read, Value::scalar(2.5, DType::F64));
        let vector = "{'descr': '<i4', 'fortran_order': True, 'shape': (2,)}";
        let read = from_npy(&file(1, vector, &le([7_i32, -8].map(i32::to_le_bytes)))).unwrap();
        assert_eq!(read.to_f64s(), [7.0, -8.0]);
        let none = "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 4)}";
        assert_eq!(from_npy(&file(1, none, &[])).unwrap().ty().elements(), 0);
    }

    #[test]
    fn damaged_files_are_refused_in_one_line() {
        let header = |descr: &str, shape: &str| {
            format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}")
        };
        let plain = |shape: &str, data: &[u8]| file(1, &header("'<f4'", shape), data);
        let cases: Vec<(Vec<u8>, &str)> = vec![
            (b"PK\x03\x04".to_vec(), "no .npy file"),
            (MAGIC.to_vec(), "before its version"),
            ([MAGIC, &[9, 0]].concat(), "version 9"),
            ([MAGIC, &[1, 0, 7]].concat(), "before its header"),
            ([MAGIC, &[1, 0, 255, 0, b'{']].concat(), "within its header of 255 bytes"),
            ([MAGIC, &[2, 0, 255, 255, 255, 255]].concat(), "4294967295 bytes; at most 10000"),
            (file(1, "\u{0}", &[]), "`\\0`"),
            (file(1, "{}", &[]), "lacks the key `descr`"),
            (file(1, "{'descr': '<f4'} x", &[]), "`x` after"),
            (file(1, "{'descr': '<f4', 'descr': '<f4'}", &[]), "`descr` twice"),
            (file(1, "{'descr': '<f4', 'order': 1}", &[]), "unknown key `order`"),
            (file(1, "{'descr': '<f4", &[]), "without end"),
            (file(1, &header("'<f2'", "(2,)"), &[0; 4]), "element type `<f2`; f4, f8"),
            (file(1, &header("'|O'", "(2,)"), &[0; 4]), "element type `|O`"),
            (file(1, &header("''", "(2,)"), &[0; 4]), "element type ``"),
            (file(1, &header("[('a', '<f4')]", "(2,)"), &[0; 4]), "records"),
            (plain("(2, 2)", &[0; 12]), "[2, 2] of f32 needs 16 bytes, but 12 are there"),
            (plain("(2,)", &[0; 12]), "needs 8 bytes, but 12 are there"),
            (plain("(4294967296, 4294967296)", &[0; 4]), "more elements than there are addresses"),
            (plain("(0, 9223372036854775807, 9)", &[]), "more elements than there are addresses"),
            (plain("(99999999999999999999,)", &[]), "99999999999999999999"),
            (plain("(-1,)", &[]), "`-1,)"),
            (plain("(1 2)", &[]), "`)` was expected"),
            (plain("3", &[]), "`(` was expected"),
            (plain(&format!("({})", "1,".repeat(65)), &[0; 4]), "more than 64 dims"),
        ];
        for (bytes, part) in cases {
            let error = from_npy(&bytes).unwrap_err();
            assert!(error.contains(part) && !error.contains('\n'), "{error:?} lacks {part:?}");
        }
    }
}
