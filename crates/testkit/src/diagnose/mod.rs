//! The doctor: what *kind* of fault turns the expected gradient into the actual one.
//!
//! Each fault of sharded code leaves its mark: a reduction that runs twice scales by the size of its axis, one that is
//! missing leaves one rank's term, blocks that are gathered in another order are all there but elsewhere. The doctor tries
//! these marks one after the other, from the most specific to the least, and reports the first that explains *every*
//! element, with the numbers that show it. What is equal within rounding is called so first, and what no mark explains is
//! called [`Fault::Unknown`].
//!
//! A mark is *certain* if it predicts all elements; *likely* if it rests on statistics (one rank's term cannot be predicted
//! from the sum alone; give [`diagnose_ranks`] all ranks' blocks and it can).

use std::fmt;

use shardgrad_core::{DType, Layout, Mesh, Placement, TensorType, geometry};
use shardgrad_graph::Value;

mod amounts;
mod fault;
mod picture;
mod places;
mod ranks;
mod splits;

use picture::Picture;

pub use fault::Fault;
pub use ranks::diagnose_ranks;

/// What a mark finds.
type Found = Option<(Fault, String)>;

/// What is known beside the two tensors.
#[derive(Clone, Copy, Debug, Default)]
pub struct Context<'a> {
    /// The mesh the actual tensor was computed on; without it, any 2 to 8 devices are considered.
    pub mesh: Option<&'a Mesh>,
    /// The layout of the gradient.
    pub layout: Option<&'a Layout>,
    /// Bound of the rounding of each element, from the program ([`crate::tolerance`]).
    pub bound: Option<&'a [f64]>,
    /// Without a bound: how much of the largest expected element counts as rounding; [`default_tolerance`] if it is left out.
    pub tolerance: Option<f64>,
}

/// Sums are taken to have at least so many terms.
const TERMS: usize = 1024;

/// What counts as rounding where no program is known, as a part of the largest expected element: 16 √n u, with u the unit
/// roundoff of the coarser of both types and n the longest sum that is assumed behind an element, 1024 or the largest extent
/// of the tensor.
///
/// A sum of n terms errs by more than λ √n u times its terms with a probability below 2 exp(−λ²/2) (Higham and Mary, *A New
/// Approach to Probabilistic Rounding Error Analysis*, 2019); two runs differ by twice that, and λ is 8. The extents of a
/// gradient do not tell how many terms were added (the batch is not among them), nor how far they cancel: where sums are
/// longer, or cancel, give a tolerance, or the bound that [`crate::tolerance`] derives from the program. Integers do not round.
#[must_use]
pub fn default_tolerance(expected: &TensorType, actual: &TensorType) -> f64 {
    let u = expected.dtype.unit_roundoff().max(actual.dtype.unit_roundoff());
    let terms = expected.shape.iter().copied().max().unwrap_or(1).max(TERMS);
    #[allow(clippy::cast_precision_loss)]
    let root = (terms as f64).sqrt();
    16.0 * root * u
}

/// A finding.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnosis {
    /// The kind of fault.
    pub fault: Fault,
    /// Whether every element is predicted by it.
    pub certain: bool,
    /// The numbers that show it.
    pub evidence: Vec<String>,
}

impl Diagnosis {
    fn certain(fault: Fault, evidence: impl Into<String>) -> Self {
        Self { fault, certain: true, evidence: vec![evidence.into()] }
    }

    fn likely(fault: Fault, evidence: impl Into<String>) -> Self {
        Self { fault, certain: false, evidence: vec![evidence.into()] }
    }

    /// Whether there is no fault.
    #[must_use]
    pub fn is_equal(&self) -> bool {
        matches!(self.fault, Fault::Equal { .. })
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sure = if self.certain { "" } else { " (likely)" };
        write!(f, "{}{sure}", self.fault)?;
        for line in &self.evidence {
            write!(f, "\n  {line}")?;
        }
        if !self.is_equal() {
            write!(f, "\n  look at: {}", self.fault.advice())?;
        }
        Ok(())
    }
}

/// A group of devices that a fault could run over.
#[derive(Clone, Debug)]
struct Group {
    name: String,
    size: usize,
}

/// Single axes first, then joint ones. Axes of one size cannot be told apart by a number: if the layout is known, the
/// group is that of the axes that are `wanted`.
fn groups(context: &Context<'_>, wanted: fn(Placement) -> bool) -> Vec<Group> {
    let Some(mesh) = context.mesh else {
        return (2..=8)
            .map(|size| Group { name: format!("an axis of {size} devices"), size })
            .collect();
    };
    let is_wanted = |axes: &[usize]| {
        axes.iter().all(|&a| context.layout.is_none_or(|l| l.iter().nth(a).is_some_and(wanted)))
    };
    let axes: Vec<usize> = (0..mesh.rank()).filter(|&a| mesh.axis_size(a) > 1).collect();
    let mut subsets: Vec<Vec<usize>> = (1_usize..1 << axes.len())
        .map(|bits| (0..axes.len()).filter(|i| bits >> i & 1 == 1).map(|i| axes[i]).collect())
        .collect();
    subsets.sort_by_key(|axes| (axes.len(), !is_wanted(axes)));
    let mut groups: Vec<(Group, bool)> = Vec::new();
    for axes in subsets {
        let size: usize = axes.iter().map(|&a| mesh.axis_size(a)).product();
        let name =
            axes.iter().map(|&a| mesh.axes()[a].name.as_str()).collect::<Vec<_>>().join(", ");
        match groups.iter_mut().find(|(group, _)| group.size == size) {
            Some((group, first)) if axes.len() == 1 && *first == is_wanted(&axes) => {
                group.name = format!("{} or {name}", group.name);
            }
            Some(_) => {}
            None => groups.push((Group { name, size }, is_wanted(&axes))),
        }
    }
    groups.into_iter().map(|(group, _)| group).collect()
}

/// Names the fault that turns `expected` into `actual`.
///
/// ```
/// use shardgrad_core::{DType, TensorType};
/// use shardgrad_graph::Value;
/// use shardgrad_testkit::diagnose::{Context, Fault, diagnose};
/// let ty = TensorType::new([3, 2], DType::F32);
/// let expected = Value::from_fn(&ty, |i| i as f64 - 2.5);
/// let actual = Value::from_fn(&ty, |i| 2.0 * (i as f64 - 2.5));
/// let mesh = "dp=2, tp=3".parse()?;
/// let context = Context { mesh: Some(&mesh), ..Context::default() };
/// let found = diagnose(&expected, &actual, &context);
/// assert_eq!(found.fault, Fault::ReductionRepeated { axis: "dp".into(), size: 2, times: 1 });
/// # Ok::<(), shardgrad_core::Error>(())
/// ```
#[must_use]
pub fn diagnose(expected: &Value, actual: &Value, context: &Context<'_>) -> Diagnosis {
    let (te, ta) = (expected.ty(), actual.ty());
    if te.shape != ta.shape {
        return other_shape(expected, actual, context);
    }
    if expected == actual {
        return Diagnosis::certain(Fault::Equal { exact: true }, "every element is equal");
    }
    let picture = Picture::new(expected, actual, context);
    if let Some(found) = equal(&picture, te.dtype == DType::I64 && ta.dtype == DType::I64) {
        return found;
    }
    if let Some(found) = not_finite(&picture) {
        return found;
    }
    let reduced = groups(context, |placement| placement == Placement::Replicated);
    let split = groups(context, |placement| matches!(placement, Placement::Shard(_)));
    amounts::scale(&picture, &reduced)
        .or_else(|| amounts::partial(&picture))
        .or_else(|| places::transposed(&picture, &te.shape))
        .or_else(|| places::reordered(&picture, &te.shape, &split, context.mesh))
        .or_else(|| splits::split(&picture, &te.shape, &split))
        .or_else(|| amounts::precision(&picture, te.dtype))
        .map(|(fault, evidence)| Diagnosis::certain(fault, evidence))
        .or_else(|| {
            amounts::statistics(&picture, te.dtype)
                .map(|(fault, evidence)| Diagnosis::likely(fault, evidence))
        })
        .unwrap_or_else(|| {
            Diagnosis::certain(
                Fault::Unknown,
                format!(
                    "largest difference {:.3e} where the largest element is {:.3e}; no scale, term, order, split or type explains it",
                    picture.largest_difference(),
                    picture.scale
                ),
            )
        })
}

/// Equal as numbers, or within rounding.
fn equal(picture: &Picture, wide_integers: bool) -> Option<Diagnosis> {
    let same = |(e, a): (&f64, &f64)| e == a || e.is_nan() && a.is_nan();
    if picture.expected.iter().zip(&picture.actual).all(same) {
        return Some(if wide_integers {
            // They were compared before as what they are, and differ.
            let evidence = "integers beyond 2^53 differ in their last bits";
            Diagnosis::certain(Fault::Precision { dtype: "f64" }, evidence)
        } else {
            Diagnosis::certain(Fault::Equal { exact: true }, "every element is equal")
        });
    }
    picture.all_close(|i| picture.expected[i]).then(|| {
        Diagnosis::certain(
            Fault::Equal { exact: false },
            format!(
                "largest difference {:.3e}, {:.3} of its bound",
                picture.largest_difference(),
                picture.largest_ratio()
            ),
        )
    })
}

/// Infinities and NaN in one of both, which leave nothing to compare.
fn not_finite(picture: &Picture) -> Option<Diagnosis> {
    let (expected, actual) = (&picture.expected, &picture.actual);
    if let Some(bad) =
        (0..picture.len()).find(|&i| !actual[i].is_finite() && expected[i].is_finite())
    {
        let evidence = format!("element {bad} is {}, expected {:e}", actual[bad], expected[bad]);
        return Some(Diagnosis::certain(Fault::NotFinite, evidence));
    }
    let bad = expected.iter().position(|v| !v.is_finite())?;
    let evidence = format!(
        "the expected element {bad} is {} itself; nothing can be told from it",
        expected[bad]
    );
    Some(Diagnosis::certain(Fault::Unknown, evidence))
}

fn other_shape(expected: &Value, actual: &Value, context: &Context<'_>) -> Diagnosis {
    let (te, ta) = (expected.ty(), actual.ty());
    if let Some(perm) = places::transposed_shape(expected, actual, context) {
        return Diagnosis::certain(
            Fault::Transposed { perm },
            format!("{ta} holds the transpose of {te}, element for element"),
        );
    }
    let mut evidence = format!("{te} was expected, {ta} was given");
    if let (Some(mesh), Some(layout)) = (context.mesh, context.layout)
        && layout.validate(mesh, te.rank()).is_ok()
        && let Some(rank) = (0..mesh.size())
            .find(|&r| geometry::block(&te.shape, layout, mesh, r).shape() == ta.shape)
    {
        evidence =
            format!("{evidence}: that is the shape of rank {rank}'s block, which was not gathered");
    }
    Diagnosis::certain(Fault::Shapes, evidence)
}
