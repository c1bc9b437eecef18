//! The outputs in the README are what the command prints.

use std::process::Command;

/// The text block of the README that follows this line.
fn block_after(line: &str) -> String {
    let readme = include_str!("../../../README.md");
    let rest = &readme[readme.find(line).unwrap() + line.len()..];
    let start = rest.find("```text\n").map_or(0, |i| i + 8);
    rest[start..start + rest[start..].find("```").unwrap()].to_owned()
}

fn printed(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_shardgrad")).args(args).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn compare_prints_what_the_readme_shows() {
    let shown = block_after("Compare layouts\n");
    let shown = shown.split_once('\n').unwrap().1;
    assert_eq!(shown, printed(&["compare", "--mesh", "tp=4"]));
}

#[test]
fn the_optimum_that_no_preset_has_is_as_the_readme_shows() {
    let shown = block_after("### What no preset has\n");
    let shown = shown.split_once('\n').unwrap().1;
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/square.toml");
    let layouts = ["--layout", "auto", "--layout", "megatron", "--layout", "data"];
    let command = ["compare", model, "--mesh", "p=8"];
    assert_eq!(shown, printed(&[&command[..], &layouts].concat()));
    assert_eq!(35_840 * 4, 140 * 1024);
    assert_eq!(57_344 * 4, 224 * 1024);
}

#[test]
fn the_model_of_the_readme_trains_as_the_readme_shows() {
    let readme = include_str!("../../../README.md");
    let model = include_str!("../../../examples/spirals.toml");
    assert!(readme.contains(&format!("```toml\n{model}```\n")));
    let (command, shown) =
        readme.split_once("-- train examples/spirals.toml ").unwrap().1.split_once('\n').unwrap();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");
    let arguments = format!("train {root}examples/spirals.toml {command}")
        .replace(" examples/", &format!(" {root}examples/"));
    let arguments = arguments.replace("--epochs 100", "--epochs 1");
    let printed = printed(&arguments.split(' ').collect::<Vec<_>>());
    let plan = |text: &str| text.split(" epoch ").next().unwrap().to_owned();
    assert_eq!(plan(shown), plan(&printed));
}

/// Losses after many steps depend on the machine's rounding; the plan and its counts do not.
#[test]
fn train_prints_the_plan_that_the_readme_shows() {
    let shown = block_after("cargo run --release -- train\n```\n");
    let printed = printed(&["train", "--epochs", "1"]);
    let plan = |text: &str| text.split(" epoch ").next().unwrap().to_owned();
    assert_eq!(plan(&shown), plan(&printed));
}

/// The page of transformers is written from what the command prints.
#[test]
fn training_on_text_is_as_the_page_shows() {
    let page = include_str!("../../../docs/transformer.md");
    let shown = block_after("learn from any text, character by character:\n");
    let mut rows = shown.lines().filter(|line| *line != "…");
    let command = rows.next().unwrap().replace("cargo run --release --", "shardgrad");
    assert!(page.contains(&command) && rows.clone().count() == 4);
    let printed = &page[page.find(&command).unwrap()..];
    assert!(rows.all(|row| printed.lines().any(|line| line == row)), "{shown}");
}
