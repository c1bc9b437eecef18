//! The single faults that can be switched on, each made in the plan itself, so that the runtime computes what it does.

use shardgrad::core::{Layout, Op, Placement, Transition};
use shardgrad::graph::{Node, NodeId, OutputRole, Plan};
use shardgrad_testkit::mutate::{Fault as Mutation, mutants};

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A pending sum is taken for the value.
    Dropped,
    /// A value is reduced again.
    Repeated,
    /// The bias is added to every term, and the terms then added.
    BiasBeforeSum,
    /// The first two ranks' blocks are put together in the wrong order.
    Order,
}

impl Fault {
    pub(super) const ALL: [Fault; 4] =
        [Fault::Dropped, Fault::Repeated, Fault::BiasBeforeSum, Fault::Order];

    pub(super) fn title(self) -> &'static str {
        match self {
            Fault::Dropped => "reduction left out",
            Fault::Repeated => "reduction repeated",
            Fault::BiasBeforeSum => "bias before the sum",
            Fault::Order => "blocks out of order",
        }
    }

    /// Why a plan cannot have the fault.
    pub(super) fn impossible(self) -> &'static str {
        match self {
            Fault::Dropped | Fault::Repeated => {
                "This plan reduces nothing but the scalar loss, or it makes no difference."
            }
            Fault::BiasBeforeSum => "In this plan no bias is added to a sum that was pending.",
            Fault::Order => {
                "No gradient of this plan lies in blocks of which the first two have one size."
            }
        }
    }

    /// The plan with the fault, and the node at which it shows; `None` if there is no place for it. Blocks out of order
    /// are no fault of the plan.
    pub(super) fn plant(self, plan: &Plan) -> Option<(Plan, NodeId)> {
        match self {
            Fault::Dropped => dropped(plan, reduction(plan)?),
            Fault::Repeated => Some(repeated(plan, reduction(plan)?)),
            Fault::BiasBeforeSum => bias_before_sum(plan),
            Fault::Order => Some((plan.clone(), NodeId::from_index(0))),
        }
    }
}

/// The last reduction of something larger than a scalar: that of a gradient, if one is reduced.
fn reduction(plan: &Plan) -> Option<NodeId> {
    let reduces =
        plan.collectives().filter(|c| c.from.is_pending() && !c.to.is_pending() && !c.is_scalar());
    reduces.last().map(|c| c.id)
}

/// Readers take one rank's term for the value: the reduction is left out, or, where it would also have cut the value into
/// blocks, the cutting alone is left.
fn dropped(plan: &Plan, id: NodeId) -> Option<(Plan, NodeId)> {
    if !plan.layout(id).iter().any(|p| matches!(p, Placement::Shard(_))) {
        let prefix = format!("{id} ");
        let mutant = mutants(plan)
            .into_iter()
            .find(|m| m.fault == Mutation::Drop && m.what.starts_with(&prefix))?;
        return Some((mutant.plan, plan.node(id).operands[0]));
    }
    let mut faulty = plan.clone();
    let term = plan.node(id).operands[0];
    let whole = Layout::replicated(plan.mesh.rank());
    claim(&mut faulty, id, term, whole.clone());
    let slice = Transition::between(&plan.mesh, &whole, plan.layout(id)).ok()?;
    let cut = NodeId::from_index(id.index() + 1);
    faulty.nodes[cut.index()].op = Op::Transition(slice);
    faulty.nodes[cut.index()].operands[0] = id;
    Some((faulty, cut))
}

/// Reduced, then taken for pending, and reduced again.
fn repeated(plan: &Plan, id: NodeId) -> (Plan, NodeId) {
    let mut faulty = plan.clone();
    let node = plan.node(id).clone();
    let term = node.operands[0];
    let (pending, whole) = (plan.layout(term).clone(), Layout::replicated(plan.mesh.rank()));
    let operands = [term].into_iter().collect();
    let op =
        Transition::between(&plan.mesh, &pending, &whole).map_or(node.op.clone(), Op::Transition);
    insert(&mut faulty, id, Node { op, operands, ..node }, whole, plan.origins[id.index()]);
    let next = NodeId::from_index(id.index() + 1);
    claim(&mut faulty, next, id, pending);
    let again = NodeId::from_index(id.index() + 2);
    faulty.nodes[again.index()].operands[0] = next;
    (faulty, again)
}

/// `all_reduce(x·w) + b` becomes `all_reduce(x·w + b)`.
fn bias_before_sum(plan: &Plan) -> Option<(Plan, NodeId)> {
    plan.collectives()
        .filter(|c| c.from.is_pending() && c.to.iter().all(|p| p == Placement::Replicated))
        .find_map(|sum| {
            let add = plan.ids().find(|&id| {
                let node = plan.node(id);
                node.op == Op::Add
                    && node.operands[0] == sum.id
                    && matches!(plan.node(node.operands[1]).op, Op::Broadcast(_))
            })?;
            let mut faulty = plan.clone();
            let after = NodeId::from_index(add.index() + 1);
            // The sum moves behind the addition, which now sees terms.
            let moved = Node { operands: [add].into_iter().collect(), ..plan.node(sum.id).clone() };
            insert(&mut faulty, after, moved, sum.to.clone(), plan.origins[add.index()]);
            for node in faulty.nodes.iter_mut().skip(after.index() + 1) {
                node.operands.iter_mut().filter(|o| **o == add).for_each(|o| *o = after);
            }
            faulty.outputs.iter_mut().filter(|o| o.node == add).for_each(|o| o.node = after);
            faulty.layouts[add.index()] = sum.from.clone();
            faulty.nodes[sum.id.index()].op = Op::Constrain;
            faulty.layouts[sum.id.index()] = sum.from.clone();
            faulty.reasons.remove(&sum.id.0);
            Some((faulty, after))
        })
}

/// Inserts, at `at`, a node that hands `operand` on and claims that it lies otherwise.
fn claim(plan: &mut Plan, at: NodeId, operand: NodeId, layout: Layout) {
    let node = Node {
        op: Op::Constrain,
        operands: [operand].into_iter().collect(),
        ..plan.node(operand).clone()
    };
    let origin = plan.origins[operand.index()];
    insert(plan, at, node, layout, origin);
}

/// Inserts a node whose operands come before it; what stood there and later moves up by one.
fn insert(plan: &mut Plan, at: NodeId, node: Node, layout: Layout, origin: NodeId) {
    let moved = |id: NodeId| if id >= at { NodeId::from_index(id.index() + 1) } else { id };
    for operand in plan.nodes.iter_mut().flat_map(|n| &mut n.operands) {
        *operand = moved(*operand);
    }
    for output in &mut plan.outputs {
        output.node = moved(output.node);
        output.role = match output.role {
            OutputRole::Gradient { of } => OutputRole::Gradient { of: moved(of) },
            OutputRole::Update { of } => OutputRole::Update { of: moved(of) },
            role @ (OutputRole::Loss | OutputRole::Value) => role,
        };
    }
    plan.reasons = std::mem::take(&mut plan.reasons)
        .into_iter()
        .map(|(id, reason)| (moved(NodeId(id)).0, reason))
        .collect();
    let index = at.index();
    plan.nodes.insert(index, node);
    plan.layouts.insert(index, layout);
    plan.origins.insert(index, origin);
    plan.slots.insert(index, 0);
}
