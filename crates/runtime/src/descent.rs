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

use shardgrad_core::Op;
use shardgrad_graph::{NodeId, Plan};

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
    plan.ids().filter_map(|id| at(plan, lens, &readers, id)).collect()
}

fn at(plan: &Plan, lens: &[usize], readers: &[usize], update: NodeId) -> Option<Descent> {
    let node = plan.node(update);
    let (Op::Sub, [param, change]) = (&node.op, node.operands.as_slice()) else { return None };
    let slot = |id: NodeId| plan.slots[id.index()];
    let once = |id: NodeId| readers[id.index()] == 1;
    let in_place = slot(*param) == slot(update) && plan.node(*param).leaf_role().is_some();
    let (Op::Mul, [product, repeat]) =
        (&plan.node(*change).op, plan.node(*change).operands.as_slice())
    else {
        return None;
    };
    let (Op::Einsum(spec), Op::Broadcast(_)) = (&plan.node(*product).op, &plan.node(*repeat).op)
    else {
        return None;
    };
    let scalar = *plan.node(*repeat).operands.first()?;
    let fits = in_place
        && once(*change)
        && once(*product)
        && once(*repeat)
        && node.ty.dtype.is_float()
        && node.ty.rank() == 2
        && spec.operands().len() == 2
        && plan.node(scalar).ty.rank() == 0;
    if !fits {
        return None;
    }
    let operands = &plan.node(*product).operands;
    let between = || plan.ids().skip(product.index() + 1).take_while(|&id| id != update);
    let kept: usize = operands
        .iter()
        .filter(|o| {
            !plan.ids().any(|id| plan.node(id).leaf_role().is_some() && slot(id) == slot(**o))
        })
        .map(|o| lens[o.index()])
        .sum();
    let untouched = operands
        .iter()
        .all(|&o| slot(o) != slot(update) && between().all(|id| slot(id) != slot(o)));
    (untouched && kept <= lens[product.index()]).then_some(Descent {
        product: *product,
        scalar,
        repeat: *repeat,
        change: *change,
        update,
    })
}
