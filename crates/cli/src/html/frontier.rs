//! Bytes sent against peak memory: what each layout trades for what.

use maud::{Markup, html};
use shardgrad::report::{ParetoPoint, ParetoReport, PlanReport};

use super::axis::{Axis, px};
use crate::units::bytes;

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 16.0;

/// Plans at one point, by their numbers from 1.
struct Point {
    sent: u64,
    peak: u64,
    plans: Vec<String>,
}

fn points(plans: &[PlanReport]) -> Vec<Point> {
    let mut points: Vec<Point> = Vec::new();
    for (index, plan) in plans.iter().enumerate() {
        let (sent, peak) = (plan.totals.bytes_per_device, plan.totals.peak_bytes_per_device);
        let number = (index + 1).to_string();
        match points.iter_mut().find(|p| (p.sent, p.peak) == (sent, peak)) {
            Some(point) => point.plans.push(number),
            None => points.push(Point { sent, peak, plans: vec![number] }),
        }
    }
    points
}

/// Those that no other beats in both, by bytes.
fn frontier(points: &[Point]) -> Vec<(u64, u64)> {
    let mut best: Vec<(u64, u64)> = points
        .iter()
        .filter(|p| {
            !points.iter().any(|q| {
                q.sent <= p.sent && q.peak <= p.peak && (q.sent, q.peak) != (p.sent, p.peak)
            })
        })
        .map(|p| (p.sent, p.peak))
        .collect();
    best.sort_unstable();
    best
}

/// A point's numbers, at a place where they cover nothing.
struct Label {
    left: f64,
    base: f64,
    width: f64,
    text: String,
}

impl Label {
    /// A digit is seven pixels wide and a line thirteen high.
    #[allow(clippy::cast_precision_loss)]
    fn new(text: &str, (x, y): (f64, f64), right: bool, rise: f64) -> Self {
        let width = 7.0 * text.chars().count() as f64;
        let left = if right { x + 8.0 } else { x - 8.0 - width };
        Self { left, base: y + rise, width, text: text.to_owned() }
    }

    fn covers(&self, other: &Label) -> bool {
        self.left < other.left + other.width
            && other.left < self.left + self.width
            && (self.base - other.base).abs() < 13.0
    }

    fn covers_point(&self, (x, y): (f64, f64)) -> bool {
        (self.left - 6.0..=self.left + self.width + 6.0).contains(&x)
            && (self.base - 15.0..=self.base + 5.0).contains(&y)
    }
}

/// Beside their points: right before left, level before above and below, and further off where it is crowded.
fn labels(points: &[Point], x: impl Fn(u64) -> f64, y: impl Fn(u64) -> f64) -> Vec<Label> {
    let places: Vec<(f64, f64)> = points.iter().map(|p| (x(p.sent), y(p.peak))).collect();
    let mut placed: Vec<Label> = Vec::new();
    for (point, &at) in points.iter().zip(&places) {
        let text = point.plans.join(", ");
        let mut tries = [4.0, -8.0, 16.0, -22.0, 30.0]
            .into_iter()
            .flat_map(|rise| [true, false].map(|right| Label::new(&text, at, right, rise)));
        let free = |label: &Label| {
            !placed.iter().any(|other| label.covers(other))
                && !places.iter().any(|&p| label.covers_point(p))
        };
        let label = tries.find(free).unwrap_or_else(|| Label::new(&text, at, true, 4.0));
        placed.push(label);
    }
    placed
}

/// The figure.
#[allow(clippy::cast_precision_loss)]
pub(super) fn figure(plans: &[PlanReport], pareto: Option<&ParetoReport>) -> Markup {
    let points = points(plans);
    let front = pareto.map_or(&[][..], |front| &front.points);
    let most = |own: &dyn Fn(&Point) -> u64, of: &dyn Fn(&ParetoPoint) -> u64| {
        points.iter().map(own).chain(front.iter().map(of)).max().unwrap_or(0)
    };
    let sent = Axis::bytes(most(&|p| p.sent, &|p| p.bytes_per_device));
    let peak = Axis::bytes(most(&|p| p.peak, &|p| p.peak_bytes_per_device));
    let x = |bytes: u64| LEFT + sent.at(bytes as f64, WIDTH);
    let y = |bytes: u64| TOP + HEIGHT - peak.at(bytes as f64, HEIGHT);
    // From the top edge down its steps to the right edge: what lies beyond is beaten.
    let mut path = String::new();
    for (i, &(s, p)) in frontier(&points).iter().enumerate() {
        match i {
            0 => path.push_str(&format!("M{} {}V{}", px(x(s)), px(TOP), px(y(p)))),
            _ => path.push_str(&format!("H{}V{}", px(x(s)), px(y(p)))),
        }
    }
    path.push_str(&format!("H{}", px(LEFT + WIDTH)));
    let bottom = TOP + HEIGHT;
    html! {
        svg viewBox=(format!("0 0 {} {}", px(LEFT + WIDTH + 60.0), px(bottom + 44.0))) role="img"
            aria-label="Bytes sent against peak memory, one point per layout" {
            @for (value, label) in &sent.ticks {
                @let x = LEFT + sent.at(*value, WIDTH);
                line.grid x1=(px(x)) x2=(px(x)) y1=(px(TOP)) y2=(px(bottom)) {}
                text.small.mid x=(px(x)) y=(px(bottom + 16.0)) { (label) }
            }
            @for (value, label) in &peak.ticks {
                @let y = bottom - peak.at(*value, HEIGHT);
                line.grid x1=(px(LEFT)) x2=(px(LEFT + WIDTH)) y1=(px(y)) y2=(px(y)) {}
                text.small.end x=(px(LEFT - 8.0)) y=(px(y + 4.0)) { (label) }
            }
            path.axis d=(format!("M{0} {1}V{2}H{3}", px(LEFT), px(TOP), px(bottom), px(LEFT + WIDTH))) {}
            text.small.mid x=(px(LEFT + WIDTH / 2.0)) y=(px(bottom + 36.0)) { "sent per device and step, " (sent.unit) }
            text.small.mid transform=(format!("translate(16 {}) rotate(-90)", px(TOP + HEIGHT / 2.0))) { "peak per device, " (peak.unit) }
            path.front d=(path) {}
            @for point in front {
                rect.outline x=(px(x(point.bytes_per_device) - 4.0)) y=(px(y(point.peak_bytes_per_device) - 4.0)) width="8" height="8" {
                    title { (bytes(point.bytes_per_device)) " sent, " (bytes(point.peak_bytes_per_device)) " at the peak" }
                }
            }
            @for point in &points { circle cx=(px(x(point.sent))) cy=(px(y(point.peak))) r="5" fill="#0072b2" {} }
            @for label in labels(&points, x, y) { text.strong x=(px(label.left)) y=(px(label.base)) { (label.text) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frontier_holds_what_nothing_beats() {
        let point = |sent, peak| Point { sent, peak, plans: Vec::new() };
        let points =
            [point(5, 5), point(0, 9), point(9, 1), point(9, 5), point(6, 5), point(0, 10)];
        assert_eq!(frontier(&points), [(0, 9), (5, 5), (9, 1)]);
    }
}
