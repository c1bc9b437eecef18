//! Values and their blocks: what each rank of a mesh holds of a global value, and the value that the ranks hold together.
//!
//! A *pending* value is split into terms over the group of ranks that differ along its pending axes. [`scatter`] gives
//! the whole value to the group's first rank and the identity of the reduction (0, −∞) to the others;
//! [`scatter_terms`] makes every term different, of mixed sign, so that a rule that treats a term as the value, or a
//! sum as a maximum, shows.

use std::panic::Location;

use ndarray::{ArrayD, ArrayViewD, ArrayViewMutD, IxDyn, Slice};
use shardgrad_core::geometry::block;
use shardgrad_core::{AxisSet, Block, DType, Layout, Mesh, Placement, TensorType};

use crate::error::Error;
use crate::eval::{Number, with_type};
use crate::value::{Element, Value, row_major_strides};

/// The axes on which a layout is pending.
fn pending_axes(layout: &Layout) -> AxisSet {
    layout.iter().enumerate().filter(|(_, p)| p.is_pending()).map(|(axis, _)| axis).collect()
}

fn view<'a, T>(array: &'a ArrayD<T>, block: &Block) -> ArrayViewD<'a, T> {
    array.slice_each_axis(|axis| Slice::from(block.ranges[axis.axis.index()].clone()))
}

fn view_mut<'a, T>(array: &'a mut ArrayD<T>, block: &Block) -> ArrayViewMutD<'a, T> {
    array.slice_each_axis_mut(|axis| Slice::from(block.ranges[axis.axis.index()].clone()))
}

/// The block of every rank. Of the terms of a pending value, the first is the value and the others are the identity.
#[must_use]
pub fn scatter(value: &Value, layout: &Layout, mesh: &Mesh) -> Vec<Value> {
    cut(value, layout, mesh, None)
}

/// The block of every rank, pending values being split into distinct terms: integers of mixed sign, from `seed` and the
/// global element, that sum to the value exactly where its elements are integers of moderate size; for `Pmax`, one
/// term is the value and the others are less.
#[must_use]
pub fn scatter_terms(value: &Value, layout: &Layout, mesh: &Mesh, seed: u64) -> Vec<Value> {
    cut(value, layout, mesh, Some(seed))
}

fn cut(value: &Value, layout: &Layout, mesh: &Mesh, seed: Option<u64>) -> Vec<Value> {
    fn typed<T: Number>(
        whole: &ArrayD<T>,
        layout: &Layout,
        mesh: &Mesh,
        seed: Option<u64>,
    ) -> Vec<Value> {
        let axes = pending_axes(layout);
        let count = mesh.group_size(axes);
        let max = layout.iter().any(|p| p == Placement::PendingMax);
        let terms: Vec<ArrayD<T>> = (0..count)
            .map(|index| match seed {
                _ if count == 1 => whole.clone(),
                None if index == 0 => whole.clone(),
                None => whole.mapv(|_| if max { T::LOWEST } else { T::ZERO }),
                Some(seed) => term(whole, seed, index, count, max),
            })
            .collect();
        (0..mesh.size())
            .map(|rank| {
                let block = block(whole.shape(), layout, mesh, rank);
                let term = &terms[mesh.index_in_group(rank, axes)];
                T::wrap(view(term, &block).as_standard_layout().into_owned())
            })
            .collect()
    }
    with_type!(value.ty().dtype, T => match <T as Element>::unwrap(value) {
        Some(whole) => typed::<T>(whole, layout, mesh, seed),
        None => Vec::new(),
    })
}

/// Term `index` of `count`. Sum: terms 1, 2 … are drawn, term 0 is what is missing. Max: one term is the value, the
/// others are 1 to 9 less.
fn term<T: Number>(
    whole: &ArrayD<T>,
    seed: u64,
    index: usize,
    count: usize,
    max: bool,
) -> ArrayD<T> {
    let draw = |element: usize, index: usize| -> u64 {
        mix(mix(mix(seed) ^ element as u64) ^ index as u64)
    };
    // A non-zero integer from −9 to 9.
    let drawn = |element: usize, index: usize| -> T {
        let bits = draw(element, index);
        let magnitude = 1.0 + ((bits >> 1) % 9) as f64;
        T::constant(if bits & 1 == 0 { magnitude } else { -magnitude }).unwrap_or(T::ONE)
    };
    let mut elements = whole.iter().copied().enumerate();
    let mut next = || {
        let (element, value) = elements.next()?;
        Some(if max {
            let owner = (draw(element, count) % count as u64) as usize;
            let less = T::constant(1.0 + (draw(element, index) % 9) as f64).unwrap_or(T::ONE);
            if owner == index { value } else { value.minus(less).unwrap_or(T::LOWEST) }
        } else if index == 0 {
            (1..count).try_fold(value, |rest, i| rest.minus(drawn(element, i))).unwrap_or(value)
        } else {
            drawn(element, index)
        })
    };
    ArrayD::from_shape_simple_fn(IxDyn(whole.shape()), || next().unwrap_or(T::ZERO))
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood, 2014): a bijection that spreads every bit.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The value of type `ty` that the ranks' blocks make together: pending terms are reduced in rank order, and copies of
/// one element must be equal to the last bit.
///
/// # Errors
/// The layout does not fit; a block is missing or not of its rank's type; copies differ; an integer sum overflows.
#[track_caller]
pub fn gather(
    blocks: &[Value],
    ty: &TensorType,
    layout: &Layout,
    mesh: &Mesh,
) -> Result<Value, Error> {
    let at = Location::caller();
    layout.validate(mesh, ty.rank()).map_err(|source| Error::Op { source, at })?;
    let expected = |rank: usize| TensorType {
        shape: block(&ty.shape, layout, mesh, rank).shape(),
        dtype: ty.dtype,
    };
    let refuse = |found: String, rank: usize| Error::Blocks {
        op: "gather",
        operands: found,
        result: format!("{} of rank {rank} of {}", expected(rank), mesh.size()),
    };
    if blocks.len() != mesh.size() {
        return Err(refuse(format!("of {} ranks", blocks.len()), mesh.size() - 1));
    }
    if let Some(rank) = (0..blocks.len()).find(|&r| blocks[r].ty() != expected(r)) {
        return Err(refuse(blocks[rank].ty().to_string(), rank));
    }
    with_type!(ty.dtype, T => gather_typed::<T>(blocks, ty, layout, mesh))
}

fn gather_typed<T: Number>(
    blocks: &[Value],
    ty: &TensorType,
    layout: &Layout,
    mesh: &Mesh,
) -> Result<Value, Error> {
    let axes = pending_axes(layout);
    let max = layout.iter().any(|p| p == Placement::PendingMax);
    let mut whole = ArrayD::from_elem(IxDyn(&ty.shape), T::ZERO);
    // The rank that each element came from.
    let mut source: ArrayD<Option<usize>> = ArrayD::from_elem(IxDyn(&ty.shape), None);
    let strides = row_major_strides(&ty.shape);
    for rank in (0..mesh.size()).filter(|&r| mesh.index_in_group(r, axes) == 0) {
        let mut terms =
            mesh.group(rank, axes).into_iter().filter_map(|member| T::unwrap(&blocks[member]));
        let Some(mut reduced) = terms.next().cloned() else { continue };
        for term in terms {
            for (sum, &x) in reduced.iter_mut().zip(term) {
                *sum = if max { sum.larger(x) } else { sum.plus(x).ok_or_else(overflow)? };
            }
        }
        let block = block(&ty.shape, layout, mesh, rank);
        let (mut place, mut from) = (view_mut(&mut whole, &block), view_mut(&mut source, &block));
        for (index, &x) in reduced.indexed_iter() {
            match from[&index] {
                Some(first) if !place[&index].same_bits(x) => {
                    let global = block.ranges.iter().enumerate();
                    let index = global.map(|(d, r)| (r.start + index[d]) * strides[d]).sum();
                    return Err(Error::ReplicasDiffer {
                        first,
                        second: rank,
                        index,
                        ty: ty.to_string(),
                    });
                }
                Some(_) => {}
                None => (place[&index], from[&index]) = (x, Some(rank)),
            }
        }
    }
    Ok(T::wrap(whole))
}

fn overflow() -> Error {
    Error::Arithmetic {
        op: "gather",
        problem: "a sum of terms does not fit its integer type".to_owned(),
    }
}
