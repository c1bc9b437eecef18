//! Right plans pass; damaged transitions, layouts and structure are refused by code.

mod support;

use shardgrad_core::{AxisSet, Op, Placement, TransitionKind};
use shardgrad_graph::{Graph, NodeId, OutputRole, check, check::CODES, memory};
use support::checking::{
    assert_right, assert_sound, moves, node_named, pinned, refused, right_plans,
    with_repeated_node, without_node,
};
use support::{data_parallel, lay_out, megatron, two_layers};

#[test]
fn right_plans_pass_without_lints() {
    for (program, plan) in right_plans() {
        assert_right(&plan, &program);
        let lints: Vec<_> = check(&plan, &program).lints;
        // The hand-made program computes the input gradient whether or not it is an output.
        assert!(lints.iter().all(|lint| lint.code == "L002"), "{lints:?}\n{plan}");
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
                        Op::Transition(shardgrad_core::Transition { kind, axes, ..right });
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
        algorithm: shardgrad_core::Algorithm::Direct,
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

/// What leads a value off and back is no waste where a pin of that value, or of an output that has it, wants it so.
#[test]
fn a_detour_that_a_pin_wants_is_no_waste() {
    let g = Graph::new("detour", shardgrad_core::DType::F32);
    let x = g.input("x", [4, 4]).unwrap();
    let y = x.exp().unwrap().named("y").unwrap();
    let z = y.scale(2.0).unwrap().named("z").unwrap();
    g.output("first", z, OutputRole::Value).unwrap();
    g.output("second", y, OutputRole::Value).unwrap();
    let program = g.finish();
    let mut draft = support::Draft::new(&program, "d=2");
    let x = draft.place(NodeId(0), "");
    let y = draft.emit(NodeId(1), &[x]);
    let split = draft.transition(y, "d: S(0)");
    let back = draft.transition(split, "");
    let z = draft.emit(NodeId(2), &[back]);
    draft.current.extend([(NodeId(1), split), (NodeId(2), z)]);
    let plan = draft.finish();
    let lints = |pin: Option<(&str, &str)>| {
        let plan = pin.map_or_else(|| plan.clone(), |(name, spec)| pinned(&plan, name, spec));
        assert_right(&plan, &program);
        check(&plan, &program).lints.iter().map(|l| (l.code, l.node.unwrap())).collect::<Vec<_>>()
    };
    let waste = [("L001", back)];
    assert_eq!(lints(None), waste);
    assert_eq!(lints(Some(("y", "d: S(0)"))), []);
    assert_eq!(lints(Some(("second", "d: S(0)"))), []);
    // Pins that the start fulfils, and pins of other values, explain nothing.
    assert_eq!(lints(Some(("z", "d: R"))), waste);
    assert_eq!(lints(Some(("x", "d: R"))), waste);
    let mut elsewhere = plan.clone();
    elsewhere.layouts[z.index()] = plan.layout(split).clone();
    elsewhere.nodes[z.index()].operands[0] = split;
    elsewhere.pins.insert("z".to_owned(), "d: S(0)".parse().unwrap());
    memory::assign_slots(&mut elsewhere);
    assert_right(&elsewhere, &program);
    let codes: Vec<_> = check(&elsewhere, &program).lints.iter().map(|l| l.code).collect();
    assert_eq!(codes, ["L001", "L003"]);
}

/// A leaf that nothing reads is there all the same; what is made of it without need is work.
#[test]
fn an_unread_leaf_is_no_waste_and_a_local_transition_no_message() {
    let g = Graph::new("unread", shardgrad_core::DType::F32);
    let x = g.input("x", [4, 4]).unwrap();
    let w = g.param("w", [4]).unwrap();
    let y = x.scale(2.0).unwrap();
    g.output("y", y, OutputRole::Value).unwrap();
    let program = g.finish();
    let (x, w, y) = (NodeId(x.id().0), NodeId(w.id().0), NodeId(y.id().0));
    let mut draft = support::Draft::new(&program, "d=2");
    let read = draft.place(x, "");
    draft.place(w, "");
    let slice = draft.transition(read, "d: S(0)");
    let made = draft.emit(y, &[read]);
    draft.current.insert(y, made);
    let plan = draft.finish();
    assert_right(&plan, &program);
    let lints = check(&plan, &program).lints;
    let found: Vec<_> = lints.iter().map(|l| (l.code, l.node.unwrap())).collect();
    assert_eq!(found, [("L002", slice)]);
}

#[test]
fn codes_are_unique_and_sorted() {
    assert!(CODES.windows(2).all(|w| w[0].0 < w[1].0));
    assert!(CODES.iter().all(|(_, meaning)| !meaning.is_empty()));
}

/// An algorithm that the group cannot run is refused, on three devices those that need a power of two.
#[test]
fn an_algorithm_must_fit_its_collective() {
    use shardgrad_core::Algorithm;
    let program = two_layers(6, [5, 4, 3], false);
    for (mesh, wrong) in [("tp=3", vec![Algorithm::Halving]), ("tp=2", vec![])] {
        let plan = megatron(&program, mesh);
        let id = plan.collectives().next().unwrap().id;
        let Op::Transition(right) = plan.node(id).op else { unreachable!() };
        assert_eq!(right.kind, TransitionKind::AllReduce);
        for algorithm in Algorithm::ALL {
            let mut other = plan.clone();
            other.nodes[id.index()].op = Op::Transition(right.by(algorithm));
            if wrong.contains(&algorithm) {
                assert_eq!(refused(&other, &program, "C014").codes(), ["C014"]);
            } else {
                assert!(check(&other, &program).is_right(), "{algorithm} on {mesh}");
            }
        }
    }
}
