//! What would spare a collective, proved: the change is made, the program planned again, and the bytes that are then sent are
//! counted. Changes that do not help are not named.
//!
//! What is tried: pins of the value to the layout that is wanted, or that it has; the pin of a leaf to the layout in which its
//! next value is computed; other splits of the layers that make or read the value, which share the layer's work.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use shardgrad_core::{LayoutSpec, Placement, TransitionKind};
use shardgrad_graph::plan::PlannedTransition;
use shardgrad_graph::{Names, NodeId, OutputRole, Plan, Program};

use crate::options::{Combine, Options};
use crate::planner::plan;
use crate::presets::Split;
use crate::request::LayoutRequest;

/// Most plans that are made.
const MOST_PLANS: usize = 64;
/// Most nodes that all of them have: what takes a second or two.
const MOST_NODES: usize = 50_000;

/// A change of a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// A value is pinned on an axis.
    Pin(String, String, Placement),
    /// A layer is split otherwise on an axis.
    Split(usize, String, Split),
}

/// A change that spares a collective.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remedy {
    /// What to change.
    pub change: Change,
    /// Bytes that a device then sends in a step, scalars not counted.
    pub bytes: u64,
}

/// What would spare the collectives of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remedies {
    /// By the collective's node: the change after which least is sent.
    pub found: BTreeMap<NodeId, Remedy>,
    /// How many changes were tried.
    pub tried: usize,
    /// How many were not, since the program is large.
    pub untried: usize,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Pin(name, axis, placement) => {
                write!(f, "pin `{name}` to `[{axis}: {placement}]`")
            }
            Change::Split(layer, axis, split) => {
                write!(f, "split layer {layer} by `{}` on `{axis}`", split.name())
            }
        }
    }
}

impl Change {
    fn of(&self, request: &LayoutRequest) -> LayoutRequest {
        let request = request.clone();
        match self {
            Change::Pin(name, axis, placement) => {
                let mut spec = request.pins.get(name).cloned().unwrap_or_default();
                spec.0.retain(|(other, _)| other != axis);
                spec.0.push((axis.clone(), *placement));
                request.pin(name, LayoutSpec(spec.0))
            }
            Change::Split(layer, axis, split) => request.split(*layer, axis, *split),
        }
    }
}

/// What a changed request comes to: the bytes that are sent, and which collectives there are.
struct Outcome {
    bytes: u64,
    collectives: Vec<(NodeId, TransitionKind, Vec<usize>)>,
}

/// What identifies a collective over plans of one program: its value, kind and axes.
fn key(plan: &Plan, c: &PlannedTransition<'_>) -> (NodeId, TransitionKind, Vec<usize>) {
    (plan.origins[c.id.index()], c.transition.kind, c.transition.axes.iter().collect())
}

/// Looks for what would spare each collective of the plan that a request led to.
#[must_use]
pub fn remedies(
    program: &Program,
    request: &LayoutRequest,
    options: &Options,
    planned: &Plan,
) -> Remedies {
    let now = planned.totals().bytes_per_device;
    // What is sent does not depend on them.
    let options = Options { combine: Combine::Off, blocking: true, ..options.clone() };
    let most = MOST_PLANS.min(MOST_NODES / program.nodes.len().max(1));
    let mut untried: BTreeSet<Change> = BTreeSet::new();
    let mut outcomes: BTreeMap<Change, Option<Outcome>> = BTreeMap::new();
    let mut remedies = Remedies::default();
    let (names, users) = (Names::new(program), program.users());
    for collective in planned.collectives().filter(|c| !c.is_scalar()) {
        let key_of = key(planned, &collective);
        for change in changes(program, &names, &users, planned, &collective) {
            if !outcomes.contains_key(&change) {
                if outcomes.len() == most {
                    untried.insert(change);
                    continue;
                }
                let made = plan(program, &planned.mesh, &change.of(request), &options).ok();
                let outcome = made.map(|made| Outcome {
                    bytes: made.plan.totals().bytes_per_device,
                    collectives: made.plan.collectives().map(|c| key(&made.plan, &c)).collect(),
                });
                outcomes.insert(change.clone(), outcome);
            }
            let Some(Some(outcome)) = outcomes.get(&change) else { continue };
            let known = remedies.found.get(&collective.id).map_or(now, |best| best.bytes);
            if outcome.bytes < known && !outcome.collectives.contains(&key_of) {
                let remedy = Remedy { change, bytes: outcome.bytes };
                remedies.found.insert(collective.id, remedy);
            }
        }
    }
    Remedies { tried: outcomes.len(), untried: untried.len(), ..remedies }
}

/// The changes that may spare a collective.
fn changes(
    program: &Program,
    names: &Names<'_>,
    users: &[Vec<(NodeId, usize)>],
    plan: &Plan,
    collective: &PlannedTransition<'_>,
) -> Vec<Change> {
    let value = plan.origins[collective.id.index()];
    let mut layers: Vec<u32> = program.node(value).layer.into_iter().collect();
    layers.extend(users[value.index()].iter().filter_map(|&(user, _)| program.node(user).layer));
    layers.sort_unstable();
    layers.dedup();
    let replaced =
        program.outputs.iter().filter(|o| o.node == value).filter_map(|o| match o.role {
            OutputRole::Update { of } => names.own(of),
            OutputRole::Loss | OutputRole::Value | OutputRole::Gradient { .. } => None,
        });
    let replaced: Vec<&str> = replaced.collect();
    let mut changes = Vec::new();
    for axis in collective.transition.axes.iter() {
        let (from, to) = (collective.from.on(axis), collective.to.on(axis));
        let name = &plan.mesh.axes()[axis].name;
        let mut pin = |value: Option<&str>, placement: Placement| {
            if let Some(value) = value.filter(|_| !placement.is_pending() && from != to) {
                changes.push(Change::Pin(value.to_owned(), name.clone(), placement));
            }
        };
        pin(names.own(value), to);
        pin(names.own(value), from);
        replaced.iter().for_each(|leaf| pin(Some(leaf), from));
        for &layer in &layers {
            let split = |split| Change::Split(layer as usize, name.clone(), split);
            changes.extend([Split::Batch, Split::In, Split::Out].map(split));
        }
    }
    changes
}
