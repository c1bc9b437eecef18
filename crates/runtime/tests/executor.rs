//! Plans at random, executed: values are the oracle's, counts are the predictions.

mod common;

use std::collections::BTreeMap;

use common::{Dice, leaf_values, random_plan};
use shardgrad_core::ops::{Role, catalog};
use shardgrad_core::{DType, Mesh, Op};
use shardgrad_graph::{
    Activation, Graph, LayerSpec, Loss, MlpSpec, Optimizer, OutputRole, Plan, Program, Value, eval,
    memory,
};
use shardgrad_runtime::{Buffers, Trainer, TrainerOptions};

/// Runs a step of a plan from the given leaves.
fn run(
    plan: &Plan,
    leaves: &BTreeMap<String, Value>,
    options: TrainerOptions,
) -> (Trainer, shardgrad_runtime::StepReport) {
    let mut trainer = Trainer::with_options(plan, options).unwrap();
    let stored: Vec<String> = trainer.stored().map(|(name, _)| name.to_owned()).collect();
    for name in &stored {
        trainer.set(name, &leaves[name]).unwrap();
    }
    let inputs = leaves
        .iter()
        .filter(|(name, _)| !stored.contains(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let report = trainer.step(&inputs).unwrap();
    (trainer, report)
}

/// Equal, or within `tolerance` of the larger of 1 and the expected magnitude.
fn assert_close(name: &str, got: &Value, expected: &Value, tolerance: f64, plan: &Plan) {
    assert_eq!(got.ty(), expected.ty());
    for (i, (g, e)) in got.to_f64s().into_iter().zip(expected.to_f64s()).enumerate() {
        let near =
            g == e || (g - e).abs() <= tolerance * e.abs().max(1.0) || g.is_nan() && e.is_nan();
        assert!(near, "{name}[{i}]: {g}, not {e}\n{}", text(plan));
    }
}

fn check(
    program: &Program,
    mesh: &Mesh,
    leaves: &BTreeMap<String, Value>,
    seed: u64,
    tolerance: f64,
) {
    let mut dice = Dice(seed);
    let plan = random_plan(program, mesh, &mut dice);
    let buffers = if seed.is_multiple_of(2) { Buffers::Keep } else { Buffers::Free };
    let world = shardgrad_runtime::WorldOptions {
        capacity: (seed % 2) as usize,
        ..shardgrad_runtime::WorldOptions::default()
    };
    let options = TrainerOptions { buffers, world, ..TrainerOptions::default() };
    let (mut trainer, report) = run(&plan, leaves, options);
    let expected = eval::evaluate_outputs(program, leaves).unwrap();
    for output in &program.outputs {
        let name = &output.name;
        let got = match output.role {
            OutputRole::Update { .. } => trainer.gather(name).unwrap(),
            _ => report.outputs[name].clone(),
        };
        assert_close(name, &got, &expected[name], tolerance, &plan);
    }
    let (totals, peak) = (plan.totals(), memory::peak(&plan));
    let counted = &report.counted;
    assert_eq!(counted.launches, totals.launches);
    assert_eq!(counted.bytes_per_device, totals.bytes_per_device);
    assert_eq!(counted.scalar_reductions, totals.scalar_reductions);
    assert_eq!(counted.scalar_bytes_per_device, totals.scalar_bytes_per_device);
    assert_eq!(counted.peak_bytes_by_rank, peak.per_rank);
    assert_eq!(counted.peak_bytes, peak.bytes);
}

fn meshes() -> Vec<Mesh> {
    ["a=1", "a=2", "a=3", "a=5", "a=2,b=2", "a=2,b=3", "a=1,b=2", "a=2,b=2,c=2"]
        .map(|text| text.parse().unwrap())
        .to_vec()
}

/// Every row of the table of ops, in all element types that it has, on every mesh.
#[test]
fn every_op_is_the_oracles_on_every_layout() {
    for (row, entry) in catalog::rows().into_iter().enumerate() {
        if matches!(entry.op, Op::Leaf(_)) {
            continue;
        }
        for dtype in [DType::F64, DType::F32, DType::I64, DType::I32] {
            let g = Graph::new("op", if dtype == DType::F32 { DType::F32 } else { DType::F64 });
            let leaves: Vec<_> = entry
                .operands
                .iter()
                .enumerate()
                .map(|(i, ty)| {
                    let mut ty = ty.clone();
                    if ty.dtype.is_float() {
                        ty.dtype = dtype;
                    }
                    g.leaf(&format!("x{i}"), Role::Input, ty).unwrap()
                })
                .collect();
            let Ok(y) = g.apply(entry.op.clone(), &leaves) else { continue };
            g.output("y", y, OutputRole::Value).unwrap();
            let program = g.finish();
            let leaves = leaf_values(&program);
            if eval::evaluate_outputs(&program, &leaves).is_err() {
                continue; // Integers divided by zero, constants that are no integers.
            }
            for (m, mesh) in meshes().iter().enumerate() {
                for trial in 0..6 {
                    let seed = 1 + (row * 1000 + m * 100 + trial) as u64;
                    // Functions of the standard library are the same on both sides; sums of small integers are exact.
                    check(&program, mesh, &leaves, seed, 0.0);
                }
            }
        }
    }
}

/// Ids of a table of five rows, read whole or without the last; a bad one is refused before the step where the leaf itself is
/// read, and when it is met elsewhere.
#[test]
fn ids_that_are_no_rows_stop_the_step() {
    for sliced in [false, true] {
        let g = Graph::new("ids", DType::F64);
        let (table, ids) = (g.param("table", [5, 2]).unwrap(), g.labels("ids", [4]).unwrap());
        let read = if sliced { ids.slice(0, 0, 3).unwrap() } else { ids };
        g.output("y", table.lookup(read).unwrap(), OutputRole::Value).unwrap();
        let program = g.finish();
        for (place, refused) in [(0, true), (2, true), (3, !sliced)] {
            for seed in 1..=6 {
                let plan = random_plan(&program, &"a=2,b=2".parse().unwrap(), &mut Dice(seed));
                let mut leaves = leaf_values(&program);
                let bad = Value::from_fn(&ids.ty(), |i| if i == place { 5.0 } else { 4.0 });
                leaves.insert("ids".to_owned(), bad);
                let table = leaves.remove("table").unwrap();
                let mut trainer = Trainer::with_options(&plan, TrainerOptions::default()).unwrap();
                trainer.set("table", &table).unwrap();
                let said = trainer.step(&leaves).map_err(|error| error.to_string());
                assert_eq!(said.is_err(), refused, "{said:?}");
                let Err(said) = said else { continue };
                assert!(said.contains("is not one of 0..5"), "{said}");
                let by_name = format!("label 5 in row {place} of `ids`");
                assert_eq!(said.contains(&by_name), !sliced, "{said}");
            }
        }
    }
}

fn layer(inputs: usize, outputs: usize, activation: Activation) -> LayerSpec {
    LayerSpec { inputs, outputs, bias: true, activation }
}

/// ReLU and a sum loss on small integers: exact whatever the order of additions.
#[test]
fn training_programs_are_exact_on_integers() {
    let spec = MlpSpec {
        dtype: DType::F32,
        loss: Loss::Sum,
        optimizer: Optimizer::None,
        input_gradient: true,
        layers: vec![layer(3, 5, Activation::Relu), layer(5, 2, Activation::None)],
        ..MlpSpec::new("exact", 4)
    };
    let program = spec.training_program().unwrap();
    let leaves = leaf_values(&program);
    for (m, mesh) in meshes().iter().enumerate() {
        for trial in 0..25 {
            check(&program, mesh, &leaves, 77 + (m * 100 + trial) as u64, 0.0);
        }
    }
}

/// Every loss, activation and optimizer; f64 sums of a few dozen terms differ by less than 10⁻¹².
#[test]
fn training_programs_are_the_oracles() {
    let optimizers = ["sgd", "momentum", "adam", "adamw"].map(|n| Optimizer::named(n).unwrap());
    let losses = [Loss::Sum, Loss::Mse, Loss::CrossEntropy];
    let activations = [
        Activation::None,
        Activation::Relu,
        Activation::Gelu,
        Activation::Tanh,
        Activation::Sigmoid,
    ];
    for (i, optimizer) in optimizers.into_iter().enumerate() {
        for (j, loss) in losses.into_iter().enumerate() {
            let activation = activations[(i * 3 + j) % activations.len()];
            let spec = MlpSpec {
                dtype: DType::F64,
                loss,
                optimizer,
                layers: vec![layer(3, 5, activation), layer(5, 4, Activation::None)],
                ..MlpSpec::new("mlp", 6)
            };
            let program = spec.training_program().unwrap();
            let leaves: BTreeMap<String, Value> = leaf_values(&program)
                .into_iter()
                .map(|(name, value)| {
                    // Second moments are not negative, and nothing saturates.
                    let ty = value.ty();
                    let v = value.to_f64s();
                    let value = match ty.dtype {
                        DType::F64 => Value::from_fn(&ty, |i| {
                            if name.starts_with("v(") { v[i].abs() / 8.0 } else { v[i] / 8.0 + 0.1 }
                        }),
                        _ => value,
                    };
                    let scalar = ["lr", "bias1", "bias2"].contains(&name.as_str());
                    (name, if scalar { Value::scalar(0.25, DType::F64) } else { value })
                })
                .collect();
            for (m, mesh) in meshes().iter().enumerate() {
                for trial in 0..3 {
                    check(
                        &program,
                        mesh,
                        &leaves,
                        1 + (i * 7 + j * 31 + m * 100 + trial) as u64,
                        1e-12,
                    );
                }
            }
        }
    }
}

/// Einsums that no matrix product fits without rearranging, with labels summed in one operand and batch labels.
#[test]
fn einsums_of_any_form_are_the_oracles() {
    for (n, (spec, a, b)) in [
        ("amk,kbn->abmn", vec![2, 3, 4], vec![4, 2, 5]),
        ("kam,bkn->nbma", vec![4, 2, 3], vec![2, 4, 5]),
        ("bkm,bnk->bmn", vec![2, 4, 3], vec![2, 5, 4]),
        ("mk,k->m", vec![3, 4], vec![4]),
        ("k,kn->n", vec![4], vec![4, 5]),
        ("k,k->", vec![7], vec![7]),
        ("abc,bd->cd", vec![2, 3, 4], vec![3, 5]),
        ("ab,cb->b", vec![2, 3], vec![4, 3]),
        ("ab,ab->ba", vec![2, 3], vec![2, 3]),
        ("acb,bdc->da", vec![2, 3, 4], vec![4, 5, 3]),
    ]
    .into_iter()
    .enumerate()
    {
        let g = Graph::new("einsum", DType::F32);
        let x = g.input("x", a).unwrap();
        let y = g.input("y", b).unwrap();
        g.output("z", x.einsum(spec, y).unwrap(), OutputRole::Value).unwrap();
        let program = g.finish();
        let leaves = leaf_values(&program);
        for (m, mesh) in meshes().iter().enumerate().filter(|(_, m)| m.size() < 8) {
            for trial in 0..8 {
                check(&program, mesh, &leaves, 1 + (n * 97 + m * 1000 + trial) as u64, 0.0);
            }
        }
    }
}

fn text(plan: &Plan) -> String {
    let line = |id: shardgrad_graph::NodeId| {
        format!(
            "{id} = {} {:?} {} in slot {}\n",
            plan.node(id).op,
            plan.node(id).operands,
            plan.layout(id).display(&plan.mesh),
            plan.slots[id.index()]
        )
    };
    plan.ids().map(line).collect()
}
