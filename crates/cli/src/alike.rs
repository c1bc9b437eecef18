//! What all processes of a world must have in common, as statements that are compared before they work together. Ranks that
//! differ would wait for each other, or train something that nobody asked for.
//!
//! The trainer compares more by itself: program, build, environment, mesh, layout, plan, seed.

use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use crate::args::{MeasureArgs, TrainArgs};
use crate::backend::Statements;

/// Bytes that are read at a time, and of each sample.
const PART: usize = 1 << 16;
/// Places of a checkpoint that are looked at, evenly spread: it may be too large for every rank to read all of it.
const SAMPLES: u64 = 64;

/// Of training: the model, learning rate included, data, how long, and the files.
pub(crate) fn training(args: &TrainArgs, model: &impl std::fmt::Debug) -> Statements {
    let TrainArgs { epochs, checkpoint, resume, verify, .. } = args;
    vec![
        ("model", format!("{model:?}")),
        ("data", or_none(args.data.as_deref(), |path| said(whole(path)))),
        ("--epochs", epochs.to_string()),
        ("--checkpoint", or_none(checkpoint.as_deref(), shown)),
        ("--resume", or_none(resume.as_deref(), shown)),
        (
            "content of the file to resume from",
            or_none(resume.as_deref(), |path| said(sampled(path))),
        ),
        ("--verify", verify.to_string()),
    ]
}

/// Of measuring: the whole command line but for the file that the first process writes.
pub(crate) fn measuring(args: &MeasureArgs, model: &impl std::fmt::Debug) -> Statements {
    let MeasureArgs { mesh, layout, steps, .. } = args;
    vec![
        ("model", format!("{model:?}")),
        ("--mesh", mesh.to_string()),
        ("--layout", layout.join(" ")),
        ("--steps", steps.to_string()),
    ]
}

fn or_none(path: Option<&Path>, say: impl Fn(&Path) -> String) -> String {
    path.map_or_else(|| "none".to_owned(), say)
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn said(digest: io::Result<u64>) -> String {
    digest.map_or_else(|error| format!("unreadable ({error})"), |digest| format!("#{digest:016x}"))
}

/// A digest of a file.
fn whole(path: &Path) -> io::Result<u64> {
    let (mut file, mut hasher, mut part) = (File::open(path)?, DefaultHasher::new(), vec![0; PART]);
    loop {
        match file.read(&mut part)? {
            0 => return Ok(hasher.finish()),
            n => hasher.write(&part[..n]),
        }
    }
}

/// A digest of a file's length and of parts of it. Training changes every tensor everywhere.
fn sampled(path: &Path) -> io::Result<u64> {
    let mut file = File::open(path)?;
    let len = file.metadata()?.len();
    if len <= SAMPLES * PART as u64 {
        return whole(path);
    }
    let (mut hasher, mut part) = (DefaultHasher::new(), vec![0; PART]);
    hasher.write_u64(len);
    for sample in 0..SAMPLES {
        file.seek(SeekFrom::Start((len - PART as u64) * sample / (SAMPLES - 1)))?;
        file.read_exact(&mut part)?;
        hasher.write(&part);
    }
    Ok(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_differ_in_a_sample_or_in_length_differ() {
        let path = std::env::temp_dir().join(format!("alike-{}", std::process::id()));
        let digest = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            (whole(&path).unwrap(), sampled(&path).unwrap())
        };
        let long = vec![7; SAMPLES as usize * PART + 1000];
        let mut changed = long.clone();
        *changed.last_mut().unwrap() = 8;
        let (a, b, c) = (digest(&long), digest(&changed), digest(&long[1..]));
        assert!(a.0 != b.0 && a.1 != b.1 && a.0 != c.0 && a.1 != c.1);
        assert_eq!(a, digest(&long));
        let (short, other) = (digest(b"a"), digest(b"b"));
        assert!(short.0 == short.1 && short != other);
        std::fs::remove_file(path).unwrap();
    }
}
