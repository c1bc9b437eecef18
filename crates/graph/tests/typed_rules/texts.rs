//! The texts of the messages, read from the source: which calls each names, and that every one is walked.

use std::collections::{BTreeMap, BTreeSet};

use crate::messages::{self, Advice};
use crate::singles;

const SOURCES: [&str; 13] = [
    include_str!("../../../core/src/types/axes.rs"),
    include_str!("../../../core/src/types/bias.rs"),
    include_str!("../../../core/src/types/cotangent.rs"),
    include_str!("../../../core/src/types/division.rs"),
    include_str!("../../../core/src/types/elementwise.rs"),
    include_str!("../../../core/src/types/loss.rs"),
    include_str!("../../../core/src/types/matmul.rs"),
    include_str!("../../../core/src/types/matmul_nt.rs"),
    include_str!("../../../core/src/types/matmul_tn.rs"),
    include_str!("../../../core/src/types/mod.rs"),
    include_str!("../../../core/src/types/reduce.rs"),
    include_str!("../../../core/src/types/stored.rs"),
    include_str!("../../../core/src/types/transition.rs"),
];

/// Traits with a message, and its text.
fn messages() -> BTreeMap<&'static str, &'static str> {
    let mut found = BTreeMap::new();
    for source in SOURCES {
        for text in source.split("#[diagnostic::on_unimplemented(").skip(1) {
            let (text, rest) = text.split_once(")]\npub trait ").unwrap();
            let name = rest.split(|c: char| !c.is_alphanumeric()).next().unwrap();
            assert!(found.insert(name, text).is_none(), "{name}");
        }
    }
    found
}

/// The text of a trait's message.
pub(crate) fn text(name: &str) -> &'static str {
    messages()[name]
}

/// The calls that the message of a trait names.
pub(crate) fn calls(name: &str) -> BTreeSet<Advice> {
    let text = text(name);
    Advice::BY_METHOD
        .into_iter()
        .filter(|(method, _)| {
            // With or without dims.
            text.contains(&format!(".{method}(")) || text.contains(&format!(".{method}::<"))
        })
        .map(|(_, advice)| advice)
        .collect()
}

#[test]
fn every_message_is_walked() {
    let mut walked = messages::walked();
    walked.extend(singles::WALKED);
    assert_eq!(BTreeSet::from_iter(messages().into_keys()), walked);
}

/// Found, why, what to do: each text has the three parts, in lower case and without a full stop.
#[test]
fn every_message_has_three_parts() {
    for (name, text) in messages() {
        for part in ["message = \"", "label = \"", "note = \""] {
            let (_, content) = text.split_once(part).unwrap_or_else(|| panic!("{name}: {part}"));
            let content = content.split('"').next().unwrap();
            assert!(!content.ends_with('.'), "{name}: {content}");
            assert!(!content.starts_with(char::is_uppercase), "{name}: {content}");
        }
    }
}
