//! Where results go: standard output, or a file that is there complete or not at all.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Writes a result to a file, or to standard output.
pub(crate) fn write(text: &str, file: Option<&Path>) -> Result<(), Failure> {
    match file {
        Some(path) => write_file(path, text),
        None => print(text),
    }
}

/// Writes to standard output. A reader that goes away early, as in `| head`, is no fault.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    match out
        .write_all(text.as_bytes())
        .and_then(|()| out.write_all(end.as_bytes()))
        .and_then(|()| out.flush())
    {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::no(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// A regular file, or one that is not there yet, is written beside its place and renamed, so that a reader never sees half
/// of it; it keeps its permissions, and a link goes on pointing to it. Anything else (a pipe, a device) is written into.
fn write_file(path: &Path, text: &str) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::no(format!("{}: cannot be written: {error}", path.display()))
    };
    let found = match std::fs::metadata(path) {
        Ok(found) => Some(found),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(failed(error)),
    };
    if found.as_ref().is_some_and(std::fs::Metadata::is_dir) || path.file_name().is_none() {
        return Err(Failure::input(format!(
            "-o {}: is a directory; a file name was expected",
            path.display()
        )));
    }
    match found {
        Some(found) if !found.is_file() => {
            OpenOptions::new().write(true).open(path).and_then(|mut file| fill(&mut file, text))
        }
        found => replace(&resolved(path), found.map(|f| f.permissions()), text),
    }
    .map_err(failed)
}

/// Where a chain of links ends, whether or not there is a file.
fn resolved(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    // As many links as systems follow; a longer chain was refused by `metadata` already.
    for _ in 0..40 {
        let Ok(target) = std::fs::read_link(&path) else { break };
        path = path.parent().map_or_else(|| target.clone(), |parent| parent.join(&target));
    }
    path
}

/// Puts a new file in the place of a regular one.
fn replace(path: &Path, permissions: Option<Permissions>, text: &str) -> std::io::Result<()> {
    let mut partial = path.file_name().unwrap_or_default().to_owned();
    partial.push(format!(".{}.part", std::process::id()));
    let partial = path.with_file_name(partial);
    let mut file = File::create(&partial)?;
    let result = permissions
        .map_or(Ok(()), |permissions| file.set_permissions(permissions))
        .and_then(|()| fill(&mut file, text))
        .and_then(|()| file.sync_all())
        .and_then(|()| std::fs::rename(&partial, path));
    if result.is_err() {
        // The file is ours; if it cannot be removed there is nothing more to say than the error itself.
        let _ = std::fs::remove_file(&partial);
    }
    result
}

/// The text, ended by a line end.
fn fill(file: &mut File, text: &str) -> std::io::Result<()> {
    file.write_all(text.as_bytes())?;
    if text.ends_with('\n') { Ok(()) } else { file.write_all(b"\n") }
}

/// A report as JSON.
pub(crate) fn json<T: serde::Serialize>(report: &T) -> Result<String, Failure> {
    serde_json::to_string_pretty(report).map_err(Failure::no)
}
