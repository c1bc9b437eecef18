//! The communication of transformer blocks and of their loss, against what Megatron-LM and sequence parallelism send.

use shardgrad_core::DType;
use shardgrad_graph::check::optimality::{Verdict, verify};
use shardgrad_graph::nn::{BlockSpec, Head, Norm, NormKind, TransformerBlock};
use shardgrad_graph::{
    CrossEntropy, Graph, OutputRole, Phase, Plan, Program, StackLayer, StackSpec, Var,
};
use shardgrad_planner::{Options, plan};

use super::{expect, kinds, mesh, optimizer, planned, request, ring};

const SHAPE: [usize; 3] = [3, 8, 16];
const ELEMENTS: u64 = 3 * 8 * 16;

/// `loss`, and the gradients of all leaves of floats that are no targets.
fn outputs(g: &Graph, loss: Var<'_>) -> Program {
    g.output("loss", loss, OutputRole::Loss).unwrap();
    let leaves: Vec<Var<'_>> =
        g.finish().leaves().map(|id| g.var(id)).filter(|v| v.ty().dtype.is_float()).collect();
    for (leaf, gradient) in leaves.iter().zip(g.grad(loss, &leaves).unwrap()) {
        let name = format!("grad({})", g.node(leaf.id()).leaf_name().unwrap());
        g.output(&name, gradient, OutputRole::Gradient { of: leaf.id() }).unwrap();
    }
    g.finish()
}

/// Blocks on an input `x`, and a loss that is not linear in their output.
fn blocks(count: usize, bias: bool) -> Program {
    let g = Graph::new("blocks", DType::F32);
    let mut h = g.input("x", SHAPE).unwrap();
    let mut spec = BlockSpec::new(SHAPE[2], 4);
    spec.attention.bias = bias;
    for i in 0..count {
        let block = TransformerBlock::new(&g, &format!("b{i}"), spec).unwrap();
        h = block.of(h, None).unwrap();
    }
    outputs(&g, h.square().unwrap().mean_all().unwrap())
}

/// Two blocks, a norm and a head over 12 classes with its cross entropy.
fn language_model() -> Program {
    let g = Graph::new("lm", DType::F32);
    let mut h = g.input("x", SHAPE).unwrap();
    let labels = g.labels("y", [SHAPE[0], SHAPE[1]]).unwrap();
    let mut spec = BlockSpec::new(SHAPE[2], 4);
    spec.attention.bias = false;
    for i in 0..2 {
        let block = TransformerBlock::new(&g, &format!("b{i}"), spec).unwrap();
        h = block.of(h, None).unwrap();
    }
    let h = Norm::new(&g, "norm", NormKind::Layer, SHAPE[2]).unwrap().of(h).unwrap();
    let scores = Head::new(&g, "scores", SHAPE[2], 12).unwrap().of(h).unwrap();
    let loss = CrossEntropy { labels, mask: None, smoothing: 0.0 }.mean(scores).unwrap();
    outputs(&g, loss)
}

/// Kind, phase and elements of every collective that is no scalar's.
fn sent(plan: &Plan) -> Vec<(&'static str, Phase, u64)> {
    plan.collectives()
        .filter(|c| !c.is_scalar())
        .map(|c| (c.transition.kind.name(), plan.node(c.id).phase, c.ty.elements() as u64))
        .collect()
}

#[test]
fn a_megatron_block_takes_two_all_reduces_forward_and_two_backward() {
    for (p, count) in [(2, 1), (4, 2)] {
        let program = blocks(count, true);
        let plan = planned(&program, &mesh(&format!("tp={p}")), &request("megatron")).plan;
        assert_eq!(kinds(&plan), expect(&[("all_reduce", 4 * count as u64)]), "p = {p}");
        // Queries, keys and values read one input, whose gradient is reduced once.
        assert_eq!(plan.totals().bytes_per_device, count as u64 * ring(8, p, ELEMENTS));
        for phase in [Phase::Forward, Phase::Backward] {
            let of_phase = sent(&plan).iter().filter(|(_, at, _)| *at == phase).count();
            assert_eq!(of_phase, 2 * count, "{phase}");
        }
    }
}

#[test]
fn a_sequence_parallel_block_gathers_and_scatters_what_megatron_reduces() {
    let program = blocks(1, true);
    let plan = planned(&program, &mesh("tp=4"), &request("megatron-sp")).plan;
    // Gradients of scales and shifts of two norms are sums over tokens.
    let vectors = 4;
    let expected = expect(&[("all_gather", 4), ("reduce_scatter", 4), ("all_reduce", vectors)]);
    assert_eq!(kinds(&plan), expected);
    let bytes = ring(8, 4, ELEMENTS) + vectors * ring(2, 4, SHAPE[2] as u64);
    assert_eq!(plan.totals().bytes_per_device, bytes);
    for (kind, _, elements) in sent(&plan) {
        assert_eq!(elements, if kind == "all_reduce" { SHAPE[2] as u64 } else { ELEMENTS });
    }
}

#[test]
fn two_blocks_with_their_head_reduce_five_times_backward() {
    // DTensor takes 9 all_reduces in backward, and 30 in the optimizer's step where norms see parts of the sequence.
    let program = language_model();
    let plan = planned(&program, &mesh("tp=4"), &request("megatron")).plan;
    let of = |phase| sent(&plan).into_iter().filter(|c| c.1 == phase).collect::<Vec<_>>();
    let rows = (SHAPE[0] * SHAPE[1]) as u64;
    let backward = of(Phase::Backward);
    assert_eq!(backward, vec![("all_reduce", Phase::Backward, ELEMENTS); 5]);
    // The head's maximum and sum are of the rows' size; nothing is gathered.
    let mut forward: Vec<u64> = of(Phase::Forward).iter().map(|c| c.2).collect();
    forward.sort_unstable();
    assert_eq!(forward, [[rows; 2].as_slice(), &[ELEMENTS; 4]].concat());
    assert!(sent(&plan).iter().all(|c| c.0 == "all_reduce"));

    let plan = planned(&program, &mesh("tp=4"), &request("megatron-sp")).plan;
    let vectors = sent(&plan).iter().filter(|c| c.2 == SHAPE[2] as u64).count();
    // The scales and shifts of five norms.
    assert_eq!(vectors, 10);
}

/// The transformer of PyTorch's tensor-parallel tests with its boundaries: two layers of width 16 with 4 heads, linear layers
/// without biases, a vocabulary of 8 whose table is the head's weight, tables split by rows, norms whole, Adam, four ranks.
/// DTensor takes 9 all_reduces backward, and with a sharded sequence 30 in the optimizer's step, three for each parameter of a
/// norm.
#[test]
fn two_layers_with_their_optimizer_reduce_less_often_than_dtensor() {
    let mut spec = StackSpec::new("two", 8, 8, 8).decoder(16, 4, 2);
    spec.optimizer = optimizer("adam");
    if let StackLayer::Block { bias, .. } = &mut spec.layers[1] {
        *bias = false;
    }
    let program = spec.training_program().unwrap();
    for (layout, backward, update) in [("megatron", 5, 0), ("megatron-sp", 0, 10)] {
        let request = request(layout).pin("tokens.positions", "tp: S(0)".parse().unwrap());
        let plan = planned(&program, &mesh("tp=4"), &request).plan;
        let reduced = |phase| {
            sent(&plan).iter().filter(|(kind, at, _)| *kind == "all_reduce" && *at == phase).count()
        };
        assert_eq!(
            (reduced(Phase::Backward), reduced(Phase::Update)),
            (backward, update),
            "{layout}"
        );
    }
}

#[test]
fn a_language_model_never_gathers_its_scores() {
    let spec = StackSpec::new("tiny", 8, 6, 10).decoder(8, 2, 1);
    let program = spec.training_program().unwrap();
    let scores = 8 * 6 * 10;
    for (mesh_text, layout) in [
        ("tp=2", "megatron"),
        ("tp=2", "megatron-sp"),
        ("dp=2, tp=2", "dp=data, tp=megatron"),
        ("dp=2, tp=2", "dp=fsdp, tp=megatron-sp"),
    ] {
        let found =
            plan(&program, &mesh(mesh_text), &request(layout), &Options::default()).unwrap();
        assert!(found.optimal, "{layout}");
        for (kind, _, elements) in sent(&found.plan) {
            assert!(elements < scores, "{layout}: {kind} of {elements} elements");
        }
    }
}

#[test]
fn large_blocks_on_two_axes_are_planned_exactly() {
    // As large as those of GPT-3; the search over both axes at once would be too wide.
    let blocks = |count| {
        let spec = StackSpec::new("gpt", 64, 2048, 50_304).decoder(12_288, 96, count);
        let program = spec.training_program().unwrap();
        let layout = request("dp=data, tp=megatron");
        let found = plan(&program, &mesh("dp=2, tp=4"), &layout, &Options::default()).unwrap();
        assert!(found.optimal);
        (program, found)
    };
    let (program, found) = blocks(2);
    // What each block adds is what Megatron-LM says: 2 + 2 all_reduces of the activations of half a batch over tp, and
    // one of the gradients, of which tp holds a quarter, over dp.
    let (_, more) = blocks(3);
    let activations = 4 * ring(2, 4, 32 * 2048 * 12_288);
    let (wide, split) = (12_288_u64, 12 * 12_288 * 12_288 + 7 * 12_288_u64);
    let gradients = ring(2, 2, split / 4) + ring(2, 2, 6 * wide);
    assert_eq!(more.cost.bytes - found.cost.bytes, activations + gradients);
    // The bound that is certified is within a hundredth.
    let Verdict::Proven(proof) = verify(&found.plan, &program, &found.certificate) else {
        panic!("{:?}", found.certificate)
    };
    assert!(100 * proof.gap() < found.cost.bytes, "{}", proof.gap());
}

/// Presets on three axes: values with many readers are too wide for all axes at once.
#[test]
fn three_axes_compose() {
    let spec = StackSpec {
        optimizer: optimizer("sgd"),
        ..StackSpec::new("gpt", 4, 4, 6).decoder(8, 2, 1)
    };
    let program = spec.training_program().unwrap();
    for layout in ["a=data, b=fsdp, c=megatron", "a=data, b=data, c=megatron"] {
        let request = layout.parse().unwrap();
        let found = plan(&program, &mesh("a=2, b=2, c=2"), &request, &Options::default()).unwrap();
        let report = shardgrad_graph::check::check(&found.plan, &program);
        assert!(report.is_right(), "{layout}: {report}");
        let bytes = found.plan.totals().bytes_per_device;
        assert!(0 < found.lower_bound_bytes && found.lower_bound_bytes <= bytes, "{layout}");
        let verdict = verify(&found.plan, &program, &found.certificate);
        assert!(matches!(verdict, Verdict::Proven(_)), "{layout}: {verdict}");
    }
}
