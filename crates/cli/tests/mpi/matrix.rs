//! The digits model under every preset on every mesh of so many ranks: the same bits as on threads.
//!
//! All ranks train every plan over MPI. Then each rank trains its share of the plans on threads, and compares losses,
//! parameters, optimizer state and counts.

use std::collections::BTreeMap;

use shardgrad::core::{DType, Machine, Mesh};
use shardgrad::graph::{Activation, Loss, Value, memory};
use shardgrad::mpi::{Collectives, MpiOptions, Universe};
use shardgrad::planner::Preset;
use shardgrad::runtime::{Buffers, Counters, Error};
use shardgrad::{Batch, Dataset, Mlp, Planned, Trainer, Training, optimizers::Adam};
use shardgrad_testkit::tolerance::bounds_on;

const STEPS: usize = 2;

/// Losses, counts of the first step, and everything stored at the end.
type Run = (Vec<Option<f64>>, Counters, BTreeMap<String, Value>);

fn problem(error: impl std::fmt::Display) -> Error {
    Error::Mpi { problem: error.to_string() }
}

fn plans(p: usize) -> Result<Vec<Planned>, shardgrad::Error> {
    let meshes: &[&str] = if p == 4 { &["tp=4", "dp=2,tp=2"] } else { &["tp"] };
    let mut plans = Vec::new();
    for mesh in meshes {
        let mesh: Mesh = if p == 4 { mesh.parse()? } else { Mesh::new([(*mesh, p)])? };
        let mut layouts = vec![String::new()];
        for axis in mesh.axes() {
            let more = |layout: &String| {
                let join = if layout.is_empty() { "" } else { ", " };
                Preset::ALL.map(|preset| format!("{layout}{join}{}={preset}", axis.name))
            };
            layouts = layouts.iter().flat_map(more).collect();
        }
        for layout in layouts {
            let model = Mlp::new(&[64, 32, 10]).named("digits").activation(Activation::Relu);
            // 30 rows over 4 ranks, 10 classes over 3 and 4: blocks of different lengths.
            let training = Training::new(model, Loss::CrossEntropy, Adam::new(1e-3), Batch(30));
            plans.push(training.layout(&layout)?.plan(&mesh, &Machine::default())?);
        }
    }
    Ok(plans)
}

fn train(mut trainer: Trainer, digits: &Dataset) -> Result<Run, shardgrad::Error> {
    let (mut losses, mut counted) = (Vec::new(), Counters::default());
    for rows in digits.epoch(0, 0, 30).iter().take(STEPS) {
        let report = trainer.step_rows(digits, rows)?;
        losses.push(report.loss);
        counted = report.counted;
    }
    Ok((losses, counted, trainer.get_all()?))
}

fn assert_counts(planned: &Planned, counted: &Counters) {
    let (plan, totals) = (planned.plan(), planned.plan().totals());
    assert_eq!(counted.launches, totals.launches, "launches of {}", plan.layout);
    assert_eq!(counted.bytes_per_device, totals.bytes_per_device, "bytes of {}", plan.layout);
    assert_eq!(counted.scalar_bytes_per_device, totals.scalar_bytes_per_device);
    assert_eq!(counted.peak_bytes_by_rank, memory::peak(plan).per_rank, "peak of {}", plan.layout);
}

pub(crate) fn run(universe: &Universe) -> Result<(), Error> {
    let plans = plans(universe.size()).map_err(problem)?;
    let digits = Dataset::digits();
    let native = MpiOptions { collectives: Collectives::Native, ..MpiOptions::default() };
    let mut runs = Vec::new();
    for planned in &plans {
        let trainer = Trainer::mpi(planned, universe).map_err(problem)?;
        runs.push(train(trainer, &digits).map_err(problem)?);
    }
    // Every fifth with MPI's own collectives.
    let mut others = Vec::new();
    for planned in plans.iter().step_by(5) {
        let mut trainer =
            Trainer::mpi_with(planned, universe, native, Buffers::Keep).map_err(problem)?;
        let before = trainer.get_all().map_err(problem)?;
        let rows = &digits.epoch(0, 0, 30)[0];
        let report = trainer.step_rows(&digits, rows).map_err(problem)?;
        others.push((before, report, trainer.get_all().map_err(problem)?));
    }
    let mine = |i: &usize| i % universe.size() == universe.rank();
    for (i, planned) in plans.iter().enumerate().filter(|(i, _)| mine(i)) {
        assert_counts(planned, &runs[i].1);
        let threads = Trainer::threads(planned).map_err(problem)?;
        let expected = train(threads, &digits).map_err(problem)?;
        assert_eq!(runs[i], expected, "{}, {}", planned.mesh(), planned.plan().layout);
    }
    for (i, planned) in plans.iter().step_by(5).enumerate().filter(|(i, _)| mine(i)) {
        within_rounding(planned, &digits, &others[i]);
    }
    Ok(())
}

/// Loss and parameters after a step are the dense oracle's, within the bound of what rounding may do.
fn within_rounding(
    planned: &Planned,
    digits: &Dataset,
    (before, report, after): &(
        BTreeMap<String, Value>,
        shardgrad::runtime::StepReport,
        BTreeMap<String, Value>,
    ),
) {
    assert_counts(planned, &report.counted);
    let rows = &digits.epoch(0, 0, 30)[0];
    let scalars = planned.optimizer().scalars(1).into_iter();
    let mut leaves = digits.batch(rows, DType::F32);
    leaves.extend(scalars.map(|(name, value)| (name, Value::scalar(value, DType::F32))));
    leaves.extend(before.clone());
    let program = planned.program();
    let dense = shardgrad::graph::eval::evaluate(program, &leaves).expect("the dense step");
    let bounds = bounds_on(program, &leaves, planned.mesh().size()).expect("bounds");
    let mut compared = 0;
    for output in &program.outputs {
        let actual = match after.get(&output.name) {
            Some(actual) => actual,
            None => &report.outputs[&output.name],
        };
        let deviation = bounds.compare(output.node, &dense[output.node.index()], actual);
        assert!(deviation.is_within(), "{}: {}: {deviation}", planned.plan().layout, output.name);
        compared += 1;
    }
    assert!(compared > 4, "loss, parameters and state were compared");
}
