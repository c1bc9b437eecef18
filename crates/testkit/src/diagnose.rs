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

use shardgrad_core::{Layout, Mesh, Placement, geometry};
use shardgrad_graph::Value;

use crate::marks::{self, Picture};

/// What is known beside the two tensors.
#[derive(Clone, Copy, Debug, Default)]
pub struct Context<'a> {
    /// The mesh the actual tensor was computed on; without it, any 2 to 8 devices are considered.
    pub mesh: Option<&'a Mesh>,
    /// The layout of the gradient.
    pub layout: Option<&'a Layout>,
    /// Bound of the rounding of each element ([`crate::tolerance`]); without it, 512 unit roundoffs of the largest element.
    pub bound: Option<&'a [f64]>,
}

/// A kind of fault.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    /// No fault: equal bit for bit, or within rounding.
    Equal {
        /// Bit for bit.
        exact: bool,
    },
    /// The shapes differ.
    Shapes,
    /// Infinities or NaN where finite numbers were expected.
    NotFinite,
    /// Multiplied by the number of devices of a group, once or several times: a reduction was repeated.
    ReductionRepeated {
        /// The group: axis names if the mesh is known.
        axis: String,
        /// Devices in the group.
        size: usize,
        /// How often.
        times: u32,
    },
    /// Divided by the number of devices of a group: a mean of means, or a value split into equal terms.
    Averaged {
        /// The group.
        axis: String,
        /// Devices in the group.
        size: usize,
        /// How often.
        times: u32,
    },
    /// The negative.
    Negated,
    /// A multiple that no group explains.
    Scaled {
        /// The factor.
        factor: f64,
    },
    /// One rank's term only: a reduction is missing.
    ReductionMissing {
        /// The group, if it is known.
        axis: Option<String>,
    },
    /// The right blocks in other places.
    BlocksReordered {
        /// The dim that was split.
        dim: usize,
        /// The order found: place i holds block `order[i]`.
        order: Vec<usize>,
    },
    /// Dims exchanged.
    Transposed {
        /// The permutation that leads from expected to actual.
        perm: Vec<usize>,
    },
    /// Blocks cut by another split rule than they were placed by.
    WrongSplit {
        /// The dim.
        dim: usize,
        /// Number of blocks.
        parts: usize,
        /// The other rule.
        rule: &'static str,
    },
    /// Computed or added up in a narrower type.
    Precision {
        /// Its name.
        dtype: &'static str,
    },
    /// Unstructured differences, larger than rounding.
    Noise,
    /// None of these.
    Unknown,
}

impl Fault {
    /// The stable name of the kind.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Fault::Equal { .. } => "equal",
            Fault::Shapes => "shapes",
            Fault::NotFinite => "not_finite",
            Fault::ReductionRepeated { .. } => "reduction_repeated",
            Fault::Averaged { .. } => "averaged",
            Fault::Negated => "negated",
            Fault::Scaled { .. } => "scaled",
            Fault::ReductionMissing { .. } => "reduction_missing",
            Fault::BlocksReordered { .. } => "blocks_reordered",
            Fault::Transposed { .. } => "transposed",
            Fault::WrongSplit { .. } => "wrong_split",
            Fault::Precision { .. } => "precision",
            Fault::Noise => "noise",
            Fault::Unknown => "unknown",
        }
    }

    /// What to look at.
    #[must_use]
    pub fn advice(&self) -> &'static str {
        match self {
            Fault::Equal { .. } => "nothing to do",
            Fault::Shapes => {
                "compare the layouts at both ends: a block was taken for the whole, or dims were reordered"
            }
            Fault::NotFinite => {
                "look for a division by a count that is 0 on one rank, or a maximum that was combined with 0 padding"
            }
            Fault::ReductionRepeated { .. } => {
                "find the second reduction over this axis: print the plan's collectives for this gradient; a value that is already `R` must not be reduced"
            }
            Fault::Averaged { .. } => {
                "look for a mean over the local batch instead of the global one, or a replicated value split as x/p instead of masked"
            }
            Fault::Negated => {
                "look at the order of operands of a subtraction, in the forward op or its gradient"
            }
            Fault::Scaled { .. } => {
                "look at constants: loss normalisation, learning rate, loss scale"
            }
            Fault::ReductionMissing { .. } => {
                "find where this gradient is still `P`: print its layout in the plan; it needs an all_reduce or reduce_scatter over this axis"
            }
            Fault::BlocksReordered { .. } => {
                "compare the order of ranks in the gather with mesh order (row-major, earlier axis outermost)"
            }
            Fault::Transposed { .. } => {
                "look at the einsum labels of this gradient, or at a buffer read in the wrong order"
            }
            Fault::WrongSplit { .. } => {
                "use one split rule everywhere: the first n mod p blocks are one longer; look for an offset that is computed by hand"
            }
            Fault::Precision { .. } => "look at the type of accumulators and of messages",
            Fault::Noise => {
                "look for data, seeds or parameters that differ, or an uninitialised buffer"
            }
            Fault::Unknown => {
                "compare the values before this one, from the loss backwards, and diagnose the first that differs"
            }
        }
    }
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
        match &self.fault {
            Fault::Equal { exact: true } => write!(f, "equal, bit for bit")?,
            Fault::Equal { exact: false } => write!(f, "equal within rounding")?,
            Fault::Shapes => write!(f, "shapes differ")?,
            Fault::NotFinite => write!(f, "infinite or not a number")?,
            Fault::ReductionRepeated { axis, size, times } => {
                write!(
                    f,
                    "a reduction over {axis} ({size} devices) runs {times} time(s) too often"
                )?;
            }
            Fault::Averaged { axis, size, times } => {
                write!(f, "divided {times} time(s) by the size of {axis} ({size} devices)")?;
            }
            Fault::Negated => write!(f, "the negative")?,
            Fault::Scaled { factor } => write!(f, "scaled by {factor}")?,
            Fault::ReductionMissing { axis: Some(axis) } => {
                write!(f, "one rank's term only: the reduction over {axis} is missing")?;
            }
            Fault::ReductionMissing { axis: None } => {
                write!(f, "one rank's term only: a reduction is missing")?;
            }
            Fault::BlocksReordered { dim, order } => {
                write!(f, "blocks of dim {dim} in the order {order:?}")?;
            }
            Fault::Transposed { perm } => write!(f, "transposed by {perm:?}")?,
            Fault::WrongSplit { dim, parts, rule } => {
                write!(f, "dim {dim} cut into {parts} blocks by another rule: {rule}")?;
            }
            Fault::Precision { dtype } => write!(f, "computed or added up in {dtype}")?,
            Fault::Noise => write!(f, "noise: unstructured differences, larger than rounding")?,
            Fault::Unknown => write!(f, "none of the known faults")?,
        }
        f.write_str(sure)?;
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
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) size: usize,
}

fn groups(context: &Context<'_>) -> Vec<Group> {
    let Some(mesh) = context.mesh else {
        return (2..=8)
            .map(|size| Group { name: format!("an axis of {size} devices"), size })
            .collect();
    };
    // Single axes first, then joint ones.
    let mut subsets: Vec<Vec<usize>> = (1_usize..1 << mesh.rank())
        .map(|bits| (0..mesh.rank()).filter(|a| bits >> a & 1 == 1).collect())
        .collect();
    subsets.sort_by_key(Vec::len);
    let mut groups: Vec<Group> = Vec::new();
    for axes in subsets {
        let size: usize = axes.iter().map(|&a| mesh.axis_size(a)).product();
        let name =
            axes.iter().map(|&a| mesh.axes()[a].name.as_str()).collect::<Vec<_>>().join(", ");
        if size < 2 || axes.iter().any(|&a| mesh.axis_size(a) < 2) {
            continue;
        }
        match groups.iter_mut().find(|g| g.size == size) {
            // Axes of one size cannot be told apart by a factor.
            Some(group) if axes.len() == 1 => group.name = format!("{} or {name}", group.name),
            Some(_) => {}
            None => groups.push(Group { name, size }),
        }
    }
    groups
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
    let picture = Picture::new(expected, actual, context.bound);
    if picture.expected.iter().zip(&picture.actual).all(|(e, a)| e == a || e.is_nan() && a.is_nan())
    {
        return Diagnosis::certain(Fault::Equal { exact: true }, "every element is equal");
    }
    if let Some(bad) = (0..picture.len())
        .find(|&i| !picture.actual[i].is_finite() && picture.expected[i].is_finite())
    {
        return Diagnosis::certain(
            Fault::NotFinite,
            format!(
                "element {bad} is {}, expected {:e}",
                picture.actual[bad], picture.expected[bad]
            ),
        );
    }
    if picture.all_close(|i| picture.expected[i]) {
        return Diagnosis::certain(
            Fault::Equal { exact: false },
            format!(
                "largest difference {:e}, {:.3} of its bound",
                picture.largest_difference(),
                picture.largest_ratio()
            ),
        );
    }
    let groups = groups(context);
    marks::scale(&picture, &groups)
        .or_else(|| marks::partial(&picture))
        .or_else(|| marks::transposed(&picture, &te.shape))
        .or_else(|| marks::reordered(&picture, &te.shape, &groups, context.mesh))
        .or_else(|| marks::split(&picture, &te.shape, &groups))
        .or_else(|| marks::precision(&picture, te.dtype))
        .map(|(fault, evidence)| Diagnosis::certain(fault, evidence))
        .or_else(|| {
            marks::statistics(&picture, te.dtype)
                .map(|(fault, evidence)| Diagnosis::likely(fault, evidence))
        })
        .unwrap_or_else(|| {
            Diagnosis::certain(
                Fault::Unknown,
                format!(
                    "largest difference {:e} where the largest element is {:e}; no scale, term, order, split or type explains it",
                    picture.largest_difference(),
                    picture.scale
                ),
            )
        })
}

fn other_shape(expected: &Value, actual: &Value, context: &Context<'_>) -> Diagnosis {
    let (te, ta) = (expected.ty(), actual.ty());
    if let Some(perm) = marks::transposed_shape(expected, actual) {
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

/// Names the fault from what every rank holds. A missing reduction is then certain: ranks that should hold copies differ,
/// and their sum over one group is the expected value.
#[must_use]
pub fn diagnose_ranks(
    expected: &Value,
    blocks: &[Value],
    mesh: &Mesh,
    layout: &Layout,
) -> Diagnosis {
    let ty = expected.ty();
    if let Err(error) = layout.validate(mesh, ty.rank()) {
        return Diagnosis::certain(Fault::Shapes, error.to_string());
    }
    if blocks.len() != mesh.size() {
        return Diagnosis::certain(
            Fault::Shapes,
            format!("{} blocks were given for {} ranks", blocks.len(), mesh.size()),
        );
    }
    for (rank, block) in blocks.iter().enumerate() {
        let shape = geometry::block(&ty.shape, layout, mesh, rank).shape();
        if block.ty().shape != shape {
            return Diagnosis::certain(
                Fault::Shapes,
                format!(
                    "rank {rank} holds {}, but the split rule gives it {:?}",
                    block.ty(),
                    shape.as_slice()
                ),
            );
        }
    }
    let context = Context { mesh: Some(mesh), layout: Some(layout), bound: None };
    let whole = |coordinates: &dyn Fn(usize) -> Vec<usize>| {
        marks::assemble(&ty, layout, mesh, blocks, coordinates)
    };
    let free: Vec<usize> = (0..mesh.rank())
        .filter(|&a| mesh.axis_size(a) > 1 && layout.on(a) == Placement::Replicated)
        .collect();
    // Sums over each set of axes that should hold copies, the largest sets last.
    let mut subsets: Vec<Vec<usize>> = (1_usize..1 << free.len())
        .map(|bits| (0..free.len()).filter(|i| bits >> i & 1 == 1).map(|i| free[i]).collect())
        .collect();
    subsets.sort_by_key(Vec::len);
    let actual = whole(&|rank| vec![rank]);
    let differ = (0..mesh.size()).find_map(|rank| {
        let group = mesh.group(rank, free.iter().copied().collect());
        group.into_iter().find(|&other| blocks[other] != blocks[rank]).map(|other| (rank, other))
    });
    if let Some((one, other)) = differ {
        for axes in subsets {
            let set = axes.iter().copied().collect();
            let sum = whole(&|rank| mesh.group(rank, set));
            if diagnose(expected, &sum, &context).is_equal() {
                return Diagnosis::certain(
                    Fault::ReductionMissing { axis: Some(mesh.axis_names(set)) },
                    format!(
                        "ranks {one} and {other} should hold copies and differ; the sum over {} is the expected value",
                        mesh.axis_names(set)
                    ),
                );
            }
        }
    }
    let mut found = diagnose(expected, &actual, &context);
    if let Some((one, other)) = differ {
        if found.is_equal() {
            found = Diagnosis::certain(
                Fault::Unknown,
                "the first copies are right, others are not".to_owned(),
            );
        }
        found.evidence.push(format!("ranks {one} and {other} should hold copies and differ"));
    }
    found
}
