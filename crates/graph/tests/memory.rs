//! Slots, their lives and the peak, on small plans whose numbers are worked out by hand.

mod support;

use shardgrad_core::ops::Role;
use shardgrad_core::{DType, Op, TensorType};
use shardgrad_graph::{Graph, OutputRole, Phase, Plan, memory};
use support::{data_parallel, lay_out, leaf, megatron, two_layers};

/// Slots of the nodes, by name where they have one.
fn slot_of(plan: &Plan, program: &shardgrad_graph::Program, name: &str) -> u32 {
    let origin = program.named(name).unwrap();
    let last = plan.ids().rfind(|id| plan.origins[id.index()] == origin).unwrap();
    plan.slots[last.index()]
}

#[test]
fn elementwise_chains_stay_in_one_slot_and_leaves_are_kept() {
    let g = Graph::new("chain", DType::F32);
    let x = g.input("x", [4, 3]).unwrap();
    let a = x.relu().unwrap().named("a").unwrap();
    let b = a.exp().unwrap().named("b").unwrap();
    let c = b.mul(b).unwrap().named("c").unwrap();
    g.output("c", c, OutputRole::Value).unwrap();
    let program = g.finish();
    let plan = lay_out(&program, "d=2", &[("x", "d: S(0)")], &[]);
    assert_eq!(plan.slots, [0, 1, 1, 1]);
    assert!(memory::frees(&plan).iter().all(Vec::is_empty));
    let peak = memory::peak(&plan);
    // Two blocks of 2×3 f32 on either rank.
    assert_eq!((peak.bytes, peak.at.0, peak.per_rank), (48, 1, vec![48, 48]));
    assert_eq!((peak.by_category.inputs, peak.by_category.activations), (24, 24));
}

#[test]
fn a_value_read_later_is_not_overwritten_and_is_freed_at_its_last_use() {
    let g = Graph::new("late", DType::F32);
    let x = g.input("x", [4, 3]).unwrap();
    let a = x.exp().unwrap();
    let b = a.relu().unwrap();
    let c = b.add(a).unwrap();
    let d = c.sum_all().unwrap();
    g.output("d", d, OutputRole::Loss).unwrap();
    let program = g.finish();
    let plan = lay_out(&program, "d=1", &[], &[]);
    // relu must not overwrite a; the addition overwrites its first operand, b.
    assert_eq!(plan.slots, [0, 1, 2, 2, 3]);
    assert_eq!(memory::frees(&plan), [vec![], vec![], vec![], vec![1], vec![2]]);
}

#[test]
fn the_second_operand_is_overwritten_when_the_first_may_not_be() {
    let g = Graph::new("second", DType::F32);
    let x = g.input("x", [4, 3]).unwrap();
    let a = x.exp().unwrap();
    let b = x.sub(a).unwrap();
    g.output("b", b, OutputRole::Value).unwrap();
    let plan = lay_out(&g.finish(), "d=1", &[], &[]);
    assert_eq!(plan.slots, [0, 1, 1]);
}

#[test]
fn aliases_share_a_buffer_and_keep_it_alive() {
    let g = Graph::new("alias", DType::F32);
    let x = g.input("x", [4, 3]).unwrap();
    let a = x.exp().unwrap();
    let flat = a.reshape(&[12]).unwrap();
    let stopped = flat.stop_gradient().unwrap();
    let b = a.neg().unwrap(); // May not overwrite a: `stopped` is read below.
    let c = stopped.sum_all().unwrap();
    let d = b.sum_all().unwrap();
    let e = c.add(d).unwrap();
    g.output("e", e, OutputRole::Loss).unwrap();
    let plan = lay_out(&g.finish(), "d=1", &[], &[]);
    assert_eq!(plan.slots, [0, 1, 1, 1, 2, 3, 4, 3]);
    assert_eq!(
        memory::frees(&plan),
        [vec![], vec![], vec![], vec![], vec![], vec![1], vec![2], vec![4]]
    );
}

#[test]
fn an_alias_of_a_leaf_is_the_leaf_and_is_not_overwritten() {
    let g = Graph::new("leaf-alias", DType::F32);
    let x = g.input("x", [4, 3]).unwrap();
    let flat = x.reshape(&[12]).unwrap();
    let y = flat.exp().unwrap();
    g.output("y", y, OutputRole::Value).unwrap();
    g.output("flat", flat, OutputRole::Value).unwrap();
    let plan = lay_out(&g.finish(), "d=1", &[], &[]);
    assert_eq!(plan.slots, [0, 0, 1]);
    assert_eq!(memory::peak(&plan).bytes, 96);
}

#[test]
fn an_output_is_not_overwritten() {
    let g = Graph::new("output", DType::F32);
    let x = g.input("x", [4, 3]).unwrap();
    let a = x.exp().unwrap();
    let b = a.neg().unwrap();
    g.output("a", a, OutputRole::Value).unwrap();
    g.output("b", b, OutputRole::Value).unwrap();
    let plan = lay_out(&g.finish(), "d=1", &[], &[]);
    assert_eq!(plan.slots, [0, 1, 2]);
    assert!(memory::frees(&plan).iter().all(Vec::is_empty));
}

#[test]
fn equal_sizes_of_different_element_types_are_kept_apart() {
    let g = Graph::new("types", DType::F32);
    let labels = g.leaf("t", Role::Input, TensorType::new([4], DType::I32)).unwrap();
    let doubled = labels.scale(2.0).unwrap();
    let hot = doubled.one_hot(1).unwrap();
    let flat = hot.reshape(&[4]).unwrap();
    let out = flat.exp().unwrap();
    g.output("out", out, OutputRole::Value).unwrap();
    let plan = lay_out(&g.finish(), "d=1", &[], &[]);
    assert_eq!(plan.slots, [0, 1, 2, 2, 2]);
}

/// w − g, with w read again after (`late`) or not, and the new value an output of its own or only the update.
fn update(late: bool, state: bool) -> Plan {
    let g = Graph::new("update", DType::F32);
    let role = if state { Role::State } else { Role::Param };
    let (w, dw) = (leaf(&g, "w", role, &[3]), leaf(&g, "dw", Role::Input, &[3]));
    g.set_phase(Phase::Update);
    let new = w.sub(dw).unwrap();
    g.output("w", new, OutputRole::Update { of: w.id() }).unwrap();
    if late {
        g.output("n", w.sum_all().unwrap(), OutputRole::Value).unwrap();
    }
    lay_out(&g.finish(), "d=1", &[], &[])
}

#[test]
fn an_update_overwrites_its_leaf_unless_the_leaf_is_read_later() {
    for state in [false, true] {
        assert_eq!(update(false, state).slots, [0, 1, 0]);
        assert_eq!(update(true, state).slots, [0, 1, 2, 3]);
    }
    let peak = memory::peak(&update(false, false));
    assert_eq!((peak.bytes, peak.by_category.parameters, peak.by_category.inputs), (24, 12, 12));
}

#[test]
fn an_update_overwrites_no_other_leaf_and_no_leaf_that_is_an_output() {
    let g = Graph::new("swap", DType::F32);
    let (a, b) = (leaf(&g, "a", Role::Param, &[3]), leaf(&g, "b", Role::Param, &[3]));
    let to_a = b.neg().unwrap();
    let to_b = a.neg().unwrap();
    g.output("a", to_a, OutputRole::Update { of: a.id() }).unwrap();
    g.output("b", to_b, OutputRole::Update { of: b.id() }).unwrap();
    assert_eq!(lay_out(&g.finish(), "d=1", &[], &[]).slots, [0, 1, 2, 3]);

    let g = Graph::new("kept", DType::F32);
    let w = leaf(&g, "w", Role::Param, &[3]);
    let new = w.neg().unwrap();
    g.output("w", new, OutputRole::Update { of: w.id() }).unwrap();
    g.output("old", w, OutputRole::Value).unwrap();
    assert_eq!(lay_out(&g.finish(), "d=1", &[], &[]).slots, [0, 1]);
}

#[test]
fn all_reduce_and_mask_work_in_place_gathers_do_not() {
    let program = two_layers(6, [5, 4, 3], false);
    let plan = data_parallel(&program, "dp=2");
    for transition in plan.transitions() {
        let operand = plan.node(transition.id).operands[0];
        assert_eq!(plan.slots[operand.index()], plan.slots[transition.id.index()]);
    }
    let g = Graph::new("gather", DType::F32);
    let x = g.input("x", [4, 3]).unwrap();
    let a = x.exp().unwrap().named("a").unwrap();
    g.output("a", a, OutputRole::Value).unwrap();
    let plan = lay_out(&g.finish(), "d=2", &[("x", "d: S(0)")], &[("a", "d: R"), ("a", "d: P")]);
    assert_eq!(plan.slots, [0, 1, 2, 2]);
    assert_eq!(memory::frees(&plan), [vec![], vec![], vec![1], vec![]]);
}

#[test]
fn relabelling_is_an_alias() {
    let g = Graph::new("relabel", DType::F32);
    let x = g.input("x", [4, 3]).unwrap();
    let a = x.exp().unwrap().named("a").unwrap();
    let b = a.exp().unwrap();
    g.output("b", b, OutputRole::Value).unwrap();
    let plan =
        lay_out(&g.finish(), "d=2, e=1", &[("x", "d: S(0), e: S(0)")], &[("a", "d: S(0), e: R")]);
    assert_eq!(plan.slots, [0, 1, 1, 1]);
}

#[test]
fn the_peak_counts_staging_and_uneven_blocks() {
    let g = Graph::new("uneven", DType::F32);
    let x = g.input("x", [5, 3]).unwrap();
    let a = x.neg().unwrap().named("a").unwrap();
    g.output("a", a, OutputRole::Value).unwrap();
    let plan = lay_out(&g.finish(), "d=3", &[("x", "d: S(0)")], &[("a", "d: R")]);
    // Rows 2, 2, 1. At the gather: x and a (rows × 3 × 4 bytes each), the whole (60), and in the largest round the own
    // block out and the largest other block in.
    let peak = memory::peak(&plan);
    assert_eq!(peak.per_rank, [24 + 24 + 60 + 48, 24 + 24 + 60 + 48, 12 + 12 + 60 + 36]);
    assert_eq!((peak.bytes, peak.rank, peak.at.0), (156, 0, 2));
    assert_eq!(peak.by_category.staging, 48);
    assert_eq!(peak.by_category.total(), 156);
    assert_eq!(peak.stored[2].inputs, 12);
}

/// The peak by its definition: every rank, every node, every live slot.
fn slow_peak(plan: &Plan) -> Vec<u64> {
    use shardgrad_core::{geometry::block, schedule::staging_bytes};
    let bytes = |id: shardgrad_graph::NodeId, rank| {
        let ty = &plan.node(id).ty;
        (block(&ty.shape, plan.layout(id), &plan.mesh, rank).len() * ty.dtype.size()) as u64
    };
    (0..plan.mesh.size())
        .map(|rank| {
            let mut live: std::collections::BTreeMap<u32, u64> = plan
                .ids()
                .filter(|&id| plan.node(id).leaf_role().is_some())
                .map(|id| (plan.slots[id.index()], bytes(id, rank)))
                .collect();
            let mut most: u64 = live.values().sum();
            for (id, freed) in plan.ids().zip(memory::frees(plan)) {
                live.insert(plan.slots[id.index()], bytes(id, rank));
                let staging = match plan.node(id).op {
                    Op::Transition(t) => {
                        let from = plan.layout(plan.node(id).operands[0]);
                        staging_bytes(t, &plan.mesh, &plan.node(id).ty, from, plan.layout(id), rank)
                    }
                    _ => 0,
                };
                most = most.max(live.values().sum::<u64>() + staging as u64);
                for slot in freed {
                    live.remove(&slot);
                }
            }
            most
        })
        .collect()
}

#[test]
fn the_peak_is_what_its_definition_says() {
    let program = two_layers(7, [5, 9, 3], true);
    let plans = [
        megatron(&program, "tp=1"),
        megatron(&program, "tp=2"),
        megatron(&program, "tp=4"),
        megatron(&program, "dp=2, tp=5"),
        data_parallel(&program_without_input_gradient(), "dp=3"),
        data_parallel(&program_without_input_gradient(), "dp=2, tp=2"),
        support::column(&program, "tp=4"),
    ];
    for plan in plans {
        let peak = memory::peak(&plan);
        let slow = slow_peak(&plan);
        assert_eq!(peak.per_rank, slow);
        assert_eq!(peak.bytes, *slow.iter().max().unwrap());
        assert_eq!(peak.rank, slow.iter().position(|&b| b == peak.bytes).unwrap());
        assert_eq!(peak.by_category.total(), peak.bytes);
    }
}

fn program_without_input_gradient() -> shardgrad_graph::Program {
    two_layers(7, [5, 9, 3], false)
}

#[test]
fn updates_of_the_training_step_are_in_place() {
    let program = two_layers(6, [5, 4, 3], false);
    let plan = megatron(&program, "tp=2");
    for name in ["w0", "w1"] {
        let new = slot_of(&plan, &program, &format!("new-{name}"));
        assert_eq!(slot_of(&plan, &program, name), new);
    }
}

#[test]
fn ten_thousand_nodes_on_many_ranks_are_quick() {
    let g = Graph::new("long", DType::F32);
    let mut x = g.input("x", [4096, 8]).unwrap();
    for _ in 0..10_000 {
        x = x.exp().unwrap();
    }
    g.output("x", x, OutputRole::Value).unwrap();
    let plan = lay_out(&g.finish(), "d=64, e=64", &[("x", "d: S(0), e: S(0)")], &[]);
    let peak = memory::peak(&plan);
    assert_eq!((peak.bytes, peak.per_rank.len()), (64, 4096));
}
