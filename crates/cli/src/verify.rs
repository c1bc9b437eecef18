//! Evidence that a sharded run equals the dense one.
//!
//! Before a step the parameters and the optimizer state are gathered from the devices. The whole step is evaluated from
//! them by the dense oracle (naive loops over global tensors, no mesh), and with it a bound of what rounding may do, whatever
//! the order of additions, by running error analysis. Three things are held to the bound, element by element:
//!
//! * the loss of the step,
//! * every gradient: a second plan of the same layout whose outputs are the gradients runs from the same parameters,
//! * every parameter and all optimizer state after the step.

use shardgrad::core::Machine;
use shardgrad::dataset::Inputs;
use shardgrad::graph::{OutputRole, Program, eval};
use shardgrad::{Planned, Trainer, Training};
use shardgrad_testkit::tolerance::{Deviation, bounds_on};
use std::collections::BTreeMap;

use crate::backend::Backend;
use crate::failure::Failure;

/// What has been compared so far.
pub(crate) struct Verifier {
    program: Program,
    gradients: Trainer,
    ranks: usize,
    /// The first and the last step compared, by number from 1; all between were too.
    steps: Option<(u64, u64)>,
    /// Elements compared, over all steps.
    pub(crate) elements: u64,
    /// Elements of which the bound says nothing.
    pub(crate) unbounded: u64,
    /// The largest part of its bound that a difference took, of which value, in which step.
    pub(crate) worst: (f64, String, u64),
}

impl Verifier {
    /// A verifier of the plan of a training.
    pub(crate) fn new(
        training: &Training,
        planned: &Planned,
        backend: &Backend,
        machine: &Machine,
    ) -> Result<Self, Failure> {
        let mesh = planned.mesh();
        let plan = training.plan_gradients(mesh, machine).map_err(Failure::no)?;
        Ok(Self {
            program: planned.program().clone(),
            gradients: backend.trainer(&plan)?,
            ranks: mesh.size(),
            steps: None,
            elements: 0,
            unbounded: 0,
            worst: (0.0, String::new(), 0),
        })
    }

    /// Makes a step and compares it; returns its report.
    pub(crate) fn step(
        &mut self,
        trainer: &mut Trainer,
        inputs: &Inputs,
    ) -> Result<shardgrad::runtime::StepReport, Failure> {
        let before = trainer.get_all().map_err(Failure::no)?;
        let number = trainer.steps() + 1;
        let mut leaves = trainer.with_scalars(inputs, number);
        leaves.extend(before);
        let dense = eval::evaluate(&self.program, &leaves).map_err(Failure::no)?;
        let bounds = bounds_on(&self.program, &leaves, self.ranks).map_err(Failure::no)?;

        self.gradients.copy_stored(trainer).map_err(Failure::no)?;
        let mut sharded = self.gradients.step(inputs).map_err(Failure::no)?.outputs;
        let report = trainer.step(inputs).map_err(Failure::no)?;
        sharded.extend(report.outputs.clone());
        let after: BTreeMap<_, _> = trainer.get_all().map_err(Failure::no)?;

        let mut compare = |what: String, node, actual| -> Result<(), Failure> {
            let deviation: Deviation =
                bounds.compare(node, &dense[usize::try_from(node.0).unwrap_or(0)], actual);
            if !deviation.is_within() {
                return Err(Failure::no(format!(
                    "step {number}: {what} of the sharded run differs from the dense one: {deviation}"
                )));
            }
            self.elements += deviation.elements as u64;
            self.unbounded += deviation.unbounded as u64;
            if deviation.ratio > self.worst.0 {
                self.worst = (deviation.ratio, what, number);
            }
            Ok(())
        };
        for (name, actual) in &sharded {
            if let Some(node) = self.program.named(name) {
                compare(name.clone(), node, actual)?;
            } else if let Some(output) = self.program.outputs.iter().find(|o| o.name == *name) {
                compare(name.clone(), output.node, actual)?;
            }
        }
        for output in &self.program.outputs {
            if let (OutputRole::Update { .. }, Some(actual)) =
                (output.role, after.get(&output.name))
            {
                compare(format!("{} after the step", output.name), output.node, actual)?;
            }
        }
        self.steps = Some((self.steps.map_or(number, |(first, _)| first), number));
        Ok(report)
    }

    /// What was shown, on one line.
    pub(crate) fn summary(&self) -> String {
        let steps = match self.steps {
            None => "no step".to_owned(),
            Some((first, last)) if first == last => format!("step {first}"),
            Some((first, last)) => format!("steps {first} to {last}"),
        };
        let bounded = self.elements - self.unbounded;
        let worst = match &self.worst {
            (ratio, what, step) if *ratio > 0.0 => {
                format!("the largest difference is {ratio:.3} of its bound ({what}, step {step})")
            }
            _ => "not one of them differs".to_owned(),
        };
        let shown = match (bounded, self.unbounded) {
            (0, 1..) => format!(
                "nothing is shown, as not one of {} elements has a finite bound on rounding",
                self.unbounded
            ),
            (n, 0) => format!("{n} elements equal the dense run's within rounding, and {worst}"),
            (n, more) => format!(
                "{n} elements equal the dense run's within rounding, and {worst}; of {more} more the bound is not finite, and nothing is claimed"
            ),
        };
        format!("{steps}: of loss, gradients, parameters and optimizer state {shown}")
    }
}
