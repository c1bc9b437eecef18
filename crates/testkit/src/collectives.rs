//! Assertions on what a plan communicates.

use shardgrad_core::Mesh;
use shardgrad_graph::Plan;

/// The collectives of a plan in one phase, in order, as `all_reduce(tp)`. Reductions of scalars have a phase of their own,
/// `scalar`.
#[must_use]
pub fn collectives(plan: &Plan, phase: &str) -> Vec<String> {
    let name = |mesh: &Mesh, t: shardgrad_core::Transition| {
        format!("{}({})", t.kind, mesh.axis_names(t.axes))
    };
    plan.collectives()
        .filter(|c| {
            let own = plan.node(c.id).phase.to_string();
            if c.is_scalar() { phase == "scalar" } else { phase == own }
        })
        .map(|c| name(&plan.mesh, c.transition))
        .collect()
}

/// Asserts that a phase has these collectives, in any order.
///
/// # Panics
/// It has others; the message lists both and the reasons that the planner gave.
#[track_caller]
pub fn assert_phase(plan: &Plan, phase: &str, expected: &[&str]) {
    assert!(
        ["forward", "backward", "update", "scalar"].contains(&phase),
        "`{phase}` is no phase; write forward, backward, update or scalar"
    );
    let actual = collectives(plan, phase);
    let (mut found, mut wanted) = (actual.clone(), expected.to_vec());
    found.sort();
    wanted.sort_unstable();
    if found != wanted {
        let why: Vec<String> = plan
            .collectives()
            .map(|c| {
                let why = plan.reasons.get(&c.id.0).map_or("", |r| r.why.as_str());
                format!("  {} {} {}: {why}", c.id, plan.node(c.id).phase, c.transition.kind)
            })
            .collect();
        panic!(
            "{phase} of layout {} on {} has the collectives [{}], not [{}]\n{}",
            plan.layout,
            plan.mesh,
            actual.join(", "),
            expected.join(", "),
            why.join("\n")
        );
    }
}

/// Asserts the collectives of a plan, by phase: `forward`, `backward`, `update`, and `scalar` for reductions of scalars
/// of all phases. Phases that are not named are not looked at; order does not matter.
///
/// ```
/// use shardgrad_core::{DType, Mesh};
/// use shardgrad_graph::{Graph, OutputRole};
/// use shardgrad_planner::{LayoutRequest, Options, plan};
/// use shardgrad_testkit::assert_collectives;
/// let g = Graph::new("row", DType::F32);
/// let (x, w) = (g.input("x", [4, 6])?, g.param("w", [6, 8])?);
/// g.output("y", x.matmul(w)?, OutputRole::Value)?;
/// let request = LayoutRequest::default()
///     .pin("x", "tp: S(1)".parse()?)
///     .pin("w", "tp: S(0)".parse()?)
///     .pin("y", "tp: R".parse()?);
/// let mesh = Mesh::new([("tp", 2)])?;
/// let planned = plan(&g.finish(), &mesh, &request, &Options::default())?;
/// assert_collectives!(planned.plan, forward: [all_reduce(tp)], backward: []);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[macro_export]
macro_rules! assert_collectives {
    ($plan:expr, $($phase:ident: [$($kind:ident($($axis:ident),+)),* $(,)?]),+ $(,)?) => {{
        let plan: &::shardgrad_graph::Plan = &$plan;
        $($crate::collectives::assert_phase(
            plan,
            stringify!($phase),
            &[$(&*[stringify!($kind), "(", &[$(stringify!($axis)),+].join(", "), ")"].concat()),*],
        );)+
    }};
}
