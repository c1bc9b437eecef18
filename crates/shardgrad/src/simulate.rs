//! A step of a plan on paper: what computes, what communicates, and how much of the communication is exposed.
//!
//! All ranks do the same in the same order, so one of them is followed, the largest: a device that computes one node after
//! another, in the plan's order, and links that carry collectives beside it. A launch *starts* where it stands in the plan,
//! as soon as the links of all its axes are free, and the device *waits* for it where the plan says: at once, or behind a
//! later node. A bucket is one launch: the latency of its rounds once, the bytes of all its members. Transitions without
//! communication are computed. Seconds are those of [`shardgrad_core::timing`]; two launches on different axes run at once,
//! two on one axis one after the other.
//!
//! Nothing here loops over ranks, so a hundred thousand of them cost no more than four. On links of several kinds (devices
//! in a node, nodes on a network) each mesh axis has its own; a collective over several axes goes at the slowest.
//!
//! Starts and waits are the plan's, which the runtime follows; links that carry what they carry while the device computes are
//! the machine model's. `sequential_seconds` is what a step takes on links that cannot.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use shardgrad_core::launch::{self, Member};
use shardgrad_core::timing::{op_seconds, transition_seconds};
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
    /// The node behind which a launch is waited for.
    pub wait: Option<NodeId>,
    /// Seconds at which the device came to wait for a launch; it stands still from then to the end, if that is later.
    pub waited_from: f64,
}

impl Event {
    /// Seconds that the device stands still for a launch.
    #[must_use]
    pub fn stalled(&self) -> f64 {
        if self.wait.is_some() { (self.end - self.waited_from).max(0.0) } else { 0.0 }
    }

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
    /// Most bytes that a device holds at once.
    pub peak_bytes: u64,
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

    /// The launches in time: when each is under way, where it is waited for, and how long the device stands still there.
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
            let waits = match event.wait {
                Some(wait) if wait > event.node => format!("waited for behind {wait}"),
                _ => "waited for at once".to_owned(),
            };
            let waits = format!("{waits}, {} still", micro(event.stalled()));
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

/// Simulates a step.
#[must_use]
pub fn simulate(plan: &Plan, machine: &Machine) -> Timeline {
    let mesh = &plan.mesh;
    // The events that are launches in flight.
    let mut flights: Vec<usize> = Vec::new();
    let mut links = vec![0.0_f64; mesh.rank()];
    let mut device = 0.0_f64;
    let mut events = Vec::new();
    let mut summary = Summary { devices: mesh.size() as u64, ..Summary::default() };
    for step in plan.steps() {
        let ids: Vec<NodeId> = step.map(NodeId::from_index).collect();
        let launch: Vec<PlannedTransition<'_>> = ids
            .iter()
            .filter_map(|&id| plan.transition(id))
            .filter(|t| t.transition.kind.is_collective())
            .collect();
        let (Some(&node), Some(first)) = (ids.last(), launch.first()) else {
            let [id] = ids.as_slice() else { continue };
            let seconds = computing(plan, machine, *id);
            if seconds == 0.0 {
                land(&mut events, &mut flights, *id, &mut device);
                continue;
            }
            let (start, end) = (device, device + seconds);
            let (links, others, wait) = (AxisSet::default(), Vec::new(), None);
            events.push(Event { node: *id, others, links, start, end, wait, waited_from: end });
            device = end;
            summary.compute_seconds += seconds;
            land(&mut events, &mut flights, *id, &mut device);
            continue;
        };
        let axes = first.transition.axes;
        let members: Vec<Member<'_>> = launch.iter().map(PlannedTransition::member).collect();
        let seconds = launch::seconds(machine, mesh, &members);
        let free = axes.iter().map(|a| links[a]).fold(0.0, f64::max);
        let start = free.max(device);
        let end = start + seconds;
        axes.iter().for_each(|a| links[a] = end);
        let (wait, others) = (Some(plan.wait(node)), ids[..ids.len() - 1].to_vec());
        flights.push(events.len());
        let waited_from = device;
        events.push(Event { node, others, links: axes, start, end, wait, waited_from });
        land(&mut events, &mut flights, node, &mut device);
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
    Timeline { events, summary }
}

/// The device waits for what is to be waited for behind a node.
fn land(events: &mut [Event], flights: &mut Vec<usize>, at: NodeId, device: &mut f64) {
    flights.retain(|&index| {
        let event = &mut events[index];
        let lands = event.wait.is_some_and(|wait| wait <= at);
        if lands {
            event.waited_from = *device;
            *device = device.max(event.end);
        }
        !lands
    });
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
        let made = |e: &Event, id: NodeId| e.node == id || e.others.contains(&id);
        let end = |id: NodeId| timeline.events.iter().find(|e| made(e, id)).map_or(0.0, |e| e.end);
        for event in &timeline.events {
            assert!(plan.node(event.node).operands.iter().all(|&o| end(o) <= event.start));
        }
        let stalled: f64 = timeline.events.iter().map(Event::stalled).sum();
        assert!((stalled - timeline.summary.exposed_seconds).abs() < 1e-9 * stalled.max(1.0));
        let s = &timeline.summary;
        assert!(s.step_seconds <= s.sequential_seconds && s.step_seconds >= s.compute_seconds);
        let sent: u64 = s.bytes_by_axes.values().sum();
        let totals = plan.totals();
        assert_eq!(sent, totals.bytes_per_device + totals.scalar_bytes_per_device);
    }
}
