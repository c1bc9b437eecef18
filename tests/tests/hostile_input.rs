//! Every parser on wrong input: valid inputs with edits, and arbitrary bytes. No panic, errors of one line, and memory in
//! proportion to the input. The functions are those of the fuzz targets (`fuzz/`); what fuzzing found is run first.
//!
//! `SHARDGRAD_INPUTS=100000` runs so many inputs for each parser. `SHARDGRAD_SEEDS=DIR` writes the valid inputs, one directory for each target: the corpus that fuzzing starts from.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use shardgrad_tests::parsers::{PARSERS, Parser};

thread_local! {
    static LIVE: Cell<i64> = const { Cell::new(0) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

struct Tracking;

fn count(bytes: i64) {
    // A thread that ends has no counters any more, and runs no parser.
    let _ = LIVE.try_with(|live| {
        live.set(live.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
    });
}

// A global allocator cannot be written without `unsafe`; it passes everything on to the system's.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Tracking {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(i64::try_from(layout.size()).unwrap_or(i64::MAX / 4));
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-i64::try_from(layout.size()).unwrap_or(i64::MAX / 4));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Tracking = Tracking;

/// Runs a parser and holds it to its memory: fixed tables, and a multiple of the input.
fn run(parser: &Parser, input: &[u8]) {
    let before = LIVE.get();
    PEAK.set(before);
    (parser.run)(input);
    let used = PEAK.get() - before;
    let most = (4 << 20) + 1024 * i64::try_from(input.len()).unwrap();
    assert!(used <= most, "{}: {used} bytes for an input of {}", parser.name, input.len());
}

/// Texts that parsers stumble over.
const TOKENS: [&str; 24] = [
    "18446744073709551616",
    "9223372036854775807",
    "4294967295",
    "-1",
    "0",
    "1e999",
    "NaN",
    "-0.0",
    "",
    " ",
    "\n",
    "\0",
    "\u{feff}",
    "é",
    "\"",
    "'",
    "[",
    "]",
    "(",
    "{",
    "}",
    ",",
    ":",
    "=",
];

/// One change of an input.
#[derive(Clone, Debug)]
enum Edit {
    /// Another byte.
    Byte(u8),
    /// Something put in.
    Insert(usize),
    /// A run of bytes taken out.
    Remove(usize),
    /// A run of bytes repeated.
    Repeat(usize),
    /// The next number replaced.
    Number(usize),
    /// The end cut off.
    Cut,
}

fn edits() -> impl Strategy<Value = Vec<(u16, Edit)>> {
    let edit = prop_oneof![
        any::<u8>().prop_map(Edit::Byte),
        (0..TOKENS.len()).prop_map(Edit::Insert),
        (1..20_usize).prop_map(Edit::Remove),
        (1..60_usize).prop_map(Edit::Repeat),
        (0..6_usize).prop_map(Edit::Number),
        Just(Edit::Cut),
    ];
    vec((any::<u16>(), edit), 1..4)
}

fn edited(seed: &[u8], edits: &[(u16, Edit)]) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for (at, edit) in edits {
        let at = usize::from(*at) * bytes.len() / (usize::from(u16::MAX) + 1);
        let run = |n: usize| at..bytes.len().min(at + n);
        match edit {
            Edit::Byte(byte) => {
                if let Some(old) = bytes.get_mut(at) {
                    *old = *byte;
                }
            }
            Edit::Insert(token) => {
                bytes.splice(at..at, TOKENS[*token].bytes());
            }
            Edit::Remove(n) => {
                bytes.drain(run(*n));
            }
            Edit::Repeat(n) => {
                let copy = bytes[run(*n)].to_vec();
                bytes.splice(at..at, copy);
            }
            Edit::Number(token) => {
                let Some(start) = bytes[at..].iter().position(u8::is_ascii_digit) else { continue };
                let start = at + start;
                let length = bytes[start..].iter().take_while(|b| b.is_ascii_digit()).count();
                bytes.splice(start..start + length, TOKENS[*token].bytes());
            }
            Edit::Cut => bytes.truncate(at),
        }
    }
    bytes
}

fn attack(name: &str) {
    let parser = PARSERS.iter().find(|p| p.name == name).unwrap();
    let seeds = (parser.seeds)();
    for seed in &seeds {
        run(parser, seed);
    }
    let found = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/regressions").join(name);
    for file in std::fs::read_dir(found).into_iter().flatten() {
        run(parser, &std::fs::read(file.unwrap().path()).unwrap());
    }
    let cases = std::env::var("SHARDGRAD_INPUTS").ok().and_then(|n| n.parse().ok()).unwrap_or(1500);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let count = seeds.len();
    let inputs = prop_oneof![
        9 => (0..count, edits()).prop_map(move |(i, edits)| edited(&seeds[i], &edits)),
        1 => vec(any::<u8>(), 0..80),
    ];
    let result = runner.run(&inputs, |input| {
        std::panic::catch_unwind(|| run(parser, &input)).map_err(|panic| {
            let text = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            TestCaseError::fail(format!("{text:?} on\n{}", input.escape_ascii()))
        })
    });
    if let Err(error) = result {
        panic!("{name}: {error}");
    }
}

macro_rules! attacks {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            attack(stringify!($name));
        })*

        #[test]
        fn every_parser_is_attacked() {
            assert_eq!([$(stringify!($name)),*], PARSERS.map(|p| p.name));
        }
    };
}

attacks! { layout model layout_file machine plan program csv text npy safetensors checkpoint }

/// Seeds must be valid, or edits of them say little: each is accepted, so that a wrong one is told from a right one.
#[test]
fn seeds_can_be_written_for_fuzzing() {
    let Ok(root) = std::env::var("SHARDGRAD_SEEDS") else { return };
    for parser in PARSERS {
        let directory = Path::new(&root).join(parser.name);
        std::fs::create_dir_all(&directory).unwrap();
        for (i, seed) in (parser.seeds)().iter().enumerate() {
            std::fs::write(directory.join(format!("seed{i}")), seed).unwrap();
        }
    }
}
