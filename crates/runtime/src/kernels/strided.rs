//! Two tensors walked together: loops of (count, stride in one, stride in the other).
//!
//! Dims of extent 1 vanish and dims that both tensors run through without a gap melt into one, so that the innermost loop
//! is as long as it can be. Broadcast, transpose and reduction are the same walk with other strides: a stride of 0
//! repeats an operand's element, or gathers several into one of the result.

use smallvec::SmallVec;

/// One loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loop {
    /// How often it runs.
    pub count: usize,
    /// Step in the first tensor.
    pub first: usize,
    /// Step in the second tensor.
    pub second: usize,
}

/// Loops over two tensors, outermost first; the innermost is apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walk {
    outer: SmallVec<[Loop; 4]>,
    inner: Loop,
    empty: bool,
}

/// Row-major strides of a shape.
#[must_use]
pub fn row_major(shape: &[usize]) -> SmallVec<[usize; 6]> {
    let mut strides = SmallVec::from_elem(1, shape.len());
    for d in (1..shape.len()).rev() {
        strides[d - 1] = strides[d] * shape[d];
    }
    strides
}

impl Walk {
    /// A walk over dims of these extents, with each tensor's strides along them.
    #[must_use]
    pub fn new(extents: &[usize], first: &[usize], second: &[usize]) -> Self {
        let mut loops: SmallVec<[Loop; 4]> = SmallVec::new();
        for ((&count, &first), &second) in extents.iter().zip(first).zip(second) {
            if count == 1 {
                continue;
            }
            match loops.last_mut() {
                Some(last) if last.first == first * count && last.second == second * count => {
                    *last = Loop { count: last.count * count, first, second };
                }
                _ => loops.push(Loop { count, first, second }),
            }
        }
        let inner = loops.pop().unwrap_or(Loop { count: 1, first: 1, second: 1 });
        Self { outer: loops, inner, empty: extents.contains(&0) }
    }

    /// The loops around the innermost one, outermost first.
    #[must_use]
    pub fn outer(&self) -> &[Loop] {
        &self.outer
    }

    /// The innermost loop.
    #[must_use]
    pub fn inner(&self) -> Loop {
        self.inner
    }

    /// Calls `f` with the offsets at which each run of the innermost loop starts.
    pub fn each(&self, mut f: impl FnMut(usize, usize)) {
        fn go(loops: &[Loop], first: usize, second: usize, f: &mut impl FnMut(usize, usize)) {
            match loops {
                [] => f(first, second),
                [outer, rest @ ..] => {
                    for i in 0..outer.count {
                        go(rest, first + i * outer.first, second + i * outer.second, f);
                    }
                }
            }
        }
        if !self.empty {
            go(&self.outer, 0, 0, &mut f);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dims_melt_where_both_tensors_run_through() {
        let walk = |e: &[usize], a: &[usize], b: &[usize]| {
            let walk = Walk::new(e, a, b);
            (walk.outer.len(), walk.inner)
        };
        let whole = Loop { count: 24, first: 1, second: 1 };
        assert_eq!(walk(&[2, 3, 4], &[12, 4, 1], &[12, 4, 1]), (0, whole));
        // The second tensor lacks the outermost dim.
        assert_eq!(walk(&[2, 3, 4], &[12, 4, 1], &[0, 4, 1]).0, 1);
        assert_eq!(walk(&[1, 1], &[1, 1], &[0, 0]).1.count, 1);
        let mut visited = 0;
        Walk::new(&[3, 0], &[1, 1], &[1, 1]).each(|_, _| visited += 1);
        assert_eq!(visited, 0);
    }
}
