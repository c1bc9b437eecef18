//! Runs against their ops, one at a time: right ones pass on every program and layout, whatever one element is changed by is
//! seen where it was changed.

use std::collections::BTreeMap;

use proptest::strategy::ValueTree;
use shardgrad_core::{DType, Mesh};
use shardgrad_graph::{
    Activation, LayerSpec, Loss, MlpSpec, NodeId, Optimizer, Plan, Program, StackSpec, Value,
};
use shardgrad_planner::{Options, plan};
use shardgrad_runtime::{Buffers, Data, Trainer, TrainerOptions};
use shardgrad_testkit::case::numbered;
use shardgrad_testkit::data::{Style, inputs};
use shardgrad_testkit::{Deviation, Error, Reference, op_by_op};

/// What the ranks made of every node in a step from these leaves.
fn recorded(plan: &Plan, leaves: &BTreeMap<String, Value>) -> Result<Vec<Vec<Data>>, Error> {
    let options = TrainerOptions { buffers: Buffers::Record, ..TrainerOptions::default() };
    let mut trainer = Trainer::with_options(plan, options)?;
    let mut leaves = leaves.clone();
    let stored: Vec<String> = trainer.stored().map(|(name, _)| name.to_owned()).collect();
    for name in stored {
        if let Some(value) = leaves.remove(&name) {
            trainer.set(&name, &value)?;
        }
    }
    trainer.step(&leaves)?;
    plan.ids().map(|id| Ok(trainer.recorded(id)?.expect("it is recorded"))).collect()
}

fn compare(
    plan: &Plan,
    leaves: &BTreeMap<String, Value>,
    made: &[Vec<Data>],
) -> Result<Vec<(NodeId, Deviation)>, Error> {
    op_by_op::compare(plan, leaves, |id| Ok::<_, Error>(Some(made[id.index()].clone())))
}

fn planned(program: &Program, mesh: &str, layout: &str) -> Plan {
    let mesh: Mesh = mesh.parse().unwrap();
    plan(program, &mesh, &layout.parse().unwrap(), &Options::default()).unwrap().plan
}

fn mlp(batch: usize, sizes: &[usize], optimizer: &str) -> Program {
    let layer = |pair: &[usize]| LayerSpec {
        inputs: pair[0],
        outputs: pair[1],
        bias: true,
        activation: Activation::Tanh,
    };
    let spec = MlpSpec {
        layers: sizes.windows(2).map(layer).collect(),
        loss: Loss::CrossEntropy,
        optimizer: Optimizer::named(optimizer).unwrap(),
        ..MlpSpec::new("mlp", batch)
    };
    spec.training_program().unwrap()
}

#[test]
fn every_op_of_random_plans_is_within_its_own_rounding() {
    let (mut compared, mut differ, mut unbounded) = (0, 0, 0);
    for (kind, number) in (0..250).flat_map(|n| [("mlp", n), ("random", n)]) {
        let case = numbered(kind, number).unwrap().current();
        let program = case.model.program().unwrap();
        let reference = Reference::new(&program, case.mesh.size(), &case.options()).unwrap();
        let plan = case.random_plan(&program);
        let made = recorded(&plan, reference.inputs()).unwrap();
        for (id, deviation) in compare(&plan, reference.inputs(), &made).unwrap() {
            assert!(deviation.is_within(), "{kind} {number}: {id}: {deviation}\n{plan}");
            compared += deviation.elements;
            unbounded += deviation.unbounded;
            differ += usize::from(deviation.ratio > 0.0);
        }
    }
    assert!(compared > 50_000 && differ > 300, "{compared} elements, {differ} nodes differ");
    assert!(100 * unbounded < compared, "{unbounded} of {compared}");
}

#[test]
fn every_bound_of_a_decoder_in_f32_is_finite() {
    let spec = StackSpec {
        optimizer: Optimizer::named("adamw").unwrap(),
        clip_norm: Some(1.0),
        ..StackSpec::new("gpt", 3, 7, 11).decoder(12, 3, 2)
    };
    let program = spec.training_program().unwrap();
    let mut leaves = inputs(&program, Style::Noise, 5);
    for (name, value) in spec.optimizer.scalars(1) {
        leaves.insert(name, Value::scalar(value, DType::F32));
    }
    for (mesh, layout) in [
        ("tp=2", "megatron"),
        ("dp=2, tp=2", "dp=fsdp, tp=megatron-sp"),
        ("tp=5", "megatron-sp"),
        ("dp=3", "zero1"),
    ] {
        let plan = planned(&program, mesh, layout);
        let made = recorded(&plan, &leaves).unwrap();
        for (id, deviation) in compare(&plan, &leaves, &made).unwrap() {
            assert!(
                deviation.is_within() && deviation.unbounded == 0,
                "{layout}: {id} {deviation}"
            );
        }
    }
}

/// A thousandth of one element, on all ranks that hold a copy or in one term.
#[test]
fn one_element_that_is_changed_is_seen() {
    let program = mlp(6, &[5, 7, 4], "adam");
    let mut leaves = inputs(&program, Style::Noise, 3);
    for (name, value) in Optimizer::named("adam").unwrap().scalars(1) {
        leaves.insert(name, Value::scalar(value, DType::F32));
    }
    let plan = planned(&program, "dp=2, tp=2", "dp=data, tp=megatron");
    let made = recorded(&plan, &leaves).unwrap();
    assert!(compare(&plan, &leaves, &made).unwrap().iter().all(|(_, d)| d.is_within()));
    let mut changed = 0;
    for id in plan.ids() {
        for all in [true, false] {
            let mut other = made.clone();
            for data in other[id.index()].iter_mut().take(if all { 4 } else { 1 }) {
                if let Data::F32(elements) = data {
                    let Some(first) = elements.first_mut() else { continue };
                    *first += 1e-3 * first.abs().max(1.0);
                }
            }
            if other[id.index()] == made[id.index()] {
                continue; // Integers, or no element there.
            }
            changed += 1;
            match compare(&plan, &leaves, &other) {
                // Copies on other ranks have another value.
                Err(error) => {
                    assert!(!all && error.to_string().contains("copies"), "{id}: {error}")
                }
                Ok(found) => {
                    let seen = found.iter().find(|(_, d)| !d.is_within()).map(|(at, _)| *at);
                    assert_eq!(
                        seen,
                        Some(id),
                        "{all} {}\n{plan}",
                        plan.layout(id).display(&plan.mesh)
                    );
                }
            }
        }
    }
    assert!(changed > 100, "{changed}");
}

#[test]
fn what_was_not_recorded_is_an_error() {
    let program = mlp(4, &[3, 2], "sgd");
    let plan = planned(&program, "tp=2", "data");
    let leaves = inputs(&program, Style::Noise, 3);
    let made = recorded(&plan, &leaves).unwrap();
    let missing = NodeId(5);
    let found = op_by_op::compare(&plan, &leaves, |id| {
        Ok::<_, Error>((id != missing).then(|| made[id.index()].clone()))
    });
    assert!(found.is_err_and(|error| error.to_string().contains("nothing was recorded")));
    let mut trainer = Trainer::threads(&plan, 0).unwrap();
    assert_eq!(trainer.recorded(NodeId(0)).unwrap(), None);
}
