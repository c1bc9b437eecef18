//! `-o FILE`: what is written where.
#![cfg(unix)]

mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use support::{file, succeed};

#[test]
fn a_link_stays_a_link_and_its_target_keeps_its_permissions() {
    let target = PathBuf::from(file("output_target.txt", "old"));
    fs::set_permissions(&target, fs::Permissions::from_mode(0o640)).expect("permissions");
    let link = target.with_file_name("output_link.txt");
    let _ = fs::remove_file(&link);
    // Relative to the link's own directory, not to the current one.
    symlink("output_target.txt", &link).expect("a link");
    succeed(&format!("compare --layout data -o {}", link.display()));
    assert!(fs::symlink_metadata(&link).expect("the link").is_symlink());
    assert!(fs::read_to_string(&target).expect("the target").starts_with("digits"));
    assert_eq!(fs::metadata(&target).expect("the target").permissions().mode() & 0o777, 0o640);

    fs::remove_file(&target).expect("removed");
    succeed(&format!("compare --layout data -o {}", link.display()));
    assert!(fs::symlink_metadata(&link).expect("the link").is_symlink());
    assert!(fs::read_to_string(&target).expect("made anew").starts_with("digits"));
}
