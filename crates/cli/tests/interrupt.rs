//! Training stops when asked to and goes on where it stopped: on Ctrl-C the checkpoint is whole, and what is trained from it
//! is what would have been trained without the interruption, to the last bit.

mod support;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::{file, model, run, succeed};

fn place(name: &str) -> (PathBuf, String) {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_file(&path);
    let text = path.to_str().expect("UTF-8").to_owned();
    (path, text)
}

fn wait_for(path: &Path) {
    let start = Instant::now();
    while !path.exists() {
        assert!(start.elapsed() < Duration::from_secs(60), "no {}", path.display());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Starts training, waits until it is at work and the first checkpoint is there, and sends a signal; returns exit code and
/// standard error. A signal that came before the handler is there would be lost where it is ignored, as in background jobs.
fn interrupted(arguments: &str, checkpoint: &Path, signal: &str) -> (Option<i32>, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_shardgrad"))
        .args(arguments.split_whitespace())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let said = BufReader::new(child.stdout.as_mut().expect("its output"));
    assert!(said.lines().map_while(Result::ok).any(|line| line.contains("held-out accuracy")));
    wait_for(checkpoint);
    let sent = Command::new("kill").args([signal, &child.id().to_string()]).status();
    assert!(sent.expect("kill").success());
    let output = child.wait_with_output().expect("it ends");
    (output.status.code(), String::from_utf8(output.stderr).expect("UTF-8"))
}

const LONG: &str = "train --mesh dp=2,tp=2 --epochs 100000";

/// The number after a word.
fn number_after(text: &str, word: &str) -> u64 {
    let rest = text.split(word).nth(1).unwrap_or_else(|| panic!("no `{word}` in {text}"));
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number")
}

#[test]
fn ctrl_c_leaves_a_whole_checkpoint_from_which_training_goes_on() {
    for signal in ["-INT", "-TERM"] {
        let (path, text) = place(&format!("stopped{signal}.safetensors"));
        let (code, said) = interrupted(&format!("{LONG} --checkpoint {text}"), &path, signal);
        assert_eq!(code, Some(130), "{said}");
        let step = number_after(&said, "interrupted after step ");
        assert!(said.contains(&format!("{text} holds step {step}")), "{said}");
        // 22 steps an epoch; on to the end of the epoch after the next, and the same without a stop.
        let epochs = step / 22 + 2;
        let (resumed, resumed_text) = place(&format!("resumed{signal}.safetensors"));
        let (straight, straight_text) = place(&format!("straight{signal}.safetensors"));
        let usual = format!("train --mesh dp=2,tp=2 --epochs {epochs}");
        succeed(&format!("{usual} --resume {text} --checkpoint {resumed_text}"));
        succeed(&format!("{usual} --checkpoint {straight_text}"));
        assert_eq!(std::fs::read(resumed).unwrap(), std::fs::read(straight).unwrap());
    }
}

#[test]
fn without_a_checkpoint_an_interruption_says_so() {
    let (path, text) = place("first.safetensors");
    succeed(&format!("train --epochs 1 --checkpoint {text}"));
    let (code, said) = interrupted(&format!("{LONG} --resume {text}"), &path, "-INT");
    assert!(code == Some(130) && said.contains("interrupted after step"), "{said}");
}

#[test]
fn training_goes_on_on_another_mesh() {
    let (_, text) = place("moved.safetensors");
    succeed(&format!("train --mesh dp=2,tp=2 --epochs 2 --checkpoint {text}"));
    let said = succeed(&format!("train --mesh tp=3 --layout megatron --epochs 3 --resume {text}"));
    assert!(said.contains("counted = predicted in all 22 steps"), "{said}");
    assert!(said.contains("sharded = dense in step 45"), "{said}");
    let done = run(&format!("train --epochs 2 --resume {text}"));
    assert_eq!((done.code, done.stdout.contains("epoch")), (2, false));
    assert!(done.stderr.contains("--epochs 2: ends at step 44"), "{}", done.stderr);
}

/// Before the first epoch, not after it.
#[test]
fn a_place_where_nothing_can_be_saved_is_refused_at_the_start() {
    let (place, _) = place("no-directory");
    let (missing, file) = (place.join("a.safetensors"), file("no-directory.toml", ""));
    let directory = env!("CARGO_TARGET_TMPDIR");
    for (path, said) in [
        (missing.display().to_string(), format!("there is no directory {}", place.display())),
        (format!("{file}/a.safetensors"), "Not a directory".to_owned()),
        (directory.to_owned(), "it is no regular file".to_owned()),
        ("/proc/a.safetensors".to_owned(), "/proc/a.safetensors: ".to_owned()),
    ] {
        let refused = run(&format!("train --epochs 1 --checkpoint {path}"));
        assert_eq!((refused.code, refused.stderr.lines().count()), (2, 1), "{}", refused.stderr);
        assert!(refused.stderr.contains("--checkpoint: "), "{}", refused.stderr);
        assert!(refused.stderr.contains(&said), "{said}: {}", refused.stderr);
        assert!(!refused.stdout.contains("held-out accuracy"), "{}", refused.stdout);
    }
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let (path, text) = place("whole.safetensors");
    succeed(&format!("train --mesh dp=2 --epochs 1 --checkpoint {text}"));
    let bytes = std::fs::read(&path).unwrap();
    let (short, short_text) = place("short.safetensors");
    std::fs::write(&short, &bytes[..bytes.len() - 9]).unwrap();
    let net = model(
        "other.toml",
        64,
        &[64, 30, 10],
        "",
        "loss = \"cross_entropy\"\noptimizer = \"adam\"",
        "",
    );
    let sgd = model(
        "sgd.toml",
        64,
        &[64, 128, 10],
        "activation = \"relu\"",
        "loss = \"cross_entropy\"\noptimizer = \"sgd\"",
        "",
    );
    let empty = file("empty.safetensors", "");
    for (arguments, named) in [
        (format!("train --resume {short_text}"), "short.safetensors is no checkpoint"),
        (format!("train --resume {empty}"), "empty.safetensors is no checkpoint"),
        (format!("train --resume {text}.none"), "whole.safetensors.none"),
        (format!("train {net} --resume {text}"), "`b0` of the checkpoint does not fit"),
        (format!("train {sgd} --resume {text}"), "`m(b0)` of the checkpoint does not fit"),
    ] {
        let refused = run(&arguments);
        assert_eq!((refused.code, refused.stderr.lines().count()), (2, 1), "{}", refused.stderr);
        assert!(refused.stderr.contains(named), "{}", refused.stderr);
    }
}

#[test]
fn absurd_meshes_are_refused_before_anything_is_planned() {
    for mesh in ["d=257", "dp=4096,tp=4096"] {
        let refused = run(&format!(
            "train --mesh {mesh} --layout {}",
            if mesh == "d=257" { "data" } else { "dp=data" }
        ));
        assert_eq!((refused.code, refused.stderr.lines().count()), (2, 1), "{}", refused.stderr);
        assert!(
            refused.stderr.contains("devices, but one process trains on up to 256"),
            "{}",
            refused.stderr
        );
    }
}
