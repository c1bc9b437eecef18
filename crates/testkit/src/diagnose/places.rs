//! Marks of faults that move elements: transposes, blocks in another order, buffers taken for rows.

use ndarray::{ArrayD, IxDyn};
use shardgrad_core::{Mesh, geometry};
use shardgrad_graph::Value;

use super::picture::{Picture, strides};
use super::{Context, Fault, Found, Group};

fn permutations(n: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![Vec::new()];
    }
    permutations(n - 1)
        .into_iter()
        .flat_map(|p| {
            (0..n).map(move |at| {
                let mut longer = p.clone();
                longer.insert(at, n - 1);
                longer
            })
        })
        .collect()
}

/// Row-major source index of each element of the transpose.
fn transpose_sources(shape: &[usize], perm: &[usize]) -> Vec<usize> {
    let n: usize = shape.iter().product();
    let index = ArrayD::from_shape_vec(IxDyn(shape), (0..n).collect());
    index.map_or_else(|_| Vec::new(), |a| a.permuted_axes(IxDyn(perm)).iter().copied().collect())
}

/// The transpose in the same shape: of a square tensor, or of another whose buffer was read as if it were this one.
pub(super) fn transposed(p: &Picture, shape: &[usize]) -> Found {
    if shape.len() > 4 {
        return None;
    }
    for perm in permutations(shape.len()).into_iter().filter(|perm| !perm.is_sorted()) {
        let sources = transpose_sources(shape, &perm);
        if p.moved(p.len(), |i| Some(sources[i])) {
            let square = perm.iter().map(|&d| shape[d]).eq(shape.iter().copied());
            let how = if square { "" } else { ", read as a buffer of the old shape" };
            let evidence = format!("every element stands where transpose({perm:?}) puts it{how}");
            return Some((Fault::Transposed { perm }, evidence));
        }
    }
    None
}

/// The permutation, if one tensor is the transpose of the other.
pub(super) fn transposed_shape(
    expected: &Value,
    actual: &Value,
    context: &Context<'_>,
) -> Option<Vec<usize>> {
    let (te, ta) = (expected.ty(), actual.ty());
    if te.rank() != ta.rank() || te.rank() > 4 {
        return None;
    }
    // Elements stand elsewhere, and so do their bounds.
    let picture = Picture::new(expected, actual, &Context { bound: None, ..*context });
    permutations(te.rank()).into_iter().find(|perm| {
        let permuted: Vec<usize> = perm.iter().map(|&d| te.shape[d]).collect();
        permuted == ta.shape.as_slice()
            && transpose_sources(&te.shape, perm)
                .iter()
                .enumerate()
                .all(|(i, &s)| picture.close(i, picture.expected[s], 1.0))
    })
}

/// Of more blocks than this, orders are not tried.
const MOST_BLOCKS: usize = 1024;

/// Blocks of one dim in another order.
pub(super) fn reordered(
    p: &Picture,
    shape: &[usize],
    groups: &[Group],
    mesh: Option<&Mesh>,
) -> Found {
    for (dim, &n) in shape.iter().enumerate() {
        for group in groups.iter().filter(|g| g.size <= MOST_BLOCKS) {
            let blocks: Vec<_> =
                (0..group.size).map(|r| geometry::split(n, group.size, r)).collect();
            for order in orders(group.size) {
                if let Some(found) = in_order(p, shape, dim, &blocks, order, &group.name) {
                    return Some(found);
                }
            }
        }
        // A dim split by two axes, gathered with the inner one outermost.
        let Some(mesh) = mesh else { continue };
        for outer in 0..mesh.rank() {
            for inner in outer + 1..mesh.rank() {
                let (a, b) = (mesh.axis_size(outer), mesh.axis_size(inner));
                if a < 2 || b < 2 || a * b > MOST_BLOCKS {
                    continue;
                }
                let blocks: Vec<_> = (0..a * b)
                    .map(|i| {
                        let first = geometry::split(n, a, i / b);
                        let second = geometry::split(first.len(), b, i % b);
                        first.start + second.start..first.start + second.end
                    })
                    .collect();
                let order: Vec<usize> = (0..a * b).map(|i| i % a * b + i / a).collect();
                let name = format!("{}, {}", mesh.axes()[outer].name, mesh.axes()[inner].name);
                if let Some(found) = in_order(p, shape, dim, &blocks, order, &name) {
                    return Some(found);
                }
            }
        }
    }
    gathered_as_rows(p, shape, groups)
}

/// All orders of few blocks; of more, the reverse, rotations and exchanges of two; of many, the first two only.
fn orders(parts: usize) -> Vec<Vec<usize>> {
    if parts <= 5 {
        return permutations(parts);
    }
    let plain: Vec<usize> = (0..parts).collect();
    let mut orders = vec![plain.iter().rev().copied().collect::<Vec<_>>()];
    for turn in 1..parts {
        let mut order = plain.clone();
        order.rotate_left(turn);
        orders.push(order);
    }
    for i in (0..parts).filter(|_| parts <= 64) {
        for j in i + 1..parts {
            let mut order = plain.clone();
            order.swap(i, j);
            orders.push(order);
        }
    }
    // Two nested splits, the inner one first.
    for a in (2..parts).filter(|a| parts.is_multiple_of(*a)) {
        orders.push((0..parts).map(|i| i % a * (parts / a) + i / a).collect());
    }
    orders
}

fn in_order(
    p: &Picture,
    shape: &[usize],
    dim: usize,
    blocks: &[std::ops::Range<usize>],
    order: Vec<usize>,
    group: &str,
) -> Found {
    let source: Vec<Option<usize>> =
        order.iter().flat_map(|&b| blocks[b].clone()).map(Some).collect();
    if order.is_sorted() || source.len() != shape[dim] || !p.moved_rows(shape, dim, &source) {
        return None;
    }
    let evidence = format!(
        "dim {dim} of {} in {} blocks over {group}: place i holds block {order:?}[i], element for element",
        shape[dim],
        blocks.len()
    );
    Some((Fault::BlocksReordered { dim, order }, evidence))
}

/// Blocks of an inner dim, their buffers laid one after the other as if they were rows.
fn gathered_as_rows(p: &Picture, shape: &[usize], groups: &[Group]) -> Found {
    let strides = strides(shape);
    for dim in 1..shape.len() {
        for group in groups.iter().filter(|g| g.size <= MOST_BLOCKS) {
            let owners: Vec<usize> = (0..group.size)
                .flat_map(|rank| geometry::split(shape[dim], group.size, rank).map(move |_| rank))
                .collect();
            let mut source: Vec<usize> = (0..p.len()).collect();
            source.sort_by_key(|i| owners[i / strides[dim] % shape[dim]]);
            if p.moved(p.len(), |i| Some(source[i])) {
                let evidence = format!(
                    "blocks of dim {dim} over {}, their buffers one after the other as if dim 0 had been split",
                    group.name
                );
                let order = (0..group.size).collect();
                return Some((Fault::BlocksReordered { dim, order }, evidence));
            }
        }
    }
    None
}
