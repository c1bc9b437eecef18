//! The table of cases in `docs/testing.md` names tests that exist, and all that are named after a case.

use std::collections::BTreeSet;
use std::path::Path;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Whether a file has a test of this name.
fn has_test(file: &str, name: &str) -> bool {
    let source = std::fs::read_to_string(Path::new(ROOT).join(file)).unwrap_or_default();
    source.contains(&format!("#[test]\nfn {name}("))
}

#[test]
fn every_case_has_its_tests() {
    let page = std::fs::read_to_string(Path::new(ROOT).join("docs/testing.md")).unwrap();
    let (_, table) = page.split_once("<!-- cases: begin -->").unwrap();
    let (table, _) = table.split_once("<!-- cases: end -->").unwrap();
    let mut listed = BTreeSet::new();
    let mut cases = 0;
    for row in table.lines().filter(|l| l.starts_with("| ")).skip(1) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        let [case, _, tests] = cells[..] else { panic!("{row}") };
        cases += 1;
        let quoted: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!quoted.is_empty() || tests.contains("not expressible"), "{case}");
        for pair in quoted.chunks(2) {
            let [name, file] = pair else { panic!("{row}") };
            assert!(has_test(file, name), "{case}: {file} has no test `{name}`");
            listed.insert((*name).to_owned());
        }
    }
    assert_eq!(cases, 51);
    for file in ["cases_values.rs", "cases_plans.rs", "cases_training.rs"] {
        let source =
            std::fs::read_to_string(Path::new(ROOT).join("tests/tests").join(file)).unwrap();
        for part in source.split("#[test]\nfn case_").skip(1) {
            let name = format!("case_{}", part.split('(').next().unwrap());
            assert!(listed.contains(&name), "{file}: `{name}` is not in the table");
        }
    }
}
