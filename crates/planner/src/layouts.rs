//! All layouts of a tensor on a mesh, numbered.
//!
//! An axis of one device never matters: its placement is `R` here. Layouts are numbered with the first axis slowest and
//! `R, S(0), S(1) …, P, Pmax` on each axis; those that mix `P` with `Pmax` are left out.

use shardgrad_core::{Layout, Mesh, Placement};
use smallvec::SmallVec;

/// Number of a layout in a [`LayoutTable`].
pub type LayoutId = u16;

/// The layouts of tensors of one rank.
#[derive(Debug)]
pub struct LayoutTable {
    layouts: Vec<Layout>,
    /// Number by mixed-radix code; `NONE` where a layout is left out.
    by_code: Vec<LayoutId>,
    rank: usize,
    wide: SmallVec<[bool; 4]>,
}

const NONE: LayoutId = LayoutId::MAX;

impl LayoutTable {
    /// The layouts of tensors with this many dims, with `Pmax` only if asked for.
    #[must_use]
    pub fn new(mesh: &Mesh, rank: usize, with_max: bool) -> Self {
        let wide: SmallVec<[bool; 4]> = (0..mesh.rank()).map(|a| mesh.axis_size(a) > 1).collect();
        let base = rank + 3;
        let codes = base.pow(u32::try_from(mesh.rank()).unwrap_or(u32::MAX));
        let mut table = Self { layouts: Vec::new(), by_code: vec![NONE; codes], rank, wide };
        for code in 0..codes {
            let layout = table.decode(code);
            let idle =
                layout.iter().zip(&table.wide).all(|(p, w)| *w || p == Placement::Replicated);
            let max = layout.0.contains(&Placement::PendingMax);
            let mixed = max && layout.0.contains(&Placement::PendingSum);
            if idle && !mixed && (with_max || !max) {
                table.by_code[code] = LayoutId::try_from(table.layouts.len()).unwrap_or(NONE);
                table.layouts.push(layout);
            }
        }
        table
    }

    fn decode(&self, mut code: usize) -> Layout {
        let base = self.rank + 3;
        let mut placements: SmallVec<[Placement; 4]> = SmallVec::new();
        for _ in 0..self.wide.len() {
            placements.push(match code % base {
                0 => Placement::Replicated,
                digit if digit <= self.rank => Placement::Shard(digit - 1),
                digit if digit == self.rank + 1 => Placement::PendingSum,
                _ => Placement::PendingMax,
            });
            code /= base;
        }
        placements.reverse();
        Layout(placements)
    }

    /// Number of dims of the tensors.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of layouts.
    #[must_use]
    pub fn len(&self) -> usize {
        self.layouts.len()
    }

    /// Never: every table has the replicated layout.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.layouts.is_empty()
    }

    /// All layouts, in order.
    #[must_use]
    pub fn all(&self) -> &[Layout] {
        &self.layouts
    }

    /// The layout with this number.
    #[must_use]
    pub fn layout(&self, id: LayoutId) -> &Layout {
        &self.layouts[usize::from(id)]
    }

    /// The number of a layout, whatever it says on axes of one device.
    #[must_use]
    pub fn id(&self, layout: &Layout) -> Option<LayoutId> {
        let base = self.rank + 3;
        let mut code = 0;
        for (placement, &wide) in layout.iter().zip(&self.wide) {
            let digit = match placement {
                _ if !wide => 0,
                Placement::Replicated => 0,
                Placement::Shard(d) if d < self.rank => d + 1,
                Placement::Shard(_) => return None,
                Placement::PendingSum => self.rank + 1,
                Placement::PendingMax => self.rank + 2,
            };
            code = code * base + digit;
        }
        Some(self.by_code[code]).filter(|&id| id != NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_layouts_are_inverse() {
        for (sizes, rank, with_max, count) in [
            (vec![("a", 2)], 2, false, 4),
            (vec![("a", 2), ("b", 3)], 2, false, 16),
            (vec![("a", 2), ("b", 3)], 1, true, 4 * 4 - 2),
            (vec![("a", 1), ("b", 3)], 0, false, 2),
            (vec![("a", 2), ("b", 2), ("c", 2)], 2, false, 64),
        ] {
            let mesh = Mesh::new(sizes).unwrap();
            let table = LayoutTable::new(&mesh, rank, with_max);
            assert_eq!(table.len(), count);
            for (i, layout) in table.all().iter().enumerate() {
                assert_eq!(table.id(layout), Some(i as LayoutId));
            }
        }
    }
}
