//! How far a run may lie from another for no other reason than rounding: running error analysis.
//!
//! Two runs of a program that add in different orders (a dense one, and one spread over a mesh) differ by rounding. The
//! bound here is computed beside the values, for these inputs, not guessed: every value of the program is evaluated in
//! f64 together with an elementwise bound of the error of a run in the program's own type, *whatever the order of its
//! additions*. The source is running and a-priori error analysis as in Higham, *Accuracy and Stability of Numerical
//! Algorithms*, 2nd ed., ch. 3: a sum of n products, in any order, errs by at most γₙ Σ|aᵢ||bᵢ| with γₙ = nu/(1 − nu) and
//! u the unit roundoff. Errors of operands propagate through each op by its exact sensitivity or a bound of its slope.
//!
//! Three things are particular to sharded runs:
//!
//! - **Pending terms.** Linear ops run on terms whose sum is the value, so rounding is relative to the *size of the
//!   terms*, Σ|termᵣ|, and not to the value. Each value carries a bound of that size over every decomposition which the
//!   placement rules allow.
//! - **Comparisons** that a perturbation within the bounds could flip have error 1; `x = max(x)` is decided by the gap to the
//!   next element, since both sides come from the same run.
//! - **Exactness.** Where all operands are multiples of one power of two and every partial sum fits the significand,
//!   nothing rounds, and the bound is 0: the comparison is `==`.
//!
//! Constants are taken as the program's type holds them. Near a singularity (a divisor or the argument of a logarithm that may be zero) and beyond the type's range the bound is
//! infinite: nothing can be said about the element, and [`Deviation`] counts it.

use std::collections::BTreeMap;

use ndarray::ArrayD;
use shardgrad_core::ops::Comparison;
use shardgrad_core::{Op, TensorType};
use shardgrad_graph::{NodeId, Program, Value};

use crate::error::Error;
use crate::rounding::{Estimate, Format, leaf, propagate};
use crate::slopes::tied_maximum;

/// Two runs, and one part in a hundred for terms of second order and the rounding of the bound itself.
pub(crate) const RUNS: f64 = 2.0 * 1.01;

/// Bounds of |one run − another| for every value of a program.
#[derive(Clone, Debug)]
pub struct Bounds {
    estimates: Vec<Estimate>,
    names: BTreeMap<String, NodeId>,
}

/// The bounds for meshes of any size.
///
/// ```
/// use shardgrad_core::DType;
/// use shardgrad_graph::{Graph, OutputRole, Value};
/// let g = Graph::new("product", DType::F32);
/// let x = g.input("x", [2, 3])?;
/// let w = g.param("w", [3, 2])?;
/// let y = x.matmul(w)?.tanh()?.named("y")?;
/// g.output("y", y, OutputRole::Value)?;
/// let program = g.finish();
/// let value = |v: shardgrad_graph::Var<'_>| Value::from_fn(&v.ty(), |i| 0.1 + i as f64);
/// let inputs = [("x".to_owned(), value(x)), ("w".to_owned(), value(w))].into();
/// let bounds = shardgrad_testkit::tolerance::bounds(&program, &inputs)?;
/// assert!(bounds.named("y")?.iter().all(|&b| b > 0.0 && b < 1e-4));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// A leaf without a value of its type.
pub fn bounds(program: &Program, inputs: &BTreeMap<String, Value>) -> Result<Bounds, Error> {
    bounds_on(program, inputs, usize::MAX)
}

/// The bounds for meshes of at most `ranks` devices: a reduction adds at most so many terms.
///
/// # Errors
/// As [`bounds`].
pub fn bounds_on(
    program: &Program,
    inputs: &BTreeMap<String, Value>,
    ranks: usize,
) -> Result<Bounds, Error> {
    let mut estimates: Vec<Estimate> = Vec::with_capacity(program.nodes.len());
    for id in program.ids() {
        let node = program.node(id);
        let format = Format::of(node.ty.dtype, ranks);
        let operands: Vec<&Estimate> =
            node.operands.iter().map(|o| &estimates[o.index()]).collect();
        let estimate = match &node.op {
            Op::Leaf(l) => leaf(input(&l.name, &l.ty, inputs)?),
            Op::Compare(comparison) if same_maximum(program, id, *comparison) => {
                tied_maximum(*comparison, operands[0], operands[1])
            }
            op => propagate(op, &operands, &node.ty, format),
        };
        estimates.push(estimate);
    }
    Ok(Bounds { estimates, names: program.names.clone() })
}

pub(crate) fn input<'a>(
    name: &str,
    ty: &TensorType,
    inputs: &'a BTreeMap<String, Value>,
) -> Result<&'a Value, Error> {
    let wrong = |found: String| Error::WrongInput {
        name: name.to_owned(),
        expected: ty.to_string(),
        found,
    };
    let value = inputs.get(name).ok_or_else(|| wrong("nothing".to_owned()))?;
    if value.ty() == *ty { Ok(value) } else { Err(wrong(value.ty().to_string())) }
}

/// Whether the node compares x with the broadcast maximum of x itself.
fn same_maximum(program: &Program, id: NodeId, comparison: Comparison) -> bool {
    if !matches!(comparison, Comparison::Eq | Comparison::Ge) {
        return false;
    }
    let through_aliases = |mut id: NodeId, broadcasts: bool| {
        loop {
            let node = program.node(id);
            let passes = matches!(node.op, Op::StopGradient | Op::Constrain)
                || broadcasts && matches!(node.op, Op::Broadcast(_) | Op::Reshape(_));
            match node.operands.first() {
                Some(&operand) if passes => id = operand,
                _ => return id,
            }
        }
    };
    let [left, right] = program.node(id).operands.as_slice() else { return false };
    let left = through_aliases(*left, false);
    let maximum = program.node(through_aliases(*right, true));
    matches!(maximum.op, Op::Max(_))
        && maximum.operands.first().is_some_and(|&of| through_aliases(of, false) == left)
}

impl Bounds {
    /// Elementwise bound of the difference between any two runs: twice the error bound of one, terms reduced.
    #[must_use]
    pub fn of(&self, node: NodeId) -> ArrayD<f64> {
        self.estimates[node.index()].error.mapv(|e| RUNS * e)
    }

    /// The value in f64.
    #[must_use]
    pub fn value(&self, node: NodeId) -> &ArrayD<f64> {
        &self.estimates[node.index()].value
    }

    /// Whether no run rounds anywhere on the way to this value, so that all runs agree bit for bit.
    #[must_use]
    pub fn is_exact(&self, node: NodeId) -> bool {
        self.of(node).iter().all(|&b| b == 0.0)
    }

    /// [`Bounds::of`] for a named value.
    ///
    /// # Errors
    /// No value has the name.
    pub fn named(&self, name: &str) -> Result<ArrayD<f64>, Error> {
        let node = self.names.get(name).ok_or_else(|| Error::UnknownName {
            name: name.to_owned(),
            known: self.names.keys().map(String::as_str).collect::<Vec<_>>().join(", "),
        })?;
        Ok(self.of(*node))
    }

    /// Compares two runs' values of a node.
    #[must_use]
    pub fn compare(&self, node: NodeId, expected: &Value, actual: &Value) -> Deviation {
        let bound: Vec<f64> = self.of(node).iter().copied().collect();
        Deviation::of(expected, actual, &bound)
    }
}

/// How two values differ, measured in their bound.
#[derive(Clone, Debug, PartialEq)]
pub struct Deviation {
    /// Number of elements.
    pub elements: usize,
    /// Elements whose bound is infinite: nothing is said about them.
    pub unbounded: usize,
    /// Whether every bound is 0: the values must be equal.
    pub exact: bool,
    /// The worst element: row-major index, expected, actual, bound.
    pub worst: Option<(usize, f64, f64, f64)>,
    /// |expected − actual| / bound there; infinite where a bound of 0 is missed.
    pub ratio: f64,
    /// The shapes or element types, if they differ.
    pub types: Option<(TensorType, TensorType)>,
}

impl Deviation {
    /// Compares elementwise with bounds in row-major order.
    #[must_use]
    pub fn of(expected: &Value, actual: &Value, bound: &[f64]) -> Self {
        let (te, ta) = (expected.ty(), actual.ty());
        let mut deviation = Deviation {
            elements: te.elements(),
            unbounded: bound.iter().filter(|b| !b.is_finite()).count(),
            exact: bound.iter().all(|&b| b == 0.0),
            worst: None,
            ratio: 0.0,
            types: (te != ta).then_some((te, ta)),
        };
        if deviation.types.is_some() {
            deviation.ratio = f64::INFINITY;
            return deviation;
        }
        let pairs = expected.to_f64s().into_iter().zip(actual.to_f64s()).zip(bound);
        for (index, ((e, a), &b)) in pairs.enumerate() {
            let ratio = if e == a || e.is_nan() && a.is_nan() || b == f64::INFINITY {
                0.0
            } else {
                let ratio = (e - a).abs() / b;
                if ratio.is_nan() { f64::INFINITY } else { ratio }
            };
            if ratio > deviation.ratio {
                deviation.ratio = ratio;
                deviation.worst = Some((index, e, a, b));
            }
        }
        deviation
    }

    /// Whether every element is within its bound.
    #[must_use]
    pub fn is_within(&self) -> bool {
        self.types.is_none() && self.ratio <= 1.0
    }
}

impl std::fmt::Display for Deviation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some((expected, actual)) = &self.types {
            return write!(f, "{expected} was expected, {actual} was given");
        }
        match self.worst {
            None => write!(f, "all {} elements are equal", self.elements)?,
            Some((index, e, a, b)) => write!(
                f,
                "element {index} of {}: expected {e:e}, actual {a:e}, difference {:e}, bound {b:e} ({:.3} of it)",
                self.elements,
                (e - a).abs(),
                self.ratio
            )?,
        }
        if self.unbounded > 0 {
            write!(f, "; nothing can be said about {} elements", self.unbounded)?;
        }
        Ok(())
    }
}
