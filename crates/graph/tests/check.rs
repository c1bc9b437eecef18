//! Right plans pass; every way of damaging them is named by its code.

mod support;

use shardgrad_core::{AxisSet, LayoutSpec, Op, Placement, TransitionKind};
use shardgrad_graph::{
    Graph, NodeId, Output, OutputRole, Plan, Program, Report, check, check::CODES, memory,
};
use support::{column, data_parallel, lay_out, leaf, megatron, two_layers};

/// Hand-made plans of the two-layer program, on even and uneven meshes, with the program of each.
fn right_plans() -> Vec<(Program, Plan)> {
    let (with, without) = (two_layers(7, [5, 9, 3], true), two_layers(7, [5, 9, 3], false));
    let mut plans = Vec::new();
    for mesh in ["tp=1", "tp=2", "tp=3", "tp=5", "dp=2, tp=2", "tp=2, dp=3", "a=2, tp=2, b=2"] {
        plans.push((with.clone(), megatron(&with, mesh)));
        plans.push((with.clone(), column(&with, mesh)));
    }
    for mesh in ["dp=1", "dp=2", "dp=4", "dp=3, tp=2", "tp=2, dp=2"] {
        plans.push((without.clone(), data_parallel(&without, mesh)));
    }
    // Data and tensor parallel together, and gradients scattered to sharded state and gathered again (ZeRO).
    plans.push((
        without.clone(),
        lay_out(
            &without,
            "dp=2, tp=2",
            &[("x", "dp: S(0)"), ("w0", "tp: S(1)"), ("w1", "tp: S(0)")],
            &[
                ("y", "dp: S(0)"),
                ("loss", ""),
                ("dw0", "tp: S(1)"),
                ("dw1", "tp: S(0)"),
                ("rate-w0", "tp: S(1)"),
                ("rate-w1", "tp: S(0)"),
            ],
        ),
    ));
    plans
}

fn assert_right(plan: &Plan, program: &Program) {
    let report = check(plan, program);
    assert!(report.is_right(), "{report}\n{plan}");
}

/// The report of a plan that must be wrong in this way.
#[track_caller]
fn refused(plan: &Plan, program: &Program, code: &str) -> Report {
    let report = check(plan, program);
    assert!(report.codes().contains(&code), "expected {code}, found {report}\n{plan}");
    assert_sound(&report);
    report
}

fn assert_sound(report: &Report) {
    for found in report.violations.iter().chain(&report.lints) {
        assert!(CODES.iter().any(|(code, _)| *code == found.code), "{found}");
        assert!(!found.message.contains('\n'), "{found}");
    }
}

#[test]
fn right_plans_pass_without_lints() {
    for (program, plan) in right_plans() {
        assert_right(&plan, &program);
        let lints: Vec<_> = check(&plan, &program).lints;
        // The hand-made program computes the input gradient whether or not it is an output.
        assert!(lints.iter().all(|lint| lint.code == "L002"), "{lints:?}\n{plan}");
    }
}

fn node_named(plan: &Plan, program: &Program, name: &str) -> NodeId {
    let origin = program.named(name).unwrap();
    plan.ids().find(|id| plan.origins[id.index()] == origin).unwrap()
}

/// Takes a node out; its readers read its operand.
fn without_node(plan: &Plan, gone: NodeId) -> Plan {
    let heir = plan.node(gone).operands[0];
    let map = |id: NodeId| match id {
        id if id == gone => heir,
        id if id > gone => NodeId(id.0 - 1),
        id => id,
    };
    let mut plan = plan.clone();
    plan.nodes.remove(gone.index());
    plan.layouts.remove(gone.index());
    plan.origins.remove(gone.index());
    for node in &mut plan.nodes {
        node.operands = node.operands.iter().map(|&o| map(o)).collect();
    }
    remap_outputs(&mut plan, map);
    memory::assign_slots(&mut plan);
    plan
}

/// Puts a copy of a node after it, reading it; the node's readers read the copy.
fn with_repeated_node(plan: &Plan, node: NodeId) -> Plan {
    let map = |id: NodeId| if id >= node { NodeId(id.0 + 1) } else { id };
    let at = node.index();
    let mut plan = plan.clone();
    let mut copy = plan.nodes[at].clone();
    copy.operands = [node].into_iter().collect();
    for later in &mut plan.nodes[at + 1..] {
        later.operands = later.operands.iter().map(|&o| map(o)).collect();
    }
    plan.nodes.insert(at + 1, copy);
    plan.layouts.insert(at + 1, plan.layouts[at].clone());
    plan.origins.insert(at + 1, plan.origins[at]);
    remap_outputs(&mut plan, map);
    memory::assign_slots(&mut plan);
    plan
}

fn remap_outputs(plan: &mut Plan, map: impl Fn(NodeId) -> NodeId) {
    for output in &mut plan.outputs {
        output.node = map(output.node);
        output.role = match output.role {
            OutputRole::Gradient { of } => OutputRole::Gradient { of: map(of) },
            OutputRole::Update { of } => OutputRole::Update { of: map(of) },
            role => role,
        };
    }
}

#[test]
fn a_missing_gradient_reduction_is_refused() {
    let program = two_layers(6, [5, 4, 3], false);
    let plan = data_parallel(&program, "dp=2");
    let reduction = plan
        .collectives()
        .find(|c| plan.origins[c.id.index()] == program.named("dw0").unwrap())
        .unwrap()
        .id;
    let mut plan = without_node(&plan, reduction);
    let report = refused(&plan, &program, "C010");
    assert_eq!(report.codes(), ["C010"]);
    let found = &report.violations[0].message;
    for part in ["mul", "`dw0` [dp: P]", "axis `dp`", "with these operands the result is P"] {
        assert!(found.contains(part), "{part}: {found}");
    }
    // Whoever lets the pending step through meets the parameter, which is replicated.
    let step = report.violations[0].node.unwrap();
    plan.layouts[step.index()] = plan.layouts[step.index()].with(0, Placement::PendingSum);
    let report = refused(&plan, &program, "C010");
    assert_eq!(report.codes(), ["C010"]);
    let found = &report.violations[0].message;
    for part in ["sub", "`new-w0`", "`w0` [dp: R]", "mul [dp: P]", "R,P", "legal are"] {
        assert!(found.contains(part), "{part}: {found}");
    }
}

#[test]
fn a_duplicated_reduction_is_refused() {
    let program = two_layers(6, [5, 4, 3], false);
    let plan = data_parallel(&program, "dp=2");
    let reduction = plan
        .collectives()
        .find(|c| plan.origins[c.id.index()] == program.named("dw0").unwrap())
        .unwrap()
        .id;
    let report = refused(&with_repeated_node(&plan, reduction), &program, "C013");
    assert_eq!(report.codes(), ["C013"]);
    let message = &report.violations[0].message;
    assert!(message.contains("all_reduce over dp") && message.contains("`dw0`"), "{message}");
}

/// Whether the axes of a plan's transitions all have more than one device, so that dropping one changes a value.
fn moves(plan: &Plan) -> Vec<NodeId> {
    plan.transitions()
        .filter(|t| t.transition.kind != TransitionKind::Relabel)
        .map(|t| t.id)
        .collect()
}

#[test]
fn dropping_any_transition_is_refused() {
    let mut tried = 0;
    for (program, plan) in right_plans() {
        for id in moves(&plan) {
            let report = check(&without_node(&plan, id), &program);
            assert!(!report.is_right(), "without {id}\n{plan}");
            let expected = ["C010", "C033", "C034", "C035", "C041", "C042"];
            assert!(report.codes().iter().all(|c| expected.contains(c)), "{report}");
            assert_sound(&report);
            tried += 1;
        }
    }
    assert!(tried > 60, "{tried}");
}

#[test]
fn repeating_any_transition_is_refused() {
    for (program, plan) in right_plans() {
        for id in moves(&plan) {
            let report = refused(&with_repeated_node(&plan, id), &program, "C013");
            assert_eq!(report.codes(), ["C013"], "{report}");
        }
    }
}

#[test]
fn another_kind_or_other_axes_are_refused() {
    let mut tried = 0;
    for (program, plan) in right_plans() {
        for id in plan.transitions().map(|t| t.id) {
            let Op::Transition(right) = plan.node(id).op else { unreachable!() };
            for kind in TransitionKind::ALL {
                for bits in 0..1_usize << plan.mesh.rank() {
                    let axes: AxisSet = (0..3).filter(|a| bits >> a & 1 == 1).collect();
                    if (kind, axes) == (right.kind, right.axes) {
                        continue;
                    }
                    let mut wrong = plan.clone();
                    wrong.nodes[id.index()].op =
                        Op::Transition(shardgrad_core::Transition { kind, axes });
                    refused(&wrong, &program, "C013");
                    tried += 1;
                }
            }
        }
    }
    assert!(tried > 1000, "{tried}");
}

#[test]
fn changing_the_layout_of_any_node_is_refused() {
    let mut tried = 0;
    let choices = [
        Placement::Replicated,
        Placement::Shard(0),
        Placement::Shard(1),
        Placement::PendingSum,
        Placement::PendingMax,
    ];
    for (program, plan) in right_plans() {
        for id in plan.ids() {
            let rank = plan.node(id).ty.rank();
            for axis in 0..plan.mesh.rank() {
                for &placement in &choices {
                    if placement == plan.layout(id).on(axis)
                        || placement.sharded_dim().is_some_and(|d| d >= rank)
                    {
                        continue;
                    }
                    let mut wrong = plan.clone();
                    wrong.layouts[id.index()] = plan.layout(id).with(axis, placement);
                    let report = check(&wrong, &program);
                    // A value that nothing reads may lie as it likes; so may one that only transitions read, if they fit
                    // both: none of these plans has one.
                    let dead = report.lints.iter().any(|lint| lint.node == Some(id));
                    let size_one = plan.mesh.axis_size(axis) == 1;
                    assert!(!report.is_right() || dead || size_one, "{id} {placement}\n{plan}");
                    assert_sound(&report);
                    tried += 1;
                }
            }
        }
    }
    assert!(tried > 1000, "{tried}");
}

#[test]
fn swapped_operands_and_changed_attributes_are_refused() {
    let program = two_layers(6, [5, 4, 3], true);
    let plan = megatron(&program, "tp=2");
    let sub = node_named(&plan, &program, "new-w0");
    let mut wrong = plan.clone();
    wrong.nodes[sub.index()].operands.reverse();
    refused(&wrong, &program, "C021");

    let dy = node_named(&plan, &program, "dy");
    let mut wrong = plan.clone();
    wrong.nodes[dy.index()].op = Op::Scale(shardgrad_core::ops::Const::new(4.0));
    let report = refused(&wrong, &program, "C020");
    assert!(report.violations[0].message.contains("scale(4.0)"), "{report}");

    let mut wrong = plan.clone();
    wrong.nodes[dy.index()].op = Op::Unary(shardgrad_core::ops::Unary::Relu);
    refused(&wrong, &program, "C020");
}

#[test]
fn wrong_origins_are_refused() {
    let program = two_layers(6, [5, 4, 3], true);
    let plan = megatron(&program, "tp=2");
    let transition = plan.transitions().next().unwrap().id;
    let mut wrong = plan.clone();
    wrong.origins[transition.index()] = program.named("dx").unwrap();
    refused(&wrong, &program, "C022");
    for id in plan.ids() {
        for origin in program.ids().filter(|&o| o != plan.origins[id.index()]) {
            let mut wrong = plan.clone();
            wrong.origins[id.index()] = origin;
            assert!(!check(&wrong, &program).is_right(), "{id} {origin}");
        }
    }
    let mut wrong = plan.clone();
    wrong.origins[0] = NodeId(4_000_000_000);
    assert_eq!(refused(&wrong, &program, "C003").codes(), ["C003"]);
}

#[test]
fn a_leaf_in_two_layouts_is_refused() {
    let g = Graph::new("twice", shardgrad_core::DType::F32);
    let x = g.input("x", [4, 4]).unwrap();
    g.output("y", x.add(x).unwrap(), OutputRole::Value).unwrap();
    let program = g.finish();
    let mut draft = support::Draft::new(&program, "d=2");
    let (a, b) = (draft.place(NodeId(0), ""), draft.place(NodeId(0), ""));
    let sum = draft.emit(NodeId(1), &[a, b]);
    draft.current.insert(NodeId(1), sum);
    refused(&draft.finish(), &program, "C023");
}

#[test]
fn wrong_outputs_are_refused() {
    let program = two_layers(6, [5, 5, 5], true);
    let plan = megatron(&program, "tp=2");
    let output = |name: &str| plan.outputs.iter().position(|o| o.name == name).unwrap();

    let mut wrong = plan.clone();
    wrong.outputs.remove(output("w1"));
    assert_eq!(refused(&wrong, &program, "C030").codes()[0], "C030");

    let mut wrong = plan.clone();
    wrong.outputs.swap(0, 1);
    assert_eq!(refused(&wrong, &program, "C030").codes(), ["C030"]);

    let mut wrong = plan.clone();
    let extra = Output { name: "extra".to_owned(), ..wrong.outputs[0].clone() };
    wrong.outputs.push(extra);
    assert_eq!(refused(&wrong, &program, "C030").codes(), ["C030"]);

    let mut wrong = plan.clone();
    wrong.outputs[output("loss")].role = OutputRole::Value;
    assert_eq!(refused(&wrong, &program, "C031").codes(), ["C031"]);

    // x has the type of dx and of y: each must be told from the others.
    let mut wrong = plan.clone();
    wrong.outputs[output("grad(x)")].node = node_named(&plan, &program, "dy");
    refused(&wrong, &program, "C032");

    // The unreduced gradient of x.
    let mut wrong = plan.clone();
    let reduced = wrong.outputs[output("grad(x)")].node;
    wrong.outputs[output("grad(x)")].node = plan.node(reduced).operands[0];
    let report = refused(&wrong, &program, "C035");
    let found = report.violations.iter().find(|v| v.code == "C035").unwrap();
    assert!(found.message.contains("`grad(x)`") && found.message.contains("reduce it"), "{found}");
}

#[test]
fn demanded_layouts_of_outputs() {
    let program = two_layers(6, [4, 4, 4], false);
    let plan = data_parallel(&program, "dp=2");
    let loss = plan.outputs.iter().position(|o| o.name == "loss").unwrap();
    let mut wrong = plan.clone();
    wrong.outputs[loss].node = plan.node(plan.outputs[loss].node).operands[0];
    refused(&wrong, &program, "C034");

    // An update that ends elsewhere than its leaf.
    let moved = lay_out(
        &program,
        "dp=2",
        &[("x", "dp: S(0)")],
        &[("loss", ""), ("dw0", ""), ("dw1", ""), ("new-w0", "dp: S(0)")],
    );
    assert_eq!(refused(&moved, &program, "C036").codes(), ["C036"]);

    // Other outputs may lie as they like, but not pending.
    let g = Graph::new("value", shardgrad_core::DType::F32);
    let x = g.input("x", [4, 3]).unwrap();
    g.output("s", x.sum(&[0]).unwrap().named("s").unwrap(), OutputRole::Value).unwrap();
    let program = g.finish();
    let pending = lay_out(&program, "d=2", &[("x", "d: S(0)")], &[]);
    assert_eq!(refused(&pending, &program, "C033").codes(), ["C033"]);
    let mut pinned = pending.clone();
    pinned.pins.insert("s".to_owned(), "d: P".parse().unwrap());
    assert_right(&pinned, &program);
    assert_right(&lay_out(&program, "d=2", &[("x", "d: S(0)")], &[("s", "d: S(0)")]), &program);
}

#[test]
fn stored_values_are_complete_and_scalars_replicated() {
    let g = Graph::new("stored", shardgrad_core::DType::F32);
    let x = g.input("x", [4, 3]).unwrap();
    let s = leaf(&g, "s", shardgrad_core::ops::Role::Scalar, &[4]);
    g.output("y", x.scale(2.0).unwrap(), OutputRole::Value).unwrap();
    g.output("t", s.scale(2.0).unwrap(), OutputRole::Value).unwrap();
    let program = g.finish();
    let plan = lay_out(&program, "d=2", &[("x", "d: P")], &[]);
    assert!(refused(&plan, &program, "C037").codes().contains(&"C033"));
    let plan = lay_out(&program, "d=2", &[("s", "d: S(0)")], &[]);
    assert_eq!(refused(&plan, &program, "C038").codes(), ["C038"]);
}

fn pinned(plan: &Plan, name: &str, spec: &str) -> Plan {
    let mut plan = plan.clone();
    plan.pins.insert(name.to_owned(), spec.parse::<LayoutSpec>().unwrap());
    plan
}

#[test]
fn pins_bind_leaves_outputs_and_readers() {
    let program = two_layers(6, [4, 4, 4], true);
    let plan = megatron(&program, "tp=2");
    // Fulfilled pins, some partly.
    for (name, spec) in [("a0", "tp: S(1)"), ("y", "tp: R"), ("grad(x)", "tp: R"), ("h0", "")] {
        assert_right(&pinned(&plan, name, spec), &program);
    }
    for (name, spec, code) in [
        ("w0", "tp: S(0)", "C041"),
        ("grad(x)", "tp: S(0)", "C041"),
        ("dx", "tp: P", "C041"),
        ("a0", "tp: R", "C042"),
        ("y", "tp: P", "passes"),
        ("nobody", "tp: R", "C040"),
        ("y", "dp: R", "C040"),
    ] {
        let plan = pinned(&plan, name, spec);
        if code == "passes" {
            // y is computed as P and reduced on the way to all its readers.
            assert_right(&plan, &program);
        } else {
            refused(&plan, &program, code);
        }
    }
    // A pinned value that one reader takes from elsewhere.
    let plan = lay_out(
        &program,
        "tp=2",
        &[("w0", "tp: S(1)"), ("w1", "tp: S(0)")],
        &[
            ("a0>dw1", "tp: R"),
            ("dw1", "tp: S(0)"),
            ("y", ""),
            ("dx", ""),
            ("rate-w0", "tp: S(1)"),
            ("rate-w1", "tp: S(0)"),
        ],
    );
    assert_right(&plan, &program);
    assert_right(&pinned(&plan, "a0", "tp: S(1)"), &program);
    let report = refused(&pinned(&plan, "a0", "tp: R"), &program, "C042");
    assert_eq!(report.codes(), ["C042"]);
    assert!(report.violations[0].message.contains("`y`"), "{report}");
}

#[test]
fn the_programs_own_pins_bind() {
    let g = Graph::new("own", shardgrad_core::DType::F32);
    let x = g.input("x", [4, 3]).unwrap();
    let c = x.constrain("c", "d: S(0)").unwrap();
    g.output("y", c.exp().unwrap(), OutputRole::Value).unwrap();
    let program = g.finish();
    let plan = lay_out(&program, "d=2", &[("x", "d: S(0)")], &[]);
    assert_right(&plan, &program);
    let elsewhere = lay_out(&program, "d=2", &[], &[]);
    assert_eq!(refused(&elsewhere, &program, "C042").codes(), ["C042"]);
    assert_eq!(
        refused(&pinned(&elsewhere, "c", "d: R"), &program, "C040").codes(),
        ["C040", "C042"]
    );
}

#[test]
fn overlapping_slots_are_refused() {
    let mut tried = 0;
    for (program, plan) in right_plans().into_iter().take(4) {
        for id in plan.ids() {
            for slot in 0..plan.slots.iter().max().unwrap() + 2 {
                if slot == plan.slots[id.index()] || slot as usize >= plan.nodes.len() {
                    continue;
                }
                let mut moved = plan.clone();
                moved.slots[id.index()] = slot;
                let unused = !plan.slots.contains(&slot);
                let names_anew = |node: NodeId| memory::is_alias(&plan.node(node).op);
                let aliased = names_anew(id)
                    || plan.ids().any(|n| names_anew(n) && plan.node(n).operands[0] == id);
                // A result between two others that share a slot leaves a gap: the third would not overwrite what it reads.
                let old = plan.slots[id.index()];
                let shares = |ids: std::ops::Range<usize>| plan.slots[ids].contains(&old);
                let between = shares(0..id.index()) && shares(id.index() + 1..plan.nodes.len());
                let alone = unused && !aliased && !between;
                let report = check(&moved, &program);
                // In a slot of its own every result but an alias is right; elsewhere only where it could overwrite an
                // operand that the plan keeps apart: none here, for slots were assigned as tightly as the rules allow.
                let second =
                    plan.node(id).operands.iter().skip(1).any(|o| plan.slots[o.index()] == slot);
                assert!(report.is_right() == alone || second, "{id} in {slot}: {report}\n{plan}");
                assert_sound(&report);
                tried += 1;
            }
        }
    }
    assert!(tried > 500, "{tried}");
}

#[test]
fn each_fault_of_slots_has_its_code() {
    use shardgrad_core::DType::F32;
    let g = Graph::new("slots", F32);
    let x = g.input("x", [4, 4]).unwrap();
    let w = leaf(&g, "w", shardgrad_core::ops::Role::Param, &[4, 4]);
    let a = x.exp().unwrap().named("a").unwrap();
    let b = a.relu().unwrap().named("b").unwrap();
    let c = b.add(a).unwrap().named("c").unwrap();
    let flat = c.reshape(&[16]).unwrap().named("flat").unwrap();
    let product = c.matmul(w).unwrap().named("product").unwrap();
    let new = w.sub(product).unwrap().named("new").unwrap();
    g.output("w", new, OutputRole::Update { of: w.id() }).unwrap();
    g.output("flat", flat, OutputRole::Value).unwrap();
    let program = g.finish();
    let plan = lay_out(&program, "d=2", &[("x", "d: S(0)"), ("w", "d: R")], &[("product", "d: R")]);
    assert_right(&plan, &program);
    let node = |name: &str| node_named(&plan, &program, name).index();
    let with_slot = |name: &str, slot: u32| {
        let mut wrong = plan.clone();
        wrong.slots[node(name)] = slot;
        wrong
    };
    let slot_of = |name: &str| plan.slots[node(name)];
    // In place too early: a is read again by the addition.
    let report = refused(&with_slot("b", slot_of("a")), &program, "C050");
    assert!(report.violations[0].message.contains("`a`"), "{report}");
    // An alias elsewhere than its operand.
    let free = plan.slots.iter().max().unwrap() + 1;
    refused(&with_slot("flat", free), &program, "C051");
    // A product over its operand.
    refused(&with_slot("product", slot_of("c")), &program, "C052");
    // A sum over an input.
    assert!(refused(&with_slot("a", slot_of("x")), &program, "C054").codes().contains(&"C054"));
    // An output that is overwritten: the update in the slot of the reshaped output.
    let mut wrong = plan.clone();
    wrong.slots[node("product")] = slot_of("c");
    refused(&wrong, &program, "C055");
    // Two leaves in one slot.
    refused(&with_slot("w", slot_of("x")), &program, "C052");
}

#[test]
fn an_update_that_overwrites_a_leaf_that_is_read_later_is_refused() {
    let g = Graph::new("late", shardgrad_core::DType::F32);
    let w = leaf(&g, "w", shardgrad_core::ops::Role::Param, &[4]);
    let new = w.scale(0.5).unwrap();
    let old = w.sum_all().unwrap();
    g.output("w", new, OutputRole::Update { of: w.id() }).unwrap();
    g.output("n", old, OutputRole::Value).unwrap();
    let program = g.finish();
    let plan = lay_out(&program, "d=2", &[], &[]);
    assert_right(&plan, &program);
    let mut wrong = plan.clone();
    wrong.slots[1] = wrong.slots[0];
    assert_eq!(refused(&wrong, &program, "C050").codes(), ["C050"]);
}

#[test]
fn in_place_writes_need_equal_blocks() {
    // The same global type in another layout: only a wrong plan has an elementwise op there, so C010 comes along.
    let g = Graph::new("blocks", shardgrad_core::DType::F32);
    let x = g.input("x", [4, 4]).unwrap();
    let a = x.exp().unwrap().named("a").unwrap();
    g.output("b", a.relu().unwrap().named("b").unwrap(), OutputRole::Value).unwrap();
    let program = g.finish();
    let mut wrong = lay_out(&program, "d=2", &[("x", "d: S(0)")], &[]);
    assert_eq!(wrong.slots[1], wrong.slots[2]);
    wrong.layouts[2] = wrong.layouts[2].with(0, Placement::Shard(1));
    assert_eq!(refused(&wrong, &program, "C053").codes(), ["C010", "C053"]);
}

#[test]
fn all_violations_are_reported_at_once() {
    let program = two_layers(6, [4, 4, 4], true);
    let mut plan = megatron(&program, "tp=2");
    let dy = node_named(&plan, &program, "dy");
    plan.nodes[dy.index()].op = Op::Scale(shardgrad_core::ops::Const::new(4.0));
    plan.outputs.remove(0);
    plan.pins.insert("w0".to_owned(), "tp: R".parse().unwrap());
    let last = plan.collectives().last().unwrap().id;
    plan.nodes[last.index()].op = Op::Transition(shardgrad_core::Transition {
        kind: TransitionKind::AllGather,
        axes: AxisSet::single(0),
    });
    let codes = check(&plan, &program).codes();
    for code in ["C013", "C020", "C030", "C041", "C042"] {
        assert!(codes.contains(&code), "{code}: {codes:?}");
    }
}

#[test]
fn blocks_that_do_not_line_up_and_missing_transitions_are_refused() {
    let g = Graph::new("reshape", shardgrad_core::DType::F32);
    let x = g.input("x", [6, 2]).unwrap();
    g.output("y", x.reshape(&[12]).unwrap(), OutputRole::Value).unwrap();
    let program = g.finish();
    // 6 rows over 2×2 are 2, 1, 2, 1; 12 elements would be 3, 3, 3, 3.
    let plan = lay_out(&program, "a=2, b=2", &[("x", "a: S(0), b: S(0)")], &[]);
    assert_eq!(refused(&plan, &program, "C011").codes(), ["C011"]);

    let program = two_layers(6, [4, 4, 4], false);
    let mut plan = data_parallel(&program, "dp=2, tp=2");
    let reduction = plan.collectives().next().unwrap().id;
    plan.layouts[reduction.index()] = shardgrad_core::Layout(
        [Placement::Replicated, Placement::PendingMax].into_iter().collect(),
    );
    refused(&plan, &program, "C012");
}

#[test]
fn malformed_plans_and_programs_end_the_check() {
    let program = two_layers(6, [4, 4, 4], false);
    let mut plan = data_parallel(&program, "dp=2");
    plan.layouts.pop();
    assert_eq!(refused(&plan, &program, "C002").codes(), ["C002"]);
    let plan = data_parallel(&program, "dp=2");
    let mut wrong = program.clone();
    wrong.nodes[4].operands[0] = NodeId(77);
    assert_eq!(refused(&plan, &wrong, "C001").codes(), ["C001"]);
}

#[test]
fn waste_is_a_lint() {
    let g = Graph::new("waste", shardgrad_core::DType::F32);
    let x = g.input("x", [4, 4]).unwrap();
    let y = x.sum(&[0]).unwrap().named("y").unwrap();
    g.output("z", y.scale(2.0).unwrap().named("z").unwrap(), OutputRole::Value).unwrap();
    let program = g.finish();
    let lints = |leaf: &str, moves: &[(&str, &str)]| {
        let plan = lay_out(&program, "d=2", &[("x", leaf)], moves);
        assert_right(&plan, &program);
        let lints = check(&plan, &program).lints;
        lints.iter().map(|l| (l.code, l.node.unwrap().0)).collect::<Vec<_>>()
    };
    // y: P, all_reduce, mask, all_reduce.
    assert_eq!(
        lints("d: S(0)", &[("y", "d: R"), ("y", "d: P"), ("y", "d: R")]),
        [("L001", 3), ("L001", 4)]
    );
    // slice, gather.
    assert_eq!(lints("d: R", &[("x", "d: S(1)"), ("x", "d: R")]), [("L001", 2)]);
    assert_eq!(lints("d: S(0)", &[("y", "d: R")]), []);

    let mut draft = support::Draft::new(&program, "d=2");
    let x = draft.place(NodeId(0), "d: S(0)");
    let unused = draft.emit(NodeId(1), &[x]);
    let y = draft.emit(NodeId(1), &[x]);
    let gathered = draft.transition(unused, "d: R");
    let read = draft.transition(y, "d: R");
    let again = draft.transition(y, "d: R");
    let z = draft.emit(NodeId(2), &[read]);
    draft.current.insert(NodeId(2), z);
    let plan = draft.finish();
    assert_right(&plan, &program);
    let lints = check(&plan, &program).lints;
    let found: Vec<_> = lints.iter().map(|l| (l.code, l.node.unwrap())).collect();
    assert_eq!(found, [("L002", unused), ("L003", gathered), ("L003", again), ("L004", again)]);
}

#[test]
fn codes_are_unique_and_sorted() {
    assert!(CODES.windows(2).all(|w| w[0].0 < w[1].0));
    assert!(CODES.iter().all(|(_, meaning)| !meaning.is_empty()));
}
