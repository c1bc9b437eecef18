//! Systematic faults in plans: each mutant is one thing that a planner, a file or a person could get wrong.
//!
//! The checker must reject every mutant that changes a value. Whether it does is found out by running it on the mesh on
//! paper ([`crate::simulate`]), which follows plans to the letter: a mutant that cannot run, or whose outputs differ, must
//! have violations. A mutant that changes nothing may be accepted (it is another right plan, or wasteful) or not.

use std::collections::BTreeMap;
use std::fmt;

use shardgrad_graph::{OutputRole, Plan, Program, Value, check};

use crate::error::Error;
use crate::simulate::{Simulation, simulate};

mod make;

pub use make::mutants;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// A transition is left out: a collective, a mask, a slice, a pad.
    Drop,
    /// A transition is made twice.
    Repeat,
    /// A transition runs over other axes.
    OtherAxes,
    /// A transition is of another kind.
    OtherKind,
    /// A transition leaves or enters another dim.
    OtherDim,
    /// The placements of two axes are exchanged: blocks in another order.
    OtherOrder,
    /// A result is said to be replicated, or to be pending, or to be sharded, and is not.
    OtherLayout,
    /// Two operands are exchanged.
    SwapOperands,
    /// An operand is another value of the same type.
    OtherOperand,
    /// An op is another one, or has another constant.
    OtherOp,
    /// A gradient is taken before its reduction.
    Unreduced,
    /// An output is another value of the same type.
    OtherOutput,
    /// A result is written into a slot that is still to be read.
    SlotReused,
    /// Two nodes run in the other order, with the values they read.
    Reordered,
    /// A launch has a member that does not belong to it, or one twice.
    OtherBucket,
    /// A launch is waited for elsewhere.
    OtherWait,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 16] = [
        Fault::Drop,
        Fault::Repeat,
        Fault::OtherAxes,
        Fault::OtherKind,
        Fault::OtherDim,
        Fault::OtherOrder,
        Fault::OtherLayout,
        Fault::SwapOperands,
        Fault::OtherOperand,
        Fault::OtherOp,
        Fault::Unreduced,
        Fault::OtherOutput,
        Fault::SlotReused,
        Fault::Reordered,
        Fault::OtherBucket,
        Fault::OtherWait,
    ];

    /// What it does, as documented.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Fault::Drop => "transition left out",
            Fault::Repeat => "transition repeated",
            Fault::OtherAxes => "over other axes",
            Fault::OtherKind => "of another kind",
            Fault::OtherDim => "another dim",
            Fault::OtherOrder => "axes exchanged in a layout",
            Fault::OtherLayout => "wrong layout claimed",
            Fault::SwapOperands => "operands swapped",
            Fault::OtherOperand => "another operand",
            Fault::OtherOp => "another op or constant",
            Fault::Unreduced => "output taken before its reduction",
            Fault::OtherOutput => "another output",
            Fault::SlotReused => "slot reused too early",
            Fault::Reordered => "order of nodes exchanged",
            Fault::OtherBucket => "launch with a wrong member",
            Fault::OtherWait => "wait moved",
        }
    }
}

impl Fault {
    /// Why a mutant of this kind can change nothing.
    #[must_use]
    pub fn harmless(self) -> &'static str {
        match self {
            Fault::Drop => {
                "over axes of size 1, or the next transition moves blocks from where they lie to the same place"
            }
            Fault::Repeat => {
                "a second slice, or a second step over axes of size 1, finds nothing left to do"
            }
            Fault::OtherAxes => {
                "local transitions read their layouts, not their axes; axes of size 1 move nothing"
            }
            Fault::OtherKind => {
                "the kinds that move blocks run one schedule, given by the layouts at both ends"
            }
            Fault::OtherDim => "on axes of size 1 every dim is whole",
            Fault::OtherOrder => "one of the axes has size 1, or the result is used by nobody",
            Fault::OtherLayout => {
                "on axes of size 1 all layouts are one; zeros are their own terms"
            }
            Fault::SwapOperands => "addition, multiplication and equality commute",
            Fault::OtherOperand => "the other operand holds the same value",
            Fault::OtherOp => "on this data both ops agree",
            Fault::Unreduced => "the output has no demanded layout, or the axes have size 1",
            Fault::OtherOutput => "the other node holds the same value",
            Fault::SlotReused => {
                "the value that is lost is read by nobody that matters, or equal to the new one"
            }
            Fault::Reordered => "neither node needs the other, or the other's slot",
            Fault::OtherBucket => {
                "collectives of one kind may share a launch; so could others whose peers happen to be the same"
            }
            Fault::OtherWait => {
                "nobody touches the launch's buffers in between, or it is waited for earlier"
            }
        }
    }
}

/// A plan with one fault.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// The kind of fault.
    pub fault: Fault,
    /// Where it is, and what it is.
    pub what: String,
    /// The plan.
    pub plan: Plan,
}

/// What a mutant does when it is run.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// It cannot run; why.
    CannotRun(String),
    /// An output differs, or copies of it do.
    Changes(String),
    /// Every output is the same.
    Nothing,
}

/// A mutant's effect and the checker's verdict.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// What it does.
    pub effect: Effect,
    /// Codes of the checker's violations.
    pub violations: Vec<String>,
}

impl Verdict {
    /// Whether the checker accepts a plan that is wrong.
    #[must_use]
    pub fn escaped(&self) -> bool {
        self.effect != Effect::Nothing && self.violations.is_empty()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.effect {
            Effect::CannotRun(why) => write!(f, "cannot run: {why}")?,
            Effect::Changes(what) => write!(f, "changes {what}")?,
            Effect::Nothing => write!(f, "changes nothing")?,
        }
        write!(f, "; violations: [{}]", self.violations.join(", "))
    }
}

/// What a right plan makes: outputs as global values, and the blocks that ranks hold of them.
#[derive(Clone, Debug)]
pub struct Right {
    outputs: BTreeMap<String, Value>,
    blocks: BTreeMap<String, Vec<Value>>,
}

impl Right {
    /// Runs the plan on the mesh on paper.
    ///
    /// # Errors
    /// It cannot run.
    pub fn run(plan: &Plan, inputs: &BTreeMap<String, Value>) -> Result<Self, Error> {
        let run = simulate(plan, inputs)?;
        let outputs: Result<_, Error> =
            plan.outputs.iter().map(|o| Ok((o.name.clone(), run.gather(plan, &o.name)?))).collect();
        Ok(Self { outputs: outputs?, blocks: run.blocks })
    }
}

/// Runs and checks a mutant of a plan whose right run is known.
#[must_use]
pub fn judge(
    mutant: &Mutant,
    program: &Program,
    inputs: &BTreeMap<String, Value>,
    right: &Right,
) -> Verdict {
    let report = check::check(&mutant.plan, program);
    let effect = match simulate(&mutant.plan, inputs) {
        Err(error) => Effect::CannotRun(error.to_string()),
        Ok(run) => effect(&mutant.plan, &run, right),
    };
    Verdict { effect, violations: report.codes().into_iter().map(str::to_owned).collect() }
}

/// An output changes if its global value does, or, where its layout is part of the contract (the loss, gradients,
/// updates), if a rank holds another block of it.
fn effect(plan: &Plan, run: &Simulation, right: &Right) -> Effect {
    for output in &plan.outputs {
        let name = &output.name;
        let Some(value) = right.outputs.get(name) else { continue };
        match run.gather(plan, name) {
            Err(error) => return Effect::Changes(format!("copies of {name}: {error}")),
            Ok(found) if found != *value => return Effect::Changes(name.clone()),
            Ok(_) => {}
        }
        if output.role != OutputRole::Value && run.blocks.get(name) != right.blocks.get(name) {
            return Effect::Changes(format!("what ranks hold of {name}"));
        }
    }
    Effect::Nothing
}
