//! The plan space of one op: all ways to lay out its operands and its result.
//!
//! One rule per mesh axis ([`axis_rules`]), chosen independently; layouts that mix `P` with `Pmax` and reshapes whose
//! blocks would not line up are left out. Axes of one device replicate. A *choice* is one such combination.
//!
//! Restrictions per axis: a fixed split binds a contraction to one label (or to none); a free split must share the work,
//! so that the rules that repeat a contraction on every rank are out; a demand binds the layout of a leaf.
//!
//! Pending terms only arise where a reduction shares its work. A copy is masked or padded to `P` in order to be added to
//! such terms, and for nothing else: the linear rules ask for an operand that can be pending by itself on that axis, add
//! and sub for at least one. What this leaves out is never better: a mask after a linear op does what a mask before it
//! does, for the same bytes and flops. `Pmax`, to which nothing is added, is never masked to at all.

use shardgrad_core::ops::{Label, Signature};
use shardgrad_core::rules::{AxisRule, RuleKind, axis_rules, check_boundaries};
use shardgrad_core::{AxisSet, Layout, Mesh, Op, Placement, Prices, TensorType};
use smallvec::SmallVec;

use crate::cost::Fields;
use crate::layouts::{LayoutId, LayoutTable};

/// What one axis may do to an op.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Allowed {
    /// Every rule.
    Any,
    /// The op shares its work along some label.
    Shares,
    /// The op shares its work along this label.
    Splits(Label),
    /// Every rank repeats the work.
    Repeats,
    /// The result is placed so.
    Result(Placement),
}

impl Allowed {
    fn admits(&self, rule: &AxisRule) -> bool {
        match self {
            Allowed::Any => true,
            Allowed::Shares => matches!(rule.kind, RuleKind::Split(_)),
            Allowed::Splits(label) => rule.kind == RuleKind::Split(*label),
            Allowed::Repeats => rule.kind == RuleKind::Replicate,
            Allowed::Result(placement) => rule.result == *placement,
        }
    }
}

/// One way to compute an op.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Layout of each operand, by number in the operand's table.
    pub operands: SmallVec<[LayoutId; 2]>,
    /// Layout of the result, by number in the result's table.
    pub result: LayoutId,
    /// The rule on each axis.
    pub kinds: SmallVec<[RuleKind; 4]>,
    /// What computing it so costs: flops, and the result's bytes.
    pub fields: Fields,
}

/// What determines the choices of an op.
#[derive(Clone, Debug)]
pub struct OpSpace<'a> {
    /// The mesh.
    pub mesh: &'a Mesh,
    /// What computing costs.
    pub prices: Prices<'a>,
    /// The op.
    pub op: &'a Op,
    /// Types of its operands.
    pub operands: &'a [TensorType],
    /// Type of its result.
    pub result: &'a TensorType,
    /// Layout tables of its operands.
    pub operand_tables: &'a [&'a LayoutTable],
    /// Layout table of its result.
    pub result_table: &'a LayoutTable,
    /// Operands that are read replicated only: scalars that are the same on every rank by construction.
    pub replicated_operands: &'a [bool],
    /// Axes on which each operand can be made pending.
    pub pending_operands: &'a [AxisSet],
    /// What each axis may do.
    pub allowed: &'a [Allowed],
}

impl OpSpace<'_> {
    /// All choices, in order: the first axis slowest, rules in the order of [`axis_rules`].
    #[must_use]
    pub fn choices(&self) -> Vec<Choice> {
        let signature = self.op.signature(self.operands, self.result);
        let rules = axis_rules(&signature);
        let per_axis: Vec<Vec<&AxisRule>> = (0..self.mesh.rank())
            .map(|axis| {
                let wide = self.mesh.axis_size(axis) > 1;
                let fits = |rule: &&AxisRule| {
                    if wide { self.admits(axis, rule) } else { rule.kind == RuleKind::Replicate }
                };
                rules.iter().filter(fits).collect()
            })
            .collect();
        let mut choices = Vec::new();
        let mut picked: SmallVec<[&AxisRule; 4]> = SmallVec::new();
        self.extend(&signature, &per_axis, &mut picked, &mut choices);
        choices
    }

    fn admits(&self, axis: usize, rule: &AxisRule) -> bool {
        let replicated = |(only_r, p): (&bool, &Placement)| !only_r || *p == Placement::Replicated;
        let pending = match rule.kind {
            RuleKind::Linear(i) => self.pending_operands[i].contains(axis),
            RuleKind::Joint => self.pending_operands.iter().any(|axes| axes.contains(axis)),
            RuleKind::Replicate | RuleKind::Split(_) | RuleKind::Monotone => true,
        };
        pending
            && self.allowed[axis].admits(rule)
            && self.replicated_operands.iter().zip(&rule.operands).all(replicated)
    }

    fn extend<'r>(
        &self,
        signature: &Signature,
        per_axis: &[Vec<&'r AxisRule>],
        picked: &mut SmallVec<[&'r AxisRule; 4]>,
        choices: &mut Vec<Choice>,
    ) {
        let Some(rules) = per_axis.get(picked.len()) else {
            choices.extend(self.choice(signature, picked));
            return;
        };
        for rule in rules {
            picked.push(rule);
            self.extend(signature, per_axis, picked, choices);
            picked.pop();
        }
    }

    /// The choice of these rules, unless it mixes `P` with `Pmax` or blocks do not line up.
    fn choice(&self, signature: &Signature, picked: &[&AxisRule]) -> Option<Choice> {
        let kinds: SmallVec<[RuleKind; 4]> = picked.iter().map(|r| r.kind).collect();
        let layouts: SmallVec<[Layout; 2]> = (0..self.operands.len())
            .map(|i| Layout(picked.iter().map(|r| r.operands[i]).collect()))
            .collect();
        let result = Layout(picked.iter().map(|r| r.result).collect());
        let operands = layouts
            .iter()
            .zip(self.operand_tables)
            .map(|(layout, table)| table.id(layout))
            .collect::<Option<SmallVec<[LayoutId; 2]>>>()?;
        let result_id = self.result_table.id(&result)?;
        check_boundaries(self.op, signature, self.mesh, self.operands, self.result, &kinds).ok()?;
        let by_ref: SmallVec<[&Layout; 2]> = layouts.iter().collect();
        let fields = self.prices.op(self.op, self.operands, self.result, &by_ref, &result);
        Some(Choice { operands, result: result_id, kinds, fields })
    }
}
