//! The reference page of placements, written from the tables: `docs/placement-rules.md`.

use std::fmt::Write as _;

use crate::layout::Layout;
use crate::mesh::Mesh;
use crate::ops::catalog::{self, Row};
use crate::ops::{Linearity, Op, Signature};
use crate::placement::Placement;
use crate::rules::axis_rules;
use crate::transition::Transition;

/// The whole page, in Markdown.
#[must_use]
pub fn placement_rules() -> String {
    let mut page = String::from(
        "# Placement rules\n\n\
         This page is written from the table in `crates/core/src/ops`; a test keeps it true \
         (`UPDATE_DOCS=1 cargo test -p shardgrad-core --test reference` rewrites it).\n\n\
         A placement says what one mesh axis does to a tensor: `R` every rank holds all of it, `S(d)` its block of dim d, \
         `P` a term of a sum over the axis, `Pmax` a term of a maximum. A layout has one placement per axis.\n\n\
         ## Ops\n\n\
         Per mesh axis an op takes the operand placements left of the arrow and gives the result right of it; axes choose \
         independently, and no layout mixes `P` with `Pmax`. Labels name the dims of operands and result; a label in \
         brackets cannot be split. Shapes are samples. Reshape keeps `S` only where the block boundaries of both shapes \
         coincide on the mesh.\n\n\
         | op | operands | labels | per axis |\n|---|---|---|---|\n",
    );
    for row in catalog::rows() {
        let _ = writeln!(page, "{}", op_row(&row));
    }
    page.push_str(
        "\n## Linearity\n\nWhat lets a pending operand pass: nothing else does.\n\n| ops | pending operands |\n|---|---|\n",
    );
    for (text, matching) in [
        (
            "exactly one operand `P`, the others `R`",
            linear_names(|l| matches!(l, Linearity::OneOf(m) if m.count_ones() > 1)),
        ),
        ("the (first) operand `P`", linear_names(|l| l == Linearity::OneOf(1))),
        ("the second operand `P`, the first `R`", linear_names(|l| l == Linearity::OneOf(0b10))),
        ("all operands `P`", linear_names(|l| l == Linearity::Joint)),
        ("none", linear_names(|l| l == Linearity::None)),
    ] {
        let _ = writeln!(page, "| {} | {text} |", matching.join(", "));
    }
    page.push_str(
        "\n## Transitions on one axis\n\nSent per rank for a tensor of n elements over p ranks, here counted on 12×8 over \
         p = 4 (n = 96).\n\n| from | to | what happens | elements sent |\n|---|---|---|---|\n",
    );
    transition_rows(&mut page);
    page
}

fn op_row(row: &Row) -> String {
    let types = &row.operands;
    // Catalogue rows are well formed; the reference test would show one that is not.
    let Ok(result) = row.op.infer(types) else { return String::new() };
    let signature = row.op.signature(types, &result);
    let rules: Vec<String> =
        axis_rules(&signature).iter().map(|rule| format!("`{rule}`")).collect();
    let shapes: Vec<String> = types.iter().map(|t| format!("{:?}", t.shape.as_slice())).collect();
    format!(
        "| {} | {} | `{}` | {} |",
        display_name(&row.op),
        if shapes.is_empty() { "–".to_owned() } else { shapes.join(", ") },
        labels(&signature),
        rules.join(" · "),
    )
}

fn display_name(op: &Op) -> String {
    match op {
        Op::Leaf(_) => "leaf".to_owned(),
        other => other.to_string(),
    }
}

fn labels(signature: &Signature) -> String {
    let show =
        |labels: &[char]| -> String {
            labels
                .iter()
                .map(|l| {
                    if signature.unsplittable.contains(l) {
                        format!("[{l}]")
                    } else {
                        l.to_string()
                    }
                })
                .collect()
        };
    let operands: Vec<String> = signature.operands.iter().map(|o| show(o)).collect();
    format!("{}->{}", operands.join(","), show(&signature.result))
}

fn linear_names(wanted: impl Fn(Linearity) -> bool) -> Vec<String> {
    let mut names = Vec::new();
    for row in catalog::rows() {
        let Ok(result) = row.op.infer(&row.operands) else { continue };
        let matches = wanted(row.op.signature(&row.operands, &result).linearity);
        let name = format!("`{}`", row.op.name());
        if matches && !row.operands.is_empty() && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn transition_rows(page: &mut String) {
    let Ok(mesh) = Mesh::new([("a", 4)]) else { return };
    let placements = [
        Placement::Replicated,
        Placement::Shard(0),
        Placement::Shard(1),
        Placement::PendingSum,
        Placement::PendingMax,
    ];
    let layout = |p: Placement| Layout::replicated(1).with(0, p);
    for from in placements {
        for to in placements.into_iter().filter(|&to| to != from) {
            let (before, after) = (layout(from), layout(to));
            let (what, sent) = match Transition::between(&mesh, &before, &after) {
                Ok(t) => (
                    t.kind.name().to_owned(),
                    t.elements_sent(&mesh, &[12, 8], &before, &after).to_string(),
                ),
                Err(_) => ("impossible in one step".to_owned(), "–".to_owned()),
            };
            let _ = writeln!(page, "| `{from}` | `{to}` | {what} | {sent} |");
        }
    }
}
