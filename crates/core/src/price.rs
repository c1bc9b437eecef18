//! What ops and transitions cost under an objective.
//!
//! Volume: bytes, collectives, flops, copies. Time: a collective over a group of p ranks runs p−1 rounds (all_reduce
//! twice that), each with the latency α of the slowest axis it runs over, and sends its bytes at that axis' bandwidth
//! (Hockney 1994); everything else takes the longer of computing its flops and touching its bytes (the roofline of
//! Williams, Waterman and Patterson 2009). Times are whole femtoseconds, so that they add without rounding. With
//! infinitely fast links and devices (β = 0) what is left is latency.

use serde::{Deserialize, Serialize};

use crate::dtype::TensorType;
use crate::geometry::largest_block;
use crate::layout::Layout;
use crate::machine::Machine;
use crate::mesh::Mesh;
use crate::ops::Op;
use crate::transition::{Transition, TransitionKind};
use crate::{cost, schedule};

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

/// Bytes of a value on the largest rank.
fn bytes(mesh: &Mesh, ty: &TensorType, layout: &Layout) -> u64 {
    (largest_block(&ty.shape, layout, mesh) * ty.dtype.size()) as u64
}

/// Whole femtoseconds.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn femtoseconds(seconds: f64) -> u64 {
    (seconds * 1e15).ceil() as u64
}

impl Prices<'_> {
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
        let collectives = u64::from(transition.kind.is_collective());
        let relabels = transition.kind == TransitionKind::Relabel;
        let copy = if relabels { 0 } else { bytes(self.mesh, ty, to) };
        match self.objective {
            Objective::Volume | Objective::Memory => [sent, collectives, 0, copy],
            Objective::Time => {
                [self.transition_time(transition, ty, from, to, sent), sent, collectives, copy]
            }
        }
    }

    #[allow(clippy::cast_precision_loss)]
    fn transition_time(
        &self,
        transition: Transition,
        ty: &TensorType,
        from: &Layout,
        to: &Layout,
        sent: u64,
    ) -> u64 {
        if transition.kind == TransitionKind::Relabel {
            return 0;
        }
        let machine = self.machine;
        if !transition.kind.is_collective() {
            let touched = bytes(self.mesh, ty, from) + bytes(self.mesh, ty, to);
            return femtoseconds(touched as f64 / machine.memory_bandwidth);
        }
        let group = self.mesh.group_size(schedule::exchange_axes(self.mesh, from, to)).max(1);
        let passes = if transition.kind == TransitionKind::AllReduce { 2 } else { 1 };
        let rounds = passes * (group - 1);
        let links = transition.axes.iter().map(|a| machine.link(&self.mesh.axes()[a].name));
        let latency = links.clone().map(|l| l.latency).fold(0.0, f64::max);
        let bandwidth = links.map(|l| l.bandwidth).fold(f64::INFINITY, f64::min);
        femtoseconds(latency * rounds as f64 + sent as f64 / bandwidth)
    }

    /// The cost of computing an op in these layouts.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn op(
        &self,
        op: &Op,
        operands: &[TensorType],
        result: &TensorType,
        operand_layouts: &[&Layout],
        layout: &Layout,
    ) -> Fields {
        let flops = cost::flops(op, self.mesh, operands, result, operand_layouts, layout);
        let made = if op.is_alias() { 0 } else { bytes(self.mesh, result, layout) };
        match self.objective {
            Objective::Volume | Objective::Memory => [0, 0, flops, made],
            Objective::Time => {
                if matches!(op, Op::Leaf(_)) || op.is_alias() {
                    return [0, 0, 0, made];
                }
                let read = operands.iter().zip(operand_layouts);
                let touched: u64 = read.map(|(ty, l)| bytes(self.mesh, ty, l)).sum::<u64>() + made;
                let machine = self.machine;
                let seconds =
                    (flops as f64 / machine.flops).max(touched as f64 / machine.memory_bandwidth);
                [femtoseconds(seconds), 0, 0, made]
            }
        }
    }
}
