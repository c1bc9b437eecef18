//! Ops that take or put elements by place: indices, rows by id, slices, padding, joining, running sums.

use ndarray::{ArrayD, Axis, IxDyn, Slice as Cut, concatenate};
use shardgrad_core::TensorType;
use shardgrad_core::ops::{CumSum, Iota, Pad, Slice, Uniform};
use shardgrad_core::random::Draws;

use super::arithmetic::total;
use super::choice::beside;
use super::{Estimate, Format, known, moved};

/// Indices along a dim.
#[allow(clippy::cast_precision_loss)]
pub(super) fn iota(op: &Iota) -> Estimate {
    known(ArrayD::from_shape_fn(IxDyn(&op.ty.shape), |index| index[op.dim] as f64))
}

/// The draws of a key, which every run makes alike.
#[allow(clippy::cast_possible_truncation)]
pub(super) fn uniform(op: &Uniform, key: &Estimate) -> Estimate {
    let mut draws = Draws::new(key.value.first().copied().unwrap_or(0.0) as i64, op.stream);
    let mut element = 0;
    known(ArrayD::from_shape_simple_fn(IxDyn(&op.ty.shape), || {
        element += 1;
        draws.at(element - 1)
    }))
}

/// Ids as rows; those that are none are left out.
fn rows(ids: &Estimate) -> Vec<Option<usize>> {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    ids.value.iter().map(|&id| (id >= 0.0).then_some(id as usize)).collect()
}

/// Copies of rows; the zeros that other ranks give add nothing.
pub(super) fn lookup(table: &Estimate, ids: &Estimate, ty: &TensorType) -> Estimate {
    let rows = rows(ids);
    moved(table, |array| {
        let width: usize = array.shape().iter().skip(1).product();
        let data: Vec<f64> = array.iter().copied().collect();
        let row = |id: &Option<usize>| {
            let start = id.map(|id| id * width).filter(|start| start + width <= data.len());
            start.map_or_else(|| vec![0.0; width], |start| data[start..start + width].to_vec())
        };
        shaped(ty, rows.iter().flat_map(row).collect())
    })
}

/// Sums of at most as many terms as there are ids.
pub(super) fn scatter_add(
    ids: &Estimate,
    terms: &Estimate,
    ty: &TensorType,
    format: Format,
) -> Estimate {
    let rows = rows(ids);
    total(terms, rows.len(), format, |array| {
        let width: usize = ty.shape.iter().skip(1).product();
        let mut sums = vec![0.0; ty.elements()];
        let data: Vec<f64> = array.iter().copied().collect();
        for (place, row) in rows.iter().enumerate() {
            let Some(row) = row.filter(|row| (row + 1) * width <= sums.len()) else { continue };
            for i in 0..width {
                sums[row * width + i] += data[place * width + i];
            }
        }
        shaped(ty, sums)
    })
}

fn shaped(ty: &TensorType, elements: Vec<f64>) -> ArrayD<f64> {
    ArrayD::from_shape_vec(IxDyn(&ty.shape), elements)
        .unwrap_or_else(|_| ArrayD::zeros(IxDyn(&ty.shape)))
}

pub(super) fn slice(a: &Estimate, op: &Slice) -> Estimate {
    let cut = Cut::new(op.start.cast_signed(), Some(op.stop.cast_signed()), op.step.cast_signed());
    moved(a, |array| array.slice_axis(Axis(op.dim), cut).to_owned())
}

/// Zeros go beside terms; any other value beside what is reduced.
pub(super) fn pad(a: &Estimate, op: &Pad, ty: &TensorType, format: Format) -> Estimate {
    let value = format.constant(op.value.value());
    let a = if value == 0.0 { a.clone() } else { a.reduced() };
    let filled = |array: &ArrayD<f64>, fill: f64| {
        let mut result = ArrayD::from_elem(IxDyn(&ty.shape), fill);
        let step = op.between + 1;
        let stop = ty.shape[op.dim] - op.after;
        let cut = Cut::new(op.before.cast_signed(), Some(stop.cast_signed()), step.cast_signed());
        result.slice_axis_mut(Axis(op.dim), cut).assign(array);
        result
    };
    Estimate {
        value: filled(&a.value, value),
        error: filled(&a.error, 0.0),
        terms: filled(&a.terms, value.abs()),
        parts: a.parts,
        quantum: beside(a.quantum, value),
        nonnegative: a.nonnegative && value >= 0.0,
    }
}

pub(super) fn concat(operands: &[&Estimate], dim: usize) -> Estimate {
    let join = |of: fn(&Estimate) -> &ArrayD<f64>| {
        let views: Vec<_> = operands.iter().map(|o| of(o).view()).collect();
        concatenate(Axis(dim), &views).unwrap_or_else(|_| of(operands[0]).clone())
    };
    Estimate {
        value: join(|o| &o.value),
        error: join(|o| &o.error),
        terms: join(|o| &o.terms),
        parts: operands.iter().map(|o| o.parts).fold(1.0, f64::max),
        quantum: operands.iter().try_fold(1023, |q, o| Some(q.min(o.quantum?))),
        nonnegative: operands.iter().all(|o| o.nonnegative),
    }
}

/// Element i is a sum of at most as many terms as the dim has elements.
pub(super) fn cumsum(a: &Estimate, op: &CumSum, format: Format) -> Estimate {
    let extent = a.value.shape()[op.dim];
    total(a, extent, format, |array| {
        let mut sums = array.clone();
        let mut view = sums.view_mut();
        if op.reverse {
            view.invert_axis(Axis(op.dim));
        }
        view.accumulate_axis_inplace(Axis(op.dim), |&before, now| *now += before);
        sums
    })
}
