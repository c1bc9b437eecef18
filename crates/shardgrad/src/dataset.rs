//! Data to train on: the built-in digits, a CSV file, or a text for models of tokens.
//!
//! A CSV file has a header line. Its last column is `label` (classes as integers from 0) for a model with the
//! cross-entropy loss; its last N columns are the targets for a model with the mse loss and N outputs; for the sum loss
//! every column is a feature. All other columns are features, in order, taken as they are. Rows of a text are windows of its
//! characters ([`crate::text`]).
//!
//! Rows whose index is a multiple of five (0, 5, 10, …) are held out; the others are trained on, in an order drawn
//! anew for every epoch by a counter-based generator from (seed, epoch), so that a run can resume at any epoch. The last
//! partial batch of an epoch is dropped, since a plan is made for one batch size.
//!
//! The digits are the test part of "Optical Recognition of Handwritten Digits" (E. Alpaydin and C. Kaynak, UCI Machine
//! Learning Repository, <https://doi.org/10.24432/C50P49>, CC BY 4.0): 1,797 images of 8×8 pixels, here divided by 16.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use shardgrad_core::{Block, DType, TensorType};
use shardgrad_graph::{StackSpec, Value};

use crate::error::Error;
use crate::text::{Text, Windows};

/// Every fifth row is held out.
pub const HOLD_OUT: usize = 5;

/// What the columns after the features are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetColumns {
    /// The last column is `label`: an integer class below this number.
    Label {
        /// Number of classes.
        classes: usize,
    },
    /// The last columns, this many, are real targets.
    Values(usize),
}

/// The targets of all rows of numbers.
#[derive(Clone, Debug, PartialEq)]
pub enum Targets {
    /// One class per row.
    Labels(Vec<i32>),
    /// This many values per row, row-major.
    Values {
        /// Values per row.
        width: usize,
        /// All of them.
        data: Vec<f64>,
    },
}

/// Rows to train on with their targets: features, or windows of a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset(Rows);

#[derive(Clone, Debug, PartialEq)]
enum Rows {
    Table(Table),
    Windows(Windows),
}

/// Rows of features.
#[derive(Clone, Debug, PartialEq)]
struct Table {
    features: Vec<f64>,
    width: usize,
    targets: Targets,
}

/// One step's values by the names of the program's inputs: `x`, `y` if the loss has a target, and `mask` if the model has one.
pub type Inputs = BTreeMap<String, Value>;

impl Dataset {
    /// The built-in handwritten digits.
    ///
    /// ```
    /// use shardgrad::core::DType;
    /// let digits = shardgrad::Dataset::digits();
    /// assert_eq!(digits.rows(), 1797);
    /// assert_eq!(digits.batch(&[5, 9], DType::F32)["x"].ty().to_string(), "f32[2, 64]");
    /// assert_eq!(digits.training_rows().len() + digits.held_out_rows().len(), 1797);
    /// ```
    #[must_use]
    pub fn digits() -> Self {
        let text = include_str!("../../../data/digits.csv");
        let mut features = Vec::with_capacity(1797 * 64);
        let mut labels = Vec::with_capacity(1797);
        for line in text.lines().skip(1) {
            let mut numbers = line.split(',').filter_map(|field| field.parse::<i32>().ok());
            features.extend(numbers.by_ref().take(64).map(|pixel| f64::from(pixel) / 16.0));
            labels.extend(numbers);
        }
        Self(Rows::Table(Table { features, width: 64, targets: Targets::Labels(labels) }))
    }

    /// Reads a data file for a model with `width` input features that computes in `dtype`.
    ///
    /// # Errors
    /// The file cannot be read, or a row or column is not what the model wants; the error names them.
    pub fn from_csv(
        path: &Path,
        width: usize,
        targets: TargetColumns,
        dtype: DType,
    ) -> Result<Self, Error> {
        let bytes = std::fs::read(path).map_err(|e| Error::unreadable(path, &e))?;
        Self::parse_csv(path, &bytes, width, targets, dtype)
    }

    /// As [`Dataset::from_csv`], of text that was read already; `path` is for messages.
    ///
    /// # Errors
    /// As [`Dataset::from_csv`].
    pub fn parse_csv(
        path: &Path,
        text: &[u8],
        width: usize,
        columns: TargetColumns,
        dtype: DType,
    ) -> Result<Self, Error> {
        let whole = |problem: String| Error::BadData {
            file: path.to_owned(),
            row: None,
            column: None,
            problem,
        };
        let mut reader =
            csv::ReaderBuilder::new().trim(csv::Trim::All).flexible(true).from_reader(text);
        let header = reader.headers().map_err(|e| whole(one_line(&e)))?.clone();
        let target_width = match columns {
            TargetColumns::Label { .. } => 1,
            TargetColumns::Values(n) => n,
        };
        if header.len() != width + target_width {
            return Err(whole(format!(
                "the header has {} columns, but the model wants {width} features and {target_width} target column(s)",
                header.len()
            )));
        }
        if matches!(columns, TargetColumns::Label { .. }) && &header[width] != "label" {
            return Err(whole(format!(
                "the last column is `{}`, but cross_entropy wants it to be `label`",
                header[width].escape_debug()
            )));
        }
        let mut features = Vec::new();
        let mut labels = Vec::new();
        let mut values = Vec::new();
        for (index, record) in reader.records().enumerate() {
            let row = index + 1;
            let at = |column: Option<usize>, problem: String| Error::BadData {
                file: path.to_owned(),
                row: Some(row),
                column: column.map(|c| header[c].escape_debug().to_string()),
                problem,
            };
            let record = record.map_err(|e| at(None, one_line(&e)))?;
            if record.len() != header.len() {
                return Err(at(
                    None,
                    format!("has {} fields, but the header has {}", record.len(), header.len()),
                ));
            }
            // Rounding to nearest carries what lies half a unit beyond the largest f32 to infinity.
            #[allow(clippy::cast_possible_truncation)]
            let fits = |v: f64| v.is_finite() && (dtype != DType::F32 || (v as f32).is_finite());
            let number = |column: usize| match record[column].parse::<f64>() {
                Ok(v) if fits(v) => Ok(v),
                _ => Err(at(
                    Some(column),
                    format!(
                        "`{}` is not a finite number in {dtype}",
                        record[column].escape_debug()
                    ),
                )),
            };
            for column in 0..width {
                features.push(number(column)?);
            }
            match columns {
                TargetColumns::Label { classes } => match record[width].parse::<i32>() {
                    Ok(label) if usize::try_from(label).is_ok_and(|l| l < classes) => {
                        labels.push(label);
                    }
                    _ => {
                        return Err(at(
                            Some(width),
                            format!(
                                "`{}` is not a class; the model has the {classes} classes 0 to {}",
                                record[width].escape_debug(),
                                classes.saturating_sub(1)
                            ),
                        ));
                    }
                },
                TargetColumns::Values(n) => {
                    for column in width..width + n {
                        values.push(number(column)?);
                    }
                }
            }
        }
        let targets = match columns {
            TargetColumns::Label { .. } => Targets::Labels(labels),
            TargetColumns::Values(width) => Targets::Values { width, data: values },
        };
        let data = Self(Rows::Table(Table { features, width, targets }));
        if data.rows() == 0 {
            return Err(whole("has a header, but no rows".to_owned()));
        }
        Ok(data)
    }

    /// Reads a text file for a model of tokens: rows are windows of its characters ([`crate::text`]).
    ///
    /// # Errors
    /// The file cannot be read, is not UTF-8, has more different characters than the model's vocabulary, or is shorter than
    /// a window; the model's sizes make no model.
    pub fn from_text(path: &Path, spec: &StackSpec) -> Result<Self, Error> {
        let bytes = std::fs::read(path).map_err(|e| Error::unreadable(path, &e))?;
        Self::parse_text(path, &bytes, spec)
    }

    /// As [`Dataset::from_text`], of text that was read already; `path` is for messages.
    ///
    /// ```
    /// use shardgrad::core::DType;
    /// use shardgrad::{Dataset, graph::StackSpec};
    /// let spec = StackSpec::new("tiny", 2, 4, 10).decoder(8, 2, 1);
    /// let data = Dataset::parse_text("be.txt".as_ref(), b"to be or not", &spec)?;
    /// let text = data.text().ok_or("no text")?;
    /// let ids = |name: &str| -> Vec<i32> {
    ///     data.batch(&[1], DType::F32)[name].to_f64s().iter().map(|&id| id as i32).collect()
    /// };
    /// assert_eq!((data.rows(), text.decode(&ids("x")), text.decode(&ids("y"))), (2, "e or".into(), " or ".into()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Dataset::from_text`].
    pub fn parse_text(path: &Path, text: &[u8], spec: &StackSpec) -> Result<Self, Error> {
        Ok(Self(Rows::Windows(Windows::parse(path, text, spec)?)))
    }

    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        match &self.0 {
            Rows::Table(table) => table.features.len() / table.width.max(1),
            Rows::Windows(windows) => windows.count(),
        }
    }

    /// The targets, if rows are rows of numbers.
    #[must_use]
    pub fn targets(&self) -> Option<&Targets> {
        match &self.0 {
            Rows::Table(table) => Some(&table.targets),
            Rows::Windows(_) => None,
        }
    }

    /// The text, if rows are windows of one.
    #[must_use]
    pub fn text(&self) -> Option<&Text> {
        match &self.0 {
            Rows::Table(_) => None,
            Rows::Windows(windows) => Some(&windows.text),
        }
    }

    /// Rows that are never trained on.
    #[must_use]
    pub fn held_out_rows(&self) -> Vec<usize> {
        (0..self.rows()).filter(|r| r % HOLD_OUT == 0).collect()
    }

    /// Rows that are trained on, in file order.
    #[must_use]
    pub fn training_rows(&self) -> Vec<usize> {
        (0..self.rows()).filter(|r| r % HOLD_OUT != 0).collect()
    }

    /// The batches of an epoch: rows of each, every one of `batch` rows.
    #[must_use]
    pub fn epoch(&self, seed: u64, epoch: u64, batch: usize) -> Vec<Vec<usize>> {
        let mut rows = self.training_rows();
        shuffle(&mut rows, seed, epoch);
        rows.chunks_exact(batch.max(1)).map(<[usize]>::to_vec).collect()
    }

    /// The values of some rows: `x`, features of the float type given or token ids, and `y`; of a text for a model with a
    /// mask, `mask` of that type too. Nothing if a row is not there.
    #[must_use]
    pub fn batch(&self, rows: &[usize], dtype: DType) -> Inputs {
        let whole = |name: &str| {
            let shape = match (&self.0, name) {
                (Rows::Table(table), "x") => vec![rows.len(), table.width],
                (Rows::Table(Table { targets: Targets::Values { width, .. }, .. }), _) => {
                    vec![rows.len(), *width]
                }
                (Rows::Table(_), _) => vec![rows.len()],
                (Rows::Windows(windows), _) => vec![rows.len(), windows.sequence],
            };
            Some((name.to_owned(), self.block(name, rows, &Block::whole(&shape), dtype)?))
        };
        ["x", "y", "mask"].into_iter().filter_map(whole).collect()
    }

    /// A block of a value of [`Dataset::batch`], without the rest; `None` if the batch has no value of this name, a row is
    /// not there, or the block lies outside.
    ///
    /// ```
    /// use shardgrad::core::{Block, DType};
    /// let digits = shardgrad::Dataset::digits();
    /// let block = Block { ranges: [1..2, 32..64].into_iter().collect() };
    /// let part = digits.block("x", &[7, 9], &block, DType::F32).ok_or("no block")?;
    /// assert_eq!(part.to_f64s(), digits.batch(&[9], DType::F32)["x"].to_f64s()[32..]);
    /// # Ok::<(), &str>(())
    /// ```
    #[must_use]
    pub fn block(&self, name: &str, rows: &[usize], block: &Block, dtype: DType) -> Option<Value> {
        let rows = rows.get(block.ranges.first()?.clone())?;
        if rows.iter().any(|&row| row >= self.rows()) {
            return None;
        }
        let columns = |width: usize| block.ranges.get(1).cloned().filter(|c| c.end <= width);
        let Table { features, width, targets } = match &self.0 {
            Rows::Table(table) => table,
            Rows::Windows(windows) => {
                return windows.block(name, rows, columns(windows.sequence)?, dtype);
            }
        };
        let wide = |columns: Range<usize>, width: usize, data: &[f64]| {
            let (n, first) = (columns.len(), columns.start);
            let ty = TensorType::new([rows.len(), n], dtype);
            Value::from_fn(&ty, |i| data[rows[i / n] * width + first + i % n])
        };
        match (name, targets) {
            ("x", _) => Some(wide(columns(*width)?, *width, features)),
            ("y", Targets::Labels(labels)) if block.ranges.len() == 1 => {
                let ty = TensorType::new([rows.len()], DType::I32);
                Some(Value::from_fn(&ty, |i| f64::from(labels[rows[i]])))
            }
            ("y", Targets::Values { width, data }) if *width > 0 => {
                Some(wide(columns(*width)?, *width, data))
            }
            _ => None,
        }
    }
}

/// Fisher–Yates; draw i of an epoch is word i of the ChaCha stream (seed, epoch).
fn shuffle(rows: &mut [usize], seed: u64, epoch: u64) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(epoch);
    for last in (1..rows.len()).rev() {
        // The high word of a 128-bit product is uniform below last + 1 up to a bias of n/2⁶⁴.
        let product = u128::from(rng.next_u64()) * (last as u128 + 1);
        rows.swap(last, usize::try_from(product >> 64).unwrap_or(last));
    }
}

/// The message of a CSV error on one line.
fn one_line(error: &csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::Utf8 { .. } => "is not UTF-8 text".to_owned(),
        _ => error.to_string().replace('\n', " "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, width: usize, columns: TargetColumns) -> Result<Dataset, String> {
        Dataset::parse_csv(Path::new("d.csv"), text.as_bytes(), width, columns, DType::F32)
            .map_err(|e| e.to_string())
    }

    #[test]
    fn the_digits_are_complete_and_scaled() {
        let digits = Dataset::digits();
        let Some(Targets::Labels(labels)) = digits.targets() else { panic!("digits have labels") };
        assert_eq!((digits.rows(), labels.len()), (1797, 1797));
        assert!((0..10).all(|class| labels.iter().filter(|&&l| l == class).count() > 170));
        let pixels = digits.batch(&(0..1797).collect::<Vec<_>>(), DType::F64)["x"].to_f64s();
        assert_eq!(pixels[..6], [0.0, 0.0, 5.0 / 16.0, 13.0 / 16.0, 9.0 / 16.0, 1.0 / 16.0]);
        assert!(pixels.len() == 1797 * 64 && pixels.iter().all(|v| (0.0..=1.0).contains(v)));
        assert!(digits.batch(&[1797], DType::F32).is_empty());
    }

    #[test]
    fn an_epoch_is_a_permutation_of_the_training_rows_and_depends_on_seed_and_epoch() {
        let digits = Dataset::digits();
        let order = |seed, epoch| digits.epoch(seed, epoch, 1).concat();
        let mut sorted = order(3, 2);
        sorted.sort_unstable();
        assert_eq!(sorted, digits.training_rows());
        assert_eq!(order(3, 2), order(3, 2));
        assert_ne!(order(3, 2), order(3, 1));
        assert_ne!(order(3, 2), order(2, 2));
        let batches = digits.epoch(0, 0, 64);
        assert_eq!(batches.len(), 1437 / 64);
        assert!(batches.iter().all(|b| b.len() == 64));
    }

    #[test]
    fn labels_and_values_are_read() {
        let data =
            parse("a,b,label\n1,2,1\n-3,4.5,0\n", 2, TargetColumns::Label { classes: 2 }).unwrap();
        let batch = data.batch(&[1, 0], DType::F64);
        assert_eq!(batch["x"].to_f64s(), [-3.0, 4.5, 1.0, 2.0]);
        assert_eq!(batch["y"].to_f64s(), [0.0, 1.0]);
        let data = parse("a,t0,t1\n1,2,3\n4,5,6\n", 1, TargetColumns::Values(2)).unwrap();
        let batch = data.batch(&[1], DType::F32);
        assert_eq!(batch["x"].to_f64s(), [4.0]);
        assert_eq!(batch["y"].to_f64s(), [5.0, 6.0]);
    }

    #[test]
    fn bad_data_is_refused_naming_file_row_and_column() {
        let label = TargetColumns::Label { classes: 3 };
        let refused = |text: &str, parts: &[&str]| {
            let message = parse(text, 2, label).unwrap_err();
            assert!(!message.contains('\n'));
            for part in parts {
                assert!(message.contains(part), "{message:?} lacks {part:?}");
            }
        };
        refused("a,b,label\n1,2,0\n1,x,0\n", &["d.csv", "row 2", "column `b`", "`x`"]);
        refused("a,b,label\n1,nan,0\n", &["row 1", "column `b`", "finite"]);
        refused("a,b,label\n1,-1e39,0\n", &["row 1", "column `b`", "`-1e39`", "f32"]);
        refused("a,b,label\n1,2,3\n", &["row 1", "column `label`", "3 classes 0 to 2"]);
        refused("a,b,label\n1,2,-1\n", &["row 1", "`-1`"]);
        refused("a,b,label\n1,2\n", &["row 1", "2 fields", "3"]);
        refused("a,label\n1,0\n", &["2 columns", "2 features"]);
        refused("a,b,class\n1,2,0\n", &["`class`", "`label`"]);
        refused("a,b,label\n", &["no rows"]);
        refused("", &["0 columns"]);
    }
}
