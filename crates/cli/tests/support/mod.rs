//! Runs the built command, and writes the files it reads.
#![allow(dead_code, missing_docs, unreachable_pub)]

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

/// What a run left behind.
#[derive(Debug, PartialEq, Eq)]
pub struct Run {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Runs `shardgrad` with arguments separated by blanks.
pub fn run(arguments: &str) -> Run {
    let output = Command::new(env!("CARGO_BIN_EXE_shardgrad"))
        .args(arguments.split_whitespace())
        .output()
        .expect("the command starts");
    Run {
        code: output.status.code().expect("the command exits by itself"),
        stdout: String::from_utf8(output.stdout).expect("UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

/// Runs and expects success; returns what was printed.
pub fn succeed(arguments: &str) -> String {
    let run = run(arguments);
    assert_eq!(run.code, 0, "`{arguments}`: {}", run.stderr);
    assert_eq!(run.stderr, "", "`{arguments}`");
    run.stdout
}

/// `compare --format json` with these arguments.
pub fn compare(arguments: &str) -> Value {
    serde_json::from_str(&succeed(&format!("compare --format json {arguments}"))).expect("JSON")
}

/// Writes a file for a test; the name must be the test's own.
pub fn file(name: &str, text: &str) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).expect("the file can be written");
    path.to_str().expect("UTF-8").to_owned()
}

/// A model file: widths, and lines to put before the layers.
pub fn model(
    name: &str,
    batch: usize,
    widths: &[usize],
    layer: &str,
    head: &str,
    tail: &str,
) -> String {
    let mut text = format!("batch = {batch}\n{head}\n");
    for pair in widths.windows(2) {
        text.push_str(&format!("[[layer]]\nin = {}\nout = {}\n{layer}\n", pair[0], pair[1]));
    }
    text.push_str(tail);
    file(name, &text)
}
