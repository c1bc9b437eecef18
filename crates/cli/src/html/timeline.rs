//! The schedule of a step as lanes over time: the device's computing, and a lane for each set of axes that carries
//! collectives beside it. Where the device stands still for a collective, the communication is exposed.

use maud::{Markup, html};
use shardgrad::Planned;
use shardgrad::core::Machine;
use shardgrad::simulate::{Event, simulate};

use super::axis::{Axis, px};
use super::style::{PHASES, phase_colour};
use crate::trace::lane_name;
use crate::units::seconds;

const WIDTH: f64 = 700.0;
const LEFT: f64 = 150.0;
const TOP: f64 = 30.0;
const LANE: f64 = 26.0;

/// The figure of one plan.
#[allow(clippy::cast_precision_loss)]
pub(super) fn figure(planned: &Planned, machine: &Machine) -> Markup {
    let plan = planned.plan();
    let timeline = simulate(plan, machine);
    let summary = &timeline.summary;
    let lanes = timeline.lanes();
    let axis = Axis::seconds(summary.step_seconds);
    let bottom = TOP + LANE * lanes.len() as f64;
    let top = |event: &Event| {
        let lane = lanes.iter().position(|l| *l == event.links).unwrap_or(0);
        TOP + LANE * lane as f64
    };
    let x = |time: f64| LEFT + axis.at(time, WIDTH);
    let name = |event: &Event| {
        let node = plan.node(event.node);
        format!(
            "{} {}, {}: {}",
            event.nodes(),
            node.op.name(),
            node.phase,
            seconds(event.end - event.start)
        )
    };
    let exposed: Vec<&Event> = timeline.events.iter().filter(|e| e.stalled() > 0.0).collect();
    html! {
        svg viewBox=(format!("0 0 {} {}", px(LEFT + WIDTH + 20.0), px(bottom + 40.0))) role="img"
            aria-label="The schedule of a step" {
            @for (i, phase) in PHASES.into_iter().enumerate() {
                @let at = LEFT + 100.0 * i as f64;
                rect x=(px(at)) y="4" width="11" height="11" fill=(phase_colour(phase)) {}
                text.small x=(px(at + 15.0)) y="14" { (phase) }
            }
            rect.stalled x=(px(LEFT + 300.0)) y="4" width="11" height="11" {}
            text.small x=(px(LEFT + 315.0)) y="14" { "stands still: exposed communication" }
            @for (value, label) in &axis.ticks {
                line.grid x1=(px(x(*value))) x2=(px(x(*value))) y1=(px(TOP)) y2=(px(bottom)) {}
                text.small.mid x=(px(x(*value))) y=(px(bottom + 15.0)) { (label) }
            }
            @for (i, links) in lanes.iter().enumerate() {
                text.small.end x=(px(LEFT - 8.0)) y=(px(TOP + LANE * i as f64 + 17.0)) {
                    (lane_name(&plan.mesh, *links))
                }
            }
            @for event in &timeline.events {
                rect x=(px(x(event.start))) y=(px(top(event) + 4.0)) width=(px((x(event.end) - x(event.start)).max(0.4)))
                    height=(px(LANE - 8.0)) fill=(phase_colour(plan.node(event.node).phase)) { title { (name(event)) } }
            }
            @for event in &exposed {
                rect.stalled x=(px(x(event.waited_from))) y=(px(TOP + 4.0))
                    width=(px(x(event.end) - x(event.waited_from))) height=(px(LANE - 8.0)) {
                    title { "waits for " (event.nodes()) ": " (seconds(event.stalled())) }
                }
            }
            path.axis d=(format!("M{} {}H{}", px(LEFT), px(bottom), px(LEFT + WIDTH))) {}
            text.small x=(px(LEFT)) y=(px(bottom + 33.0)) {
                (axis.unit) "; step " (seconds(summary.step_seconds)) ", computing " (seconds(summary.compute_seconds))
                ", communicating " (seconds(summary.communication_seconds)) ", exposed " (seconds(summary.exposed_seconds))
            }
        }
    }
}
