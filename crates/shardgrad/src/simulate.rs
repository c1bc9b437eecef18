//! A step of a plan on paper: what computes, what communicates, and how much of the communication is exposed.
//!
//! All ranks do the same in the same order, so one of them is followed, the largest: a device that computes one node after
//! another, in the plan's order, and links that carry collectives beside it. A collective *starts* where it stands in the
//! plan, which is where its operand is made, as soon as the links of all its axes are free; the first node that reads its
//! result *waits* for it. A bucket is one launch: the latency of its rounds once, the bytes of all its members.
//! Transitions without communication are computed. Seconds are those of
//! [`shardgrad_core::timing`]; two collectives on different axes run at once, two on one axis one after the other.
//!
//! Nothing here loops over ranks, so a hundred thousand of them cost no more than four. On links of several kinds (devices
//! in a node, nodes on a network) each mesh axis has its own; a collective over several axes goes at the slowest.
//!
//! The runtime does not overlap: its collectives run where they stand. The times of this module are what a runtime that
//! does would take, and `sequential_seconds` what one that does not.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use shardgrad_core::launch::{self, Member};
use shardgrad_core::timing::{largest_bytes, op_seconds, transition_seconds};
use shardgrad_core::{AxisSet, Layout, Machine};
use shardgrad_graph::plan::PlannedTransition;
use shardgrad_graph::{NodeId, Plan, memory};

/// One stretch of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The node; the last one of a launch.
    pub node: NodeId,
    /// Other collectives of the same launch.
    pub others: Vec<NodeId>,
    /// The axes that carry it; none if it is computed.
    pub links: AxisSet,
    /// Seconds from the beginning of the step at which it starts.
    pub start: f64,
    /// Seconds at which it is done.
    pub end: f64,
    /// The first node that waits for it, if it is a collective that is read.
    pub wait: Option<NodeId>,
    /// Seconds that the device stood still for its operands before it started; 0 for a collective.
    pub stalled: f64,
}

impl Event {
    /// The nodes, for people: `%3, %4`.
    #[must_use]
    pub fn nodes(&self) -> String {
        let all = self.others.iter().chain([&self.node]);
        all.map(NodeId::to_string).collect::<Vec<_>>().join(", ")
    }
}

/// A simulated step.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// Everything that takes time, in the plan's order.
    pub events: Vec<Event>,
    /// Sums.
    pub summary: Summary,
}

/// What a step takes, on paper.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Devices.
    pub devices: u64,
    /// Seconds of a step with collectives beside computation.
    pub step_seconds: f64,
    /// Seconds of a step in which nothing overlaps.
    pub sequential_seconds: f64,
    /// Seconds of computing.
    pub compute_seconds: f64,
    /// Seconds of all collectives, one after another.
    pub communication_seconds: f64,
    /// Seconds of the step in which the device does not compute.
    pub exposed_seconds: f64,
    /// Bytes sent per device over each set of axes, scalars included.
    pub bytes_by_axes: BTreeMap<String, u64>,
    /// Seconds of the collectives over each set of axes.
    pub seconds_by_axes: BTreeMap<String, f64>,
    /// Most bytes that a device holds at once, nothing overlapping.
    pub peak_bytes: u64,
    /// At most so many if collectives run beside computation: their operands and messages live until they are waited for.
    pub overlapped_peak_bytes: u64,
    /// What the peak is made of.
    pub memory: memory::Categories,
}

impl Timeline {
    /// What runs side by side: computing, which no axis carries, and then each set of axes that carries collectives, in the
    /// order in which they first do.
    #[must_use]
    pub fn lanes(&self) -> Vec<AxisSet> {
        let mut lanes = vec![AxisSet::default()];
        for event in &self.events {
            if !lanes.contains(&event.links) {
                lanes.push(event.links);
            }
        }
        lanes
    }

    /// The collectives in time: when each is under way, who waits for it, and how long the device stands still there.
    #[must_use]
    pub fn text(&self, plan: &Plan) -> String {
        let s = &self.summary;
        let micro = |seconds: f64| format!("{:.3}", seconds * 1e6);
        // Writing to a string cannot fail.
        let mut text = format!(
            "timeline of one device, µs: step {}, computing {}, communicating {}, exposed {}\n",
            micro(s.step_seconds),
            micro(s.compute_seconds),
            micro(s.communication_seconds),
            micro(s.exposed_seconds),
        );
        for event in self.events.iter().filter(|e| !e.links.is_empty()) {
            let waits = event.wait.map_or("nothing in this step waits".to_owned(), |reader| {
                let stalled =
                    self.events.iter().find(|e| e.node == reader).map_or(0.0, |e| e.stalled);
                format!("{reader} waits, {} still", micro(stalled))
            });
            let _ = writeln!(
                text,
                "  {:>12} – {:<12} {} over {} of {}: {waits}",
                micro(event.start),
                micro(event.end),
                plan.node(event.node).op.name(),
                plan.mesh.axis_names(event.links),
                event.nodes(),
            );
        }
        text
    }
}

/// Seconds of a node that does not communicate.
fn computing(plan: &Plan, machine: &Machine, id: NodeId) -> f64 {
    let mesh = &plan.mesh;
    let node = plan.node(id);
    if node.leaf_role().is_some() || memory::is_alias(&node.op) {
        return 0.0;
    }
    if let Some(t) = plan.transition(id) {
        return transition_seconds(machine, mesh, t.transition, t.ty, t.from, t.to);
    }
    let layouts: Vec<&Layout> = node.operands.iter().map(|&o| plan.layout(o)).collect();
    let layout = plan.layout(id);
    let types = plan.operand_types(id);
    op_seconds(machine, mesh, &node.op, &types, &node.ty, &layouts, layout)
}

/// The first node that reads each node's result, or a result that is the same buffer.
fn first_readers(plan: &Plan) -> Vec<Option<NodeId>> {
    let mut readers: Vec<Option<NodeId>> = vec![None; plan.nodes.len()];
    for id in plan.ids().rev() {
        let node = plan.node(id);
        let reader = if memory::is_alias(&node.op) { readers[id.index()] } else { Some(id) };
        if let Some(reader) = reader {
            for operand in &node.operands {
                let known = &mut readers[operand.index()];
                *known = Some(known.map_or(reader, |k| k.min(reader)));
            }
        }
    }
    readers
}

/// Simulates a step.
#[must_use]
pub fn simulate(plan: &Plan, machine: &Machine) -> Timeline {
    let mesh = &plan.mesh;
    let readers = first_readers(plan);
    let mut ready = vec![0.0_f64; plan.nodes.len()];
    let mut links = vec![0.0_f64; mesh.rank()];
    let mut device = 0.0_f64;
    let mut events = Vec::new();
    let mut summary = Summary { devices: mesh.size() as u64, ..Summary::default() };
    for step in plan.steps() {
        let ids: Vec<NodeId> = step.map(NodeId::from_index).collect();
        let read = ids.iter().flat_map(|id| &plan.node(*id).operands);
        let operands = read.map(|o| ready[o.index()]).fold(0.0, f64::max);
        let launch: Vec<PlannedTransition<'_>> = ids
            .iter()
            .filter_map(|&id| plan.transition(id))
            .filter(|t| t.transition.kind.is_collective())
            .collect();
        let (Some(&node), Some(first)) = (ids.last(), launch.first()) else {
            let [id] = ids.as_slice() else { continue };
            let seconds = computing(plan, machine, *id);
            if seconds == 0.0 {
                ready[id.index()] = operands;
                continue;
            }
            let start = device.max(operands);
            let (links, others) = (AxisSet::default(), Vec::new());
            let (end, stalled) = (start + seconds, start - device);
            events.push(Event { node: *id, others, links, start, end, wait: None, stalled });
            device = end;
            ready[id.index()] = end;
            summary.compute_seconds += seconds;
            continue;
        };
        let axes = first.transition.axes;
        let members: Vec<Member<'_>> = launch.iter().map(PlannedTransition::member).collect();
        let seconds = launch::seconds(machine, mesh, &members);
        let free = axes.iter().map(|a| links[a]).fold(0.0, f64::max);
        let start = free.max(operands);
        let end = start + seconds;
        axes.iter().for_each(|a| links[a] = end);
        ids.iter().for_each(|id| ready[id.index()] = end);
        let wait = ids.iter().filter_map(|id| readers[id.index()]).min();
        let others = ids[..ids.len() - 1].to_vec();
        events.push(Event { node, others, links: axes, start, end, wait, stalled: 0.0 });
        summary.communication_seconds += seconds;
        let names = mesh.axis_names(axes);
        *summary.seconds_by_axes.entry(names.clone()).or_default() += seconds;
        *summary.bytes_by_axes.entry(names).or_default() +=
            launch.iter().map(|t| t.bytes_sent(mesh)).sum::<u64>();
    }
    summary.step_seconds = events.iter().map(|e| e.end).fold(0.0, f64::max);
    summary.sequential_seconds = summary.compute_seconds + summary.communication_seconds;
    summary.exposed_seconds = summary.step_seconds - summary.compute_seconds;
    let peak = memory::peak(plan);
    summary.peak_bytes = peak.bytes;
    summary.memory = peak.by_category;
    summary.overlapped_peak_bytes = overlapped_peak(plan, peak.rank, &readers);
    Timeline { events, summary }
}

/// A bound on the peak if every collective is under way from its node to its first reader.
fn overlapped_peak(plan: &Plan, rank: usize, readers: &[Option<NodeId>]) -> u64 {
    // What is in flight: grows by the collective after its node, shrinks where it is waited for.
    let mut change = vec![(0_u64, 0_u64); plan.nodes.len() + 1];
    for collective in plan.collectives() {
        let id = collective.id;
        let end = readers[id.index()].map_or(plan.nodes.len(), NodeId::index);
        // The operand, and messages no larger than operand and result.
        let held = largest_bytes(&plan.mesh, collective.ty, collective.from);
        let made = largest_bytes(&plan.mesh, collective.ty, collective.to);
        change[id.index() + 1].0 += 2 * held + made;
        change[end.max(id.index() + 1)].1 += 2 * held + made;
    }
    let mut in_flight = 0;
    let live = memory::profile(plan, rank);
    let with_flight = live.iter().zip(&change).map(|(categories, (more, less))| {
        in_flight = in_flight + more - less;
        categories.total() + in_flight
    });
    with_flight.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use shardgrad_core::machine::Link;
    use shardgrad_core::{DType, Mesh};
    use shardgrad_graph::{Graph, OutputRole};
    use shardgrad_planner::{Combine, LayoutRequest, Options};

    use super::*;

    fn machine() -> Machine {
        Machine {
            flops: 1.0,
            memory_bandwidth: 1e30,
            memory: None,
            axes: [("b".to_owned(), Link { latency: 0.0, bandwidth: 1.0 })].into(),
            link: Link { latency: 0.0, bandwidth: 4.0 },
        }
    }

    /// Two independent products whose sums are reduced: the second product hides the first reduction.
    #[test]
    fn a_collective_runs_beside_what_does_not_read_it() {
        let g = Graph::new("two products", DType::F32);
        let x = g.input("x", [8, 16]).unwrap();
        let y = g.input("y", [8, 16]).unwrap();
        let w = g.param("w", [16, 8]).unwrap();
        g.output("p", x.matmul(w).unwrap(), OutputRole::Value).unwrap();
        g.output("q", y.matmul(w).unwrap(), OutputRole::Value).unwrap();
        let mesh = Mesh::new([("a", 2)]).unwrap();
        let request = ["x", "y"].into_iter().fold(LayoutRequest::default(), |request, name| {
            request.pin(name, "a: S(1)".parse().unwrap())
        });
        let request = request
            .pin("w", "a: S(0)".parse().unwrap())
            .pin("p", "a: R".parse().unwrap())
            .pin("q", "a: R".parse().unwrap());
        let program = g.finish();
        let planned = |combine: Combine| {
            let options = Options { combine, ..Options::default() };
            let plan = shardgrad_planner::plan(&program, &mesh, &request, &options).unwrap().plan;
            simulate(&plan, &machine()).summary
        };
        // Each product is 2·8·8·8 = 1024 flops, each all_reduce sends 2·1/2 of 256 bytes at 4 bytes a second.
        let found = planned(Combine::Off);
        assert_eq!(found.compute_seconds, 2048.0);
        assert_eq!(found.communication_seconds, 128.0);
        assert_eq!(found.sequential_seconds, 2176.0);
        // The first all_reduce is hidden, the last is not.
        assert_eq!(found.step_seconds, 2048.0 + 64.0);
        assert_eq!(found.exposed_seconds, 64.0);
        assert_eq!(found.bytes_by_axes, [("a".to_owned(), 512)].into());
        assert!(found.overlapped_peak_bytes >= found.peak_bytes);
        // In one launch both wait for the second product, and nothing hides them.
        let together = planned(Combine::UpTo(1 << 20));
        assert_eq!((together.step_seconds, together.exposed_seconds), (2176.0, 128.0));
    }

    /// Collectives of one axis queue, those of two axes do not; each goes at its axis' speed, and no node starts before what
    /// it reads.
    #[test]
    fn links_carry_one_collective_at_a_time() {
        let training = crate::Training::new(
            crate::Mlp::new(&[8, 16, 16, 8]),
            shardgrad_graph::Loss::Mse,
            shardgrad_graph::Optimizer::None,
            crate::Batch(16),
        );
        let mesh = Mesh::new([("a", 2), ("b", 2)]).unwrap();
        let planned =
            training.layout("a=fsdp, b=megatron").unwrap().plan(&mesh, &machine()).unwrap();
        let plan = planned.plan();
        let timeline = simulate(plan, &machine());
        for axis in 0..2 {
            let carried: Vec<&Event> =
                timeline.events.iter().filter(|e| e.links.contains(axis)).collect();
            assert!(carried.len() > 2);
            assert!(carried.windows(2).all(|w| w[0].end <= w[1].start));
        }
        let both = |w: &[Event]| w[0].links != w[1].links && w[1].start < w[0].end;
        assert!(timeline.events.windows(2).any(both), "nothing ran beside anything");
        let end = |id: NodeId| timeline.events.iter().find(|e| e.node == id).map_or(0.0, |e| e.end);
        for event in &timeline.events {
            assert!(plan.node(event.node).operands.iter().all(|&o| end(o) <= event.start));
            if let Some(reader) = event.wait {
                assert!(plan.node(reader).operands.contains(&event.node) || reader > event.node);
            }
        }
        let s = &timeline.summary;
        assert!(s.step_seconds <= s.sequential_seconds && s.step_seconds >= s.compute_seconds);
        let sent: u64 = s.bytes_by_axes.values().sum();
        let totals = plan.totals();
        assert_eq!(sent, totals.bytes_per_device + totals.scalar_bytes_per_device);
    }
}
