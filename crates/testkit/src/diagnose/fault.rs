//! The kinds of faults, their names, and what to look at.

use std::fmt;

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

/// How often, in words.
fn often(times: u32) -> String {
    match times {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        _ => format!("{times} times"),
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Equal { exact: true } => write!(f, "equal, bit for bit"),
            Fault::Equal { exact: false } => write!(f, "equal within rounding"),
            Fault::Shapes => write!(f, "shapes differ"),
            Fault::NotFinite => write!(f, "infinite or not a number"),
            Fault::ReductionRepeated { axis, size, times } => {
                write!(
                    f,
                    "a reduction over {axis} ({size} devices) runs {} too often",
                    often(*times)
                )
            }
            Fault::Averaged { axis, size, times } => {
                write!(f, "divided {} by the size of {axis} ({size} devices)", often(*times))
            }
            Fault::Negated => write!(f, "the negative"),
            Fault::Scaled { factor } => write!(f, "scaled by {factor:.6}"),
            Fault::ReductionMissing { axis: Some(axis) } => {
                write!(f, "one rank's term only: the reduction over {axis} is missing")
            }
            Fault::ReductionMissing { axis: None } => {
                write!(f, "one rank's term only: a reduction is missing")
            }
            Fault::BlocksReordered { dim, order } => {
                write!(f, "blocks of dim {dim} in the order {order:?}")
            }
            Fault::Transposed { perm } => write!(f, "transposed by {perm:?}"),
            Fault::WrongSplit { dim, parts, rule } => {
                write!(f, "dim {dim} cut into {parts} blocks by another rule: {rule}")
            }
            Fault::Precision { dtype } => write!(f, "computed or added up in {dtype}"),
            Fault::Noise => write!(f, "noise: unstructured differences, larger than rounding"),
            Fault::Unknown => write!(f, "none of the known faults"),
        }
    }
}
