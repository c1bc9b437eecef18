//! How each fault is put into a plan.

use shardgrad_core::{AxisSet, Layout, Mesh, Op, Placement, Transition, TransitionKind};
use shardgrad_graph::{NodeId, OutputRole, Plan, memory};

use super::{Fault, Mutant};

/// Every mutant of a plan. Those without a fault in launches launch every collective by itself.
#[must_use]
pub fn mutants(plan: &Plan) -> Vec<Mutant> {
    let mut all = Vec::new();
    bucket_mutants(plan, &mut all);
    wait_mutants(plan, &mut all);
    let mut apart = plan.clone();
    apart.buckets.clear();
    apart.waits.clear();
    memory::assign_slots(&mut apart);
    let plan = &apart;
    for id in plan.ids() {
        if let Op::Transition(transition) = plan.node(id).op {
            transition_mutants(plan, id, transition, &mut all);
        }
        node_mutants(plan, id, &mut all);
    }
    output_mutants(plan, &mut all);
    slot_mutants(plan, &mut all);
    order_mutants(plan, &mut all);
    all
}

/// Adds a mutant whose slots are assigned anew, as a planner that made the mistake would.
fn push(all: &mut Vec<Mutant>, fault: Fault, what: String, mut plan: Plan) {
    memory::assign_slots(&mut plan);
    all.push(Mutant { fault, what, plan });
}

fn transition_mutants(plan: &Plan, id: NodeId, transition: Transition, all: &mut Vec<Mutant>) {
    let i = id.index();
    let what = |detail: &str| format!("{id} {}: {detail}", transition.kind);
    push(all, Fault::Drop, what("left out"), without(plan, id));
    push(all, Fault::Repeat, what("made twice"), repeated(plan, id));
    let every = 1_usize << plan.mesh.rank();
    for bits in 0..every {
        let axes: AxisSet = (0..plan.mesh.rank()).filter(|a| bits >> a & 1 == 1).collect();
        if axes != transition.axes {
            let mut mutant = plan.clone();
            mutant.nodes[i].op = Op::Transition(Transition { axes, ..transition });
            push(all, Fault::OtherAxes, what(&plan.mesh.axis_names(axes)), mutant);
        }
    }
    for kind in TransitionKind::ALL.into_iter().filter(|k| *k != transition.kind) {
        let mut mutant = plan.clone();
        mutant.nodes[i].op = Op::Transition(Transition { kind, ..transition });
        push(all, Fault::OtherKind, what(kind.name()), mutant);
    }
    // The layouts at the ends say what the transition does: another dim, with the transition that fits.
    for (axis, dim) in
        (0..plan.mesh.rank()).flat_map(|a| (0..plan.node(id).ty.rank()).map(move |d| (a, d)))
    {
        let old = plan.layouts[i].on(axis);
        if matches!(old, Placement::Shard(d) if d != dim) {
            let mut mutant = plan.clone();
            mutant.layouts[i] = plan.layouts[i].with(axis, Placement::Shard(dim));
            refit(&mut mutant, id);
            push(all, Fault::OtherDim, what(&format!("into dim {dim}")), mutant);
        }
    }
}

/// Makes a transition the one that its layouts call for, if there is one.
fn refit(plan: &mut Plan, id: NodeId) {
    let Some(&operand) = plan.node(id).operands.first() else { return };
    if let Ok(fitting) = Transition::between(&plan.mesh, plan.layout(operand), plan.layout(id)) {
        plan.nodes[id.index()].op = Op::Transition(fitting);
    }
}

fn node_mutants(plan: &Plan, id: NodeId, all: &mut Vec<Mutant>) {
    let (i, node) = (id.index(), plan.node(id));
    let what = |detail: String| format!("{id} {}: {detail}", node.op.name());
    for layout in other_layouts(&plan.mesh, plan.layout(id), node.ty.rank()) {
        let mut mutant = plan.clone();
        let swapped = is_exchange(plan.layout(id), &layout);
        let detail = format!(
            "{} instead of {}",
            layout.display(&plan.mesh),
            plan.layout(id).display(&plan.mesh)
        );
        mutant.layouts[i] = layout;
        let fault = if swapped { Fault::OtherOrder } else { Fault::OtherLayout };
        push(all, fault, what(detail), mutant);
    }
    if node.operands.len() == 2 && node.operands[0] != node.operands[1] {
        let mut mutant = plan.clone();
        mutant.nodes[i].operands.swap(0, 1);
        push(all, Fault::SwapOperands, what("swapped".to_owned()), mutant);
    }
    for (position, &operand) in node.operands.iter().enumerate() {
        let other = plan.ids().take(i).rev().find(|&o| {
            o != operand
                && plan.node(o).ty == plan.node(operand).ty
                && plan.layout(o) == plan.layout(operand)
        });
        if let Some(other) = other {
            let mut mutant = plan.clone();
            mutant.nodes[i].operands[position] = other;
            push(all, Fault::OtherOperand, what(format!("{other} instead of {operand}")), mutant);
        }
    }
    if let Some(op) = other_op(&node.op) {
        let mut mutant = plan.clone();
        let detail = format!("{op} instead of {}", node.op);
        mutant.nodes[i].op = op;
        push(all, Fault::OtherOp, what(detail), mutant);
    }
}

/// Layouts that differ on one axis, or by an exchange of two.
fn other_layouts(mesh: &Mesh, layout: &Layout, rank: usize) -> Vec<Layout> {
    let mut layouts = Vec::new();
    for axis in 0..mesh.rank() {
        let mut choices = vec![Placement::Replicated, Placement::PendingSum];
        choices.extend((0..rank).map(Placement::Shard));
        layouts.extend(
            choices.into_iter().filter(|p| *p != layout.on(axis)).map(|p| layout.with(axis, p)),
        );
    }
    for a in 0..mesh.rank() {
        for b in a + 1..mesh.rank() {
            if layout.on(a) != layout.on(b) {
                layouts.push(layout.with(a, layout.on(b)).with(b, layout.on(a)));
            }
        }
    }
    layouts
}

fn is_exchange(from: &Layout, to: &Layout) -> bool {
    from.iter().zip(to.iter()).filter(|(a, b)| a != b).count() == 2
}

/// A plausible wrong op with the same operands and type.
fn other_op(op: &Op) -> Option<Op> {
    use shardgrad_core::ops::{Const, CumSum, Pad, Slice, Unary, Uniform};
    match op {
        Op::Add => Some(Op::Sub),
        Op::Sub => Some(Op::Add),
        Op::Mul => Some(Op::Div),
        Op::Div => Some(Op::Mul),
        Op::Scale(c) => Some(Op::Scale(Const::new(2.0 * c.value() + 1.0))),
        Op::AddConst(c) => Some(Op::AddConst(Const::new(c.value() + 1.0))),
        Op::Unary(Unary::Relu) => Some(Op::Unary(Unary::Abs)),
        Op::Unary(_) => Some(Op::Unary(Unary::Neg)).filter(|o| o != op),
        Op::CompareConst(c, k) => Some(Op::CompareConst(*c, Const::new(k.value() - 2.0))),
        Op::Compare(_) => Some(Op::Add),
        Op::Fill(fill) => {
            let mut other = fill.clone();
            other.value = Const::new(fill.value.value() + 1.0);
            Some(Op::Fill(other))
        }
        Op::Maximum => Some(Op::Minimum),
        Op::Minimum => Some(Op::Maximum),
        Op::Iota(iota) => {
            let other = (iota.dim + 1) % iota.ty.rank().max(1);
            let mut iota = iota.clone();
            iota.dim = other;
            Some(Op::Iota(iota)).filter(|o| o != op)
        }
        Op::Uniform(uniform) => {
            Some(Op::Uniform(Uniform { stream: uniform.stream ^ 1, ..uniform.clone() }))
        }
        Op::CumSum(c) => Some(Op::CumSum(CumSum { reverse: !c.reverse, ..*c })),
        Op::Pad(pad) => {
            let (before, after) = (pad.after, pad.before);
            Some(Op::Pad(Pad { before, after, ..*pad })).filter(|o| o != op)
        }
        Op::Slice(s) if s.start > 0 => {
            Some(Op::Slice(Slice { start: s.start - 1, stop: s.stop - 1, ..*s }))
        }
        Op::Sum(dims) => Some(Op::Max(dims.clone())),
        Op::Max(dims) => Some(Op::Sum(dims.clone())),
        Op::Leaf(_)
        | Op::Einsum(_)
        | Op::Where
        | Op::Cast(_)
        | Op::Broadcast(_)
        | Op::Transpose(_)
        | Op::Reshape(_)
        | Op::Slice(_)
        | Op::Concat(_)
        | Op::OneHot { .. }
        | Op::Lookup { .. }
        | Op::ScatterAdd { .. }
        | Op::StopGradient
        | Op::Constrain
        | Op::Transition(_) => None,
    }
}

fn output_mutants(plan: &Plan, all: &mut Vec<Mutant>) {
    for (o, output) in plan.outputs.iter().enumerate() {
        let node = plan.node(output.node);
        if let (Op::Transition(_), Some(&before)) = (&node.op, node.operands.first()) {
            let mut mutant = plan.clone();
            mutant.outputs[o].node = before;
            push(
                all,
                Fault::Unreduced,
                format!("{} before {}", output.name, node.op.name()),
                mutant,
            );
        }
        let other = plan.ids().rev().find(|&id| {
            id != output.node
                && plan.node(id).ty == node.ty
                && plan.layout(id) == plan.layout(output.node)
        });
        if let Some(other) = other {
            let mut mutant = plan.clone();
            mutant.outputs[o].node = other;
            push(all, Fault::OtherOutput, format!("{} is {other}", output.name), mutant);
        }
    }
}

/// Each node writes over the buffer of each earlier value that is still needed.
fn slot_mutants(plan: &Plan, all: &mut Vec<Mutant>) {
    let mut last_read: Vec<Option<usize>> = vec![None; plan.nodes.len()];
    for id in plan.ids() {
        for operand in &plan.node(id).operands {
            last_read[operand.index()] = Some(id.index());
        }
    }
    for output in &plan.outputs {
        last_read[output.node.index()] = Some(plan.nodes.len());
    }
    for id in plan.ids() {
        if plan.node(id).leaf_role().is_some() {
            continue;
        }
        for earlier in plan.ids().take(id.index()) {
            let needed = last_read[earlier.index()].is_some_and(|last| last > id.index());
            if needed && plan.slots[earlier.index()] != plan.slots[id.index()] {
                let mut mutant = plan.clone();
                mutant.slots[id.index()] = plan.slots[earlier.index()];
                let what = format!("{id} writes over {earlier}");
                all.push(Mutant { fault: Fault::SlotReused, what, plan: mutant });
            }
        }
    }
}

/// Two neighbours exchange places while slots stay as they were: right if neither needs the other.
fn order_mutants(plan: &Plan, all: &mut Vec<Mutant>) {
    for i in 1..plan.nodes.len() {
        let (first, second) = (NodeId::from_index(i - 1), NodeId::from_index(i));
        if plan.node(second).operands.contains(&first) {
            continue;
        }
        let renumbered = |id: NodeId| match id {
            id if id == first => second,
            id if id == second => first,
            id => id,
        };
        let mut mutant = plan.clone();
        mutant.nodes.swap(i - 1, i);
        mutant.layouts.swap(i - 1, i);
        mutant.origins.swap(i - 1, i);
        mutant.slots.swap(i - 1, i);
        renumber(&mut mutant, renumbered);
        let what = format!("{first} and {second}");
        all.push(Mutant { fault: Fault::Reordered, what, plan: mutant });
    }
}

/// Neighbours become one launch, whatever they are; buckets take in a neighbour, or a member again.
fn bucket_mutants(plan: &Plan, all: &mut Vec<Mutant>) {
    let mut push = |what: String, buckets: Vec<Vec<NodeId>>| {
        let mutant = Plan { buckets, ..plan.clone() };
        all.push(Mutant { fault: Fault::OtherBucket, what, plan: mutant });
    };
    let is_transition = |id: NodeId| matches!(plan.node(id).op, Op::Transition(_));
    let free = |id: NodeId| !plan.buckets.iter().flatten().any(|&member| member == id);
    for i in 1..plan.nodes.len() {
        let pair = [NodeId::from_index(i - 1), NodeId::from_index(i)];
        if pair.iter().any(|&id| is_transition(id)) && pair.iter().all(|&id| free(id)) {
            let mut buckets = plan.buckets.clone();
            buckets.push(pair.to_vec());
            push(format!("{} with {}", pair[0], pair[1]), buckets);
        }
    }
    for (index, bucket) in plan.buckets.iter().enumerate() {
        let with = |members: Vec<NodeId>| {
            let mut buckets = plan.buckets.clone();
            buckets[index] = members;
            buckets
        };
        let (first, last) = (bucket[0], bucket[bucket.len() - 1]);
        push(format!("{first} twice"), with([&[first], bucket.as_slice()].concat()));
        push(format!("{last} alone"), with(vec![last]));
        if first.index() > 0 {
            let before = NodeId::from_index(first.index() - 1);
            push(format!("{before} too"), with([&[before], bucket.as_slice()].concat()));
        }
        let behind = NodeId::from_index(last.index() + 1);
        if behind.index() < plan.nodes.len() {
            push(format!("{behind} too"), with([bucket.as_slice(), &[behind]].concat()));
        }
    }
}

/// Each launch is waited for at other places, slots as they were; and what is no launch is waited for.
fn wait_mutants(plan: &Plan, all: &mut Vec<Mutant>) {
    let count = plan.nodes.len();
    for launch in plan.launches() {
        let Some(last) = launch.last().map(|t| t.id) else { continue };
        let now = plan.wait(last);
        let places =
            [last.index() + 1, last.index() + 2, now.index() + 1, now.index() + 2, count - 1];
        let mut tried: Vec<NodeId> = Vec::new();
        for wait in places.into_iter().filter(|&at| at < count).map(NodeId::from_index) {
            if wait == now || tried.contains(&wait) {
                continue;
            }
            tried.push(wait);
            let mut mutant = plan.clone();
            mutant.waits.insert(last.0, wait);
            let what = format!("{last} behind {wait} instead of {now}");
            all.push(Mutant { fault: Fault::OtherWait, what, plan: mutant });
        }
        if let Some(&operand) = plan.node(last).operands.first() {
            let mut mutant = plan.clone();
            mutant.waits.insert(operand.0, last);
            let what = format!("{operand} behind {last}");
            all.push(Mutant { fault: Fault::OtherWait, what, plan: mutant });
        }
    }
}

fn renumber(plan: &mut Plan, new: impl Fn(NodeId) -> NodeId) {
    for node in &mut plan.nodes {
        for operand in &mut node.operands {
            *operand = new(*operand);
        }
    }
    for output in &mut plan.outputs {
        output.node = new(output.node);
        output.role = match output.role {
            OutputRole::Gradient { of } => OutputRole::Gradient { of: new(of) },
            OutputRole::Update { of } => OutputRole::Update { of: new(of) },
            role => role,
        };
    }
    plan.reasons = std::mem::take(&mut plan.reasons)
        .into_iter()
        .map(|(id, reason)| (new(NodeId(id)).0, reason))
        .collect();
}

/// The plan without a transition: its users read its operand.
fn without(plan: &Plan, id: NodeId) -> Plan {
    let mut mutant = plan.clone();
    let operand = plan.node(id).operands[0];
    let i = id.index();
    mutant.nodes.remove(i);
    mutant.layouts.remove(i);
    mutant.origins.remove(i);
    mutant.slots.remove(i);
    mutant.reasons.remove(&id.0);
    renumber(&mut mutant, |n| match n {
        n if n == id => operand,
        n if n > id => NodeId::from_index(n.index() - 1),
        n => n,
    });
    mutant
}

/// The plan with a transition made twice in a row; users read the second.
fn repeated(plan: &Plan, id: NodeId) -> Plan {
    let mut mutant = plan.clone();
    let (i, second) = (id.index(), NodeId::from_index(id.index() + 1));
    renumber(&mut mutant, |n| if n >= id { NodeId::from_index(n.index() + 1) } else { n });
    let mut node = mutant.nodes[i].clone();
    node.operands = plan.node(id).operands.clone();
    mutant.nodes[i] = node.clone();
    node.operands[0] = id;
    mutant.nodes.insert(i + 1, node);
    mutant.layouts.insert(i + 1, plan.layouts[i].clone());
    mutant.origins.insert(i + 1, plan.origins[i]);
    mutant.slots.insert(i + 1, plan.slots[i]);
    debug_assert_eq!(mutant.nodes[second.index()].operands[0], id);
    mutant
}
