//! A file that is made beside its place and renamed when it is whole, so that its place never holds half of one.
//!
//! The file `FILE` is made as `FILE.XXXXXXXXXXXXXXXX.partial` (sixteen hexadecimal digits, drawn anew each time), and locked while it is made. What
//! a killed run left lies there without a lock; whoever makes the next partial file removes it. On a file system without
//! locks nothing is removed.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::path::{Path, PathBuf};

/// Names that are tried.
const TRIES: usize = 16;
const END: &str = ".partial";

/// A file beside its place. It is removed when it goes away unfinished.
#[derive(Debug)]
pub(crate) struct Partial {
    /// What distinguishes its name.
    pub(crate) mark: u64,
    pub(crate) file: File,
    place: PathBuf,
    finished: bool,
}

impl Partial {
    /// Makes an empty one, and removes those that nobody makes any more.
    pub(crate) fn beside(place: &Path) -> io::Result<Self> {
        sweep(place);
        for _ in 0..TRIES {
            let mark = RandomState::new().build_hasher().finish();
            let path = path_of(place, mark);
            let file = match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(error),
            };
            // Another process may have taken it for one that was left, before it had its lock.
            let taken = matches!(file.try_lock(), Err(TryLockError::WouldBlock));
            if !taken && path.try_exists()? {
                return Ok(Self { mark, file, place: place.to_owned(), finished: false });
            }
        }
        Err(io::Error::other("no file can be made beside it; other processes keep removing them"))
    }

    /// Puts it in its place.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(path_of(&self.place, self.mark), &self.place)?;
        self.finished = true;
        // A rename is on disk when the directory is; not every file system can sync one.
        let _ = File::open(directory_of(&self.place)).and_then(|directory| directory.sync_all());
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.finished {
            // Whatever left it unfinished is what counts.
            let _ = fs::remove_file(path_of(&self.place, self.mark));
        }
    }
}

/// The file with this mark beside a place.
pub(crate) fn path_of(place: &Path, mark: u64) -> PathBuf {
    let mut name = place.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{mark:016x}{END}"));
    place.with_file_name(name)
}

/// Where a file goes. A link goes on pointing to the file; what is no regular file (a device, a directory) is not replaced.
pub(crate) fn place_of(path: &Path) -> io::Result<PathBuf> {
    let place = match fs::metadata(path) {
        Ok(found) if found.is_file() => fs::canonicalize(path)?,
        Ok(_) => return Err(io::Error::other("it is no regular file; a file name was expected")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
        Err(error) => return Err(error),
    };
    if place.file_name().is_none() {
        return Err(io::Error::other("the path names no file"));
    }
    let directory = directory_of(&place);
    if !directory.is_dir() {
        let problem = format!("there is no directory {}; make it first", directory.display());
        return Err(io::Error::other(problem));
    }
    Ok(place)
}

fn directory_of(place: &Path) -> &Path {
    place.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Removes the partial files of this place that are not being made. What cannot be removed does no harm.
fn sweep(place: &Path) {
    let Some(name) = place.file_name() else { return };
    let Ok(entries) = fs::read_dir(directory_of(place)) else { return };
    for entry in entries.flatten() {
        let other = entry.file_name();
        let rest = other.as_encoded_bytes().strip_prefix(name.as_encoded_bytes());
        let mark = rest.and_then(|rest| rest.strip_prefix(b".")?.strip_suffix(END.as_bytes()));
        let is_mark = mark.is_some_and(|m| m.len() == 16 && m.iter().all(u8::is_ascii_hexdigit));
        if !is_mark || !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        let path = entry.path();
        // The lock is held until the file is removed.
        if let Ok(file) = OpenOptions::new().write(true).open(&path)
            && file.try_lock().is_ok()
        {
            let _ = fs::remove_file(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string();
        let mut names: Vec<String> =
            fs::read_dir(directory).unwrap().map(|entry| name(entry).unwrap()).collect();
        names.sort();
        names
    }

    /// Two that save to one place do not meet; what was left goes, and nothing else does.
    #[test]
    fn those_being_made_stay_and_those_left_go() {
        let directory = std::env::temp_dir().join(format!("partial-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let place = directory.join("a.bin");
        let digits = "0123456789abcdef";
        let others = [
            format!("a.bin.{}.partial", &digits[1..]),
            format!("a.bin.{}x.partial", &digits[1..]),
            format!("b.bin.{digits}.partial"),
        ];
        for name in &others {
            fs::write(directory.join(name), "").unwrap();
        }
        fs::write(path_of(&place, 7), "left").unwrap();
        let mut first = Partial::beside(&place).unwrap();
        assert!(!path_of(&place, 7).exists(), "what was left is removed");
        let mut second = Partial::beside(&place).unwrap();
        assert_ne!(first.mark, second.mark);
        assert_eq!(names(&directory).len(), others.len() + 2, "{:?}", names(&directory));
        first.file.write_all(b"first").unwrap();
        second.file.write_all(b"second").unwrap();
        second.finish().unwrap();
        assert_eq!(fs::read(&place).unwrap(), b"second");
        first.finish().unwrap();
        assert_eq!(fs::read(&place).unwrap(), b"first");
        drop(Partial::beside(&place).unwrap());
        assert_eq!(names(&directory), [&["a.bin".to_owned()][..], &others].concat());
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn places_that_cannot_be_are_named() {
        let problem = |path: &Path| place_of(path).unwrap_err().to_string();
        let here = std::env::temp_dir();
        let missing = here.join("is-not-there");
        let wanted = format!("there is no directory {}; make it first", missing.display());
        assert_eq!(problem(&missing.join("a")), wanted);
        assert!(problem(&here).contains("it is no regular file"));
        assert_eq!(problem(Path::new("..")), "it is no regular file; a file name was expected");
    }
}
