//! The plan of a typed program is byte for byte the plan of the same program written without types, with the same pins;
//! and what it sends is what its types say.

#![allow(elided_lifetimes_in_paths)]

use shardgrad_core::ops::Comparison;
use shardgrad_core::{DType, Layout, LayoutSpec, Mesh as Untyped, Transition, TransitionKind};
use shardgrad_graph::typed::{self, Mesh, PendingSum, Replicated, Shard, Tensor};
use shardgrad_graph::{Graph, OutputRole, Phase, Plan, Program, Var, check};
use shardgrad_planner::{LayoutRequest, Options, plan};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn planned(program: &Program, mesh: &Untyped, request: &LayoutRequest) -> Result<Plan> {
    let plan = plan(program, mesh, request, &Options::default())?.plan;
    let report = check::check(&plan, program);
    assert!(report.violations.is_empty(), "{:?}", report.violations);
    Ok(plan)
}

/// Plans both, compares every byte, and returns the plan.
fn same_plan(
    typed: &Program,
    untyped: &Program,
    pins: &[(&str, &str)],
    mesh: &Untyped,
) -> Result<Plan> {
    let request = pins.iter().try_fold(LayoutRequest::auto(), |request, (name, spec)| {
        Ok::<_, Box<dyn std::error::Error>>(request.pin(name, spec.parse::<LayoutSpec>()?))
    })?;
    let a = planned(typed, mesh, &LayoutRequest::auto())?;
    let b = planned(untyped, mesh, &request)?;
    assert_eq!(serde_json::to_string_pretty(&a)?, serde_json::to_string_pretty(&b)?);
    Ok(a)
}

/// The collectives of a plan of values that are no scalars: kind and axes.
fn collectives(plan: &Plan) -> Vec<(TransitionKind, String)> {
    plan.collectives()
        .filter(|c| !c.is_scalar())
        .map(|c| (c.transition.kind, plan.mesh.axis_names(c.transition.axes)))
        .collect()
}

fn untyped_mlp<'g>(g: &'g Graph, x: Var<'g>) -> Result<(Var<'g>, [Var<'g>; 4])> {
    let w0 = g.param("w0", [6, 10])?;
    let b0 = g.param("b0", [10])?;
    let w1 = g.param("w1", [10, 4])?;
    let b1 = g.param("b1", [4])?;
    let h = x.einsum("mk,kn->mn", w0)?;
    let h = h.add(b0.broadcast(&[1], &[8, 10])?)?.relu()?;
    let terms = h.einsum("mk,kn->mn", w1)?.constrain("all_reduce0", "[tp: R]")?;
    Ok((terms.add(b1.broadcast(&[1], &[8, 4])?)?, [w0, b0, w1, b1]))
}

#[test]
fn tensor_parallel_by_reverse_mode() -> Result<()> {
    let mesh = Mesh::new([("tp", 3)])?;
    let tp = mesh.axes();
    let graph = Graph::new("mlp", DType::F32);
    let g = graph.on(&mesh)?;
    let x: Tensor<2, Replicated> = g.input("x", [8, 6])?;
    let target: Tensor<2, Replicated> = g.input("y", [8, 4])?;
    let w0: Tensor<2, Shard<1>> = g.param("w0", [6, 10])?;
    let b0: Tensor<1, Shard<0>> = g.param("b0", [10])?;
    let w1: Tensor<2, Shard<0>> = g.param("w1", [10, 4])?;
    let b1: Tensor<1, Replicated> = g.param("b1", [4])?;
    let h = x.matmul(w0)?.add_bias(b0)?.relu()?;
    let y = h.matmul(w1)?.all_reduce(tp)?.add_bias(b1)?;
    let loss = y.mse(target)?;
    let (dx, (dw0, db0), dw1, db1) = typed::grad(loss, (x, (w0, b0), w1, b1))?;
    g.gradient(x, dx)?;
    g.update(w0, w0.sub(dw0.scale(0.5)?)?)?;
    g.update(b0, b0.sub(db0.scale(0.5)?)?)?;
    g.update(w1, w1.sub(dw1.scale(0.5)?)?)?;
    g.update(b1, b1.sub(db1.scale(0.5)?)?)?;
    g.loss("loss", loss)?;

    let u = Graph::new("mlp", DType::F32);
    let x = u.input("x", [8, 6])?;
    let target = u.input("y", [8, 4])?;
    let (out, parameters) = untyped_mlp(&u, x)?;
    let loss = out.sub(target)?.square()?.mean_all()?;
    let wrt = [x, parameters[0], parameters[1], parameters[2], parameters[3]];
    let gradients = u.grad(loss, &wrt)?;
    u.set_phase(Phase::Backward);
    let layouts = [
        ("x", "[tp: R]"),
        ("w0", "[tp: S(1)]"),
        ("b0", "[tp: S(0)]"),
        ("w1", "[tp: S(0)]"),
        ("b1", "[tp: R]"),
    ];
    let gradients = gradients
        .iter()
        .zip(layouts)
        .map(|(d, (name, layout))| d.constrain(&format!("grad({name})"), layout))
        .collect::<std::result::Result<Vec<_>, _>>()?;
    u.set_phase(Phase::Forward);
    u.output("grad(x)", gradients[0], OutputRole::Gradient { of: x.id() })?;
    for ((p, d), name) in parameters.iter().zip(&gradients[1..]).zip(["w0", "b0", "w1", "b1"]) {
        u.output(name, p.sub(d.scale(0.5)?)?, OutputRole::Update { of: p.id() })?;
    }
    u.output("loss", loss, OutputRole::Loss)?;

    let mut pins = layouts.to_vec();
    pins.push(("y", "[tp: R]"));
    let plan = same_plan(&g.finish(), &u.finish(), &pins, mesh.get())?;
    // The output forward, the input gradient backward, and nothing else.
    let reduce = (TransitionKind::AllReduce, "tp".to_owned());
    assert_eq!(collectives(&plan), [reduce.clone(), reduce]);
    assert_eq!(plan.pins["grad(w0)"].to_string(), "[tp: S(1)]");
    Ok(())
}

#[test]
fn two_axes_by_hand() -> Result<()> {
    let mesh = Mesh::new([("dp", 2), ("tp", 2)])?;
    let (dp, tp) = mesh.axes();
    let graph = Graph::new("layer", DType::F64);
    let g = graph.on(&mesh)?;
    let x: Tensor<2, (Shard<0>, Shard<1>)> = g.input("x", [8, 6])?;
    let target: Tensor<2, (Shard<0>, Replicated)> = g.input("y", [8, 4])?;
    let w: Tensor<2, (Replicated, Shard<0>)> = g.param("w", [6, 4])?;
    let b: Tensor<1, (Replicated, Replicated)> = g.param("b", [4])?;
    let (terms, product) = x.matmul_vjp(w)?;
    let (a, bias) = terms.all_reduce(tp)?.add_bias_vjp(b)?;
    let (out, relu) = a.relu_vjp()?;
    let (loss, error) = out.mse_vjp(target)?;
    let (da, db) = bias.pull(relu.pull(error.pull()?)?)?;
    let (dx, dw) = product.pull(da)?;
    let dw: Tensor<2, (PendingSum, Shard<0>)> = dw;
    g.gradient(w, dw.all_reduce(dp)?)?;
    g.gradient(b, db.all_reduce(dp)?)?;
    g.gradient(x, dx)?;
    g.loss("loss", loss.all_reduce(dp)?)?;

    let u = Graph::new("layer", DType::F64);
    let x = u.input("x", [8, 6])?;
    let target = u.input("y", [8, 4])?;
    let w = u.param("w", [6, 4])?;
    let b = u.param("b", [4])?;
    let terms = x.einsum("mk,kn->mn", w)?.constrain("all_reduce0", "dp: S(0), tp: R")?;
    let out = terms.add(b.broadcast(&[1], &[8, 4])?)?.relu()?;
    let loss = out.sub(target)?.square()?.mean_all()?;
    let dy = u.grad(loss, &[out])?[0];
    u.set_phase(Phase::Backward);
    let da = dy.mul(out.compare_const(Comparison::Gt, 0.0)?)?;
    let db = da.sum(&[0])?;
    let dx = da.einsum("mn,kn->mk", w)?;
    let dw = x.einsum("mk,mn->kn", da)?;
    let dw = dw.constrain("all_reduce1", "dp: R, tp: S(0)")?;
    let db = db.constrain("all_reduce2", "dp: R, tp: R")?;
    u.set_phase(Phase::Forward);
    let loss = loss.constrain("all_reduce3", "dp: R, tp: R")?;
    for (name, of, d) in [("w", w, dw), ("b", b, db), ("x", x, dx)] {
        u.output(&format!("grad({name})"), d, OutputRole::Gradient { of: of.id() })?;
    }
    u.output("loss", loss, OutputRole::Loss)?;

    let pins = [
        ("x", "dp: S(0), tp: S(1)"),
        ("y", "dp: S(0), tp: R"),
        ("w", "dp: R, tp: S(0)"),
        ("b", "dp: R, tp: R"),
    ];
    let plan = same_plan(&g.finish(), &u.finish(), &pins, mesh.get())?;
    let mut found = collectives(&plan);
    found.sort();
    let reduce = |axis: &str| (TransitionKind::AllReduce, axis.to_owned());
    assert_eq!(found, [reduce("dp"), reduce("dp"), reduce("tp")]);
    Ok(())
}

/// Every kind of explicit transition becomes that one transition of the plan, at its two ends.
#[test]
fn explicit_transitions() -> Result<()> {
    let mesh = Mesh::new([("tp", 2)])?;
    let tp = mesh.axes();
    let graph = Graph::new("transitions", DType::F64);
    let g = graph.on(&mesh)?;
    let x: Tensor<2, Shard<0>> = g.input("x", [5, 4])?;
    let moved: Tensor<2, Shard<1>> = x.over(tp).all_to_all::<0, 1>()?;
    let whole: Tensor<2, Replicated> = moved.all_gather(tp)?;
    let terms: Tensor<2, PendingSum> = whole.to_pending(tp)?;
    let rows: Tensor<2, Shard<0>> = terms.over(tp).reduce_scatter::<0>()?;
    let padded: Tensor<2, PendingSum> = rows.to_pending(tp)?;
    let reduced: Tensor<2, Replicated> = padded.all_reduce(tp)?;
    let sliced: Tensor<2, Shard<1>> = reduced.over(tp).slice::<1>()?;
    g.output("end", sliced)?;
    let program = g.finish();
    let plan = planned(&program, mesh.get(), &LayoutRequest::auto())?;
    let kinds: Vec<TransitionKind> = plan.transitions().map(|t| t.transition.kind).collect();
    use TransitionKind::{AllGather, AllReduce, AllToAll, Mask, Pad, ReduceScatter, Slice};
    assert_eq!(kinds, [AllToAll, AllGather, Mask, ReduceScatter, Pad, AllReduce, Slice]);
    for t in plan.transitions() {
        assert_eq!(Transition::between(&plan.mesh, t.from, t.to)?, t.transition);
    }
    Ok(())
}

#[test]
fn entering_is_checked() -> Result<()> {
    let graph = Graph::new("entering", DType::F64);
    let x = graph.input("x", [4, 3])?;
    let code = |error: shardgrad_graph::Error| error.code();
    assert_eq!(x.typed::<2, Replicated>().map_err(code).err(), Some("E103"), "no mesh yet");
    let mesh = Mesh::new([("dp", 2), ("tp", 2)])?;
    graph.on(&mesh)?;
    assert!(graph.on(&Mesh::new([("tp", 2)])?).is_err(), "another mesh");
    assert!(x.typed::<2, Replicated>().is_err(), "a layout for one axis on a mesh of two");
    assert!(x.typed::<1, (Shard<0>, Replicated)>().is_err(), "two dims");
    assert!(x.typed::<2, (PendingSum, Replicated)>().is_err(), "stored values are complete");

    // The pin of a value that is pinned on one axis only must agree there, and becomes whole.
    let h = x.relu()?.constrain("h", "tp: S(1)")?;
    assert!(h.typed::<2, (Shard<0>, Replicated)>().is_err());
    h.typed::<2, (Shard<0>, Shard<1>)>()?;
    // A value without a name gets one.
    let y = x.square()?.typed::<2, (Replicated, Shard<0>)>()?;
    graph.output("sum", h.add(y.erase())?, OutputRole::Value)?;
    let program = graph.finish();
    assert_eq!(program.pins["h"].to_string(), "[dp: S(0), tp: S(1)]");
    assert_eq!(program.pins["typed0"].to_string(), "[dp: R, tp: S(0)]");
    let plan = planned(&program, mesh.get(), &LayoutRequest::auto())?;
    let layout = |name: &str| {
        let origin = program.named(name).unwrap();
        let places = plan.ids().filter(|id| plan.origins[id.index()] == origin);
        places.map(|id| plan.layout(id).clone()).collect::<Vec<Layout>>()
    };
    assert!(layout("typed0").contains(&Layout::parse("tp: S(0)", mesh.get())?));
    Ok(())
}
