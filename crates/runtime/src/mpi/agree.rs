//! Whether all ranks run the same: statements of every rank, compared over all.
//!
//! A statement is a line of text. One that is too long is cut, with a digest of all of it; what is too large for a line (a
//! plan, the executable file) is a digest from the start. Every rank sees all statements and finds the same
//! difference, so that all return the same error.

use std::fs::File;
use std::io::Read;

use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator as _, CommunicatorCollectives as _};
use shardgrad_graph::Plan;

use crate::error::Error;

/// Bytes of a statement.
const WIDTH: usize = 96;

/// FNV-1a: detects accidents, not attacks.
#[derive(Clone, Copy, Debug)]
struct Digest(u64);

impl Digest {
    const NEW: Self = Self(0xcbf2_9ce4_8422_2325);

    fn with(self, bytes: &[u8]) -> Self {
        let step =
            |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        Self(bytes.iter().fold(self.0, step))
    }
}

/// A digest of a text, to be compared.
fn digest(text: &str) -> String {
    format!("{:016x}", Digest::NEW.with(text.as_bytes()).0)
}

/// The statement in a fixed number of bytes.
fn line(text: &str) -> [u8; WIDTH] {
    let mut line = [0; WIDTH];
    let short = if text.len() <= WIDTH {
        text.to_owned()
    } else {
        let end = (0..=WIDTH - 24).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        format!("{}… #{}", &text[..end], digest(text))
    };
    line.iter_mut().zip(short.bytes()).for_each(|(to, from)| *to = from);
    line
}

fn text_of(line: &[u8]) -> String {
    String::from_utf8_lossy(line).trim_end_matches('\0').to_owned()
}

/// The first statement in which a rank differs from rank 0.
fn difference(statements: &[(&'static str, String)], all: &[u8]) -> Option<Error> {
    let (by_rank, _) = all.as_chunks::<WIDTH>();
    let first = by_rank.get(..statements.len())?;
    statements.iter().enumerate().find_map(|(i, (what, _))| {
        let theirs = |rank: usize| by_rank.get(rank * statements.len() + i);
        let ranks = by_rank.len() / statements.len();
        let rank = (1..ranks).find(|&rank| theirs(rank) != Some(&first[i]))?;
        Some(Error::RanksDiffer {
            rank,
            what,
            theirs: theirs(rank).map(|line| text_of(line)).unwrap_or_default(),
            first: text_of(&first[i]),
        })
    })
}

/// Compares the statements of all ranks.
pub(crate) fn agree(
    world: &SimpleCommunicator,
    statements: &[(&'static str, String)],
) -> Result<(), Error> {
    let mine: Vec<u8> = statements.iter().flat_map(|(_, text)| line(text)).collect();
    let ranks = usize::try_from(world.size()).unwrap_or(1);
    let mut all = vec![0; ranks * mine.len()];
    world.all_gather_into(&mine[..], &mut all[..]);
    difference(statements, &all).map_or(Ok(()), Err)
}

/// Which build this is: a digest of the executable file.
pub(crate) fn build() -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(std::env::current_exe()?)?;
        let (mut digest, mut bytes, mut buffer) = (Digest::NEW, 0_u64, vec![0; 1 << 16]);
        loop {
            let n = file.read(&mut buffer)?;
            if n == 0 {
                return Ok(format!("{bytes} bytes #{:016x}", digest.0));
            }
            // Eight bytes at a time: a part of a second would be spent on a large executable otherwise.
            let (words, rest) = buffer[..n].as_chunks::<8>();
            digest = words.iter().fold(digest, |Digest(hash), word| {
                let mixed = (hash ^ u64::from_ne_bytes(*word)).wrapping_mul(0x0000_0100_0000_01b3);
                Digest(mixed ^ mixed >> 29)
            });
            digest = digest.with(rest);
            bytes += n as u64;
        }
    };
    read().unwrap_or_else(|error| format!("unreadable ({error})"))
}

/// What the ranks of a trainer must have in common.
pub(crate) fn statements(
    plan: &Plan,
    seed: u64,
    build: &str,
    collectives: &str,
) -> Vec<(&'static str, String)> {
    let json = serde_json::to_string(plan).unwrap_or_default();
    let mut environment: Vec<String> = std::env::vars()
        .filter(|(name, _)| name.starts_with("SHARDGRAD_"))
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    environment.sort();
    vec![
        ("program version", env!("CARGO_PKG_VERSION").to_owned()),
        ("build", build.to_owned()),
        ("processor", processor()),
        ("environment (SHARDGRAD_…)", environment.join(" ")),
        ("mesh", plan.mesh.to_string()),
        ("layout", plan.layout.clone()),
        ("plan", digest(&json)),
        ("seed", seed.to_string()),
        ("choice of collectives", collectives.to_owned()),
    ]
}

/// What decides which kernels run: replicas on processors that round differently would drift apart.
fn processor() -> String {
    let mut words = vec![std::env::consts::ARCH.to_owned(), std::env::consts::OS.to_owned()];
    #[cfg(target_arch = "x86_64")]
    for (name, there) in [
        ("avx", std::is_x86_feature_detected!("avx")),
        ("avx2", std::is_x86_feature_detected!("avx2")),
        ("fma", std::is_x86_feature_detected!("fma")),
        ("avx512f", std::is_x86_feature_detected!("avx512f")),
    ] {
        if there {
            words.push(name.to_owned());
        }
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_named_with_both_sides() {
        let statements = |a: &str, b: &str| vec![("mesh", a.to_owned()), ("plan", b.to_owned())];
        let all = |ranks: &[(&str, &str)]| -> Vec<u8> {
            ranks.iter().flat_map(|(a, b)| [line(a), line(b)]).flatten().collect()
        };
        let mine = statements("tp=2", "1");
        let same = all(&[("tp=2", "1"), ("tp=2", "1"), ("tp=2", "1")]);
        assert_eq!(difference(&mine, &same), None);
        let one = all(&[("tp=2", "1"), ("tp=2", "1"), ("tp=2", "2")]);
        let expected = |rank, what, theirs: &str, first: &str| {
            let (theirs, first) = (theirs.to_owned(), first.to_owned());
            Some(Error::RanksDiffer { rank, what, theirs, first })
        };
        assert_eq!(difference(&mine, &one), expected(2, "plan", "2", "1"));
        let two = all(&[("tp=2", "1"), ("tp=2", "2"), ("dp=2", "1")]);
        assert_eq!(difference(&mine, &two), expected(2, "mesh", "dp=2", "tp=2"));
    }

    #[test]
    fn long_statements_that_differ_at_the_end_differ() {
        let long = "é".repeat(100);
        assert_ne!(line(&format!("{long}a")), line(&format!("{long}b")));
        assert!(text_of(&line(&long)).starts_with("éé"));
        assert_eq!(text_of(&line("short")), "short");
    }
}
