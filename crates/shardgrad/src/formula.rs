//! What a collective sends, as a formula over letters: `2(p-1)/p·B·D` elements per device.
//!
//! Formulas are those of the table of transitions, for even blocks; the bytes that reports state are counted from the
//! geometry. With one mesh axis its size is `p`, else sizes go by the axes' names. Other axes that shard the tensor divide
//! what the group holds: `2(tp-1)/tp·B·O/dp`.

use shardgrad_core::{Mesh, TransitionKind};
use shardgrad_graph::plan::PlannedTransition;

/// The formula of a collective that moves a tensor of `size` elements (a product of letters).
pub(crate) fn formula(mesh: &Mesh, collective: &PlannedTransition<'_>, size: &str) -> String {
    let name = |axis: usize| {
        if mesh.rank() == 1 { "p" } else { mesh.axes()[axis].name.as_str() }
    };
    let moving = collective.transition.axes;
    let names: Vec<&str> = moving.iter().map(name).collect();
    let count = names.join("·");
    let p = if names.len() == 1 { count.clone() } else { format!("({count})") };
    // What the group holds together: axes that shard the tensor and do not move divide it.
    let others: Vec<&str> = (0..mesh.rank())
        .filter(|&a| !moving.contains(a) && mesh.axis_size(a) > 1)
        .filter(|&a| collective.from.on(a).sharded_dim().is_some())
        .map(name)
        .collect();
    let held = match others.as_slice() {
        [] => size.to_owned(),
        [one] => format!("{size}/{one}"),
        many => format!("{size}/({})", many.join("·")),
    };
    match collective.transition.kind {
        TransitionKind::AllReduce => format!("2({count}-1)/{p}·{held}"),
        TransitionKind::AllGather | TransitionKind::ReduceScatter => {
            format!("({count}-1)/{p}·{held}")
        }
        TransitionKind::AllToAll => format!("({count}-1)/{p}²·{held}"),
        TransitionKind::Reshard
            if collective.transition.weight(collective.from, collective.to) > 1 =>
        {
            format!(
                "terms to owners, Σ |own ∩ owned|, then Σ |owned| to the other readers, of {held}"
            )
        }
        TransitionKind::Reshard => format!("Σ |own ∩ wanted| over peers, of {held}"),
        TransitionKind::Relabel
        | TransitionKind::Slice
        | TransitionKind::Mask
        | TransitionKind::Pad => "0".to_owned(),
    }
}
