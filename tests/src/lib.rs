//! Shared set-up of the cross-crate tests: every preset on every mesh (automatic layouts have tests of their own), and
//! runs that are held to their prediction.

pub mod parsers;
mod placed;

use std::collections::BTreeMap;

pub use placed::placed;
use shardgrad_core::Mesh;
use shardgrad_graph::check::check;
use shardgrad_graph::{Plan, Program, Value, memory};
use shardgrad_planner::{LayoutRequest, Options, Preset, plan};
use shardgrad_runtime::{StepReport, Trainer};

/// Meshes of one axis of 1 to 4 devices, 2×2 and 2×3.
const MESHES: [&str; 6] = ["tp=1", "tp=2", "tp=3", "tp=4", "dp=2, tp=2", "dp=2, tp=3"];

/// Plans of a program under every fixed preset on every mesh: all pairs of presets where there are two axes.
///
/// Every plan is checked.
///
/// # Panics
/// A preset does not plan, or a plan does not pass the checker.
#[must_use]
pub fn plans_of_all_presets(program: &Program) -> Vec<Plan> {
    let mut plans = Vec::new();
    for mesh in MESHES {
        let mesh: Mesh = mesh.parse().expect("a mesh");
        for request in requests(&mesh) {
            plans.push(checked(program, &mesh, &request));
        }
    }
    plans
}

fn requests(mesh: &Mesh) -> Vec<LayoutRequest> {
    let mut requests: Vec<BTreeMap<String, Preset>> = vec![BTreeMap::new()];
    for axis in mesh.axes() {
        requests = requests
            .into_iter()
            .flat_map(|chosen| {
                Preset::ALL.into_iter().filter(|p| *p != Preset::Auto).map(move |preset| {
                    let mut more = chosen.clone();
                    more.insert(axis.name.clone(), preset);
                    more
                })
            })
            .collect();
    }
    requests.into_iter().map(LayoutRequest::by_axis).collect()
}

/// A plan that passes the checker.
///
/// # Panics
/// It does not plan or does not pass.
#[must_use]
pub fn checked(program: &Program, mesh: &Mesh, request: &LayoutRequest) -> Plan {
    let planned = plan(program, mesh, request, &Options::default())
        .unwrap_or_else(|e| panic!("{mesh}, {request:?}: {e}"));
    let report = check(&planned.plan, program);
    assert!(report.violations.is_empty(), "{mesh}, {}: {report:?}", planned.plan.layout);
    planned.plan
}

/// A trainer of the plan whose parameters and state have the given values.
///
/// # Panics
/// The plan is not sound or a value does not fit.
#[must_use]
pub fn trainer(plan: &Plan, values: &BTreeMap<String, Value>) -> Trainer {
    let mut trainer = Trainer::threads(plan, 0).expect("a trainer");
    let stored: Vec<String> = trainer.stored().map(|(name, _)| name.to_owned()).collect();
    for name in stored {
        trainer.set(&name, &values[&name]).expect("a value that fits");
    }
    trainer
}

/// Runs one step on those of `values` that are the step's inputs, and holds what it counted to the plan's prediction.
///
/// # Panics
/// The step fails, or bytes, launches or peak memory differ from the prediction.
pub fn step(trainer: &mut Trainer, plan: &Plan, values: &BTreeMap<String, Value>) -> StepReport {
    let stored: Vec<String> = trainer.stored().map(|(name, _)| name.to_owned()).collect();
    let inputs = values
        .iter()
        .filter(|(name, _)| !stored.contains(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let report = trainer.step(&inputs).unwrap_or_else(|e| panic!("{}: {e}", plan.layout));
    let (totals, counted) = (plan.totals(), &report.counted);
    assert_eq!(counted.launches, totals.launches, "launches of {}", plan.layout);
    assert_eq!(counted.bytes_per_device, totals.bytes_per_device, "bytes of {}", plan.layout);
    assert_eq!(counted.scalar_reductions, totals.scalar_reductions, "{}", plan.layout);
    assert_eq!(counted.scalar_bytes_per_device, totals.scalar_bytes_per_device, "{}", plan.layout);
    let peak = memory::peak(plan);
    assert_eq!(counted.peak_bytes, peak.bytes, "peak of {}", plan.layout);
    assert_eq!(counted.peak_bytes_by_rank, peak.per_rank, "peaks of {}", plan.layout);
    report
}

/// The programs in the README.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
