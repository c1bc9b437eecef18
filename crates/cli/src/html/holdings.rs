//! Who holds what: every named value as a rectangle, once per rank, with the rank's block filled.
//!
//! A filled part is held complete; a hatched one is a term of a pending sum. A picture depends on shape and layout only:
//! each is in the page once and used wherever it is wanted.

use maud::{Markup, html};
use shardgrad::Planned;
use shardgrad::core::geometry::{Block, block};
use shardgrad::core::{Layout, Mesh, TensorType};
use shardgrad::graph::{NodeId, Plan};

use super::axis::px;
use super::style::RANKS;
use crate::table::parameter_of;

/// Ranks that are drawn; more would only repeat the pattern.
const MOST: usize = 8;
/// Side of the square that a tensor's rectangle fits into, and the least side of a rectangle.
const SIDE: f64 = 46.0;
const LEAST: f64 = 9.0;
/// Width of a rank's picture with its local shape, a character of which is this wide.
const CHARACTER: f64 = 6.6;
/// Room for two lines of text.
const TEXT: f64 = 28.0;

/// A value in one of its layouts.
struct Held {
    name: String,
    ty: TensorType,
    layout: Layout,
}

/// The named values of a plan in its order, in each layout they are held in; optimizer state that lies as its parameter
/// does is left out.
fn values(planned: &Planned) -> Vec<Held> {
    let (program, plan) = (planned.program(), planned.plan());
    let mut found = Vec::new();
    for id in program.ids() {
        let (ty, names) = (&program.node(id).ty, program.names_of(id));
        if names.is_empty() || ty.rank() == 0 {
            continue;
        }
        let held = layouts(plan, id);
        let parameter =
            names.iter().find_map(|name| parameter_of(name)).and_then(|p| program.named(p));
        if parameter.is_some_and(|p| layouts(plan, p).first() == held.first()) {
            continue;
        }
        let name = names.join(", ");
        found.extend(held.into_iter().map(|layout| Held {
            name: name.clone(),
            ty: ty.clone(),
            layout,
        }));
    }
    found
}

/// The layouts that a value of the program is held in.
fn layouts(plan: &Plan, origin: NodeId) -> Vec<Layout> {
    let mut found: Vec<Layout> = Vec::new();
    for id in plan.ids().filter(|id| plan.origins[id.index()] == origin) {
        if !found.contains(plan.layout(id)) {
            found.push(plan.layout(id).clone());
        }
    }
    found
}

/// The pictures of a page, by shape and layout.
pub(super) struct Pictures {
    mesh: Mesh,
    known: Vec<(Vec<usize>, Layout)>,
}

impl Pictures {
    pub(super) fn of(planned: &[Planned]) -> Option<Self> {
        let mesh = planned.first()?.mesh().clone();
        let mut known: Vec<(Vec<usize>, Layout)> = Vec::new();
        for held in planned.iter().flat_map(values) {
            let key = (held.ty.shape.to_vec(), held.layout);
            if !known.contains(&key) {
                known.push(key);
            }
        }
        Some(Self { mesh, known })
    }

    fn ranks(&self) -> usize {
        self.mesh.size().min(MOST)
    }

    /// Once a page.
    pub(super) fn definitions(&self) -> Markup {
        html! {
            svg width="0" height="0" aria-hidden="true" style="position:absolute" {
                @for (rank, colour) in RANKS.iter().enumerate() {
                    pattern id=(format!("hatch{rank}")) width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)" {
                        rect width="2" height="5" fill=(colour) {}
                    }
                }
                @for (index, (shape, layout)) in self.known.iter().enumerate() {
                    g id=(format!("held{index}")) { @for rank in 0..self.ranks() { (self.part(shape, layout, rank)) } }
                }
            }
        }
    }

    /// The rows of a plan.
    pub(super) fn rows(&self, planned: &Planned) -> Markup {
        html! {
            @if self.mesh.size() > MOST { p { "The first " (MOST) " of " (self.mesh.size()) " ranks." } }
            @for Held { name, ty, layout } in values(planned) {
                div.value {
                    div.what { strong { (name) } " " code { (ty) } br; code { (layout.display(&self.mesh)) } }
                    (self.picture(&ty.shape, &layout))
                }
            }
        }
    }

    fn picture(&self, shape: &[usize], layout: &Layout) -> Markup {
        let index = self.known.iter().position(|(s, l)| s == shape && l == layout).unwrap_or(0);
        #[allow(clippy::cast_precision_loss)]
        let width = self.step(shape) * self.ranks() as f64;
        let locals: Vec<String> =
            (0..self.ranks()).map(|rank| local(&block(shape, layout, &self.mesh, rank))).collect();
        let what = if layout.is_pending() { "Terms" } else { "Blocks" };
        html! {
            svg width=(px(width)) height=(px(sides(shape).0 + TEXT + 2.0)) role="img"
                aria-label=(format!("{what} by rank: {}", locals.join(", "))) {
                use href=(format!("#held{index}")) {}
            }
        }
    }

    /// From one rank's picture to the next: wide enough for the whole shape, which no local one exceeds.
    fn step(&self, shape: &[usize]) -> f64 {
        let whole = local(&Block::whole(shape)).chars().count();
        #[allow(clippy::cast_precision_loss)]
        let text = whole as f64 * CHARACTER;
        sides(shape).1.max(text) + 10.0
    }

    /// One rank's part of a value.
    fn part(&self, shape: &[usize], layout: &Layout, rank: usize) -> Markup {
        let block = block(shape, layout, &self.mesh, rank);
        let (height, width) = sides(shape);
        let [top, left, tall, wide] = part(&block, shape, height, width);
        #[allow(clippy::cast_precision_loss)]
        let middle = self.step(shape) * (rank as f64 + 0.5);
        let start = middle - width / 2.0;
        let fill = if layout.is_pending() {
            format!("url(#hatch{rank})")
        } else {
            RANKS[rank % RANKS.len()].to_owned()
        };
        html! {
            @if !block.is_empty() {
                rect x=(px(start + left)) y=(px(top + 1.0)) width=(px(wide)) height=(px(tall)) fill=(fill) {}
            }
            rect.outline x=(px(start)) y="1" width=(px(width)) height=(px(height)) {}
            text.mid.small x=(px(middle)) y=(px(height + 13.0)) { (rank) }
            text.mid.small x=(px(middle)) y=(px(height + 25.0)) { (local(&block)) }
        }
    }
}

/// `32×64`.
fn local(block: &Block) -> String {
    block.shape().iter().map(ToString::to_string).collect::<Vec<_>>().join("×")
}

/// Height and width of a tensor's rectangle: the first dim down, the others across.
#[allow(clippy::cast_precision_loss)]
fn sides(shape: &[usize]) -> (f64, f64) {
    let rows = shape.first().copied().unwrap_or(1);
    let columns: usize = shape.iter().skip(1).product();
    let largest = rows.max(columns).max(1) as f64;
    let side = |n: usize| (n as f64 / largest * SIDE).max(LEAST);
    (side(rows), side(columns))
}

/// Top, left, height and width of a block in that rectangle.
#[allow(clippy::cast_precision_loss)]
fn part(block: &Block, shape: &[usize], height: f64, width: f64) -> [f64; 4] {
    let along = |dim: usize, side: f64| {
        let (Some(range), Some(&n)) = (block.ranges.get(dim), shape.get(dim)) else {
            return (0.0, side);
        };
        let scale = side / n.max(1) as f64;
        (range.start as f64 * scale, range.len() as f64 * scale)
    };
    let ((top, tall), (left, wide)) = (along(0, height), along(1, width));
    [top, left, tall, wide]
}
