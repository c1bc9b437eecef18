//! Checkpoints: global tensors by name in a safetensors file, whatever the layout that trained them.
//!
//! The file holds parameters and optimizer state as global tensors, so that it loads on any mesh and layout, and in its
//! metadata one JSON text under the key `shardgrad`: format version, model, step, and for information the mesh and the
//! layouts it was saved from. Loading is all or nothing: names and types are compared before the first value is set,
//! a missing moment is an error, and so is one too many. A safetensors file without our metadata, as other programs write
//! them, loads likewise if its tensors have our names; it may lack the optimizer's state, all of it, which then starts
//! anew. A file is replaced by renaming a finished one over it, so that
//! a save that fails leaves the old checkpoint whole.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use ndarray::{ArrayD, IxDyn};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};
use shardgrad_core::TensorType;
use shardgrad_core::ops::Role;
use shardgrad_graph::Value;

use crate::error::Error;
use crate::partial::{Partial, place_of};
use crate::trainer::Trainer;

/// Version of what stands under [`KEY`].
pub(crate) const FORMAT: u32 = 1;
/// Format of a file that another program wrote.
pub(crate) const FOREIGN: u32 = 0;
/// The one key of the file's metadata: with one, its order is no question.
pub(crate) const KEY: &str = "shardgrad";

/// Everything that training goes on from.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// Where it comes from.
    pub about: About,
    /// Parameters and state by name.
    pub tensors: BTreeMap<String, Value>,
}

/// What a checkpoint says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Version of this format; 0 if another program wrote the file.
    pub format: u32,
    /// Name of the model.
    pub model: String,
    /// Steps that were trained: the optimizer's scalars follow from it.
    pub step: u64,
    /// Seed of the initial parameters.
    pub seed: u64,
    /// The mesh that it was saved from.
    pub mesh: String,
    /// Layouts that it was saved from, by name.
    pub layouts: BTreeMap<String, String>,
    /// The characters that token ids stand for, in order, if it learnt text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vocabulary: Option<String>,
}

impl Checkpoint {
    /// Gathers all parameters and state of a trainer.
    ///
    /// # Errors
    /// As [`Trainer::gather`].
    pub fn of(trainer: &mut Trainer, model: &str, step: u64) -> Result<Self, Error> {
        let about = About::of(trainer, model, step);
        let names: Vec<String> = trainer.stored().map(|(name, _)| name.to_owned()).collect();
        let tensors = names
            .into_iter()
            .map(|name| trainer.gather(&name).map(|value| (name, value)))
            .collect::<Result<_, Error>>()?;
        Ok(Self { about, tensors })
    }

    /// Overwrites all parameters and state of a trainer, of any mesh and layout.
    ///
    /// # Errors
    /// A name that only one side has, or a tensor of another type; then nothing is changed.
    pub fn restore(&self, trainer: &mut Trainer) -> Result<(), Error> {
        let found = self.tensors.iter().map(|(name, value)| (name.clone(), value.ty())).collect();
        let renewed = fits(&self.about, &found, trainer)?;
        self.tensors.iter().try_for_each(|(name, value)| trainer.set(name, value))?;
        renewed.iter().try_for_each(|(name, ty)| trainer.set(name, &Value::from_fn(ty, |_| 0.0)))
    }

    /// Writes a file, replacing an old one only when the new one is whole and on disk.
    ///
    /// # Errors
    /// Whatever the file system reports; the old file is then as it was.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let bytes = self.to_bytes().map_err(|problem| not_one(path, &problem))?;
        replace(path, |file| file.write_all(&bytes)).map_err(|error| io_error(path, &error))
    }

    /// Reads a file.
    ///
    /// # Errors
    /// Whatever the file system reports; a file that is no checkpoint of this format, or is damaged.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let bytes = fs::read(path).map_err(|error| io_error(path, &error))?;
        Self::parse(path, &bytes)
    }

    /// As [`Checkpoint::read`], of bytes that were read already; `path` is for messages.
    ///
    /// # Errors
    /// As [`Checkpoint::read`].
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self, Error> {
        Self::from_bytes(bytes).map_err(|problem| not_one(path, &problem))
    }

    fn to_bytes(&self) -> Result<Vec<u8>, String> {
        let text = serde_json::to_string(&self.about).map_err(|e| e.to_string())?;
        let buffers: Vec<(&String, Dtype, Vec<usize>, Vec<u8>)> = self
            .tensors
            .iter()
            .map(|(name, value)| {
                let (dtype, bytes) = bytes_of(value);
                (name, dtype, value.ty().shape.to_vec(), bytes)
            })
            .collect();
        let views = buffers
            .iter()
            .map(|(name, dtype, shape, bytes)| {
                Ok((
                    *name,
                    TensorView::new(*dtype, shape.clone(), bytes).map_err(|e| e.to_string())?,
                ))
            })
            .collect::<Result<Vec<_>, String>>()?;
        let metadata = HashMap::from([(KEY.to_owned(), text)]);
        safetensors::serialize(views, Some(metadata)).map_err(|e| e.to_string())
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(|e| e.to_string())?;
        let text = metadata.metadata().as_ref().and_then(|entries| entries.get(KEY));
        let about = match text {
            None => About { format: FOREIGN, ..About::default() },
            Some(text) => About::parse(text)?,
        };
        let file = SafeTensors::deserialize(bytes).map_err(|e| e.to_string())?;
        let mut tensors = BTreeMap::new();
        for (name, view) in file.tensors() {
            let value = value_of(&view)
                .ok_or_else(|| format!("`{name}` has the element type {:?}", view.dtype()))?;
            tensors.insert(name, value);
        }
        Ok(Self { about, tensors })
    }
}

impl About {
    /// What the metadata of a file says.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let about: About = serde_json::from_str(text).map_err(|e| e.to_string())?;
        if about.format != FORMAT {
            let found = about.format;
            return Err(format!("it has format {found}, this version reads {FORMAT}"));
        }
        Ok(about)
    }

    /// What a trainer's checkpoint says about itself.
    pub(crate) fn of(trainer: &Trainer, model: &str, step: u64) -> Self {
        let mesh = trainer.mesh();
        let layouts = trainer
            .stored()
            .filter_map(|(name, _)| {
                Some((name.to_owned(), trainer.layout(name)?.display(mesh).to_string()))
            })
            .collect();
        Self {
            format: FORMAT,
            model: model.to_owned(),
            step,
            seed: trainer.seed(),
            mesh: mesh.to_string(),
            layouts,
            vocabulary: trainer.vocabulary().map(str::to_owned),
        }
    }
}

/// Whether tensors of these types are all that a trainer stores; what it stores that starts anew.
pub(crate) fn fits(
    about: &About,
    found: &BTreeMap<String, TensorType>,
    trainer: &Trainer,
) -> Result<Vec<(String, TensorType)>, Error> {
    if let (Some(theirs), Some(ours)) = (&about.vocabulary, trainer.vocabulary())
        && theirs != ours
    {
        let lacks = |a: &str, b: &str| a.chars().find(|&c| !b.contains(c));
        let differs = match (lacks(ours, theirs), lacks(theirs, ours)) {
            (Some(c), _) => format!("{c:?} is in the data, and the checkpoint does not know it"),
            (None, Some(c)) => format!("the checkpoint knows {c:?}, which is not in the data"),
            (None, None) => "they have another order".to_owned(),
        };
        let problem = format!("token ids stand for other characters: {differs}");
        return Err(Error::CheckpointMismatch { name: "vocabulary".to_owned(), problem });
    }
    let wanted: BTreeMap<&str, &TensorType> = trainer.stored().collect();
    let is_state = |name: &str| trainer.role(name) == Some(Role::State);
    let lacks_state = about.format == FOREIGN && !found.keys().any(|n| is_state(n));
    let mut renewed = Vec::new();
    for (&name, &ty) in &wanted {
        let problem = match found.get(name) {
            Some(other) if other == ty => continue,
            Some(other) => format!("the trainer needs {ty}, the checkpoint has {other}"),
            None if lacks_state && is_state(name) => {
                renewed.push((name.to_owned(), ty.clone()));
                continue;
            }
            None => format!("the trainer needs it as {ty}, and the checkpoint lacks it"),
        };
        return Err(Error::CheckpointMismatch { name: name.to_owned(), problem });
    }
    match found.keys().find(|name| !wanted.contains_key(name.as_str())) {
        None => Ok(renewed),
        Some(name) => Err(Error::CheckpointMismatch {
            name: name.clone(),
            problem: "the checkpoint has it, and the trainer has no place for it".to_owned(),
        }),
    }
}

pub(crate) fn io_error(path: &Path, error: &io::Error) -> Error {
    Error::Io { path: path.display().to_string(), problem: error.to_string() }
}

pub(crate) fn not_one(path: &Path, problem: &str) -> Error {
    Error::NotACheckpoint { path: path.display().to_string(), problem: problem.to_owned() }
}

fn bytes_of(value: &Value) -> (Dtype, Vec<u8>) {
    match value {
        Value::F32(a) => (Dtype::F32, a.iter().flat_map(|v| v.to_le_bytes()).collect()),
        Value::F64(a) => (Dtype::F64, a.iter().flat_map(|v| v.to_le_bytes()).collect()),
        Value::I32(a) => (Dtype::I32, a.iter().flat_map(|v| v.to_le_bytes()).collect()),
        Value::I64(a) => (Dtype::I64, a.iter().flat_map(|v| v.to_le_bytes()).collect()),
    }
}

/// `None` for element types that programs do not have.
fn value_of(view: &TensorView<'_>) -> Option<Value> {
    fn array<T, const N: usize>(
        view: &TensorView<'_>,
        read: impl Fn([u8; N]) -> T,
    ) -> Option<ArrayD<T>> {
        let (elements, _) = view.data().as_chunks::<N>();
        let elements: Vec<T> = elements.iter().map(|&bytes| read(bytes)).collect();
        ArrayD::from_shape_vec(IxDyn(view.shape()), elements).ok()
    }
    match view.dtype() {
        Dtype::F32 => array(view, f32::from_le_bytes).map(Value::F32),
        Dtype::F64 => array(view, f64::from_le_bytes).map(Value::F64),
        Dtype::I32 => array(view, i32::from_le_bytes).map(Value::I32),
        Dtype::I64 => array(view, i64::from_le_bytes).map(Value::I64),
        _ => None,
    }
}

/// Writes a new file beside the old one and renames it over the old one when it is whole.
fn replace(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let mut partial = Partial::beside(&place_of(path)?)?;
    write(&mut partial.file)?;
    partial.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    use shardgrad_core::DType;

    fn checkpoint(step: u64) -> Checkpoint {
        let value = |n: usize, dtype| {
            Value::from_fn(&TensorType::new([n, 2], dtype), |i| i as f64 - step as f64)
        };
        Checkpoint {
            about: About { format: FORMAT, step, model: "m".to_owned(), ..About::default() },
            tensors: [DType::F32, DType::F64, DType::I32, DType::I64]
                .into_iter()
                .enumerate()
                .map(|(i, dtype)| (format!("t{i}"), value(i + 1, dtype)))
                .collect(),
        }
    }

    fn directory(name: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        directory
    }

    #[test]
    fn files_hold_every_type_and_are_the_same_bytes_each_time() {
        let directory = directory("checkpoint-types");
        let path = directory.join("a.safetensors");
        let saved = checkpoint(3);
        saved.write(&path).unwrap();
        assert_eq!(Checkpoint::read(&path).unwrap(), saved);
        assert_eq!(fs::read(&path).unwrap(), saved.to_bytes().unwrap());
        fs::remove_dir_all(directory).unwrap();
    }

    /// A save that fails halfway leaves the old checkpoint whole and no stray file.
    #[test]
    fn a_failed_save_leaves_the_old_file() {
        let directory = directory("checkpoint-atomic");
        let path = directory.join("a.safetensors");
        checkpoint(1).write(&path).unwrap();
        let bytes = checkpoint(2).to_bytes().unwrap();
        let failed = replace(&path, |file| {
            file.write_all(&bytes[..bytes.len() / 2])?;
            Err(io::Error::other("the disk is full"))
        });
        assert!(failed.is_err());
        assert_eq!(Checkpoint::read(&path).unwrap(), checkpoint(1));
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        fs::remove_dir_all(directory).unwrap();
    }

    /// A directory stands for all that is no regular file.
    #[test]
    #[cfg(unix)]
    fn links_stay_and_what_is_no_file_is_not_replaced() {
        let directory = directory("checkpoint-links");
        let (path, link) = (directory.join("a.safetensors"), directory.join("latest"));
        checkpoint(1).write(&path).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        checkpoint(2).write(&link).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(Checkpoint::read(&path).unwrap(), checkpoint(2));
        let error = checkpoint(3).write(&directory).unwrap_err().to_string();
        assert!(error.contains("it is no regular file"), "{error}");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 2);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn damaged_and_foreign_files_are_refused() {
        let directory = directory("checkpoint-damaged");
        let path = directory.join("a.safetensors");
        let bytes = checkpoint(2).to_bytes().unwrap();
        for end in [0, 4, 20, bytes.len() / 2, bytes.len() - 1] {
            fs::write(&path, &bytes[..end]).unwrap();
            let error = Checkpoint::read(&path).unwrap_err();
            assert_eq!(error.code(), "E315", "{error}");
        }
        let plain: Vec<(String, TensorView<'_>)> = Vec::new();
        fs::write(&path, safetensors::serialize(plain, None).unwrap()).unwrap();
        assert_eq!(Checkpoint::read(&path).unwrap().about.format, FOREIGN);
        let other = HashMap::from([(KEY.to_owned(), "{\"format\": 9}".to_owned())]);
        let plain: Vec<(String, TensorView<'_>)> = Vec::new();
        fs::write(&path, safetensors::serialize(plain, Some(other)).unwrap()).unwrap();
        assert_eq!(Checkpoint::read(&path).unwrap_err().code(), "E315");
        assert_eq!(Checkpoint::read(&directory.join("b")).unwrap_err().code(), "E314");
        fs::remove_dir_all(directory).unwrap();
    }
}
