//! What a device holds over the step: one column of stacked bytes per node, in the plan's order.

use maud::{Markup, html};
use shardgrad::Planned;
use shardgrad::graph::memory::{self, Categories};

use super::axis::{Axis, px};
use super::style::CATEGORIES;
use crate::units::bytes;

const WIDTH: f64 = 700.0;
const HEIGHT: f64 = 180.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 30.0;
const NAMES: [&str; 6] =
    ["inputs", "parameters", "optimizer state", "activations", "gradients", "messages"];

fn parts(c: &Categories) -> [u64; 6] {
    [c.inputs, c.parameters, c.state, c.activations, c.gradients, c.staging]
}

/// Columns of a figure: many nodes are drawn as few columns, each the largest of its nodes.
const COLUMNS: usize = 240;

fn columns(profile: &[Categories]) -> Vec<[u64; 6]> {
    let chunk = profile.len().div_ceil(COLUMNS).max(1);
    let largest = |nodes: &[Categories]| nodes.iter().max_by_key(|c| c.total()).map(parts);
    profile.chunks(chunk).filter_map(largest).collect()
}

/// The figure of the rank with the largest peak.
#[allow(clippy::cast_precision_loss)]
pub(super) fn figure(planned: &Planned, limit: Option<u64>) -> Markup {
    let plan = planned.plan();
    let peak = memory::peak(plan);
    let columns = columns(&memory::profile(plan, peak.rank));
    let axis = Axis::bytes(peak.bytes);
    let bottom = TOP + HEIGHT;
    let step = WIDTH / columns.len().max(1) as f64;
    // The outline of all parts up to one, as a staircase and back along the part below.
    let edge = |column: &[u64; 6], part: usize| {
        bottom - axis.at(column[..part].iter().sum::<u64>() as f64, HEIGHT)
    };
    // Columns of one height are one stroke.
    let stairs = |path: &mut String,
                  part: usize,
                  order: &mut dyn Iterator<Item = (usize, usize)>| {
        let mut stroke: Option<(String, String)> = None;
        for (column, end) in order {
            let (height, end) = (px(edge(&columns[column], part)), px(LEFT + step * end as f64));
            match &mut stroke {
                Some((known, reached)) if *known == height => *reached = end,
                other => {
                    if let Some((known, reached)) = other.replace((height, end)) {
                        path.push_str(&format!("V{known}H{reached}"));
                    }
                }
            }
        }
        if let Some((known, reached)) = stroke {
            path.push_str(&format!("V{known}H{reached}"));
        }
    };
    let area = |part: usize| {
        let mut path = format!("M{} {}", px(LEFT), px(bottom));
        stairs(&mut path, part + 1, &mut (0..columns.len()).map(|i| (i, i + 1)));
        stairs(&mut path, part, &mut (0..columns.len()).rev().map(|i| (i, i)));
        path + "Z"
    };
    html! {
        svg viewBox=(format!("0 0 {} {}", px(LEFT + WIDTH + 20.0), px(bottom + 34.0))) role="img"
            aria-label="Bytes held over the step" {
            @for (i, name) in NAMES.iter().enumerate() {
                @let x = LEFT + 118.0 * i as f64;
                rect x=(px(x)) y="4" width="11" height="11" fill=(CATEGORIES[i]) {}
                text.small x=(px(x + 15.0)) y="14" { (name) }
            }
            @for part in 0..NAMES.len() {
                path d=(area(part)) fill=(CATEGORIES[part]) {
                    title { (NAMES[part]) ": " (bytes(parts(&peak.by_category)[part])) " at the peak" }
                }
            }
            @for (value, label) in &axis.ticks {
                @let y = bottom - axis.at(*value, HEIGHT);
                line.grid x1=(px(LEFT)) x2=(px(LEFT + WIDTH)) y1=(px(y)) y2=(px(y)) {}
                text.small.end x=(px(LEFT - 8.0)) y=(px(y + 4.0)) { (label) }
            }
            path.axis d=(format!("M{0} {1}V{2}H{3}", px(LEFT), px(TOP), px(bottom), px(LEFT + WIDTH))) {}
            text.small x=(px(LEFT)) y=(px(bottom + 18.0)) { "held by rank " (peak.rank) ", " (axis.unit) ", over the plan's " (plan.nodes.len()) " nodes in order; peak " (bytes(peak.bytes))
                @if let Some(limit) = limit { "; limit " (bytes(limit)) @if !axis.reaches(limit) { ", above this figure" } } }
            @if let Some(limit) = limit.filter(|&l| axis.reaches(l)) {
                @let y = px(bottom - axis.at(limit as f64, HEIGHT));
                line.stalled x1=(px(LEFT)) x2=(px(LEFT + WIDTH)) y1=(y) y2=(y) { title { "limit " (bytes(limit)) } }
            }
        }
    }
}
