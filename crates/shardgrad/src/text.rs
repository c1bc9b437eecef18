//! Text to train on: its characters as token ids, and windows of them.
//!
//! The vocabulary of a text is its different characters by code point, so a file gives the same ids wherever it is read. The
//! text is cut into windows of one sequence each, one after another; window r reads the characters from r · sequence on, and
//! its target is at each place the character after it. What is left at the end is less than a window: it is dropped, or,
//! for a model that takes a mask, filled up with places that do not count.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use shardgrad_core::{DType, TensorType};
use shardgrad_graph::{StackSpec, Value};

use crate::error::Error;

/// A text as token ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    characters: Vec<char>,
    ids: Vec<i32>,
}

impl Text {
    /// A text whose characters are the vocabulary.
    ///
    /// ```
    /// let text = shardgrad::Text::new("to be");
    /// assert_eq!(text.characters(), [' ', 'b', 'e', 'o', 't']);
    /// assert_eq!(text.ids(), [4, 3, 0, 1, 2]);
    /// assert_eq!(text.encode("bot"), Some(vec![1, 3, 4]));
    /// assert_eq!(text.encode("not"), None);
    /// assert_eq!(text.decode(&[2, 0, 9]), "e \u{fffd}");
    /// ```
    #[must_use]
    pub fn new(text: &str) -> Self {
        let characters: Vec<char> = text.chars().collect::<BTreeSet<char>>().into_iter().collect();
        let ids = text.chars().filter_map(|c| id_of(&characters, c)).collect();
        Self { characters, ids }
    }

    /// The character of each id.
    #[must_use]
    pub fn characters(&self) -> &[char] {
        &self.characters
    }

    /// The text.
    #[must_use]
    pub fn ids(&self) -> &[i32] {
        &self.ids
    }

    /// Another text in these ids; `None` if it has a character that this one lacks.
    #[must_use]
    pub fn encode(&self, text: &str) -> Option<Vec<i32>> {
        text.chars().map(|c| id_of(&self.characters, c)).collect()
    }

    /// The characters of ids; U+FFFD for an id that has none, as a model may know more tokens than the text.
    #[must_use]
    pub fn decode(&self, ids: &[i32]) -> String {
        let character = |&id: &i32| {
            let known = usize::try_from(id).ok().and_then(|id| self.characters.get(id));
            known.copied().unwrap_or(char::REPLACEMENT_CHARACTER)
        };
        ids.iter().map(character).collect()
    }
}

fn id_of(characters: &[char], c: char) -> Option<i32> {
    characters.binary_search(&c).ok().and_then(|id| i32::try_from(id).ok())
}

/// A text cut into sequences.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Windows {
    pub(crate) text: Text,
    /// Characters of a window.
    pub(crate) sequence: usize,
    /// Whether the end is filled up, and a mask says which places count.
    pub(crate) masked: bool,
}

impl Windows {
    pub(crate) fn parse(path: &Path, bytes: &[u8], spec: &StackSpec) -> Result<Self, Error> {
        let bad = |problem: String| Error::BadData {
            file: path.to_owned(),
            row: None,
            column: None,
            problem,
        };
        spec.validate()?;
        let text = std::str::from_utf8(bytes).map_err(|e| {
            bad(format!("is not UTF-8 text: byte {} of {} is wrong", e.valid_up_to(), bytes.len()))
        })?;
        let text = Text::new(text);
        let (found, vocabulary) = (text.characters.len(), spec.vocabulary);
        if found > vocabulary {
            return Err(bad(format!(
                "has {found} different characters, but the model's `vocabulary` is {vocabulary}; {found} or more was expected"
            )));
        }
        let windows = Self { text, sequence: spec.sequence, masked: spec.masked };
        if windows.count() == 0 {
            let wanted = if spec.masked { 2 } else { spec.sequence.saturating_add(1) };
            return Err(bad(format!(
                "has {} characters; {wanted} or more were expected, for one `sequence` and the character after it",
                windows.text.ids.len()
            )));
        }
        Ok(windows)
    }

    /// Number of windows.
    pub(crate) fn count(&self) -> usize {
        let targets = self.text.ids.len().saturating_sub(1);
        if self.masked { targets.div_ceil(self.sequence) } else { targets / self.sequence }
    }

    /// Some places of some windows: characters (`x`), those after them (`y`), or whether these are there (`mask`).
    pub(crate) fn block(
        &self,
        name: &str,
        windows: &[usize],
        places: Range<usize>,
        dtype: DType,
    ) -> Option<Value> {
        let ids = &self.text.ids;
        let id = |place: usize| ids.get(place).map_or(0.0, |&id| f64::from(id));
        let place =
            |i: usize| windows[i / places.len()] * self.sequence + places.start + i % places.len();
        let ty = |dtype| TensorType::new([windows.len(), places.len()], dtype);
        match name {
            "x" => Some(Value::from_fn(&ty(DType::I32), |i| id(place(i)))),
            "y" => Some(Value::from_fn(&ty(DType::I32), |i| id(place(i) + 1))),
            "mask" if self.masked => {
                let counts = |i| f64::from(u8::from(place(i) + 1 < ids.len()));
                Some(Value::from_fn(&ty(dtype), counts))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dataset;
    use shardgrad_core::Block;

    fn parse(text: &[u8], sequence: usize, masked: bool) -> Result<Dataset, String> {
        let mut spec = StackSpec::new("s", 2, sequence, 9).decoder(4, 2, 1);
        spec.masked = masked;
        Dataset::parse_text("t.txt".as_ref(), text, &spec).map_err(|e| e.to_string())
    }

    fn read(data: &Dataset, name: &str, rows: &[usize]) -> Vec<f64> {
        data.batch(rows, DType::F32)[name].to_f64s()
    }

    #[test]
    fn windows_follow_each_other_and_targets_are_the_characters_after() {
        let data = parse(b"abcdefgh", 3, false).unwrap();
        assert_eq!(data.rows(), 2);
        assert_eq!(read(&data, "x", &[1, 0]), [3.0, 4.0, 5.0, 0.0, 1.0, 2.0]);
        assert_eq!(read(&data, "y", &[1, 0]), [4.0, 5.0, 6.0, 1.0, 2.0, 3.0]);
        assert_eq!(data.batch(&[0], DType::F64).len(), 2);
        // Six characters have one after them, and fill two windows.
        assert_eq!(parse(b"abcdefg", 3, false).unwrap().rows(), 2);
        assert_eq!(parse(b"abcdef", 3, false).unwrap().rows(), 1);
    }

    #[test]
    fn the_end_is_filled_up_where_a_mask_can_say_so() {
        let data = parse(b"abcdefgh", 3, true).unwrap();
        assert_eq!(data.rows(), 3);
        assert_eq!(read(&data, "x", &[2]), [6.0, 7.0, 0.0]);
        assert_eq!(read(&data, "y", &[2])[0], 7.0);
        assert_eq!(read(&data, "mask", &[0, 2]), [1.0, 1.0, 1.0, 1.0, 0.0, 0.0]);
        assert_eq!(parse(b"abcdefg", 3, true).unwrap().rows(), 2);
        assert_eq!(parse(b"ab", 3, true).unwrap().rows(), 1);
    }

    #[test]
    fn blocks_are_parts_of_the_batch() {
        let data = parse(b"abcdefgh", 3, true).unwrap();
        let block = Block { ranges: [1..3, 1..3].into_iter().collect() };
        for name in ["x", "y", "mask"] {
            let whole = read(&data, name, &[2, 0, 1]);
            let part = data.block(name, &[2, 0, 1], &block, DType::F32).unwrap().to_f64s();
            assert_eq!(part, [whole[4], whole[5], whole[7], whole[8]], "{name}");
        }
        let outside = Block { ranges: [0..1, 2..4].into_iter().collect() };
        assert_eq!(data.block("x", &[0], &outside, DType::F32), None);
        assert!(data.batch(&[3], DType::F32).is_empty());
        assert!(data.targets().is_none());
    }

    #[test]
    fn ids_are_the_order_of_code_points() {
        let text = Text::new("é\nzaé");
        assert_eq!(text.characters(), ['\n', 'a', 'z', 'é']);
        assert_eq!(text.ids(), [3, 0, 2, 1, 3]);
        assert_eq!(text.decode(text.ids()), "é\nzaé");
        assert_eq!(text.decode(&[-1, 4]), "\u{fffd}\u{fffd}");
    }

    #[test]
    fn what_makes_no_windows_is_refused() {
        let refused = |text: &[u8], part: &str| {
            let message = parse(text, 3, false).unwrap_err();
            assert!(message.starts_with("t.txt: ") && message.contains(part), "{message}");
        };
        refused(b"abc", "has 3 characters; 4 or more were expected");
        refused(b"", "has 0 characters");
        refused(b"a\xc3", "not UTF-8 text: byte 1 of 2");
        refused(b"abcdefghij", "has 10 different characters, but the model's `vocabulary` is 9");
        let spec = StackSpec::new("s", 2, 0, 9).decoder(4, 2, 1);
        assert!(Dataset::parse_text("t.txt".as_ref(), b"abc", &spec).is_err());
    }
}
