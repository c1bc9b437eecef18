//! Runs a plan on threads and compares it with the dense program, bit for bit.

use std::collections::BTreeMap;

use shardgrad::Planned;
use shardgrad::core::ops::Role;
use shardgrad::core::{Machine, Mesh};
use shardgrad::graph::{OutputRole, Program, Value, eval};
use shardgrad::planner::{LayoutRequest, Options};
use shardgrad::runtime::Trainer;

/// Plans a program by its pins, checks the plan, runs one step of it on threads, and compares every output with the
/// dense one. The data are small integers of both signs and the factors powers of two, so the order of addition does
/// not matter and equality is exact.
///
/// # Errors
/// The program cannot be planned or run, the checker refuses the plan, or an output differs.
pub fn equals_dense(program: &Program, mesh: &Mesh) -> Result<Planned, Box<dyn std::error::Error>> {
    let planned = Planned::new(
        program.clone(),
        mesh,
        &LayoutRequest::auto(),
        &Machine::default(),
        &Options::default(),
    )?;
    if let Some(violation) = planned.check().violations.first() {
        return Err(format!("the plan of `{}` is wrong: {violation}", program.name).into());
    }

    let mut leaves = BTreeMap::new();
    let mut trainer = Trainer::threads(planned.plan(), 0)?;
    for (ordinal, id) in program.leaves().enumerate() {
        let node = program.node(id);
        let Some(name) = node.leaf_name() else { continue };
        #[allow(clippy::cast_precision_loss)]
        let value = Value::from_fn(&node.ty, |i| ((i * 7 + ordinal * 3) % 5) as f64 - 2.0);
        if node.leaf_role() == Some(Role::Param) {
            trainer.set(name, &value)?;
        }
        leaves.insert(name.to_owned(), value);
    }
    let dense = eval::evaluate_outputs(program, &leaves)?;
    leaves.retain(|name, _| {
        program.leaves().any(|id| {
            let node = program.node(id);
            node.leaf_name() == Some(name) && node.leaf_role() == Some(Role::Input)
        })
    });
    let report = trainer.step(&leaves)?;

    for output in &program.outputs {
        let expected = &dense[&output.name];
        let equal = match output.role {
            OutputRole::Loss => report.loss == expected.item(),
            OutputRole::Update { .. } => trainer.gather(&output.name)? == *expected,
            OutputRole::Value | OutputRole::Gradient { .. } => {
                report.outputs.get(&output.name) == Some(expected)
            }
        };
        if !equal {
            return Err(
                format!("`{}` of `{}` differs from dense", output.name, program.name).into()
            );
        }
    }
    println!("`{}` on {mesh}: {} outputs equal dense.", program.name, program.outputs.len());
    Ok(planned)
}
