//! `plan --format trace`: the simulated step as a Chrome trace, which Perfetto opens.
//!
//! Complete events (`ph: X`) with times in microseconds, one thread for the device's computing and one for each set of
//! axes that carries collectives (Trace Event Format).

use serde_json::{Value, json};
use shardgrad::Planned;
use shardgrad::core::{AxisSet, Machine, Mesh};
use shardgrad::simulate::simulate;

/// The trace as JSON.
pub(crate) fn trace(planned: &Planned, machine: &Machine) -> String {
    let (plan, timeline) = (planned.plan(), simulate(planned.plan(), machine));
    let lanes = timeline.lanes();
    let events = timeline.events.iter().map(|event| {
        let node = plan.node(event.node);
        json!({
            "name": node.op.name(),
            "cat": if event.links.is_empty() { "compute" } else { "communication" },
            "ph": "X",
            "ts": event.start * 1e6,
            "dur": (event.end - event.start) * 1e6,
            "pid": 0,
            "tid": lanes.iter().position(|l| *l == event.links),
            "args": {
                "node": event.nodes(),
                "op": node.op.to_string(),
                "phase": node.phase.to_string(),
                "layout": plan.layout(event.node).display(&plan.mesh).to_string(),
                "waited_for_behind": event.wait.map(|id| id.to_string()),
            },
        })
    });
    let named = lanes.iter().enumerate().map(|(lane, links)| {
        let name = lane_name(&plan.mesh, *links);
        json!({ "name": "thread_name", "ph": "M", "pid": 0, "tid": lane, "args": { "name": name } })
    });
    let all: Vec<Value> = named.chain(events).collect();
    json!({ "displayTimeUnit": "ns", "traceEvents": all }).to_string()
}

/// What a lane of a timeline shows.
pub(crate) fn lane_name(mesh: &Mesh, links: AxisSet) -> String {
    if links.is_empty() {
        "computing".to_owned()
    } else {
        format!("sending over {}", mesh.axis_names(links))
    }
}
