//! What ops and transitions cost under an objective.
//!
//! Volume: bytes, collectives, flops, copies. Time: seconds of [`timing`](crate::timing), in whole femtoseconds so that
//! they add without rounding. With infinitely fast links and devices (β = 0) what is left is latency.

use serde::{Deserialize, Serialize};

use crate::cost;
use crate::dtype::TensorType;
use crate::layout::Layout;
use crate::machine::Machine;
use crate::mesh::Mesh;
use crate::ops::Op;
use crate::timing::{fastest, largest_bytes as bytes, op_seconds, transition_seconds};
use crate::transition::{Transition, TransitionKind};

/// What to minimise. Prices are those of sums; a peak of memory is none, and `Memory` prices as `Volume` does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Objective {
    /// Bytes sent per device; then collectives; then flops; then bytes of copies.
    #[default]
    Volume,
    /// Seconds of a step by the machine model, nothing overlapping; then as volume.
    Time,
    /// The most bytes that a device holds at once; then as volume.
    Memory,
}

impl Objective {
    /// Name as written on the command line and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Objective::Volume => "volume",
            Objective::Time => "time",
            Objective::Memory => "memory",
        }
    }
}

/// The fields of a cost, most important first. They compare and add field by field.
pub type Fields = [u64; 4];

/// Prices under one objective, on one mesh.
#[derive(Clone, Copy, Debug)]
pub struct Prices<'a> {
    /// The mesh.
    pub mesh: &'a Mesh,
    /// What is minimised.
    pub objective: Objective,
    /// Rates of devices and links.
    pub machine: &'a Machine,
}

/// Bytes that no rank exceeds in a transition of a tensor that is cut along its longest dim.
///
/// That is twice a tensor whose parts are all as large as the largest; what the other dims span together is at most
/// n^((r−1)/r). A tensor cut along a dim that is shorter than the axis can take more: a rank that holds all of it sends it
/// p−1 times.
#[must_use]
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub fn most_sent(mesh: &Mesh, ty: &TensorType) -> u128 {
    let (n, r) = (ty.elements() as f64, ty.rank().max(1) as f64);
    let across = n.powf((r - 1.0) / r).ceil() as u128 + 1;
    let padded = ty.elements() as u128 + mesh.size() as u128 * across;
    2 * padded * ty.dtype.size() as u128
}

/// Whole femtoseconds.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn femtoseconds(seconds: f64) -> u64 {
    (seconds * 1e15).ceil() as u64
}

impl Prices<'_> {
    /// The transition by the algorithm that the objective prefers: the direct schedule sends the fewest bytes, others may
    /// take less time.
    #[must_use]
    pub fn fastest(
        &self,
        transition: Transition,
        ty: &TensorType,
        from: &Layout,
        to: &Layout,
    ) -> Transition {
        match self.objective {
            Objective::Volume | Objective::Memory => transition,
            Objective::Time => fastest(self.machine, self.mesh, transition, ty, from, to).0,
        }
    }

    /// The cost of one transition of a tensor.
    #[must_use]
    pub fn transition(
        &self,
        transition: Transition,
        ty: &TensorType,
        from: &Layout,
        to: &Layout,
    ) -> Fields {
        let sent = transition.bytes_sent(self.mesh, ty, from, to);
        let collectives = transition.weight(from, to);
        let relabels = transition.kind == TransitionKind::Relabel;
        let copy = if relabels { 0 } else { bytes(self.mesh, ty, to) };
        match self.objective {
            Objective::Volume | Objective::Memory => [sent, collectives, 0, copy],
            Objective::Time => {
                let seconds = transition_seconds(self.machine, self.mesh, transition, ty, from, to);
                [femtoseconds(seconds), sent, collectives, copy]
            }
        }
    }

    /// The cost of computing an op in these layouts.
    #[must_use]
    pub fn op(
        &self,
        op: &Op,
        operands: &[TensorType],
        result: &TensorType,
        operand_layouts: &[&Layout],
        layout: &Layout,
    ) -> Fields {
        let made = if op.is_alias() { 0 } else { bytes(self.mesh, result, layout) };
        match self.objective {
            Objective::Volume | Objective::Memory => {
                let flops = cost::flops(op, self.mesh, operands, result, operand_layouts, layout);
                [0, 0, flops, made]
            }
            Objective::Time => {
                if matches!(op, Op::Leaf(_)) || op.is_alias() {
                    return [0, 0, 0, made];
                }
                let seconds = op_seconds(
                    self.machine,
                    self.mesh,
                    op,
                    operands,
                    result,
                    operand_layouts,
                    layout,
                );
                [femtoseconds(seconds), 0, 0, made]
            }
        }
    }
}
