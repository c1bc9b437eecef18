//! One model in many layouts: what each sends, and that all of them compute the same gradients, to the last bit.
//!
//! On small whole numbers a ReLU network with a sum loss rounds nowhere, whatever the order of additions, so that equality
//! is `==`.

use std::collections::BTreeMap;

use shardgrad::graph::{Optimizer, eval};
use shardgrad::prelude::*;

/// Whole numbers from −3 to 3 that tell neighbours apart.
fn whole(ty: &TensorType, salt: usize) -> Value {
    Value::from_fn(ty, |i| ((i * 5 + i / 7 + salt) % 7) as f64 - 3.0)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = Mlp::new(&[12, 20, 6]).activation(Activation::Relu);
    let training = Training::new(model, Loss::Sum, Optimizer::None, Batch(9))
        .dtype(DType::F64)
        .input_gradient(true);

    let program = training.program()?;
    let leaves: BTreeMap<String, Value> = program
        .leaves()
        .enumerate()
        .filter_map(|(salt, id)| {
            let node = program.node(id);
            Some((node.leaf_name()?.to_owned(), whole(&node.ty, salt)))
        })
        .collect();
    let dense = eval::evaluate_outputs(&program, &leaves)?;

    // Neither the 9 rows nor the 6 outputs divide by 4: blocks are uneven.
    let mesh = Mesh::new([("tp", 4)])?;
    println!("{:<12} {:>10}  collectives", "layout", "bytes sent");
    for layout in ["replicated", "data", "column", "row", "megatron", "megatron-sp", "fsdp", "auto"]
    {
        let plan = training.clone().layout(layout)?.plan(&mesh, &Machine::default())?;
        let totals = plan.report().totals;
        println!("{layout:<12} {:>10}  {:?}", totals.bytes_per_device, totals.by_kind);

        let mut devices = Trainer::threads(&plan)?;
        for name in devices.stored() {
            devices.set(&name, &leaves[&name])?;
        }
        let report = devices.step(&BTreeMap::from([("x".to_owned(), leaves["x"].clone())]))?;
        assert_eq!(report.outputs, dense, "{layout}");
        assert_eq!(report.counted.bytes_per_device, totals.bytes_per_device, "{layout}");
    }
    Ok(())
}
