//! Gradients that only one update reads: w − s·(A·B) as one matrix product into w, without a buffer for A·B.
//!
//! Plain gradient descent is `einsum → mul by a repeated scalar → sub from the parameter, in its place`. Where nothing else
//! reads the product, it is not made when the plan says, but when the parameter is updated: by then whoever reads the old
//! parameter has done so. The product's operands must still be there: no step in between writes their slots, and their
//! buffers are kept until then. That must not need more memory than the product would, so that what is counted stays
//! an upper bound.
//!
//! A product over more than [`DEEPEST`] elements is left alone: the library adds longer ones to the result in several
//! passes, each of which would round the parameter.

use std::collections::BTreeSet;

use shardgrad_core::Op;
use shardgrad_graph::{NodeId, Plan, SlotId, memory};

/// Most summed elements of a product that is added in one pass.
pub(crate) const DEEPEST: usize = 256;

/// A product and its update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descent {
    /// The product.
    pub(crate) product: NodeId,
    /// The scalar that it is multiplied by.
    pub(crate) scalar: NodeId,
    /// Repeats the scalar.
    pub(crate) repeat: NodeId,
    /// Product times scalar.
    pub(crate) change: NodeId,
    /// Parameter less change, in the parameter's place.
    pub(crate) update: NodeId,
}

impl Descent {
    /// The nodes that are one step.
    pub(crate) fn is_of_update(&self, id: NodeId) -> bool {
        [self.repeat, self.change, self.update].contains(&id)
    }
}

/// All of a plan, as far as its graph tells. `lens` are the lengths of the nodes' blocks.
pub(crate) fn find(plan: &Plan, lens: &[usize]) -> Vec<Descent> {
    let mut readers = vec![0_usize; plan.nodes.len()];
    let read = plan.nodes.iter().flat_map(|node| &node.operands);
    read.chain(plan.outputs.iter().map(|output| &output.node))
        .for_each(|id| readers[id.index()] += 1);
    // What launches use while they are in flight is not there for products that are made later.
    let flights = plan.steps().filter(|step| {
        let last = NodeId::from_index(step.end - 1);
        plan.wait(last) > last
    });
    let nodes = flights.flatten().map(NodeId::from_index);
    let flying: BTreeSet<SlotId> = nodes
        .flat_map(|id| plan.node(id).operands.iter().copied().chain([id]))
        .map(|id| plan.slots[id.index()])
        .collect();
    plan.ids().filter_map(|id| at(plan, lens, &readers, &flying, id)).collect()
}

/// What a value is under other names: through aliases that nobody else reads.
fn behind(plan: &Plan, readers: &[usize], mut id: NodeId) -> Option<NodeId> {
    while readers[id.index()] == 1 {
        match plan.node(id).operands.first() {
            Some(&operand) if memory::is_alias(&plan.node(id).op) => id = operand,
            _ => return Some(id),
        }
    }
    None
}

fn at(
    plan: &Plan,
    lens: &[usize],
    readers: &[usize],
    flying: &BTreeSet<SlotId>,
    update: NodeId,
) -> Option<Descent> {
    let node = plan.node(update);
    let (Op::Sub, [param, change]) = (&node.op, node.operands.as_slice()) else { return None };
    let change = behind(plan, readers, *change)?;
    let (Op::Mul, [product, repeat]) =
        (&plan.node(change).op, plan.node(change).operands.as_slice())
    else {
        return None;
    };
    let (product, repeat) = (behind(plan, readers, *product)?, behind(plan, readers, *repeat)?);
    let (Op::Einsum(spec), Op::Broadcast(_)) = (&plan.node(product).op, &plan.node(repeat).op)
    else {
        return None;
    };
    let scalar = *plan.node(repeat).operands.first()?;
    let slot = |id: NodeId| plan.slots[id.index()];
    let is_leaf = |of: NodeId| {
        plan.ids().any(|id| plan.node(id).leaf_role().is_some() && slot(id) == slot(of))
    };
    let fits = slot(*param) == slot(update)
        && is_leaf(*param)
        && node.ty.dtype.is_float()
        && node.ty.rank() == 2
        && spec.operands().len() == 2
        && plan.node(scalar).ty.rank() == 0;
    if !fits {
        return None;
    }
    let operands = &plan.node(product).operands;
    let between = || plan.ids().skip(product.index() + 1).take_while(|&id| id != update);
    let kept: usize = operands.iter().filter(|o| !is_leaf(**o)).map(|o| lens[o.index()]).sum();
    // An alias of an operand writes nothing.
    let writes = |id: NodeId| !memory::is_alias(&plan.node(id).op);
    let untouched = operands.iter().all(|&o| {
        slot(o) != slot(update)
            && !flying.contains(&slot(o))
            && between().all(|id| slot(id) != slot(o) || !writes(id))
    });
    let found = Descent { product, scalar, repeat, change, update };
    (untouched && kept <= lens[product.index()]).then_some(found)
}
