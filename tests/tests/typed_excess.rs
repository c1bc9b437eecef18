//! `typed::excess`: where a typed program sends more than it must, by how much, and through which transition; and nothing
//! where it does not.

#![allow(elided_lifetimes_in_paths)]

use shardgrad::Error as Failure;
use shardgrad::core::{Machine, TransitionKind};
use shardgrad::graph::{Activation, Program};
use shardgrad::planner::{LayoutRequest, Options, Redundant};
use shardgrad::typed::{
    DType, Excess, MegatronMlp, Mesh, Replicated, Shard, Tensor, Untyped, excess, grad,
};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn excess_of<const AXES: usize>(
    program: &Program,
    mesh: &Mesh<AXES>,
) -> std::result::Result<Excess, Failure> {
    excess(program, mesh.get(), &Machine::default(), &Options::default())
}

/// A row layer reduced to all where half would do: the next layer is data parallel, so `reduce_scatter` suffices.
#[test]
fn an_all_reduce_where_a_reduce_scatter_would_do() -> Result<()> {
    let mesh = Mesh::new([("tp", 4)])?;
    let tp = mesh.axes();
    let (rows, inner, features) = (8, 12, 8);
    let graph = Untyped::new("reduced", DType::F32);
    let g = graph.on(&mesh)?;
    let x: Tensor<2, Shard<1>> = g.input("x", [rows, inner])?;
    let w: Tensor<2, Shard<0>> = g.param("w", [inner, features])?;
    let whole: Tensor<2, Replicated> = x.matmul(w)?.all_reduce(tp)?;
    let block: Tensor<2, Shard<0>> = whole.relu()?.over(tp).slice::<0>()?;
    g.output("out", block)?;
    let found = excess_of(&g.finish(), &mesh)?;
    // all_reduce: 2(p−1)/p · n, reduce_scatter: half of it.
    let half = (3 * rows * features * 4 / 4) as u64;
    assert_eq!((found.sent, found.needed, found.bytes()), (2 * half, half, half));
    let steps: Vec<_> =
        found.transitions.iter().map(|t| (t.name.as_str(), t.by, t.saved)).collect();
    assert_eq!(steps, [("all_reduce0", Some("all_reduce"), half), ("slice0", None, 0)]);
    let kinds = |list: &[shardgrad::report::CollectiveReport]| {
        list.iter().map(|c| (c.kind.clone(), c.bytes_per_device)).collect::<Vec<_>>()
    };
    assert_eq!(kinds(&found.gone), [("all_reduce".to_owned(), 2 * half)]);
    assert_eq!(kinds(&found.instead), [("reduce_scatter".to_owned(), half)]);
    let text = found.to_string();
    assert!(
        text.contains(&format!(
            "all_reduce0 to [tp: R], by all_reduce: {half} bytes saved without it"
        )),
        "{text}"
    );
    assert!(text.contains("would come instead: forward reduce_scatter over tp"), "{text}");
    let page = include_str!("../../docs/type-system.md").replace("\r\n", "\n");
    assert!(page.contains(&text), "docs/type-system.md shows this report:\n{text}");
    Ok(())
}

/// The same with `reduce_scatter` in its place: nothing is too much, and every transition is carried out.
#[test]
fn a_program_that_sends_what_it_needs() -> Result<()> {
    let mesh = Mesh::new([("tp", 4)])?;
    let tp = mesh.axes();
    let graph = Untyped::new("scattered", DType::F32);
    let g = graph.on(&mesh)?;
    let x: Tensor<2, Shard<1>> = g.input("x", [8, 12])?;
    let w: Tensor<2, Shard<0>> = g.param("w", [12, 8])?;
    let block: Tensor<2, Shard<0>> = x.matmul(w)?.over(tp).reduce_scatter::<0>()?;
    g.output("out", block.relu()?)?;
    let found = excess_of(&g.finish(), &mesh)?;
    assert_eq!(found.bytes(), 0);
    assert!(found.sent > 0 && found.gone.is_empty() && found.instead.is_empty());
    let step = &found.transitions[0];
    assert_eq!((step.by, step.saved), (Some("reduce_scatter"), 0));
    assert!(found.to_string().contains("what its boundary needs"));
    Ok(())
}

/// The types ask for terms and their reduction, but the operands are small and the result is large: gathering is cheaper,
/// and the pins allow it. The plan does that, and the report says that it is not a reduction that happens.
#[test]
fn a_transition_that_the_plan_makes_otherwise() -> Result<()> {
    let mesh = Mesh::new([("tp", 4)])?;
    let tp = mesh.axes();
    let graph = Untyped::new("outer product", DType::F32);
    let g = graph.on(&mesh)?;
    let x: Tensor<2, Shard<1>> = g.input("x", [64, 4])?;
    let w: Tensor<2, Shard<0>> = g.param("w", [4, 64])?;
    let y: Tensor<2, Replicated> = x.matmul(w)?.all_reduce(tp)?;
    g.output("out", y)?;
    let found = excess_of(&g.finish(), &mesh)?;
    let by_types = 2 * 3 * 64 * 64 * 4 / 4;
    assert!(found.sent < by_types && found.bytes() == 0, "{found}");
    assert_eq!(found.transitions[0].by, Some("all_gather"), "{found}");
    assert!(found.to_string().contains("all_reduce0 to [tp: R], by all_gather"), "{found}");
    Ok(())
}

/// Work that the types repeat on every rank is shared out by default, which costs a gather; where repeating is allowed, the
/// plan sends what the types say: nothing.
#[test]
fn repeated_work() -> Result<()> {
    let mesh = Mesh::new([("tp", 4)])?;
    let graph = Untyped::new("repeated", DType::F32);
    let g = graph.on(&mesh)?;
    let x: Tensor<2, Replicated> = g.input("x", [8, 4])?;
    let w: Tensor<2, Replicated> = g.param("w", [4, 8])?;
    g.output("out", x.matmul(w)?)?;
    let program = g.finish();
    let sent = |redundant| -> Result<u64> {
        let options = Options { redundant, ..Options::default() };
        Ok(excess(&program, mesh.get(), &Machine::default(), &options)?.sent)
    };
    assert_eq!(sent(Redundant::Never)?, 3 * 8 * 8 * 4 / 4);
    assert_eq!(sent(Redundant::Allow)?, 0);
    Ok(())
}

/// Megatron layers, on one axis and on two, send what their boundary needs, and by the collectives in their table.
#[test]
fn megatron_layers_on_one_axis_and_on_two() -> Result<()> {
    fn reductions(program: Program, mesh: &shardgrad::core::Mesh) -> Result<Vec<(String, usize)>> {
        let request = LayoutRequest::auto();
        let planned = shardgrad::Planned::new(
            program,
            mesh,
            &request,
            &Machine::default(),
            &Options::default(),
        )?;
        assert!(planned.check().violations.is_empty());
        let plan = planned.plan();
        let mut found = std::collections::BTreeMap::new();
        for c in plan.collectives().filter(|c| !c.is_scalar()) {
            assert_eq!(c.transition.kind, TransitionKind::AllReduce);
            *found.entry(plan.mesh.axis_names(c.transition.axes)).or_insert(0) += 1;
        }
        Ok(found.into_iter().collect())
    }
    let widths = [6, 10, 6, 8, 4];
    let reduced = |axis: &str, count| (axis.to_owned(), count);

    let mesh = Mesh::new([("tp", 2)])?;
    let graph = Untyped::new("one axis", DType::F64);
    let g = graph.on(&mesh)?;
    let x: Tensor<2, Replicated> = g.input("x", [8, 6])?;
    let y: Tensor<2, Replicated> = g.input("y", [8, 4])?;
    let model = MegatronMlp::new(g, &widths, Activation::Relu)?;
    let loss = model.forward(x, mesh.axes())?.mse(y)?;
    let gradient = grad(loss, model.clone())?;
    model.descend(g, &gradient, 0.5)?;
    g.loss("loss", loss)?;
    // Two blocks forward, and the input of the second one backward.
    assert_eq!(reductions(g.finish(), mesh.get())?, [reduced("tp", 3)]);

    let mesh = Mesh::new([("dp", 2), ("tp", 2)])?;
    let (dp, tp) = mesh.axes();
    let graph = Untyped::new("two axes", DType::F64);
    let g = graph.on(&mesh)?;
    let x: Tensor<2, (Shard<0>, Replicated)> = g.input("x", [8, 6])?;
    let y: Tensor<2, (Shard<0>, Replicated)> = g.input("y", [8, 4])?;
    let model = MegatronMlp::new(g, &widths, Activation::Relu)?;
    let out: Tensor<2, (Shard<0>, Replicated)> = model.forward(x, tp)?;
    let loss = out.mse(y)?;
    let gradient = grad(loss, model.clone())?;
    let dw0: Tensor<2, (Replicated, Shard<1>)> = gradient.blocks[0].column.weight;
    let _ = dw0;
    model.descend(g, &gradient, 0.5)?;
    g.loss("loss", loss.all_reduce(dp)?)?;
    // And each of four weights and four biases over dp.
    assert_eq!(reductions(g.finish(), mesh.get())?, [reduced("dp", 8), reduced("tp", 3)]);
    Ok(())
}
