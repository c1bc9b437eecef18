//! `docs/errors.md` lists every error of every crate and every code of the checker, as the sources have them.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use shardgrad_graph::check::CODES;

/// One variant of an error enum: its code and its message, parts that vary in braces.
struct Entry {
    code: String,
    message: String,
}

/// Variants are documented as `/// E001` and followed by `#[error("…")]`.
fn entries(source: &str) -> Vec<Entry> {
    let mut found = Vec::new();
    let mut rest = source;
    while let Some(at) = rest.find("/// E") {
        rest = &rest[at + 4..];
        let code = &rest[..rest.find('\n').unwrap()];
        if code.len() != 4 || !code[1..].bytes().all(|b| b.is_ascii_digit()) {
            continue;
        }
        let start = rest.find("#[error(").unwrap();
        let text = rest[start..].find('"').unwrap() + start + 1;
        let mut message = String::new();
        let mut chars = rest[text..].chars();
        loop {
            match chars.next().unwrap() {
                '"' => break,
                '\\' => message.push(chars.next().unwrap()),
                c => message.push(c),
            }
        }
        found.push(Entry { code: code.to_owned(), message });
    }
    found
}

/// The codes that `fn code` returns.
fn returned(source: &str) -> BTreeSet<String> {
    source
        .match_indices("=> \"E")
        .map(|(at, start)| {
            let code = &source[at + start.len() - 1..];
            code[..code.find('"').unwrap()].to_owned()
        })
        .collect()
}

fn page(root: &Path) -> String {
    let mut page = String::from(
        "# Errors, violations and lints\n\n\
         Every message is one line: what was found, what is legal, what to do. Codes are stable. Parts in braces vary. This \
         page is\nwritten from the sources (`UPDATE_DOCS=1 cargo test -p shardgrad-graph --test errors_page` rewrites it).\n",
    );
    let crates = [
        ("core", "Meshes, layouts, ops"),
        ("graph", "Programs and plans"),
        ("planner", "Planning"),
        ("runtime", "Running"),
        ("shardgrad", "Model files and training"),
        ("testkit", "Testing"),
        ("cli", "The command"),
    ];
    for (name, title) in crates {
        let file = root.join(format!("crates/{name}/src/error.rs"));
        let Ok(source) = std::fs::read_to_string(file) else { continue };
        let entries = entries(&source);
        let listed: BTreeSet<String> = entries.iter().map(|e| e.code.clone()).collect();
        assert_eq!(
            listed,
            returned(&source),
            "{name}: `/// E…` above variants and `fn code` differ"
        );
        let package =
            if name == "shardgrad" { name.to_owned() } else { format!("shardgrad-{name}") };
        assert_eq!(listed.len(), entries.len(), "{name}: a code stands twice");
        let _ = write!(page, "\n## {title} (`{package}`)\n\n| code | message |\n|---|---|\n");
        for Entry { code, message } in entries {
            let _ = writeln!(page, "| {code} | {} |", message.replace('|', "\\|"));
        }
    }
    for (letter, title) in
        [('C', "Violations: why a plan is not right"), ('L', "Lints: what is right but wasteful")]
    {
        let _ = write!(page, "\n## {title} (`shardgrad check`)\n\n| code | meaning |\n|---|---|\n");
        for (code, meaning) in CODES.iter().filter(|(code, _)| code.starts_with(letter)) {
            let _ = writeln!(page, "| {code} | {meaning} |");
        }
    }
    page
}

#[test]
fn the_page_lists_every_code() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (path, page) = (root.join("docs/errors.md"), page(&root));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    assert!(
        std::fs::read_to_string(&path).unwrap_or_default() == page,
        "docs/errors.md differs from the sources; run UPDATE_DOCS=1 cargo test -p shardgrad-graph --test errors_page"
    );
    assert!(page.contains("| E013 | {op} of {operands}: {problem} |"));
    assert!(page.contains("| C013 | "));
}
