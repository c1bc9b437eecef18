//! `docs/placement-rules.md` says what the table says.

use std::path::Path;

#[test]
fn the_page_of_placement_rules_is_true() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/placement-rules.md");
    let page = shardgrad_core::reference::placement_rules();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "docs/placement-rules.md differs from the table; run UPDATE_DOCS=1 cargo test -p shardgrad-core --test reference"
    );
    let ops = shardgrad_core::ops::catalog::rows().len();
    assert_eq!(page.lines().filter(|l| l.contains("->")).count(), ops, "a row is missing");
}
