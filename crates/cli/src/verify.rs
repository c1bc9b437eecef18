//! Evidence that a sharded run equals the dense one: as a whole, and op by op.
//!
//! *As a whole*: before a step the parameters and the optimizer state are gathered from the devices. The whole step is evaluated from
//! them by the dense oracle (naive loops over global tensors, no mesh), and with it a bound of what rounding may do, whatever
//! the order of additions, by running error analysis. Three things are held to the bound, element by element:
//!
//! * the loss of the step,
//! * every gradient, as the plan's ops made it one by one,
//! * every parameter and all optimizer state after the step.
//!
//! *Op by op* ([`op_by_op`]): the same plan runs once more from the same parameters, one op after the other, and what every
//! op made of the operands that the ranks had is held to the rounding of this one op. Where bounds over the whole step
//! have grown beyond all values, these have not.

use shardgrad::core::ops::Role;
use shardgrad::dataset::Inputs;
use shardgrad::graph::naming::Names;
use shardgrad::graph::{NodeId, Optimizer, OutputRole, Plan, Program, Value, eval};
use shardgrad::runtime::Buffers;
use shardgrad::{Planned, Trainer, Training};
use shardgrad_testkit::op_by_op;
use shardgrad_testkit::tolerance::{Deviation, bounds_on};
use std::collections::BTreeMap;

use crate::backend::Backend;
use crate::failure::Failure;

/// What has been compared so far.
pub(crate) struct Verifier {
    program: Program,
    plan: Plan,
    recorder: Trainer,
    /// Whether parameters go down their gradients and nothing else.
    descends: bool,
    ranks: usize,
    /// The first and the last step compared, by number from 1; all between were too.
    steps: Option<(u64, u64)>,
    /// Elements compared, over all steps.
    pub(crate) elements: u64,
    /// Elements of which the bound says nothing.
    pub(crate) unbounded: u64,
    /// The largest part of its bound that a difference took, of which value, in which step.
    pub(crate) worst: (f64, String, u64),
    ops: Ops,
}

/// What has been compared op by op.
#[derive(Default)]
struct Ops {
    /// Nodes of the plan but its leaves, over all steps.
    count: u64,
    /// Elements of which the bound says nothing.
    unbounded: u64,
    /// The largest part of its bound that a difference took, of which node, in which step.
    worst: (f64, Option<NodeId>, u64),
}

impl Verifier {
    /// A verifier of the plan of a training.
    pub(crate) fn new(
        training: &Training,
        planned: &Planned,
        backend: &Backend,
    ) -> Result<Self, Failure> {
        Ok(Self {
            program: planned.program().clone(),
            plan: planned.plan().clone(),
            recorder: backend.trainer_with(planned, Buffers::Record)?,
            descends: matches!(training.spec().optimizer(), Optimizer::Sgd { .. }),
            ranks: planned.mesh().size(),
            steps: None,
            elements: 0,
            unbounded: 0,
            worst: (0.0, String::new(), 0),
            ops: Ops::default(),
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

        self.op_by_op(trainer, inputs, &leaves, number)?;
        let mut sharded = self.gradients()?;
        let report = trainer.step(inputs).map_err(Failure::no)?;
        sharded.extend(report.outputs.clone());
        let after: BTreeMap<_, _> = trainer.get_all().map_err(Failure::no)?;
        self.as_fused(&after, number)?;

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

    /// The gradients of the parameters, by name, of the recorded step.
    fn gradients(&mut self) -> Result<BTreeMap<String, Value>, Failure> {
        let params = self.program.leaves().map(|id| self.program.node(id));
        let params = params.filter(|node| node.leaf_role() == Some(Role::Param));
        let names = params.filter_map(|node| Some(format!("grad({})", node.leaf_name()?)));
        let mut gradients = BTreeMap::new();
        for name in names {
            let Some(of) = self.program.named(&name) else { continue };
            let made = self.plan.ids().rfind(|id| self.plan.origins[id.index()] == of);
            let Some(made) = made else { continue };
            let blocks = self.recorder.recorded(made).map_err(Failure::no)?.unwrap_or_default();
            gradients.insert(name, op_by_op::gathered(&self.plan, made, &blocks)?);
        }
        Ok(gradients)
    }

    fn op_by_op(
        &mut self,
        trainer: &mut Trainer,
        inputs: &Inputs,
        leaves: &Inputs,
        number: u64,
    ) -> Result<(), Failure> {
        self.recorder.copy_stored(trainer).map_err(Failure::no)?;
        self.recorder.step(inputs).map_err(Failure::no)?;
        let recorder = &mut self.recorder;
        let recorded = |node| recorder.recorded(node).map_err(Failure::no);
        for (node, deviation) in op_by_op::compare(&self.plan, leaves, recorded)? {
            if !deviation.is_within() {
                return Err(Failure::no(format!(
                    "step {number}: {} is not what its op makes of the operands that the ranks had: {deviation}",
                    self.name(node)
                )));
            }
            self.ops.count += u64::from(self.plan.node(node).leaf_role().is_none());
            self.ops.unbounded += deviation.unbounded as u64;
            if deviation.ratio > self.ops.worst.0 {
                self.ops.worst = (deviation.ratio, Some(node), number);
            }
        }
        // The step's results are what is stored after it.
        for output in &self.plan.outputs {
            let OutputRole::Update { .. } = output.role else { continue };
            let blocks = self.recorder.recorded(output.node).map_err(Failure::no)?;
            let made = op_by_op::gathered(&self.plan, output.node, &blocks.unwrap_or_default())?;
            if made != self.recorder.get(&output.name).map_err(Failure::no)? {
                let name = &output.name;
                return Err(Failure::no(format!(
                    "step {number}: {name} is not what was made for it"
                )));
            }
        }
        Ok(())
    }

    /// Training fuses ops. It leaves the same bits, but for plain gradient descent, which is one product into the parameter and
    /// rounds less often.
    fn as_fused(&mut self, after: &BTreeMap<String, Value>, number: u64) -> Result<(), Failure> {
        if self.descends {
            return Ok(());
        }
        let alone = self.recorder.get_all().map_err(Failure::no)?;
        match after.iter().find(|(name, value)| alone.get(*name).is_none_or(|own| own != *value)) {
            None => Ok(()),
            Some((name, _)) => Err(Failure::no(format!(
                "step {number}: {name} has other bits after the fused step than after its ops one by one"
            ))),
        }
    }

    /// What a node of the plan is called.
    fn name(&self, node: NodeId) -> String {
        let value = Names::new(&self.program).name(self.plan.origins[node.index()]);
        match self.plan.transition(node) {
            Some(moved) => format!("{} of {value}", moved.transition.kind),
            None => value,
        }
    }

    /// What was shown op by op, on one line.
    pub(crate) fn summary_of_ops(&self) -> String {
        let Ops { count, unbounded, worst } = &self.ops;
        let worst = match worst {
            (ratio, Some(node), step) => {
                let name = self.name(*node);
                format!("the largest difference is {ratio:.3} of its bound ({name}, step {step})")
            }
            _ => "nothing differs".to_owned(),
        };
        let unbounded = match unbounded {
            0 => String::new(),
            n => format!("; of {n} elements the bound is not finite, and nothing is claimed"),
        };
        format!(
            "{}: {count} ops made of the operands that the ranks had what the dense op makes of them, within the rounding of one op; {worst}{unbounded}",
            self.steps_compared()
        )
    }

    fn steps_compared(&self) -> String {
        match self.steps {
            None => "no step".to_owned(),
            Some((first, last)) if first == last => format!("step {first}"),
            Some((first, last)) => format!("steps {first} to {last}"),
        }
    }

    /// What was shown of the whole, on one line.
    pub(crate) fn summary(&self) -> String {
        let steps = self.steps_compared();
        let worst = match &self.worst {
            (ratio, what, step) if *ratio > 0.0 => {
                format!("the largest difference is {ratio:.3} of its bound ({what}, step {step})")
            }
            _ => "not one of them differs".to_owned(),
        };
        let shown = shown(self.elements, self.unbounded, &worst);
        format!("{steps}: of loss, gradients, parameters and optimizer state {shown}")
    }
}

/// What is shown of so many elements, of so many of which the bound is not finite.
fn shown(elements: u64, unbounded: u64, worst: &str) -> String {
    match (elements - unbounded, unbounded) {
        (0, 0) => "nothing was compared".to_owned(),
        (0, n) => {
            format!("nothing is shown, as not one of {n} elements has a finite bound on rounding")
        }
        (n, 0) => format!("{n} elements equal the dense run's within rounding, and {worst}"),
        (n, more) => format!(
            "{n} elements equal the dense run's within rounding, and {worst}; of {more} more the bound is not finite, and nothing is claimed"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_elements_with_a_finite_bound_are_called_equal() {
        let of = |elements, unbounded| shown(elements, unbounded, "none differs");
        assert_eq!(of(3, 0), "3 elements equal the dense run's within rounding, and none differs");
        assert!(
            of(3, 1).starts_with("2 elements equal") && of(3, 1).contains("of 1 more the bound")
        );
        assert!(!of(3, 3).contains("equal") && of(3, 3).contains("not one of 3 elements"));
        assert_eq!(of(0, 0), "nothing was compared");
    }
}
