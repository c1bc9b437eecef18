//! Reshape: the same row-major elements under another shape.
//!
//! Dims fall into groups with equal products of extents. In each group the outermost dims of both sides (extent 1
//! skipped) share a label: a contiguous part of one is a contiguous part of the other where the block boundaries
//! coincide, which [`crate::rules`] checks on the mesh. All other dims of the group cannot be split, unless the group
//! has one dim on each side.

use smallvec::SmallVec;

use super::signature::{Labels, Linearity, Signature};
use super::{expect_operands, operand_error};
use crate::dtype::TensorType;
use crate::error::Error;

pub(super) fn infer(shape: &[usize], operands: &[TensorType]) -> Result<TensorType, Error> {
    let [a] = expect_operands("reshape", operands)?;
    let elements = shape.iter().try_fold(1_usize, |n, &e| n.checked_mul(e));
    if elements != Some(a.elements()) {
        return Err(operand_error(
            "reshape",
            operands,
            format!("{shape:?} does not have the same {} elements", a.elements()),
        ));
    }
    Ok(TensorType::new(shape.iter().copied(), a.dtype))
}

pub(super) fn signature(from: &[usize], to: &[usize]) -> Signature {
    let mut next = 'a'..='z';
    let mut operand: Labels = SmallVec::from_elem(' ', from.len());
    let mut result: Labels = SmallVec::from_elem(' ', to.len());
    let mut unsplittable = Labels::new();
    let (mut i, mut j) = (0, 0);
    while i < from.len() || j < to.len() {
        // Dims of extent 1 stand alone: their one element cannot be told apart from its neighbours' grouping.
        if i < from.len() && from[i] == 1 {
            operand[i] = fresh(&mut next, &mut unsplittable);
            i += 1;
            continue;
        }
        if j < to.len() && to[j] == 1 {
            result[j] = fresh(&mut next, &mut unsplittable);
            j += 1;
            continue;
        }
        if i == from.len() || j == to.len() {
            break; // Not reached: `infer` found equal numbers of elements.
        }
        let shared = next.next().unwrap_or('z');
        operand[i] = shared;
        result[j] = shared;
        let (mut left, mut right) = (from[i], to[j]);
        (i, j) = (i + 1, j + 1);
        while left != right {
            if left < right {
                left *= from[i];
                operand[i] = fresh(&mut next, &mut unsplittable);
                i += 1;
            } else {
                right *= to[j];
                result[j] = fresh(&mut next, &mut unsplittable);
                j += 1;
            }
        }
    }
    let mut signature =
        Signature::new(SmallVec::from_elem(operand, 1), result).linear(Linearity::OneOf(1));
    signature.unsplittable = unsplittable;
    signature
}

fn fresh(next: &mut impl Iterator<Item = char>, unsplittable: &mut Labels) -> char {
    let label = next.next().unwrap_or('z');
    unsplittable.push(label);
    label
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(from: &[usize], to: &[usize]) -> String {
        let s = signature(from, to);
        let show = |l: &Labels| {
            l.iter().map(|c| if s.unsplittable.contains(c) { '·' } else { *c }).collect::<String>()
        };
        format!("{}->{}", show(&s.operands[0]), show(&s.result))
    }

    #[test]
    fn outermost_dims_of_a_group_share_a_label() {
        assert_eq!(text(&[4, 6], &[24]), "a·->a");
        assert_eq!(text(&[24], &[4, 6]), "a->a·");
        assert_eq!(text(&[4, 6], &[6, 4]), "a·->a·");
        assert_eq!(text(&[2, 3, 5], &[2, 15]), "ab·->ab");
        assert_eq!(text(&[2, 1, 3], &[2, 3]), "a·c->ac");
        assert_eq!(text(&[1], &[]), "·->");
        assert_eq!(text(&[], &[1, 1]), "->··");
    }
}
