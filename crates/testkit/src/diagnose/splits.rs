//! Marks of blocks that were cut by another split rule than the one they were placed by.

use shardgrad_core::geometry;

use super::picture::Picture;
use super::{Fault, Found, Group};

/// Other rules to split n over p that one meets: name, and the range of a block.
type Rule = (&'static str, fn(usize, usize, usize) -> std::ops::Range<usize>);

const RULES: [Rule; 3] = [
    ("blocks of ceil(n/p), the last ones short or empty", |n, p, r| {
        let size = n.div_ceil(p);
        (r * size).min(n)..((r + 1) * size).min(n)
    }),
    ("blocks of floor(n/p), the last one with the rest", |n, p, r| {
        let size = n / p;
        r * size..if r + 1 == p { n } else { (r + 1) * size }
    }),
    ("the last n mod p blocks one longer", |n, p, r| {
        let (size, longer) = (n / p, n % p);
        let start = |r: usize| r * size + r.saturating_sub(p - longer);
        start(r)..start(r + 1)
    }),
];

/// Blocks cut by another rule than they were placed by, in both directions, and offsets of another rule with the right
/// lengths.
pub(super) fn split(p: &Picture, shape: &[usize], groups: &[Group]) -> Found {
    for (dim, &n) in shape.iter().enumerate() {
        for group in groups.iter().filter(|g| g.size <= n) {
            let parts = group.size;
            for (rule, other) in RULES {
                let ours = |r| geometry::split(n, parts, r);
                let theirs = |r| other(n, parts, r);
                let mut candidates = [vec![None; n], vec![None; n], vec![None; n]];
                for r in 0..parts {
                    let (right, wrong) = (ours(r), theirs(r));
                    for j in 0..right.len().min(wrong.len()) {
                        candidates[0][right.start + j] = Some(wrong.start + j);
                        candidates[1][wrong.start + j] = Some(right.start + j);
                    }
                    for (j, place) in right.enumerate() {
                        candidates[2][place] = Some((wrong.start + j).min(n - 1));
                    }
                }
                for source in candidates {
                    if p.moved_rows(shape, dim, &source) {
                        let evidence = format!(
                            "dim {dim} of {n} over {} ({parts} devices): rows are those of `{rule}`",
                            group.name
                        );
                        return Some((Fault::WrongSplit { dim, parts, rule }, evidence));
                    }
                }
            }
        }
    }
    None
}
