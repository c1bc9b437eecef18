//! Bytes and collectives per layout, stacked by phase.

use maud::{Markup, PreEscaped, html};
use shardgrad::report::PlanReport;

use super::axis::{Axis, px};
use super::style::{FIGURE, PHASES, phase_colour};
use crate::units::{bytes, of};

/// Height of a row, left edge of the bars, lengths of both panels, and the gap between them.
const ROW: f64 = 22.0;
const LEFT: f64 = 210.0;
const BYTES: f64 = 360.0;
const COLLECTIVES: f64 = 190.0;
const GAP: f64 = 90.0;
const TOP: f64 = 46.0;

/// One plan's sums by phase, scalars not counted.
fn by_phase(
    plan: &PlanReport,
    count: impl Fn(&shardgrad::report::CollectiveReport) -> u64,
) -> [u64; 3] {
    PHASES.map(|phase| {
        plan.collectives.iter().filter(|c| !c.scalar && c.phase == phase).map(&count).sum()
    })
}

/// The figure; alone it brings its style and colours with it.
pub(super) fn figure(plans: &[PlanReport], alone: bool) -> Markup {
    let sent: Vec<[u64; 3]> = plans.iter().map(|p| by_phase(p, |c| c.bytes_per_device)).collect();
    let counted: Vec<[u64; 3]> = plans.iter().map(|p| by_phase(p, |_| 1)).collect();
    let total = |parts: &[u64; 3]| parts.iter().sum::<u64>();
    let largest = |rows: &[[u64; 3]]| rows.iter().map(total).max().unwrap_or(0);
    #[allow(clippy::cast_precision_loss)]
    let bottom = TOP + ROW * plans.len() as f64;
    let (width, height) = (LEFT + BYTES + GAP + COLLECTIVES + 70.0, bottom + 40.0);
    let second = LEFT + BYTES + GAP;
    let (b, l) = (Axis::bytes(largest(&sent)), Axis::count(largest(&counted), "collectives"));
    html! {
        svg xmlns=[alone.then_some("http://www.w3.org/2000/svg")] viewBox=(format!("0 0 {} {}", px(width), px(height)))
            width=[alone.then(|| px(width))] height=[alone.then(|| px(height))] role="img"
            aria-label="Bytes sent and collectives per device and step, by layout and phase" {
            @if alone {
                style { (PreEscaped(format!("svg {{ color: #1b1f24; }}{FIGURE}"))) }
                rect width="100%" height="100%" fill="#fff" {}
            }
            @for (i, phase) in PHASES.iter().enumerate() {
                @let x = LEFT + 110.0 * f64::from(u32::try_from(i).unwrap_or(0));
                rect x=(px(x)) y="6" width="11" height="11" fill=(phase_colour(PHASES[i])) {}
                text x=(px(x + 16.0)) y="16" { (phase) }
            }
            (panel(LEFT, BYTES, bottom, &b, "sent per device and step"))
            (panel(second, COLLECTIVES, bottom, &l, "in a step"))
            @for (row, plan) in plans.iter().enumerate() {
                @let y = TOP + ROW * f64::from(u32::try_from(row).unwrap_or(0));
                text.end x=(px(LEFT - 8.0)) y=(px(y + 15.0)) { (short(&plan.layout)) title { (plan.layout) } }
                (stack(&sent[row], &b, (LEFT, y, BYTES), &bytes(total(&sent[row]))))
                (stack(&counted[row], &l, (second, y, COLLECTIVES), &total(&counted[row]).to_string()))
            }
        }
    }
}

/// An axis with its grid.
fn panel(left: f64, length: f64, bottom: f64, axis: &Axis, title: &str) -> Markup {
    html! {
        text.small x=(px(left)) y=(px(TOP - 8.0)) { (title) ", " (axis.unit) }
        @for (value, label) in &axis.ticks {
            @let x = left + axis.at(*value, length);
            line.grid x1=(px(x)) x2=(px(x)) y1=(px(TOP)) y2=(px(bottom)) {}
            text.small.mid x=(px(x)) y=(px(bottom + 15.0)) { (label) }
        }
        path.axis d=(format!("M{} {}V{}", px(left), px(TOP), px(bottom))) {}
    }
}

/// A stacked bar with its total behind it.
fn stack(
    parts: &[u64; 3],
    axis: &Axis,
    (left, top, length): (f64, f64, f64),
    total: &str,
) -> Markup {
    let edge = |phases: usize| left + axis.at(number(parts[..phases].iter().sum()), length);
    html! {
        @for (i, &part) in parts.iter().enumerate() {
            @if part > 0 {
                rect x=(px(edge(i))) y=(px(top + 4.0)) width=(px((edge(i + 1) - edge(i)).max(0.5)))
                    height=(px(ROW - 8.0)) fill=(phase_colour(PHASES[i])) {
                    title { (PHASES[i]) ": " (if axis.unit == "collectives" { of(part, "collective", "collectives") } else { bytes(part) }) }
                }
            }
        }
        text.small x=(px(edge(parts.len()) + 6.0)) y=(px(top + 15.0)) { (total) }
    }
}

#[allow(clippy::cast_precision_loss)]
fn number(n: u64) -> f64 {
    n as f64
}

/// A name that fits before the bars.
fn short(name: &str) -> String {
    const MOST: usize = 30;
    if name.chars().count() <= MOST {
        return name.to_owned();
    }
    name.chars().take(MOST - 1).chain(['…']).collect()
}
