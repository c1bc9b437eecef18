//! A program of one's own: a bilinear form with two einsums, its gradients, pins instead of presets.
//!
//! Heads are split over `tp` and queries over `dp`. The planner is told where the inputs lie, and finds what must be sent.

use std::collections::BTreeMap;

use shardgrad::graph::eval;
use shardgrad::prelude::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Whole-tensor view: no mesh in sight.
    let g = Graph::new("linear attention", DType::F64);
    let q = g.input("q", [4, 6, 3])?;
    let k = g.input("k", [4, 5, 3])?;
    let v = g.input("v", [4, 5, 2])?;
    let scores = q.einsum("hqd,hkd->hqk", k)?.scale(0.5)?.named("scores")?;
    let mixed = scores.einsum("hqk,hkv->hqv", v)?;
    let loss = mixed.square()?.sum_all()?;
    g.output("loss", loss, OutputRole::Loss)?;
    let wanted = [("grad(q)", q), ("grad(k)", k), ("grad(v)", v)];
    let gradients = g.grad(loss, &wanted.map(|(_, var)| var))?;
    for ((name, var), gradient) in wanted.into_iter().zip(gradients) {
        g.output(name, gradient, OutputRole::Gradient { of: var.id() })?;
    }
    let program = g.finish();

    let mesh = Mesh::new([("dp", 2), ("tp", 2)])?;
    let request = LayoutRequest::auto()
        .pin("q", "dp: S(1), tp: S(0)".parse()?)
        .pin("k", "dp: R, tp: S(0)".parse()?)
        .pin("v", "dp: R, tp: S(0)".parse()?);
    let options = Options::default();
    let plan = Planned::new(program, &mesh, &request, &Machine::default(), &options)?;
    println!("{}\n{}", plan.listing(), plan.explain());
    assert!(plan.check().is_right());

    // Small whole numbers and halves: nothing rounds, so equality is `==`.
    let leaves: BTreeMap<String, Value> = [("q", q), ("k", k), ("v", v)]
        .into_iter()
        .enumerate()
        .map(|(salt, (name, var))| {
            let value = Value::from_fn(&var.ty(), |i| ((i * 3 + i / 5 + salt) % 5) as f64 - 2.0);
            (name.to_owned(), value)
        })
        .collect();
    let dense = eval::evaluate_outputs(plan.program(), &leaves)?;
    let report = Trainer::threads(&plan)?.step(&leaves)?;
    assert_eq!(report.outputs, dense);
    println!(
        "loss {:?} and {} gradients equal the dense ones",
        report.loss,
        report.outputs.len() - 1
    );
    Ok(())
}
