//! Define a network, plan its training over a 2×2 mesh, train it, and prove the first step against the dense one.

use shardgrad::graph::eval;
use shardgrad::prelude::*;
use shardgrad_testkit::tolerance::bounds;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = Mlp::new(&[64, 128, 10]).activation(Activation::Relu);
    let mesh = Mesh::new([("dp", 2), ("tp", 2)])?;
    let plan = Training::new(model, Loss::CrossEntropy, AdamW::new(1e-3), Batch(128))
        .layout("dp=data, tp=megatron")?
        .plan(&mesh, &Machine::default())?;
    println!("{}", plan.explain());
    assert!(plan.check().is_right(), "the independent checker agrees");

    let digits = Dataset::digits();
    let mut trainer = Trainer::threads(&plan)?;
    let before = trainer.get_all()?;
    let mut first = None;
    for epoch in 0..3 {
        let mut loss = 0.0;
        for rows in digits.epoch(0, epoch, 128) {
            let report = trainer.step(&digits.batch(&rows, DType::F32))?;
            loss = report.loss.unwrap_or(f64::NAN);
            first.get_or_insert((rows, loss));
            assert_eq!(report.counted.bytes_per_device, plan.report().totals.bytes_per_device);
        }
        println!("epoch {epoch}: loss {loss:.4}");
    }

    // The same step on one device, by naive loops over whole tensors, and how far rounding may go.
    let (rows, sharded) = first.ok_or("no step was made")?;
    let mut leaves = trainer.with_scalars(&digits.batch(&rows, DType::F32), 1);
    leaves.extend(before);
    let program = plan.program();
    let dense = eval::evaluate_outputs(program, &leaves)?["loss"].item().ok_or("no scalar")?;
    let loss = program.outputs.iter().find(|o| o.name == "loss").ok_or("no loss")?.node;
    let bound = bounds(program, &leaves)?.of(loss).sum();
    println!("first step: sharded {sharded:.9}, dense {dense:.9}, rounding explains {bound:.1e}");
    assert!((sharded - dense).abs() <= bound);
    Ok(())
}
