//! Checkpoint files block by block: every rank reads and writes its own elements, and no tensor is put together.
//!
//! A safetensors file is a header (its length, then JSON: the metadata, and of every tensor its type, shape and place) and
//! the tensors' row-major elements, little-endian. From names and types alone follows where each element lies; the file is
//! byte for byte the one that [`Checkpoint::write`](crate::Checkpoint::write) makes of whole tensors.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use shardgrad_core::{Block, DType, TensorType};

use crate::checkpoint::{About, FOREIGN, KEY, io_error, not_one};
use crate::error::Error;
use crate::init::each_run;
use crate::tensor::Data;

/// Longest header that is read; the format allows no longer one.
const LONGEST: u64 = 100_000_000;
/// Elements that are turned into bytes at a time.
const PART: usize = 1 << 18;

/// Where the tensors of a file lie.
#[derive(Debug)]
pub(crate) struct BlockFile {
    pub(crate) about: About,
    /// By name: the type, and the byte at which the elements start.
    tensors: BTreeMap<String, (TensorType, u64)>,
    header: Vec<u8>,
    len: u64,
}

impl BlockFile {
    /// The file of these tensors.
    pub(crate) fn new<'a>(
        about: About,
        tensors: impl Iterator<Item = (&'a str, &'a TensorType)>,
    ) -> Result<Self, String> {
        let mut all: Vec<(&str, &TensorType)> = tensors.collect();
        // Large elements first, as other writers do, so that each is aligned.
        all.sort_by(|(a, x), (b, y)| of_dtype(y.dtype).cmp(&of_dtype(x.dtype)).then(a.cmp(b)));
        let (mut at, mut infos) = (0, Vec::new());
        for (name, ty) in &all {
            let bytes = ty.elements() * ty.dtype.size();
            let (dtype, shape) = (of_dtype(ty.dtype), ty.shape.to_vec());
            infos.push((
                (*name).to_owned(),
                TensorInfo { dtype, shape, data_offsets: (at, at + bytes) },
            ));
            at += bytes;
        }
        let text = serde_json::to_string(&about).map_err(|e| e.to_string())?;
        let metadata = Metadata::new(Some(HashMap::from([(KEY.to_owned(), text)])), infos)
            .map_err(|e| e.to_string())?;
        let mut json = serde_json::to_vec(&metadata).map_err(|e| e.to_string())?;
        json.resize(json.len().next_multiple_of(8), b' ');
        let mut header = (json.len() as u64).to_le_bytes().to_vec();
        header.extend(json);
        Self::of(about, &metadata, header)
    }

    fn of(about: About, metadata: &Metadata, header: Vec<u8>) -> Result<Self, String> {
        let start = header.len() as u64;
        let (mut tensors, mut len) = (BTreeMap::new(), start);
        for (name, info) in metadata.tensors() {
            let dtype = to_dtype(info.dtype)
                .ok_or_else(|| format!("`{name}` has the element type {:?}", info.dtype))?;
            let ty = TensorType::new(info.shape.iter().copied(), dtype);
            let (from, to) = info.data_offsets;
            tensors.insert(name, (ty, start + from as u64));
            len = len.max(start + to as u64);
        }
        Ok(Self { about, tensors, header, len })
    }

    /// Reads the header of a file.
    ///
    /// # Errors
    /// As [`Checkpoint::read`](crate::Checkpoint::read).
    pub(crate) fn open(path: &Path) -> Result<(Self, File), Error> {
        let mut file = File::open(path).map_err(|e| io_error(path, &e))?;
        let found = Self::read(&mut file).map_err(|e| io_error(path, &e))?;
        Ok((found.map_err(|problem| not_one(path, &problem))?, file))
    }

    fn read(file: &mut File) -> io::Result<Result<Self, String>> {
        let len = file.metadata()?.len();
        let mut first = [0; 8];
        if len < 8 {
            return Ok(Err(format!("it has {len} bytes, which is no header")));
        }
        file.read_exact(&mut first)?;
        let json = u64::from_le_bytes(first);
        if json > LONGEST || json > len - 8 {
            return Ok(Err(format!("its header would have {json} bytes, of {len} of the file")));
        }
        let mut header = first.to_vec();
        header.resize(8 + usize::try_from(json).unwrap_or(0), 0);
        file.read_exact(&mut header[8..])?;
        Ok(Self::parse(header, len))
    }

    fn parse(header: Vec<u8>, len: u64) -> Result<Self, String> {
        let metadata: Metadata = serde_json::from_slice(&header[8..]).map_err(|e| e.to_string())?;
        let text = metadata.metadata().as_ref().and_then(|entries| entries.get(KEY));
        let about = match text {
            None => About { format: FOREIGN, ..About::default() },
            Some(text) => About::parse(text)?,
        };
        let file = Self::of(about, &metadata, header)?;
        if file.len == len {
            return Ok(file);
        }
        Err(format!("it has {len} bytes, but its tensors end at byte {}", file.len))
    }

    /// The types of the tensors by name.
    pub(crate) fn types(&self) -> BTreeMap<String, TensorType> {
        self.tensors.iter().map(|(name, (ty, _))| (name.clone(), ty.clone())).collect()
    }

    /// Gives a new file its header, and room for all elements.
    pub(crate) fn begin(&self, file: &mut File) -> io::Result<()> {
        file.write_all(&self.header)?;
        file.set_len(self.len)?;
        file.sync_all()
    }

    /// Opens the file that another rank began, to write blocks.
    pub(crate) fn open_begun(&self, path: &Path) -> io::Result<File> {
        let file = OpenOptions::new().write(true).open(path)?;
        if file.metadata()?.len() == self.len {
            return Ok(file);
        }
        Err(io::Error::other("is not the file that rank 0 made"))
    }

    /// Writes the elements of a block of a tensor.
    pub(crate) fn write_block(
        &self,
        file: &mut File,
        name: &str,
        block: &Block,
        data: &Data,
    ) -> io::Result<()> {
        let Some((ty, start)) = self.tensors.get(name) else { return Ok(()) };
        let (mut at, mut bytes) = (0, Vec::new());
        for (first, len) in runs(ty, block) {
            file.seek(SeekFrom::Start(start + (first * ty.dtype.size()) as u64))?;
            for part in (at..at + len).step_by(PART) {
                bytes.clear();
                let range = part..(part + PART).min(at + len);
                match data {
                    Data::F32(v) => v[range].iter().for_each(|v| bytes.extend(v.to_le_bytes())),
                    Data::F64(v) => v[range].iter().for_each(|v| bytes.extend(v.to_le_bytes())),
                    Data::I32(v) => v[range].iter().for_each(|v| bytes.extend(v.to_le_bytes())),
                    Data::I64(v) => v[range].iter().for_each(|v| bytes.extend(v.to_le_bytes())),
                }
                file.write_all(&bytes)?;
            }
            at += len;
        }
        Ok(())
    }

    /// Reads the elements of a block of a tensor.
    pub(crate) fn read_block(
        &self,
        file: &mut File,
        name: &str,
        block: &Block,
    ) -> io::Result<Data> {
        let Some((ty, start)) = self.tensors.get(name) else {
            return Err(io::Error::other(format!("`{name}` is not in the file")));
        };
        let mut data = Data::zeros(ty.dtype, block.len());
        let (mut at, mut bytes) = (0, Vec::new());
        for (first, len) in runs(ty, block) {
            file.seek(SeekFrom::Start(start + (first * ty.dtype.size()) as u64))?;
            for part in (at..at + len).step_by(PART) {
                let range = part..(part + PART).min(at + len);
                bytes.resize(range.len() * ty.dtype.size(), 0);
                file.read_exact(&mut bytes)?;
                match &mut data {
                    Data::F32(v) => fill(&mut v[range], &bytes, f32::from_le_bytes),
                    Data::F64(v) => fill(&mut v[range], &bytes, f64::from_le_bytes),
                    Data::I32(v) => fill(&mut v[range], &bytes, i32::from_le_bytes),
                    Data::I64(v) => fill(&mut v[range], &bytes, i64::from_le_bytes),
                }
            }
            at += len;
        }
        Ok(data)
    }
}

fn fill<T, const N: usize>(into: &mut [T], bytes: &[u8], read: impl Fn([u8; N]) -> T) {
    let (chunks, _) = bytes.as_chunks::<N>();
    into.iter_mut().zip(chunks).for_each(|(element, chunk)| *element = read(*chunk));
}

/// The runs of a block, those that touch joined.
fn runs(ty: &TensorType, block: &Block) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    each_run(&ty.shape, block, |start, len| match runs.last_mut() {
        Some((first, n)) if *first + *n == start => *n += len,
        _ => runs.push((start, len)),
    });
    runs
}

fn of_dtype(dtype: DType) -> Dtype {
    match dtype {
        DType::F32 => Dtype::F32,
        DType::F64 => Dtype::F64,
        DType::I32 => Dtype::I32,
        DType::I64 => Dtype::I64,
    }
}

fn to_dtype(dtype: Dtype) -> Option<DType> {
    [DType::F32, DType::F64, DType::I32, DType::I64].into_iter().find(|&d| of_dtype(d) == dtype)
}
