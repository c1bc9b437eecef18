//! What an op says about itself: labels of dims, reductions, linearity.

use smallvec::SmallVec;

/// Name of a dimension of the op's index space. Dims that carry the same label run together.
pub type Label = char;

/// Labels of the dims of one tensor.
pub type Labels = SmallVec<[Label; 4]>;

/// How labels that the result lacks are reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// Added up.
    Sum,
    /// The largest is kept.
    Max,
}

/// In which operands the op is linear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linearity {
    /// In none.
    None,
    /// In each operand of this bit set while the others are held: exactly one of them may be `P`, all others `R`.
    OneOf(u8),
    /// In all operands together: all `P` → `P`.
    Joint,
}

/// Labels of operands and result, and the properties from which the placement rules follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Labels of each operand's dims.
    pub operands: SmallVec<[Labels; 2]>,
    /// Labels of the result's dims.
    pub result: Labels,
    /// How labels that the result lacks are reduced; `None` if there are none.
    pub reduction: Option<Reduction>,
    /// Labels that cannot be split.
    pub unsplittable: Labels,
    /// In which operands the op is linear.
    pub linearity: Linearity,
    /// Monotone increasing in its one operand, or the maximum of its operands, so that `Pmax` passes through.
    pub monotone: bool,
}

/// Labels `a`, `b`, `c` … for `rank` dims.
pub(crate) fn plain_labels(rank: usize) -> Labels {
    ('a'..='z').take(rank).collect()
}

impl Signature {
    /// All operands and the result run over the same labels.
    pub(crate) fn elementwise(operands: usize, rank: usize) -> Self {
        Self::new(SmallVec::from_elem(plain_labels(rank), operands), plain_labels(rank))
    }

    pub(crate) fn new(operands: SmallVec<[Labels; 2]>, result: Labels) -> Self {
        Self {
            operands,
            result,
            reduction: None,
            unsplittable: Labels::new(),
            linearity: Linearity::None,
            monotone: false,
        }
    }

    pub(crate) fn linear(mut self, linearity: Linearity) -> Self {
        self.linearity = linearity;
        self
    }

    pub(crate) fn monotone(mut self, monotone: bool) -> Self {
        self.monotone = monotone;
        self
    }

    pub(crate) fn reducing(mut self, reduction: Reduction) -> Self {
        self.reduction = Some(reduction);
        self
    }

    /// All labels, in order of first appearance over operands, then result.
    #[must_use]
    pub fn labels(&self) -> Labels {
        let mut labels = Labels::new();
        for &label in self.operands.iter().flatten().chain(&self.result) {
            if !labels.contains(&label) {
                labels.push(label);
            }
        }
        labels
    }

    /// Labels that the result lacks.
    #[must_use]
    pub fn reduced(&self) -> Labels {
        self.labels().into_iter().filter(|l| !self.result.contains(l)).collect()
    }

    /// Whether the op can be one of a layer's: it combines two operands, and sums over a label.
    #[must_use]
    pub fn can_belong_to_a_layer(&self) -> bool {
        self.operands.len() > 1 && self.reduction == Some(Reduction::Sum)
    }

    /// Whether the op contracts: it sums products over a label that at least two factors carry.
    #[must_use]
    pub fn is_contraction(&self) -> bool {
        let Linearity::OneOf(factors) = self.linearity else { return false };
        let shared = |label: &Label| {
            let carries = |(i, o): (usize, &Labels)| factors >> i & 1 == 1 && o.contains(label);
            self.operands.iter().enumerate().filter(|&pair| carries(pair)).count() > 1
        };
        self.reduction == Some(Reduction::Sum) && self.reduced().iter().any(shared)
    }
}
