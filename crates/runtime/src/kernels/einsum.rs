//! Einsum on local blocks, as matrix products.
//!
//! Labels fall into four groups: *batch* (in both operands and the result), *m* (left and result), *n* (right and result)
//! and *k* (both operands, summed). If each tensor runs through each of its groups with one stride, the op is a loop
//! over batch of GEMMs on strided views: nothing is copied, transposed operands included. Otherwise the tensor is first
//! rearranged into [batch, m, k], [batch, k, n] or back from [batch, m, n]. Labels that one operand alone has and the
//! result lacks are summed away first.

use ndarray::{ArrayView2, ArrayViewMut2, ShapeBuilder};
use shardgrad_core::ops::{Einsum, Label, Reduction};
use smallvec::SmallVec;

use super::gemm::Gemm;
use super::reduce::Reduce;
use super::strided::{Walk, row_major};

/// An einsum on blocks of fixed shapes, ready to run.
#[derive(Clone, Debug)]
pub struct Contraction {
    operands: SmallVec<[Operand; 2]>,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    /// One operand, every label kept: a walk of (result, operand).
    Permute(Walk),
    Product(Product),
}

/// What is done to an operand before the product.
#[derive(Clone, Debug)]
struct Operand {
    /// Sums labels of its own away, into this many elements.
    sum: Option<(Reduce, usize)>,
    /// Rearranges it: a walk of (rearranged, operand), and its elements.
    rearrange: Option<(Walk, usize)>,
}

#[derive(Clone, Debug)]
struct Product {
    m: usize,
    n: usize,
    k: usize,
    a: Matrix,
    b: Matrix,
    c: Matrix,
    /// Extents of the batch labels.
    batch: SmallVec<[usize; 2]>,
    /// The result is rearranged from [batch, m, n]: a walk of (result, product).
    rearrange: Option<Walk>,
}

/// Strides of a matrix and of the batch labels.
#[derive(Clone, Debug)]
struct Matrix {
    row: usize,
    column: usize,
    batch: SmallVec<[usize; 2]>,
}

/// Labels of one tensor with extents and strides.
#[derive(Clone, Debug)]
struct Dims {
    labels: SmallVec<[Label; 6]>,
    extents: SmallVec<[usize; 6]>,
    strides: SmallVec<[usize; 6]>,
}

impl Dims {
    fn new(labels: &[Label], extents: &[usize]) -> Self {
        Self {
            labels: labels.iter().copied().collect(),
            extents: extents.iter().copied().collect(),
            strides: row_major(extents),
        }
    }

    fn at(&self, label: Label) -> Option<(usize, usize)> {
        let dim = self.labels.iter().position(|&l| l == label)?;
        Some((self.extents[dim], self.strides[dim]))
    }

    fn extent(&self, label: Label) -> usize {
        self.at(label).map_or(1, |(n, _)| n)
    }

    fn stride(&self, label: Label) -> usize {
        self.at(label).map_or(0, |(_, s)| s)
    }

    /// The one stride by which the tensor runs through a group of labels, if there is one.
    fn melt(&self, group: &[Label]) -> Option<usize> {
        let mut next: Option<usize> = None; // stride × extent of the label inside
        let mut stride = 1;
        for &label in group.iter().rev() {
            let (n, s) = self.at(label)?;
            if n == 1 {
                continue;
            }
            match next {
                None => stride = s,
                Some(expected) if expected == s => {}
                Some(_) => return None,
            }
            next = Some(s * n);
        }
        Some(stride)
    }

    fn matrix(&self, batch: &[Label], rows: &[Label], columns: &[Label]) -> Option<Matrix> {
        Some(Matrix {
            row: self.melt(rows)?,
            column: self.melt(columns)?,
            batch: batch.iter().map(|&l| self.stride(l)).collect(),
        })
    }

    /// The same labels in another order, row-major.
    fn reordered(&self, labels: impl Iterator<Item = Label>) -> Self {
        let labels: SmallVec<[Label; 6]> = labels.collect();
        let extents: SmallVec<[usize; 6]> = labels.iter().map(|&l| self.extent(l)).collect();
        Self::new(&labels, &extents)
    }

    fn walk_into(&self, other: &Dims) -> Walk {
        let strides: Vec<usize> = other.labels.iter().map(|&l| self.stride(l)).collect();
        Walk::new(&other.extents, &other.strides, &strides)
    }
}

impl Contraction {
    /// The einsum between local blocks of these shapes.
    #[must_use]
    pub fn new(spec: &Einsum, shapes: &[&[usize]]) -> Self {
        let mut operands: SmallVec<[Operand; 2]> = SmallVec::new();
        let mut dims: SmallVec<[Dims; 2]> = SmallVec::new();
        for (i, (labels, shape)) in spec.operands().iter().zip(shapes).enumerate() {
            let elsewhere = |l: &Label| {
                spec.result().contains(l)
                    || spec.operands().iter().enumerate().any(|(j, o)| j != i && o.contains(l))
            };
            let own: Vec<usize> = (0..labels.len()).filter(|&d| !elsewhere(&labels[d])).collect();
            let kept: Vec<usize> = (0..labels.len()).filter(|d| !own.contains(d)).collect();
            let left: Vec<Label> = kept.iter().map(|&d| labels[d]).collect();
            let extents: Vec<usize> = kept.iter().map(|&d| shape[d]).collect();
            let elements = extents.iter().product();
            let sum =
                (!own.is_empty()).then(|| (Reduce::new(Reduction::Sum, &own, shape), elements));
            operands.push(Operand { sum, rearrange: None });
            dims.push(Dims::new(&left, &extents));
        }
        let extent = |l: Label| dims.iter().find_map(|d| d.at(l)).map_or(1, |(n, _)| n);
        let result_extents: Vec<usize> = spec.result().iter().map(|&l| extent(l)).collect();
        let result = Dims::new(spec.result(), &result_extents);
        let kind = match dims.as_slice() {
            [a, b] => Kind::Product(product(a, b, &result, &mut operands)),
            [a, ..] => Kind::Permute(a.walk_into(&result)),
            [] => Kind::Permute(Walk::new(&[0], &[0], &[0])),
        };
        Self { operands, kind }
    }

    /// Whether it is one product of matrices as they lie, over at most so many elements.
    pub(crate) fn is_plain(&self, deepest: usize) -> bool {
        let prepared = self.operands.iter().any(|o| o.sum.is_some() || o.rearrange.is_some());
        !prepared
            && matches!(&self.kind, Kind::Product(product) if product.rearrange.is_none()
                && product.batch.is_empty()
                && product.k <= deepest)
    }

    /// Adds `factor` times the product to the result, if it [is plain](Contraction::is_plain).
    pub(crate) fn add<T: Gemm>(&self, factor: T, operands: [&[T]; 2], result: &mut [T]) {
        if let Kind::Product(product) = &self.kind {
            product.run(Some(factor), operands[0], operands[1], result, &mut false);
        }
    }

    /// Runs it, overwriting the result.
    pub fn run<T: Gemm>(&self, operands: &[&[T]], result: &mut [T], overflow: &mut bool) {
        let mut scratch: SmallVec<[Option<Vec<T>>; 2]> = SmallVec::new();
        for (prepare, operand) in self.operands.iter().zip(operands) {
            scratch.push(prepare.run(operand, overflow));
        }
        let ready = |i: usize| -> &[T] { scratch[i].as_deref().unwrap_or(operands[i]) };
        match &self.kind {
            Kind::Permute(walk) => copy(walk, ready(0), result),
            Kind::Product(product) => match &product.rearrange {
                None => product.run(None, ready(0), ready(1), result, overflow),
                Some(walk) => {
                    let mut apart = vec![T::ZERO; result.len()];
                    product.run(None, ready(0), ready(1), &mut apart, overflow);
                    copy(walk, &apart, result);
                }
            },
        }
    }
}

impl Operand {
    fn run<T: Gemm>(&self, operand: &[T], overflow: &mut bool) -> Option<Vec<T>> {
        let summed = self.sum.as_ref().map(|(reduce, elements)| {
            let mut summed = vec![T::ZERO; *elements];
            reduce.run(operand, &mut summed, overflow);
            summed
        });
        match &self.rearrange {
            None => summed,
            Some((walk, elements)) => {
                let mut rearranged = vec![T::ZERO; *elements];
                copy(walk, summed.as_deref().unwrap_or(operand), &mut rearranged);
                Some(rearranged)
            }
        }
    }
}

/// Copies along a walk of (target, source).
fn copy<T: Copy>(walk: &Walk, source: &[T], target: &mut [T]) {
    let inner = walk.inner();
    walk.each(|t, s| {
        for i in 0..inner.count {
            target[t + i * inner.first] = source[s + i * inner.second];
        }
    });
}

fn product(a: &Dims, b: &Dims, result: &Dims, operands: &mut [Operand]) -> Product {
    let of = |dims: &Dims, wanted: &dyn Fn(Label) -> bool| -> Vec<Label> {
        dims.labels.iter().copied().filter(|&l| wanted(l)).collect()
    };
    let has = |dims: &Dims, l: Label| dims.labels.contains(&l);
    let batch = of(result, &|l| has(a, l) && has(b, l));
    let m = of(result, &|l| has(a, l) && !has(b, l));
    let n = of(result, &|l| !has(a, l) && has(b, l));
    let k = of(a, &|l| has(b, l) && !has(result, l));
    let size = |group: &[Label]| group.iter().map(|&l| a.extent(l).max(b.extent(l))).product();

    let mut ready = |i: usize, dims: &Dims, rows: &[Label], columns: &[Label]| -> Matrix {
        if let Some(matrix) = dims.matrix(&batch, rows, columns) {
            return matrix;
        }
        let order = dims.reordered(batch.iter().chain(rows).chain(columns).copied());
        operands[i].rearrange = Some((dims.walk_into(&order), order.extents.iter().product()));
        plain(&order, &batch, columns)
    };
    let a_matrix = ready(0, a, &m, &k);
    let b_matrix = ready(1, b, &k, &n);
    let (c, rearrange) = match result.matrix(&batch, &m, &n) {
        Some(matrix) => (matrix, None),
        None => {
            let order = result.reordered(batch.iter().chain(&m).chain(&n).copied());
            (plain(&order, &batch, &n), Some(order.walk_into(result)))
        }
    };
    // An extent of 0 in one operand is 0 in both.
    let zero = |group: &[Label]| {
        group.iter().any(|&l| a.at(l).or(b.at(l)).is_some_and(|(extent, _)| extent == 0))
    };
    let size = |group: &[Label]| if zero(group) { 0 } else { size(group) };
    Product {
        m: size(&m),
        n: size(&n),
        k: size(&k),
        a: a_matrix,
        b: b_matrix,
        c,
        batch: batch.iter().map(|&l| a.extent(l)).collect(),
        rearrange,
    }
}

/// Strides of a row-major [batch, rows, columns].
fn plain(order: &Dims, batch: &[Label], columns: &[Label]) -> Matrix {
    Matrix {
        row: columns.iter().map(|&l| order.extent(l)).product(),
        column: 1,
        batch: batch.iter().map(|&l| order.stride(l)).collect(),
    }
}

impl Product {
    /// Overwrites the result; with a factor, adds that many times the product to it.
    fn run<T: Gemm>(&self, factor: Option<T>, a: &[T], b: &[T], c: &mut [T], overflow: &mut bool) {
        if self.k == 0 {
            if factor.is_none() {
                c.fill(T::ZERO);
            }
            return;
        }
        let mut index: SmallVec<[usize; 2]> = SmallVec::from_elem(0, self.batch.len());
        if self.m == 0 || self.n == 0 || self.batch.contains(&0) {
            return;
        }
        loop {
            let at = |matrix: &Matrix| -> usize {
                index.iter().zip(&matrix.batch).map(|(i, s)| i * s).sum()
            };
            let (at_a, at_b, at_c) = (at(&self.a), at(&self.b), at(&self.c));
            let view =
                |shape: (usize, usize), matrix: &Matrix| shape.strides((matrix.row, matrix.column));
            let (Ok(left), Ok(right), Ok(into)) = (
                ArrayView2::from_shape(view((self.m, self.k), &self.a), &a[at_a..]),
                ArrayView2::from_shape(view((self.k, self.n), &self.b), &b[at_b..]),
                ArrayViewMut2::from_shape(view((self.m, self.n), &self.c), &mut c[at_c..]),
            ) else {
                // The strides come from the shapes of these very buffers.
                unreachable!("a matrix of an einsum lies outside its buffer")
            };
            match factor {
                None => T::gemm(into, left, right, overflow),
                Some(factor) => T::gemm_add(into, factor, left, right, overflow),
            }
            let Some(dim) = (0..index.len()).rev().find(|&d| index[d] + 1 < self.batch[d]) else {
                return;
            };
            index[dim] += 1;
            index[dim + 1..].fill(0);
        }
    }
}
