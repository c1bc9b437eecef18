//! The choices of an op: one placement rule per mesh axis, as far as its space admits them.

use shardgrad_core::ops::{Label, Signature};
use shardgrad_core::price::Fields;
use shardgrad_core::rules::{AxisRule, RuleKind, axis_rules, check_boundaries};
use shardgrad_core::{AxisSet, Layout, Op, Placement, Prices, TensorType};
use smallvec::SmallVec;

use super::layouts::{LayoutId, Layouts};
use crate::certificate::Weights;

/// What one axis may do to an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Axis {
    /// Any rule.
    Any,
    /// A rule that shares the work along some label.
    Shares,
    /// The rule that shares it along this one.
    Along(Label),
    /// The rule that repeats the work.
    Repeats,
    /// Rules whose result lies so.
    Gives(Placement),
}

impl Axis {
    pub(super) fn admits(self, kind: RuleKind, result: Placement) -> bool {
        match self {
            Axis::Any => true,
            Axis::Shares => matches!(kind, RuleKind::Split(_)),
            Axis::Along(label) => kind == RuleKind::Split(label),
            Axis::Repeats => kind == RuleKind::Replicate,
            Axis::Gives(placement) => result == placement,
        }
    }
}

/// What an operand is to the op's choices.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct OperandFacts {
    pub(super) ty: TensorType,
    pub(super) with_max: bool,
    /// A scalar that every rank has by construction.
    pub(super) uniform: bool,
    /// Axes on which it can be read as terms that arose pending.
    pub(super) pending: AxisSet,
}

/// The choices of a node.
pub(super) struct Choices {
    /// Layout of each operand, by choice.
    pub(super) operands: Vec<Vec<LayoutId>>,
    /// Layout of the result, by choice.
    pub(super) result: Vec<LayoutId>,
    /// Cost, by choice.
    pub(super) costs: Vec<u128>,
    /// Axes on which some choice leaves the result pending.
    pub(super) pending: AxisSet,
    /// The most of each field of any choice.
    pub(super) most: Fields,
}

/// An op with what its choices depend on.
pub(super) struct Subject<'a> {
    pub(super) op: &'a Op,
    pub(super) operands: &'a [OperandFacts],
    pub(super) ty: &'a TensorType,
    pub(super) axes: &'a [Axis],
    pub(super) operand_layouts: &'a [&'a Layouts],
    pub(super) result_layouts: &'a Layouts,
}

impl Subject<'_> {
    pub(super) fn choices(&self, prices: &Prices<'_>, weights: &Weights) -> Choices {
        let types: Vec<TensorType> = self.operands.iter().map(|o| o.ty.clone()).collect();
        let signature = self.op.signature(&types, self.ty);
        let rules = axis_rules(&signature);
        let mut found = Choices {
            operands: vec![Vec::new(); types.len()],
            result: Vec::new(),
            costs: Vec::new(),
            pending: AxisSet::default(),
            most: [0; 4],
        };
        let per_axis: Vec<Vec<&AxisRule>> = (0..prices.mesh.rank())
            .map(|axis| {
                let wide = prices.mesh.axis_size(axis) > 1;
                let fits = |rule: &&AxisRule| match wide {
                    true => self.admits(axis, rule),
                    false => rule.kind == RuleKind::Replicate,
                };
                rules.iter().filter(fits).collect()
            })
            .collect();
        let count: usize = per_axis.iter().map(Vec::len).product();
        for code in 0..count {
            let mut rest = code;
            let mut picked: SmallVec<[&AxisRule; 4]> = SmallVec::new();
            for rules in &per_axis {
                picked.push(rules[rest % rules.len()]);
                rest /= rules.len();
            }
            self.add(&picked, &types, &signature, prices, weights, &mut found);
        }
        found.pending = (0..prices.mesh.rank())
            .filter(|&axis| {
                let layouts =
                    found.result.iter().map(|&l| &self.result_layouts.all[usize::from(l)]);
                layouts.into_iter().any(|l| l.on(axis) == Placement::PendingSum)
            })
            .collect();
        found
    }

    fn admits(&self, axis: usize, rule: &AxisRule) -> bool {
        let pending = match rule.kind {
            RuleKind::Linear(operand) => self.operands[operand].pending.contains(axis),
            RuleKind::Joint => self.operands.iter().any(|o| o.pending.contains(axis)),
            RuleKind::Replicate | RuleKind::Split(_) | RuleKind::Monotone => true,
        };
        let uniform = self.operands.iter().zip(&rule.operands);
        pending
            && self.axes[axis].admits(rule.kind, rule.result)
            && uniform.clone().all(|(o, &p)| !o.uniform || p == Placement::Replicated)
    }

    /// Adds the choice of these rules, unless it mixes `P` with `Pmax` or blocks do not line up.
    fn add(
        &self,
        picked: &[&AxisRule],
        types: &[TensorType],
        signature: &Signature,
        prices: &Prices<'_>,
        weights: &Weights,
        found: &mut Choices,
    ) {
        let kinds: SmallVec<[RuleKind; 4]> = picked.iter().map(|r| r.kind).collect();
        let operand = |i: usize| Layout(picked.iter().map(|r| r.operands[i]).collect());
        let operands: Vec<Layout> = (0..types.len()).map(operand).collect();
        let result = Layout(picked.iter().map(|r| r.result).collect());
        let numbers: Option<Vec<LayoutId>> =
            operands.iter().zip(self.operand_layouts).map(|(l, table)| table.number(l)).collect();
        let (Some(numbers), Some(number)) = (numbers, self.result_layouts.number(&result)) else {
            return;
        };
        if check_boundaries(self.op, signature, prices.mesh, types, self.ty, &kinds).is_err() {
            return;
        }
        for (list, number) in found.operands.iter_mut().zip(numbers) {
            list.push(number);
        }
        let by_ref: Vec<&Layout> = operands.iter().collect();
        let fields = prices.op(self.op, types, self.ty, &by_ref, &result);
        found.result.push(number);
        found.costs.push(weights.pack(fields));
        for (most, field) in found.most.iter_mut().zip(fields) {
            *most = (*most).max(field);
        }
    }
}
