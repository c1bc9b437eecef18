//! The same training on threads, or on the processes that `mpirun` started.
//!
//! ```sh
//! cargo run -p shardgrad-examples --example distributed
//! cargo build --release -p shardgrad-examples --features mpi --example distributed
//! mpirun -n 4 target/release/examples/distributed
//! ```

use shardgrad::prelude::*;

fn plan() -> Result<Planned, shardgrad::Error> {
    let model = Mlp::new(&[64, 128, 10]).activation(Activation::Relu);
    Training::new(model, Loss::CrossEntropy, Adam::new(1e-3), Batch(64))
        .layout("dp=fsdp, tp=megatron")?
        .plan(&Mesh::new([("dp", 2), ("tp", 2)])?, &Machine::default())
}

/// Every device reads its rows and columns of the data, holds its blocks, and writes those that it owns.
fn train(plan: &Planned, mut trainer: Trainer, speaks: bool) -> Result<(), shardgrad::Error> {
    let digits = Dataset::digits();
    let predicted = plan.report().totals.bytes_per_device;
    for epoch in 0..3 {
        let mut loss = f64::NAN;
        for rows in digits.epoch(0, epoch, 64) {
            let report = trainer.step_rows(&digits, &rows)?;
            loss = report.loss.unwrap_or(f64::NAN);
            assert_eq!(report.counted.bytes_per_device, predicted);
        }
        if speaks {
            println!("epoch {epoch}: loss {loss:.6}");
        }
    }
    let file = std::env::temp_dir().join("shardgrad-distributed.safetensors");
    trainer.save(&file)?;
    trainer.load(&file)?;
    assert_eq!(trainer.steps(), 66);
    Ok(())
}

#[cfg(feature = "mpi")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    use shardgrad::mpi;
    Ok(mpi::run(|universe| {
        let plan = plan()?;
        train(&plan, Trainer::mpi(&plan, universe)?, universe.is_first())
    })?)
}

#[cfg(not(feature = "mpi"))]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let plan = plan()?;
    Ok(train(&plan, Trainer::threads(&plan)?, true)?)
}
