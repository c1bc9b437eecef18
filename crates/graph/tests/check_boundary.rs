//! Erasure, outputs, stored values and pins: every fault is refused by its code.

mod support;

use shardgrad_core::Op;
use shardgrad_graph::{Graph, NodeId, Output, OutputRole, check};
use support::checking::{assert_right, node_named, pinned, refused};
use support::{data_parallel, lay_out, leaf, megatron, two_layers};

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
    let report = refused(&wrong, &program, "C031");
    assert_eq!(report.codes(), ["C031"]);
    let found = &report.violations[0].message;
    assert!(found.contains("is a value, but in the program it is the loss"), "{found}");
    // Updates of each other's leaves, all by their names.
    let mut wrong = plan.clone();
    let roles = ["w0", "w1"].map(output);
    let of_w0 = wrong.outputs[roles[0]].role;
    wrong.outputs[roles[0]].role = wrong.outputs[roles[1]].role;
    wrong.outputs[roles[1]].role = of_w0;
    let report = refused(&wrong, &program, "C031");
    let found = &report.violations[0].message;
    let names = "is the update of %2 (`w1`), but in the program it is the update of %1 (`w0`)";
    assert!(found.contains(names), "{found}");

    // x has the type of dx and of y: each must be told from the others.
    let mut wrong = plan.clone();
    wrong.outputs[output("grad(x)")].node = node_named(&plan, &program, "dy");
    let report = refused(&wrong, &program, "C032");
    let found = &report.violations.iter().find(|v| v.code == "C032").unwrap().message;
    assert!(found.contains("(`dy`)") && found.contains("(`dx`)"), "{found}");

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

/// A pin of the plan for another axis than the program's pin binds adds to it.
#[test]
fn pins_of_plan_and_program_meet_on_an_axis_or_not_at_all() {
    let g = Graph::new("axes", shardgrad_core::DType::F32);
    let x = g.input("x", [4, 3]).unwrap();
    let c = x.constrain("c", "a: S(0)").unwrap();
    g.output("y", c.exp().unwrap(), OutputRole::Value).unwrap();
    let program = g.finish();
    let plan = lay_out(&program, "a=2, b=2", &[("x", "a: S(0)")], &[]);
    assert_right(&pinned(&plan, "c", "a: S(0), b: R"), &program);
    assert_right(&pinned(&plan, "c", "b: R"), &program);
    let report = refused(&pinned(&plan, "c", "b: S(1), a: R"), &program, "C040");
    assert!(report.violations[0].message.contains("axis `a`"), "{report}");
}

/// A pin that the program made of a value nothing needs says nothing about plans, also where it is copied into one.
#[test]
fn a_pin_of_a_value_that_was_dropped_demands_nothing() {
    let g = Graph::new("dropped", shardgrad_core::DType::F32);
    let x = g.input("x", [4, 3]).unwrap();
    let _ = x.constrain("c", "d: S(0)").unwrap();
    g.output("y", x.exp().unwrap(), OutputRole::Value).unwrap();
    let program = g.finish();
    assert!(program.named("c").is_none() && program.pins.contains_key("c"));
    let plan = lay_out(&program, "d=2", &[], &[]);
    assert_right(&plan, &program);
    assert_right(&pinned(&plan, "c", "d: S(0)"), &program);
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
