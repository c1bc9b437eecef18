//! Regions of a local buffer: where the elements of a box or a run lie in a rank's row-major block.
//!
//! A region is an offset, outer loops (count, stride) and a contiguous inner run. Trailing dims that the box covers whole
//! melt into the run, so that a box of rows is one run.

use shardgrad_core::Block;
use shardgrad_core::schedule::Region;
use smallvec::SmallVec;

use crate::kernels::strided::{Walk, row_major};
use crate::number::Number;

/// Elements of a local buffer, in the region's row-major order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Local {
    offset: usize,
    /// Outer loops, outermost first: (count, stride).
    outer: SmallVec<[(usize, usize); 4]>,
    /// Length of each contiguous run.
    run: usize,
}

impl Local {
    /// Where a region lies in the buffer of `block`, which contains it.
    pub(crate) fn of(region: &Region, block: &Block) -> Self {
        match region {
            Region::Flat(range) => {
                Self { offset: range.start, outer: SmallVec::new(), run: range.len() }
            }
            Region::Box(inner) => Self::of_box(inner, block),
        }
    }

    /// Where a box lies in the buffer of `block`, which contains it.
    pub(crate) fn of_box(inner: &Block, block: &Block) -> Self {
        if inner.is_empty() {
            return Self { offset: 0, outer: SmallVec::new(), run: 0 };
        }
        let starts = block.offset_of(inner);
        let mut local = Self { offset: 0, outer: SmallVec::new(), run: 1 };
        let mut stride = 1;
        let mut contiguous = true;
        for ((range, outer), start) in inner.ranges.iter().zip(&block.ranges).zip(starts).rev() {
            local.offset += start * stride;
            if contiguous {
                local.run *= range.len();
            } else if range.len() > 1 {
                local.outer.push((range.len(), stride));
            }
            contiguous &= range.len() == outer.len();
            stride *= outer.len();
        }
        local.outer.reverse();
        local
    }

    pub(crate) fn len(&self) -> usize {
        self.outer.iter().map(|(count, _)| count).product::<usize>() * self.run
    }

    /// Calls `f` with the start of every run, in order.
    fn each_run(&self, mut f: impl FnMut(usize)) {
        fn go(outer: &[(usize, usize)], offset: usize, f: &mut impl FnMut(usize)) {
            match outer {
                [] => f(offset),
                [(count, stride), rest @ ..] => {
                    (0..*count).for_each(|i| go(rest, offset + i * stride, f));
                }
            }
        }
        if self.run > 0 {
            go(&self.outer, self.offset, &mut f);
        }
    }

    /// Appends the elements to `message`.
    pub(crate) fn pack<T: Number>(&self, buffer: &[T], message: &mut Vec<T>) {
        self.each_run(|start| message.extend_from_slice(&buffer[start..start + self.run]));
    }

    /// Calls `f` with each run of the buffer and the same elements of the message.
    pub(crate) fn unpack<T: Number>(
        &self,
        buffer: &mut [T],
        message: &[T],
        mut f: impl FnMut(&mut [T], &[T]),
    ) {
        let mut at = 0;
        self.each_run(|start| {
            f(&mut buffer[start..start + self.run], &message[at..at + self.run]);
            at += self.run;
        });
    }
}

/// The elements of a box in the buffers of two blocks that contain it, walked together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    first: usize,
    second: usize,
    walk: Walk,
}

impl Pair {
    pub(crate) fn of_box(inner: &Block, first: &Block, second: &Block) -> Self {
        let strides = |block: &Block| row_major(&block.shape());
        let offset = |block: &Block| -> usize {
            if inner.is_empty() {
                return 0;
            }
            block.offset_of(inner).into_iter().zip(strides(block)).map(|(o, s)| o * s).sum()
        };
        Self {
            first: offset(first),
            second: offset(second),
            walk: Walk::new(&inner.shape(), &strides(first), &strides(second)),
        }
    }

    /// Calls `f` with each contiguous run of both buffers, in order.
    pub(crate) fn each<T>(&self, first: &mut [T], second: &[T], mut f: impl FnMut(&mut [T], &[T])) {
        let inner = self.walk.inner();
        let contiguous = (inner.first, inner.second) == (1, 1);
        let (count, run) = if contiguous { (1, inner.count) } else { (inner.count, 1) };
        self.walk.each(|a, b| {
            for i in 0..count {
                let (a, b) = (self.first + a + i * inner.first, self.second + b + i * inner.second);
                f(&mut first[a..a + run], &second[b..b + run]);
            }
        });
    }

    /// Copies the elements from the second buffer to the first.
    pub(crate) fn copy<T: Copy>(&self, first: &mut [T], second: &[T]) {
        self.each(first, second, |into, new| into.copy_from_slice(new));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use smallvec::smallvec;

    fn block(ranges: &[std::ops::Range<usize>]) -> Block {
        Block { ranges: ranges.iter().cloned().collect() }
    }

    #[test]
    fn whole_trailing_dims_melt_into_the_run() {
        let outer = block(&[2..6, 1..4, 0..5]);
        let local = |b: &Block| Local::of_box(b, &outer);
        assert_eq!(
            local(&block(&[3..5, 1..4, 0..5])),
            Local { offset: 15, outer: smallvec![], run: 30 }
        );
        assert_eq!(
            local(&block(&[3..5, 2..4, 0..5])),
            Local { offset: 20, outer: smallvec![(2, 15)], run: 10 }
        );
        assert_eq!(
            local(&block(&[2..6, 1..3, 4..5])),
            Local { offset: 4, outer: smallvec![(4, 15), (2, 5)], run: 1 }
        );
        assert_eq!(local(&block(&[2..2, 1..3, 4..5])).len(), 0);
    }

    #[test]
    fn a_box_copies_between_blocks_of_other_shapes() {
        let (source_block, target_block) = (block(&[0..4, 2..5]), block(&[1..5, 0..4]));
        let common = source_block.intersect(&target_block);
        let source: Vec<i32> = (0..4).flat_map(|i| (2..5).map(move |j| 10 * i + j)).collect();
        let mut target = vec![-1; 16];
        Pair::of_box(&common, &target_block, &source_block).copy(&mut target, &source);
        let expected: Vec<i32> = (1..5)
            .flat_map(|i| (0..4).map(move |j| if i < 4 && j >= 2 { 10 * i + j } else { -1 }))
            .collect();
        assert_eq!(target, expected);
    }

    #[test]
    fn runs_of_different_length_copy_element_for_element() {
        // The box is all of the target, but every second column of the source.
        let (source_block, target_block) = (block(&[0..3, 0..4]), block(&[0..3, 1..3]));
        let source: Vec<i32> = (0..12).collect();
        let mut target = vec![0; 6];
        Pair::of_box(&target_block, &target_block, &source_block).copy(&mut target, &source);
        assert_eq!(target, [1, 2, 5, 6, 9, 10]);
        // One column: no run is longer than an element.
        let column = block(&[0..3, 2..3]);
        let mut target = vec![0; 6];
        Pair::of_box(&column, &target_block, &source_block).copy(&mut target, &source);
        assert_eq!(target, [0, 2, 0, 6, 0, 10]);
        let none = block(&[1..1, 1..3]);
        Pair::of_box(&none, &target_block, &source_block).copy(&mut target, &source);
        assert_eq!(target, [0, 2, 0, 6, 0, 10]);
    }
}
