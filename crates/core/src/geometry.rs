//! The split rule and block geometry. Nobody else computes an offset.
//!
//! A dim of length n over p ranks is split into p contiguous blocks in rank order, the first `n mod p` of them one
//! longer (NumPy's `array_split`). Blocks may be uneven, and empty when n < p. A dim sharded by several mesh axes is
//! split by the earlier axis first, each block then by the next: 6 over 2×2 is 2, 1, 2, 1.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::dtype::Shape;
use crate::layout::Layout;
use crate::mesh::Mesh;

/// The `index`-th of `parts` contiguous blocks of `0..len`.
///
/// ```
/// use shardgrad_core::geometry::split;
/// let blocks: Vec<_> = (0..4).map(|i| split(7, 4, i)).collect();
/// assert_eq!(blocks, [0..2, 2..4, 4..6, 6..7]);
/// ```
#[must_use]
pub fn split(len: usize, parts: usize, index: usize) -> Range<usize> {
    let (base, longer) = (len / parts, len % parts);
    let start = index * base + index.min(longer);
    start..start + base + usize::from(index < longer)
}

/// The part of a dim of extent `len` that falls to `coords` when `axes` split it, in order.
#[must_use]
pub fn nested_split(
    len: usize,
    mesh: &Mesh,
    axes: impl IntoIterator<Item = usize>,
    coords: &[usize],
) -> Range<usize> {
    axes.into_iter().fold(0..len, |range, axis| {
        let part = split(range.len(), mesh.axis_size(axis), coords[axis]);
        range.start + part.start..range.start + part.end
    })
}

/// A box of elements of a global tensor: one range per dim.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Block {
    /// Range of global indices per dim.
    pub ranges: SmallVec<[Range<usize>; 4]>,
}

impl Block {
    /// The whole of a tensor.
    #[must_use]
    pub fn whole(shape: &[usize]) -> Self {
        Self { ranges: shape.iter().map(|&n| 0..n).collect() }
    }

    /// Extents of the block.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.ranges.iter().map(ExactSizeIterator::len).collect()
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ranges.iter().map(ExactSizeIterator::len).product()
    }

    /// Whether the block has no element.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements that both blocks hold; empty ranges where they do not meet.
    #[must_use]
    pub fn intersect(&self, other: &Block) -> Block {
        let ranges = self
            .ranges
            .iter()
            .zip(&other.ranges)
            .map(|(a, b)| {
                let start = a.start.max(b.start);
                start..a.end.min(b.end).max(start)
            })
            .collect();
        Block { ranges }
    }

    /// Where a block that lies within this one starts, relative to this one's start, per dim.
    ///
    /// `inner` must be non-empty and contained in `self`.
    #[must_use]
    pub fn offset_of(&self, inner: &Block) -> Shape {
        self.ranges.iter().zip(&inner.ranges).map(|(outer, r)| r.start - outer.start).collect()
    }
}

/// The block of a tensor that a rank holds under a layout. Pending placements hold the whole extent.
#[must_use]
pub fn block(shape: &[usize], layout: &Layout, mesh: &Mesh, rank: usize) -> Block {
    block_at(shape, layout, mesh, &mesh.coords(rank))
}

/// [`block`] at mesh coordinates.
#[must_use]
pub fn block_at(shape: &[usize], layout: &Layout, mesh: &Mesh, coords: &[usize]) -> Block {
    let ranges = shape
        .iter()
        .enumerate()
        .map(|(dim, &n)| nested_split(n, mesh, layout.axes_sharding(dim), coords))
        .collect();
    Block { ranges }
}

/// Elements of the largest block over all ranks: every axis gives its first block the most.
#[must_use]
pub fn largest_block(shape: &[usize], layout: &Layout, mesh: &Mesh) -> usize {
    block(shape, layout, mesh, 0).len()
}

/// Whether splitting dims of extents `a` and `b` over `axes` puts the boundaries at the same fractions.
///
/// This is what lets a label run over dims of different extents: reshape keeps `S` only where it holds.
#[must_use]
pub fn boundaries_coincide(a: usize, b: usize, mesh: &Mesh, axes: &[usize]) -> bool {
    if a == b {
        return true;
    }
    let groups = mesh.group(0, axes.iter().copied().collect());
    groups.into_iter().all(|rank| {
        let coords = mesh.coords(rank);
        let ra = nested_split(a, mesh, axes.iter().copied(), &coords);
        let rb = nested_split(b, mesh, axes.iter().copied(), &coords);
        // Products of two extents can exceed a usize.
        let equal = |x: usize, y: usize| x as u128 * b as u128 == y as u128 * a as u128;
        equal(ra.start, rb.start) && equal(ra.end, rb.end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::Placement::{Replicated, Shard};

    #[test]
    fn split_is_array_split() {
        for n in 0..20 {
            for p in 1..8 {
                let blocks: Vec<_> = (0..p).map(|i| split(n, p, i)).collect();
                assert_eq!(blocks[0].start, 0);
                assert_eq!(blocks[p - 1].end, n);
                assert!(
                    blocks.windows(2).all(|w| w[0].end == w[1].start && w[0].len() >= w[1].len())
                );
                assert!(blocks[0].len() - blocks[p - 1].len() <= 1);
            }
        }
    }

    #[test]
    fn a_dim_split_by_two_axes_nests() {
        let mesh = Mesh::new([("a", 2), ("b", 2)]).unwrap();
        let layout = Layout([Shard(0), Shard(0)].into_iter().collect());
        let lens: Vec<_> = (0..4).map(|r| block(&[6], &layout, &mesh, r).len()).collect();
        assert_eq!(lens, [2, 1, 2, 1]);
        assert!(!boundaries_coincide(6, 12, &mesh, &[0, 1]));
        assert!(boundaries_coincide(8, 24, &mesh, &[0, 1]));
        assert!(boundaries_coincide(1 << 31, 1 << 51, &mesh, &[0, 1]));
    }

    #[test]
    fn blocks_meet_lie_within_each_other_and_may_be_empty() {
        let block =
            |a: Range<usize>, b: Range<usize>| Block { ranges: [a, b].into_iter().collect() };
        let outer = block(2..6, 3..9);
        let inner = block(3..5, 7..8);
        assert_eq!(outer.offset_of(&inner).as_slice(), [1, 4]);
        assert_eq!(outer.intersect(&inner), inner);
        assert_eq!(outer.intersect(&block(4..8, 0..5)), block(4..6, 3..5));
        assert!(!inner.is_empty());
        assert!(outer.intersect(&block(6..8, 3..9)).is_empty());
        assert!(block(0..0, 0..4).is_empty() && !block(0..1, 0..4).is_empty());
    }

    #[test]
    fn blocks_of_an_unpending_layout_cover_the_tensor() {
        let mesh = Mesh::new([("a", 2), ("b", 3)]).unwrap();
        for p0 in [Replicated, Shard(0), Shard(1)] {
            for p1 in [Replicated, Shard(0), Shard(1)] {
                let layout = Layout([p0, p1].into_iter().collect());
                let mut count = [0; 5 * 4];
                for rank in 0..6 {
                    let b = block(&[5, 4], &layout, &mesh, rank);
                    assert!(b.len() <= largest_block(&[5, 4], &layout, &mesh));
                    for i in b.ranges[0].clone() {
                        for j in b.ranges[1].clone() {
                            count[i * 4 + j] += 1;
                        }
                    }
                }
                let copies = count[0];
                assert!(count.iter().all(|&c| c == copies), "{layout:?}");
            }
        }
    }
}
