//! Regions of a local buffer: where the elements of a box or a run lie in a rank's row-major block.
//!
//! A region is an offset, outer loops (count, stride) and a contiguous inner run. Trailing dims that the box covers whole
//! melt into the run, so that a box of rows is one run.

use shardgrad_core::Block;
use shardgrad_core::schedule::Region;
use smallvec::SmallVec;

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

    /// Copies elements from one buffer to the same elements of another.
    pub(crate) fn copy<T: Number>(from: &Self, source: &[T], into: &Self, target: &mut [T]) {
        if from.run == into.run {
            // The usual case: the same runs on both sides.
            let mut starts: SmallVec<[usize; 16]> = SmallVec::new();
            from.each_run(|start| starts.push(start));
            let mut starts = starts.into_iter();
            into.each_run(|start| {
                if let Some(s) = starts.next() {
                    target[start..start + into.run].copy_from_slice(&source[s..s + from.run]);
                }
            });
            return;
        }
        // One side has longer runs; the shorter one divides it.
        let step = from.run.min(into.run);
        let pieces = |local: &Self| {
            let mut starts: Vec<usize> = Vec::new();
            local.each_run(|s| starts.extend((0..local.run / step).map(|i| s + i * step)));
            starts
        };
        for (s, t) in pieces(from).into_iter().zip(pieces(into)) {
            target[t..t + step].copy_from_slice(&source[s..s + step]);
        }
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
        Local::copy(
            &Local::of_box(&common, &source_block),
            &source,
            &Local::of_box(&common, &target_block),
            &mut target,
        );
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
        Local::copy(
            &Local::of_box(&target_block, &source_block),
            &source,
            &Local::of_box(&target_block, &target_block),
            &mut target,
        );
        assert_eq!(target, [1, 2, 5, 6, 9, 10]);
    }
}
