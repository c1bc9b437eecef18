//! Where a typed program sends more than it must.
//!
//! Definitions. An *explicit transition* is a `constrain` node with a pin: what `all_reduce`, `slice` and so on of a typed
//! tensor make, and the gradients of [`grad`](fn@super::grad). The *boundary* is every other pin: leaves, values named by
//! the author, and outputs. What the program *needs* is the plan for the same boundary without the explicit transitions'
//! pins.
//!
//! The program is planned with all pins, without any of an explicit transition, and without each of them in turn. The plan
//! with all pins obeys the explicit transitions and is the best for them; so whatever it sends beyond the plan without is
//! the price of them. Two explicit transitions may each be cheap alone and dear together, or the other way round: what is
//! saved by dropping them one by one does not add up.

use std::fmt;

use shardgrad_core::{Machine, Mesh, Op};
use shardgrad_graph::{NodeId, Program};
use shardgrad_planner::{LayoutRequest, Options};

use crate::error::Error;
use crate::planned::Planned;
use crate::report::CollectiveReport;

/// An explicit transition and its price.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplicitTransition {
    /// Its name: `all_reduce0`, `grad(w0)` ….
    pub name: String,
    /// The layout that it asks for.
    pub layout: String,
    /// The transition that the plan makes for it: `all_reduce` …. If it is another one than the types say, or none, since
    /// the value is made in that layout at once, then what is between the pins can be computed for less than they say.
    pub by: Option<&'static str>,
    /// Bytes that a device sends less if this one is dropped and the others stay.
    pub saved: u64,
}

/// What a program sends, what it needs, and where the difference lies. Bytes are those that a device sends, scalars not
/// counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excess {
    /// Sent by the plan of the program as it is.
    pub sent: u64,
    /// Sent by the plan for the same boundary without the explicit transitions.
    pub needed: u64,
    /// The explicit transitions, in the program's order.
    pub transitions: Vec<ExplicitTransition>,
    /// Collectives that would go.
    pub gone: Vec<CollectiveReport>,
    /// Collectives that would come instead.
    pub instead: Vec<CollectiveReport>,
}

impl Excess {
    /// Bytes sent beyond what is needed.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.sent.saturating_sub(self.needed)
    }
}

/// Compares the plan of a program with the plan for the same boundary without its explicit transitions.
///
/// Here the hidden activations are gathered although both weights are cut so that they need not be:
///
/// ```
/// use shardgrad::typed::{DType, Mesh, Replicated, Shard, Tensor, Untyped, excess};
/// use shardgrad::{core::Machine, planner::Options};
///
/// let mesh = Mesh::new([("tp", 4)])?;
/// let tp = mesh.axes();
/// let graph = Untyped::new("gathered", DType::F32);
/// let g = graph.on(&mesh)?;
/// let x: Tensor<2, Replicated> = g.input("x", [64, 32])?;
/// let w0: Tensor<2, Shard<1>> = g.param("w0", [32, 128])?;
/// let w1: Tensor<2, Shard<0>> = g.param("w1", [128, 8])?;
/// let h: Tensor<2, Replicated> = x.matmul(w0)?.relu()?.all_gather(tp)?; // not needed
/// let h: Tensor<2, Shard<1>> = h.over(tp).slice::<1>()?;
/// g.output("out", h.matmul(w1)?.all_reduce(tp)?)?;
///
/// let excess = excess(&g.finish(), mesh.get(), &Machine::default(), &Options::default())?;
/// assert_eq!(excess.bytes(), 3 * 64 * 128 * 4 / 4); // (p−1)/p of h
/// assert_eq!(excess.transitions[0].name, "all_gather0");
/// assert_eq!(excess.transitions[0].saved, excess.bytes());
/// println!("{excess}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The program cannot be planned on the mesh.
pub fn excess(
    program: &Program,
    mesh: &Mesh,
    machine: &Machine,
    options: &Options,
) -> Result<Excess, Error> {
    let plan =
        |program: Program| Planned::new(program, mesh, &LayoutRequest::auto(), machine, options);
    let bytes = |planned: &Planned| planned.plan().totals().bytes_per_device;
    let explicit = explicit_transitions(program);
    let written = plan(program.clone())?;
    let free = plan(without(program, &explicit))?;
    let sent = bytes(&written);
    let mut transitions = Vec::with_capacity(explicit.len());
    for (id, name) in &explicit {
        let without_it = plan(without(program, &[(*id, name.clone())]))?;
        transitions.push(ExplicitTransition {
            name: name.clone(),
            layout: program.pins[name].to_string(),
            by: transition_before(&written, *id),
            saved: sent.saturating_sub(bytes(&without_it)),
        });
    }
    let (mut gone, mut instead) = (written.report().collectives, free.report().collectives);
    let needed = bytes(&free);
    if needed < sent {
        cancel_common(&mut gone, &mut instead);
    } else {
        gone.clear();
        instead.clear();
    }
    Ok(Excess { sent, needed, transitions, gone, instead })
}

/// Pinned `constrain` nodes with the pin's name. An output's own name is no explicit transition: it is the boundary.
fn explicit_transitions(program: &Program) -> Vec<(NodeId, String)> {
    let mut found: Vec<(NodeId, String)> = program
        .pins
        .keys()
        .filter(|name| !program.outputs.iter().any(|output| output.name == **name))
        .filter_map(|name| Some((program.named(name)?, name.clone())))
        .filter(|(id, _)| matches!(program.node(*id).op, Op::Constrain))
        .collect();
    found.sort();
    found
}

/// The program without these pins.
fn without(program: &Program, explicit: &[(NodeId, String)]) -> Program {
    let mut program = program.clone();
    for (_, name) in explicit {
        program.pins.remove(name);
    }
    program
}

/// The kind of the transition that leads to this `constrain` node in the plan.
fn transition_before(planned: &Planned, constrain: NodeId) -> Option<&'static str> {
    let plan = planned.plan();
    let places = plan.ids().filter(|id| plan.origins[id.index()] == constrain);
    let nodes = places.map(|id| plan.node(id)).filter(|node| matches!(node.op, Op::Constrain));
    nodes.flat_map(|node| &node.operands).find_map(|operand| match plan.node(*operand).op {
        Op::Transition(transition) => Some(transition.kind.name()),
        _ => None,
    })
}

/// Leaves in each list what the other has not; scalars are not counted.
fn cancel_common(gone: &mut Vec<CollectiveReport>, instead: &mut Vec<CollectiveReport>) {
    let same = |a: &CollectiveReport, b: &CollectiveReport| {
        (a.phase, &a.kind, &a.axes, &a.tensor, &a.from, &a.to)
            == (b.phase, &b.kind, &b.axes, &b.tensor, &b.from, &b.to)
    };
    gone.retain(|c| !c.scalar);
    instead.retain(|c| !c.scalar);
    gone.retain(|c| match instead.iter().position(|d| same(c, d)) {
        Some(both) => {
            instead.remove(both);
            false
        }
        None => true,
    });
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sent, needed, transitions, gone, instead } = self;
        if self.bytes() == 0 {
            writeln!(f, "sends {sent} bytes per device: what its boundary needs")?;
        } else {
            writeln!(
                f,
                "sends {sent} bytes per device where {needed} would do: {} too many",
                self.bytes()
            )?;
        }
        for t in transitions {
            write!(f, "  {} to {}, ", t.name, t.layout)?;
            match t.by {
                Some(kind) => write!(f, "by {kind}: ")?,
                None => write!(f, "made so at once: ")?,
            }
            match t.saved {
                0 => writeln!(f, "nothing saved without it")?,
                saved => writeln!(f, "{saved} bytes saved without it")?,
            }
        }
        for (list, verb) in [(gone, "would go"), (instead, "would come instead")] {
            for c in list {
                writeln!(
                    f,
                    "  {verb}: {}, {} → {}, {} bytes",
                    c.movement(),
                    c.from,
                    c.to,
                    c.bytes_per_device,
                )?;
            }
        }
        Ok(())
    }
}
