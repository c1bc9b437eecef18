//! Slots: overlaps, early overwrites and wrong places are refused by their codes.

mod support;

use shardgrad_core::Placement;
use shardgrad_graph::{Graph, NodeId, OutputRole, Plan, Program, check, memory};
use support::checking::{assert_right, assert_sound, node_named, refused, right_plans};
use support::{Draft, lay_out, leaf};

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
    // An exponential over an input; a sum over a parameter that has an update, but another.
    refused(&with_slot("a", slot_of("x")), &program, "C054");
    refused(&with_slot("b", slot_of("w")), &program, "C054");
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
fn on_an_axis_of_one_device_all_blocks_are_equal() {
    let g = Graph::new("one", shardgrad_core::DType::F32);
    let x = g.input("x", [4, 4]).unwrap();
    let a = x.exp().unwrap();
    g.output("b", a.relu().unwrap(), OutputRole::Value).unwrap();
    let program = g.finish();
    let mut wrong = lay_out(&program, "d=2, one=1", &[("x", "d: S(0)")], &[]);
    assert_eq!(wrong.slots[1], wrong.slots[2]);
    wrong.layouts[2] = wrong.layouts[2].with(1, Placement::Shard(1));
    // No rule says so, but the blocks fit.
    assert_eq!(refused(&wrong, &program, "C010").codes(), ["C010"]);
}

/// Sums over the batch of two inputs and a maximum of the first, made, then reduced: nodes x z a b m, then three reductions.
fn sums() -> (Program, Plan) {
    let g = Graph::new("sums", shardgrad_core::DType::F32);
    let x = g.input("x", [4, 6]).unwrap();
    let z = g.input("z", [4, 3]).unwrap();
    let made = [
        x.sum(&[0]).unwrap().named("a").unwrap(),
        z.sum(&[0]).unwrap().named("b").unwrap(),
        x.max(&[0]).unwrap().named("m").unwrap(),
    ];
    for (name, value) in ["a", "b", "m"].into_iter().zip(made) {
        g.output(name, value, OutputRole::Value).unwrap();
    }
    let program = g.finish();
    let mut draft = Draft::new(&program, "dp=2, tp=2");
    let place = |draft: &mut Draft<'_>, name: &str, layout: &str| {
        let origin = draft.program.named(name).unwrap();
        let id = draft.place(origin, layout);
        draft.current.insert(origin, id);
        id
    };
    let (x, z) = (place(&mut draft, "x", "dp: S(0)"), place(&mut draft, "z", "dp: S(0)"));
    let terms = [("a", x), ("b", z), ("m", x)].map(|(name, operand)| {
        let origin = draft.program.named(name).unwrap();
        (origin, draft.emit(origin, &[operand]))
    });
    for (origin, term) in terms {
        let reduced = draft.transition(term, "");
        draft.current.insert(origin, reduced);
    }
    let plan = draft.finish();
    (program, plan)
}

#[test]
fn a_bucket_is_one_launch_whose_messages_are_staged_together() {
    let (program, mut plan) = sums();
    assert_right(&plan, &program);
    assert_eq!(plan.totals().launches, 3);
    // x 2·6, z 2·3, a 6, b 3, m 6 elements, each reduction in place. Alone a stages two halves: 6 elements.
    assert_eq!(memory::peak(&plan).bytes, 4 * (12 + 6 + 6 + 3 + 6 + 6));
    let apart = plan.totals();
    let [a, b, m] = [5, 6, 7].map(NodeId);
    plan.buckets = vec![vec![a, b]];
    assert_right(&plan, &program);
    assert_eq!(plan.totals().launches, 2);
    assert_eq!(plan.totals().by_kind, apart.by_kind);
    assert_eq!(plan.totals().bytes_per_device, apart.bytes_per_device);
    // Of three elements one rank gives one and takes two, and the other way round: 3 more in each round.
    assert_eq!(memory::peak(&plan).bytes, 4 * (12 + 6 + 6 + 3 + 6 + 6 + 3));
    assert_eq!(memory::peak(&plan).at, b);
    let text = plan.to_string();
    assert_eq!(text.matches("bucket 0").count(), 2, "{text}");
    // Each fault has its code.
    let with = |buckets: &[&[NodeId]]| Plan {
        buckets: buckets.iter().map(|b| b.to_vec()).collect(),
        ..plan.clone()
    };
    for (buckets, code) in [
        (with(&[&[a]]), "C070"),
        (with(&[&[]]), "C070"),
        (with(&[&[a, a]]), "C070"),
        (with(&[&[b, a]]), "C070"),
        (with(&[&[a, b], &[b, m]]), "C070"),
        (with(&[&[NodeId(4), a]]), "C071"),
        // A maximum among sums.
        (with(&[&[b, m]]), "C072"),
        (with(&[&[a, NodeId(99)]]), "C002"),
    ] {
        refused(&buckets, &program, code);
    }
    // In flight it keeps its messages.
    let waiting = |buckets: &[&[NodeId]], waits: &[(NodeId, NodeId)]| Plan {
        waits: waits.iter().map(|(start, wait)| (start.0, *wait)).collect(),
        ..with(buckets)
    };
    let beside = waiting(&[], &[(a, b)]);
    assert_right(&beside, &program);
    assert_eq!(memory::peak(&beside).bytes, 4 * (12 + 6 + 6 + 3 + 6 + 6 + 3));
    assert_right(&waiting(&[], &[(a, m), (b, m)]), &program);
    assert_eq!(memory::peak(&waiting(&[], &[(a, m), (b, m)])).bytes, 4 * (33 + 6 + 3 + 6));
    assert_right(&waiting(&[&[a, b]], &[(b, m)]), &program);
    for (plan, code) in [
        (waiting(&[], &[(NodeId(4), a)]), "C074"),
        (waiting(&[], &[(b, b)]), "C074"),
        (waiting(&[], &[(b, a)]), "C074"),
        (waiting(&[&[a, b]], &[(a, m)]), "C074"),
        (waiting(&[], &[(a, NodeId(99))]), "C002"),
        (waiting(&[], &[(NodeId(99), m)]), "C002"),
    ] {
        refused(&plan, &program, code);
    }
    let mut shared = plan.clone();
    shared.slots[b.index()] = shared.slots[a.index()];
    refused(&shared, &program, "C073");
}

/// Two sums in flight at once, work beside them, then a reader of each: a launch lands where it is waited for, and not before.
#[test]
fn a_result_is_read_behind_its_wait_and_no_earlier() {
    let g = Graph::new("flights", shardgrad_core::DType::F32);
    let x = g.input("x", [4, 6]).unwrap();
    let z = g.input("z", [4, 3]).unwrap();
    let made = [
        x.sum(&[0]).unwrap().named("a").unwrap(),
        z.sum(&[0]).unwrap().named("b").unwrap(),
        x.exp().unwrap().named("beside").unwrap(),
    ];
    for (name, value) in ["exp a", "exp b"].into_iter().zip(made) {
        g.output(name, value.exp().unwrap().named(name).unwrap(), OutputRole::Value).unwrap();
    }
    g.output("beside", made[2], OutputRole::Value).unwrap();
    let program = g.finish();
    let mut draft = Draft::new(&program, "dp=2");
    let named = |name: &str| program.named(name).unwrap();
    let x = draft.place(named("x"), "dp: S(0)");
    let z = draft.place(named("z"), "dp: S(0)");
    let terms = [draft.emit(named("a"), &[x]), draft.emit(named("b"), &[z])];
    let [a, b] = terms.map(|term| draft.transition(term, ""));
    let beside = draft.emit(named("beside"), &[x]);
    let reads = [draft.emit(named("exp a"), &[a]), draft.emit(named("exp b"), &[b])];
    draft.current.extend([
        (named("beside"), beside),
        (named("exp a"), reads[0]),
        (named("exp b"), reads[1]),
    ]);
    let plan = draft.finish();
    let waiting = |waits: [(NodeId, NodeId); 2]| Plan {
        waits: waits.map(|(start, wait)| (start.0, wait)).into(),
        ..plan.clone()
    };
    assert_right(&waiting([(a, beside), (b, beside)]), &program);
    assert_right(&waiting([(a, beside), (b, reads[0])]), &program);
    for (waits, reader) in [
        ([(a, reads[0]), (b, reads[0])], reads[0]),
        ([(a, reads[1]), (b, beside)], reads[0]),
        ([(a, beside), (b, reads[1])], reads[1]),
    ] {
        let report = refused(&waiting(waits), &program, "C075");
        assert!(report.violations.iter().all(|v| v.node == Some(reader)), "{report}");
    }
}

#[test]
fn members_of_a_bucket_are_of_one_kind_over_one_group_and_independent() {
    let g = Graph::new("moves", shardgrad_core::DType::F32);
    let x = g.input("x", [4, 6]).unwrap();
    let v = x.exp().unwrap().named("v").unwrap();
    g.output("y", v, OutputRole::Value).unwrap();
    let program = g.finish();
    let refuse = |steps: &[&str], code: &str| {
        let mut draft = Draft::new(&program, "a=2, b=2");
        let origin = program.named("v").unwrap();
        let x = draft.place(program.named("x").unwrap(), steps[0]);
        let mut at = draft.emit(origin, &[x]);
        let moved: Vec<NodeId> = steps[1..]
            .iter()
            .map(|to| {
                at = draft.transition(at, to);
                at
            })
            .collect();
        draft.current.insert(origin, at);
        let mut plan = draft.finish();
        assert_right(&plan, &program);
        // Who reads a result reads it too early if it is still in flight.
        let mut early = plan.clone();
        early.waits.insert(moved[0].0, moved[1]);
        if plan.transition(moved[0]).unwrap().transition.kind.is_collective() {
            refused(&early, &program, "C075");
        }
        plan.buckets = vec![moved];
        let report = refused(&plan, &program, code);
        assert!(report.codes().contains(&"C073"), "one reads the other: {report}");
    };
    refuse(&["a: S(0)", "a: S(1)", "a: S(0)"], "C050");
    refuse(&["a: S(0), b: S(1)", "a: S(0)", ""], "C072");
    refuse(&["a: S(0)", "", "b: S(0)", ""], "C071");
    refuse(&["a: S(0)", "a: S(1)", ""], "C072");
}
