//! Einsum over f64 arrays by matrix products, for magnitudes and error bounds.
//!
//! Labels fall into four classes: *batch* (both operands and the result), *rows* (first operand and result), *columns*
//! (second operand and result) and *inner* (both operands, not the result). Labels of one operand alone that the result
//! lacks are summed away first. What remains is one matrix product per batch index.

use ndarray::{Array2, Array3, ArrayD, ArrayView2, Axis, IxDyn};
use shardgrad_core::ops::{Einsum, Label};

/// The einsum of one or two arrays whose shapes fit it.
pub(crate) fn contract(einsum: &Einsum, operands: &[&ArrayD<f64>]) -> ArrayD<f64> {
    let result: Vec<Label> = einsum.result().to_vec();
    match (einsum.operands(), operands) {
        ([labels, ..], [a]) => {
            let (array, kept) = sum_away(a, labels, |l| result.contains(&l));
            order(array, &kept, &result)
        }
        ([la, lb, ..], [a, b, ..]) => {
            let (a, la) = sum_away(a, la, |l| result.contains(&l) || lb.contains(&l));
            let (b, lb) = sum_away(b, lb, |l| result.contains(&l) || la.contains(&l));
            pairwise(a, &la, b, &lb, &result)
        }
        _ => ArrayD::zeros(IxDyn(&[])),
    }
}

/// Number of products that are added up for one element of the result.
pub(crate) fn summands(einsum: &Einsum, operands: &[&ArrayD<f64>]) -> usize {
    let mut seen: Vec<Label> = einsum.result().to_vec();
    let mut count = 1;
    for (labels, array) in einsum.operands().iter().zip(operands) {
        for (&label, &extent) in labels.iter().zip(array.shape()) {
            if !seen.contains(&label) {
                seen.push(label);
                count *= extent;
            }
        }
    }
    count
}

fn sum_away(
    array: &ArrayD<f64>,
    labels: &[Label],
    keep: impl Fn(Label) -> bool,
) -> (ArrayD<f64>, Vec<Label>) {
    let mut array = array.clone();
    let mut labels = labels.to_vec();
    for dim in (0..labels.len()).rev() {
        if !keep(labels[dim]) {
            array = array.sum_axis(Axis(dim));
            labels.remove(dim);
        }
    }
    (array, labels)
}

/// Permutes dims into the wanted order of labels.
fn order(array: ArrayD<f64>, labels: &[Label], wanted: &[Label]) -> ArrayD<f64> {
    let dims: Vec<usize> =
        wanted.iter().filter_map(|l| labels.iter().position(|have| have == l)).collect();
    array.permuted_axes(IxDyn(&dims)).as_standard_layout().into_owned()
}

fn pairwise(
    a: ArrayD<f64>,
    la: &[Label],
    b: ArrayD<f64>,
    lb: &[Label],
    result: &[Label],
) -> ArrayD<f64> {
    let class = |of: &[Label], in_other: bool, in_result: bool, other: &[Label]| -> Vec<Label> {
        of.iter()
            .copied()
            .filter(|l| other.contains(l) == in_other && result.contains(l) == in_result)
            .collect()
    };
    let batch = class(la, true, true, lb);
    let inner = class(la, true, false, lb);
    let rows = class(la, false, true, lb);
    let columns = class(lb, false, true, la);
    let extent = |l: &Label| {
        la.iter()
            .position(|x| x == l)
            .map(|d| a.shape()[d])
            .or_else(|| lb.iter().position(|x| x == l).map(|d| b.shape()[d]))
            .unwrap_or(1)
    };
    let size = |labels: &[Label]| labels.iter().map(extent).product::<usize>();
    let (nb, nk, nm, nn) = (size(&batch), size(&inner), size(&rows), size(&columns));
    let made: Vec<Label> = batch.iter().chain(&rows).chain(&columns).copied().collect();
    let shape: Vec<usize> = made.iter().map(extent).collect();
    let a_order: Vec<Label> = batch.iter().chain(&rows).chain(&inner).copied().collect();
    let b_order: Vec<Label> = batch.iter().chain(&inner).chain(&columns).copied().collect();
    let (a, b) = (order(a, la, &a_order), order(b, lb, &b_order));
    let mut product = Array3::<f64>::zeros((nb, nm, nn));
    if let (Some(a), Some(b)) = (a.as_slice(), b.as_slice()) {
        for i in 0..nb {
            let left = ArrayView2::from_shape((nm, nk), &a[i * nm * nk..(i + 1) * nm * nk]);
            let right = ArrayView2::from_shape((nk, nn), &b[i * nk * nn..(i + 1) * nk * nn]);
            if let (Ok(left), Ok(right)) = (left, right) {
                let block: Array2<f64> = left.dot(&right);
                product.index_axis_mut(Axis(0), i).assign(&block);
            }
        }
    }
    let flat = product.into_raw_vec_and_offset().0;
    match ArrayD::from_shape_vec(IxDyn(&shape), flat) {
        Ok(array) => order(array, &made, result),
        // The vector has nb·nm·nn elements, the product of the shape.
        Err(_) => ArrayD::zeros(IxDyn(&shape)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ramp(shape: &[usize]) -> ArrayD<f64> {
        let mut next = 0.0;
        ArrayD::from_shape_simple_fn(IxDyn(shape), || {
            next += 1.0;
            if next % 3.0 == 0.0 { -next } else { next }
        })
    }

    /// Loops over all labels, the definition.
    fn naive(einsum: &Einsum, operands: &[&ArrayD<f64>]) -> ArrayD<f64> {
        let mut labels: Vec<(Label, usize)> = Vec::new();
        for (ls, a) in einsum.operands().iter().zip(operands) {
            for (&l, &n) in ls.iter().zip(a.shape()) {
                if !labels.iter().any(|(x, _)| *x == l) {
                    labels.push((l, n));
                }
            }
        }
        let at =
            |l: &Label, index: &[usize]| index[labels.iter().position(|(x, _)| x == l).unwrap()];
        let shape: Vec<usize> = einsum
            .result()
            .iter()
            .map(|l| labels.iter().find(|(x, _)| x == l).unwrap().1)
            .collect();
        let mut out = ArrayD::zeros(IxDyn(&shape));
        let total: usize = labels.iter().map(|l| l.1).product();
        for flat in 0..total {
            let mut rest = flat;
            let index: Vec<usize> = labels
                .iter()
                .map(|(_, n)| {
                    let i = rest % n;
                    rest /= n;
                    i
                })
                .collect();
            let product: f64 = einsum
                .operands()
                .iter()
                .zip(operands)
                .map(|(ls, a)| a[IxDyn(&ls.iter().map(|l| at(l, &index)).collect::<Vec<_>>())])
                .product();
            let place: Vec<usize> = einsum.result().iter().map(|l| at(l, &index)).collect();
            out[IxDyn(&place)] += product;
        }
        out
    }

    #[test]
    fn contractions_equal_their_definition() {
        for (spec, a, b) in [
            ("mk,kn->mn", vec![5, 3], vec![3, 4]),
            ("bi,bo->io", vec![5, 3], vec![5, 4]),
            ("bo,io->bi", vec![5, 4], vec![3, 4]),
            ("bmk,bkn->nbm", vec![2, 5, 3], vec![2, 3, 4]),
            ("a,b->ba", vec![5], vec![3]),
            ("abc,cd->", vec![2, 3, 4], vec![4, 5]),
            ("ab,ab->ab", vec![2, 3], vec![2, 3]),
            ("ab,b->a", vec![2, 3], vec![3]),
        ] {
            let einsum: Einsum = spec.parse().unwrap();
            let (a, b) = (ramp(&a), ramp(&b));
            assert_eq!(contract(&einsum, &[&a, &b]), naive(&einsum, &[&a, &b]), "{spec}");
        }
        for (spec, a) in [("ab->ba", vec![5, 3]), ("abc->b", vec![2, 3, 4]), ("a->", vec![4])] {
            let einsum: Einsum = spec.parse().unwrap();
            let a = ramp(&a);
            assert_eq!(contract(&einsum, &[&a]), naive(&einsum, &[&a]), "{spec}");
        }
    }

    #[test]
    fn summands_are_the_products_of_one_element() {
        let (a, b) = (ramp(&[2, 3, 4]), ramp(&[4, 5]));
        let count = |spec: &str| summands(&spec.parse().unwrap(), &[&a, &b]);
        assert_eq!(count("abc,cd->abd"), 4);
        assert_eq!(count("abc,cd->"), 120);
        assert_eq!(count("abc,cd->abcd"), 1);
    }
}
