//! Where results go: standard output, or a file that is there complete or not at all.

use std::io::{ErrorKind, Write};
use std::path::Path;

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

/// Writes beside the file and renames, so that a reader never sees half of it.
fn write_file(path: &Path, text: &str) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::no(format!("{}: cannot be written: {error}", path.display()))
    };
    let Some(name) = path.file_name() else {
        return Err(Failure::input(format!("-o {}: a file name was expected", path.display())));
    };
    let mut partial = name.to_owned();
    partial.push(format!(".{}.part", std::process::id()));
    let partial = path.with_file_name(partial);
    let result = std::fs::File::create(&partial)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            if !text.ends_with('\n') {
                file.write_all(b"\n")?;
            }
            file.sync_all()
        })
        .and_then(|()| std::fs::rename(&partial, path));
    if result.is_err() {
        // The file is ours; if it cannot be removed there is nothing more to say than the error itself.
        let _ = std::fs::remove_file(&partial);
    }
    result.map_err(failed)
}

/// A report as JSON.
pub(crate) fn json<T: serde::Serialize>(report: &T) -> Result<String, Failure> {
    serde_json::to_string_pretty(report).map_err(Failure::no)
}
