//! Whether a certificate proves what it says: that no plan of its space costs less than its bound.
//!
//! The costs of all plans are rebuilt from core's tables (module `network`), the claim of each bag is compared with every
//! entry of what it minimises (module `bags`), and the plan's own cost is counted from its nodes. Nothing is searched for:
//! in which order bags are made is the certificate's to say, and any order gives a bound.

mod axes;
mod bags;
mod carry;
mod choices;
mod layouts;
mod network;

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use shardgrad_core::price::Fields;
use shardgrad_core::{Objective, Op, Placement, Prices, TensorType, rules};
use smallvec::SmallVec;

use self::bags::{Fault, LIMITS};
use self::choices::Axis;
use self::network::{Builder, Pinned, axis_of, has_room};
use super::Violation;
use crate::certificate::{Bound, Certificate, Work};
use crate::node::{NodeId, OutputRole};
use crate::plan::Plan;
use crate::program::Program;

/// What a verified certificate proves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Proof {
    /// What is minimised.
    pub objective: Objective,
    /// The plan's cost.
    pub cost: Fields,
    /// No plan of the space has a smaller first field.
    pub least: u64,
    /// Whether no plan of the space costs less at all, as far as the scale is exact.
    pub optimal: bool,
}

impl Proof {
    /// What is left between the plan and the bound, in the first field.
    #[must_use]
    pub fn gap(&self) -> u64 {
        self.cost[0].saturating_sub(self.least)
    }
}

/// What became of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It holds.
    Proven(Proof),
    /// There is none, and why.
    Unproven(String),
    /// It does not hold.
    Refuted(Violation),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Proven(proof) => {
                let by = proof.objective.name();
                let unit = match proof.objective {
                    Objective::Volume | Objective::Memory => "bytes",
                    Objective::Time => "femtoseconds",
                };
                if proof.optimal {
                    write!(f, "proves that by {by} no plan of this space is better")
                } else if proof.gap() == 0 {
                    write!(f, "proves that no plan of this space takes fewer {unit}")
                } else {
                    let (least, cost, gap) = (proof.least, proof.cost[0], proof.gap());
                    write!(
                        f,
                        "proves a bound only: by {by} no plan of this space is below {least} {unit}; this one has {cost}, a gap of {gap}"
                    )
                }
            }
            Verdict::Unproven(because) => write!(f, "none, because {because}"),
            Verdict::Refuted(violation) => write!(f, "refuted, {violation}"),
        }
    }
}

fn refuted(code: &'static str, message: String) -> Verdict {
    Verdict::Refuted(Violation { code, node: None, message })
}

/// Verifies the certificate of a plan that [`super::check`] found right.
#[must_use]
pub fn verify(plan: &Plan, program: &Program, certificate: &Certificate) -> Verdict {
    let bound = match certificate {
        Certificate::Bound(bound) => bound,
        Certificate::None { because } => return Verdict::Unproven(because.clone()),
    };
    match verify_bound(plan, program, bound) {
        Ok(proof) => Verdict::Proven(proof),
        Err(verdict) => verdict,
    }
}

fn verify_bound(plan: &Plan, program: &Program, bound: &Bound) -> Result<Proof, Verdict> {
    let malformed = |what: &str| Err(refuted("C060", format!("the certificate {what}")));
    let (space, weights) = (&bound.space, &bound.scale);
    let axes = plan.mesh.rank();
    if space.layers.len() != program.layers.len()
        || space.layers.iter().chain([&space.others]).any(|works| works.len() != axes)
    {
        return malformed("does not say how each layer works on each axis of the mesh");
    }
    if space.others.iter().any(|w| !matches!(w, Work::Any | Work::Shared)) {
        return malformed("binds contractions outside of layers to a layer's label");
    }
    if !weights.are_sound() || space.machine.validate().is_err() {
        return malformed("has a scale or a machine that no cost can be counted with");
    }
    if bound.axes.iter().chain([&bound.bags]).any(|bags| !bags.sets.is_sorted()) {
        return malformed("names values out of order");
    }
    in_space(plan, program, bound)?;
    let prices = Prices { mesh: &plan.mesh, objective: space.objective, machine: &space.machine };
    let cost = plan.cost(&prices);
    if cost != bound.cost {
        let (found, said) = (show(cost), show(bound.cost));
        let message = format!("the plan costs {found}, but its certificate says {said}");
        return Err(refuted("C064", message));
    }
    if cost.contains(&u64::MAX) {
        return Err(refuted("C065", "the plan costs more than can be counted".to_owned()));
    }
    let pins = pins(plan, program);
    let by_axes = !bound.axes.is_empty();
    if by_axes && !bound.bags.is_empty() {
        return malformed("makes its bound both of the whole space and axis by axis");
    }
    let builder = Builder {
        program,
        pins: &pins,
        space,
        sets: &bound.bags.sets,
        prices,
        weights: *weights,
        shared_out: by_axes,
        part: None,
    };
    let mut whole = builder.build().map_err(|problem| {
        refuted("C065", format!("the certificate cannot be verified: {problem}"))
    })?;
    if !has_room(weights, &whole.network.most, whole.network.addends) {
        return malformed("has a scale in which one field of a cost may run over into another");
    }
    let total = if by_axes {
        axes::verify(&builder, &whole, &bound.axes)
    } else {
        bags::verify(&mut whole.network, &bound.bags, weights, &LIMITS)
    };
    // What overclaims on an axis claims units of the first field.
    let scale = if by_axes { &axes::UNITS } else { weights };
    let total = total.map_err(|fault| match fault {
        Fault::Malformed(what) => refuted("C060", format!("the certificate's bags: {what}")),
        Fault::Overclaims { bag, var, claimed, least } => {
            let (claimed, least) = (show(scale.split(claimed)), show(scale.split(least)));
            let of = variable(program, var);
            refuted(
                "C062",
                format!("bag {bag} ({of}) claims a minimum of {claimed}, but it has {least}"),
            )
        }
        Fault::TooLarge(size) => refuted(
            "C065",
            format!("the certificate cannot be verified: a bag would have {size} entries"),
        ),
    })?;
    let lower = weights.join(bound.lower);
    if lower > total {
        let (claimed, found) = (show(bound.lower), show(weights.split(total)));
        let message =
            format!("the certificate claims a bound of {claimed}, but its bags add up to {found}");
        return Err(refuted("C063", message));
    }
    let packed = weights.pack(cost);
    let exact = weights.dropped[..2] == [0; 2];
    let least = (lower >> weights.shift[0]) << weights.dropped[0];
    Ok(Proof {
        objective: space.objective,
        cost,
        least: u64::try_from(least).unwrap_or(u64::MAX),
        optimal: exact && packed == lower,
    })
}

fn show(units: Fields) -> String {
    format!("[{}, {}, {}, {}]", units[0], units[1], units[2], units[3])
}

fn variable(program: &Program, var: u32) -> String {
    let id = NodeId(var);
    if id.index() >= program.nodes.len() {
        return "a layout".to_owned();
    }
    match program.name_of(id) {
        Some(name) => format!("`{name}`"),
        None => format!("{id} {}", program.node(id).op.name()),
    }
}

/// The plan computes every op once, and its contractions share their work as the space says.
fn in_space(plan: &Plan, program: &Program, bound: &Bound) -> Result<(), Verdict> {
    let outside = |id: NodeId, what: String| {
        let message = format!("the certificate speaks of other plans than this one: {what}");
        Err(Verdict::Refuted(Violation { code: "C061", node: Some(id), message }))
    };
    let mut made = vec![false; program.nodes.len()];
    for id in plan.ids() {
        let node = plan.node(id);
        if matches!(node.op, Op::Transition(_)) {
            continue;
        }
        let origin = plan.origins[id.index()];
        if std::mem::replace(&mut made[origin.index()], true) {
            return outside(id, format!("{id} computes {origin} again"));
        }
        if node.leaf_role().is_some() {
            continue;
        }
        let types: Vec<TensorType> = plan.operand_types(id);
        let layouts: Vec<_> = node.operands.iter().map(|&o| plan.layout(o)).collect();
        let (mesh, layout) = (&plan.mesh, plan.layout(id));
        let Ok(kinds) = rules::check(&node.op, mesh, &types, &node.ty, &layouts, layout) else {
            return outside(id, format!("{id} satisfies no rule"));
        };
        for (axis, kind) in kinds.into_iter().enumerate().filter(|(a, _)| mesh.axis_size(*a) > 1) {
            let allowed = axis_of(&bound.space, program, origin, axis);
            if allowed != Axis::Any && !allowed.admits(kind, layout.on(axis)) {
                let name = &mesh.axes()[axis].name;
                return outside(
                    id,
                    format!("on axis `{name}` {id} {} does not share its work as it says", node.op),
                );
            }
        }
    }
    Ok(())
}

/// The placements that values are pinned to, by the plan and by the program.
fn pins(plan: &Plan, program: &Program) -> BTreeMap<NodeId, Pinned> {
    let mut pins: BTreeMap<NodeId, Pinned> = BTreeMap::new();
    for (name, spec) in program.pins.iter().chain(&plan.pins) {
        let output = program
            .outputs
            .iter()
            .find(|o| o.name == *name && !matches!(o.role, OutputRole::Update { .. }));
        let Some(id) = program.named(name).or(output.map(|o| o.node)) else { continue };
        let free: Pinned = SmallVec::from_elem(None::<Placement>, plan.mesh.rank());
        let pinned = pins.entry(id).or_insert(free);
        for (axis, placement) in &spec.0 {
            if let Ok(axis) = plan.mesh.axis(axis) {
                pinned[axis] = Some(*placement);
            }
        }
    }
    pins
}
