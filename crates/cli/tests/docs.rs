//! Every command in the documentation prints what the page shows.
//!
//! In a block fenced as `console` a line that begins with `$ ` is a command, and the lines up to the next one are what it
//! prints. `UPDATE_DOCS=1 cargo test -p shardgrad-cli --test docs` writes the outputs anew.
#![cfg(unix)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A directory for the files that commands write, from which they see the examples and the data.
fn workplace(page: &str) -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("docs-{page}"));
    fs::create_dir_all(&place).expect("a directory");
    for name in ["examples", "data", "machines"] {
        let _ = fs::remove_file(place.join(name));
        std::os::unix::fs::symlink(Path::new(ROOT).join(name), place.join(name)).expect("a link");
    }
    place
}

/// Standard output and error of a command line, in which `shardgrad` is the command under test.
fn printed(line: &str, place: &Path) -> String {
    let command = Path::new(env!("CARGO_BIN_EXE_shardgrad"));
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("sh")
        .args(["-c", &format!("exec 2>&1; {line}")])
        .env("PATH", format!("{}:{path}", command.parent().expect("a directory").display()))
        .current_dir(place)
        .output()
        .expect("a shell");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The page with the outputs of its commands as they are now, and how many commands it has.
fn renewed(page: &str, text: &str) -> (String, usize) {
    let place = workplace(page);
    let (mut new, mut commands, mut inside) = (String::new(), 0, false);
    for line in text.lines() {
        if line.starts_with("```") {
            inside = line == "```console";
        }
        if !inside || line == "```console" {
            new.push_str(line);
            new.push('\n');
        } else if let Some(command) = line.strip_prefix("$ ") {
            commands += 1;
            new.push_str(&format!("{line}\n{}", printed(command, &place)));
        }
    }
    (new, commands)
}

#[test]
fn every_page_is_in_the_book() {
    let docs = Path::new(ROOT).join("docs");
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).expect("the book's contents");
    let mut pages: Vec<String> = fs::read_dir(&docs)
        .expect("docs")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".md") && name != "SUMMARY.md")
        .collect();
    pages.sort();
    let mut listed: Vec<&str> =
        summary.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    listed.sort_unstable();
    assert_eq!(listed, pages);
}

#[test]
fn commands_print_what_the_pages_show() {
    let mut commands = 0;
    for entry in fs::read_dir(Path::new(ROOT).join("docs")).expect("docs") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|e| e != "md") {
            continue;
        }
        let page = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let shown = fs::read_to_string(&path).expect("a page");
        let (now, count) = renewed(&page, &shown);
        commands += count;
        if std::env::var_os("UPDATE_DOCS").is_some() {
            fs::write(&path, now).expect("the page can be written");
        } else {
            assert_eq!(shown, now, "docs/{page}.md is out of date; run with UPDATE_DOCS=1");
        }
    }
    assert!(commands >= 15, "only {commands} commands were found");
}
