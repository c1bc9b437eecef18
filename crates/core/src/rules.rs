//! The placements that an op admits, from its signature. Mesh axes choose independently.
//!
//! Per axis:
//! 1. all operands `R` → result `R`;
//! 2. one splittable label: operands that carry it are `S` there, the others `R`; the result is `S` there, or `P`/`Pmax`
//!    if the label is reduced;
//! 3. linearity: [`Linearity::OneOf`] takes exactly one `P` and `R` elsewhere, [`Linearity::Joint`] all `P`; a monotone
//!    op takes `Pmax`. Nothing else accepts a pending operand.
//!
//! Over all axes together, no layout mixes `P` with `Pmax`, and where a label runs over dims of different extents
//! (reshape) its blocks must line up.

use smallvec::SmallVec;

use crate::dtype::TensorType;
use crate::error::Error;
use crate::geometry::boundaries_coincide;
use crate::layout::Layout;
use crate::mesh::Mesh;
use crate::ops::{Label, Labels, Linearity, Op, Reduction, Signature};
use crate::placement::Placement::{self, PendingMax, PendingSum, Replicated, Shard};

/// Why a rule holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RuleKind {
    /// Every rank of the axis does the whole work.
    Replicate,
    /// The ranks of the axis share the work along this label.
    Split(Label),
    /// The op is linear in this operand, which is pending.
    Linear(usize),
    /// The op is linear in all operands together, which are all pending.
    Joint,
    /// The op is monotone, its operand pending a maximum.
    Monotone,
}

/// One admissible choice on one mesh axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AxisRule {
    /// Placement of each operand.
    pub operands: SmallVec<[Placement; 2]>,
    /// Placement of the result.
    pub result: Placement,
    /// Why it is admissible.
    pub kind: RuleKind,
}

fn placement_of(label: Label, labels: &Labels) -> Placement {
    labels.iter().position(|&l| l == label).map_or(Replicated, Shard)
}

/// All rules of an op on one axis, in a fixed order: replicate, each label in order of appearance, then linearity.
///
/// ```
/// use shardgrad_core::{DType, Op, TensorType, rules::axis_rules};
/// let op = Op::Einsum("mk,kn->mn".parse()?);
/// let types = [TensorType::new([4, 5], DType::F32), TensorType::new([5, 6], DType::F32)];
/// let rules = axis_rules(&op.signature(&types, &op.infer(&types)?));
/// let text: Vec<_> = rules.iter().map(ToString::to_string).collect();
/// assert_eq!(text, ["R,R→R", "S(0),R→S(0)", "S(1),S(0)→P", "R,S(1)→S(1)", "P,R→P", "R,P→P"]);
/// # Ok::<(), shardgrad_core::Error>(())
/// ```
#[must_use]
pub fn axis_rules(signature: &Signature) -> Vec<AxisRule> {
    let arity = signature.operands.len();
    let mut rules = vec![AxisRule {
        operands: SmallVec::from_elem(Replicated, arity),
        result: Replicated,
        kind: RuleKind::Replicate,
    }];
    for label in signature.labels() {
        if signature.unsplittable.contains(&label) {
            continue;
        }
        let result = match signature.reduction {
            _ if signature.result.contains(&label) => placement_of(label, &signature.result),
            Some(Reduction::Max) => PendingMax,
            Some(Reduction::Sum) | None => PendingSum,
        };
        rules.push(AxisRule {
            operands: signature.operands.iter().map(|o| placement_of(label, o)).collect(),
            result,
            kind: RuleKind::Split(label),
        });
    }
    match signature.linearity {
        Linearity::None => {}
        Linearity::OneOf(operands) => {
            for i in (0..arity).filter(|i| operands >> i & 1 == 1) {
                let mut placements: SmallVec<[Placement; 2]> =
                    SmallVec::from_elem(Replicated, arity);
                placements[i] = PendingSum;
                rules.push(AxisRule {
                    operands: placements,
                    result: PendingSum,
                    kind: RuleKind::Linear(i),
                });
            }
        }
        Linearity::Joint => rules.push(AxisRule {
            operands: SmallVec::from_elem(PendingSum, arity),
            result: PendingSum,
            kind: RuleKind::Joint,
        }),
    }
    if signature.monotone {
        rules.push(AxisRule {
            operands: SmallVec::from_elem(PendingMax, arity),
            result: PendingMax,
            kind: RuleKind::Monotone,
        });
    }
    rules
}

/// Checks that an op admits these layouts, and says by which rule on each axis.
///
/// `operands` and `result` are the global types. Transitions are not judged here but by
/// [`crate::transition::Transition::between`].
///
/// # Errors
/// The first axis on which no rule fits, with what would; a layout that does not fit its tensor or mixes `P` with
/// `Pmax`; a label whose blocks do not line up.
pub fn check(
    op: &Op,
    mesh: &Mesh,
    operands: &[TensorType],
    result: &TensorType,
    operand_layouts: &[&Layout],
    result_layout: &Layout,
) -> Result<SmallVec<[RuleKind; 4]>, Error> {
    let signature = op.signature(operands, result);
    for (ty, layout) in operands.iter().zip(operand_layouts).chain([(result, &result_layout)]) {
        layout.validate(mesh, ty.rank())?;
    }
    let rules = axis_rules(&signature);
    let mut kinds = SmallVec::new();
    for (axis, mesh_axis) in mesh.axes().iter().enumerate() {
        let placed: SmallVec<[Placement; 2]> = operand_layouts.iter().map(|l| l.on(axis)).collect();
        let fitting =
            rules.iter().find(|r| r.operands == placed && r.result == result_layout.on(axis));
        let Some(rule) = fitting else {
            return Err(Error::NoRule {
                op: op.name(),
                operands: list(&placed),
                result: result_layout.on(axis),
                axis: mesh_axis.name.clone(),
                hint: hint(&rules, &placed),
            });
        };
        kinds.push(rule.kind);
    }
    check_boundaries(op, &signature, mesh, operands, result, &kinds)?;
    Ok(kinds)
}

/// Checks that wherever axes split a label, its blocks line up in all dims that carry it.
///
/// # Errors
/// The label and the extents that do not line up.
pub fn check_boundaries(
    op: &Op,
    signature: &Signature,
    mesh: &Mesh,
    operands: &[TensorType],
    result: &TensorType,
    kinds: &[RuleKind],
) -> Result<(), Error> {
    for label in signature.labels() {
        let axes: SmallVec<[usize; 4]> =
            (0..kinds.len()).filter(|&a| kinds[a] == RuleKind::Split(label)).collect();
        if axes.is_empty() {
            continue;
        }
        let tensors = signature.operands.iter().zip(operands).chain([(&signature.result, result)]);
        let extents: SmallVec<[usize; 4]> = tensors
            .filter_map(|(labels, ty)| labels.iter().position(|&l| l == label).map(|d| ty.shape[d]))
            .collect();
        if !extents.iter().all(|&n| boundaries_coincide(extents[0], n, mesh, &axes)) {
            return Err(Error::BlocksDiffer {
                op: op.name(),
                label,
                axes: mesh.axis_names(axes.iter().copied().collect()),
                extents: format!("{:?}", extents.as_slice()),
            });
        }
    }
    Ok(())
}

fn list(placements: &[Placement]) -> String {
    placements.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// What to do about operands that no rule admits.
fn hint(rules: &[AxisRule], placed: &[Placement]) -> String {
    let results: Vec<String> = rules
        .iter()
        .filter(|r| r.operands.as_slice() == placed)
        .map(|r| r.result.to_string())
        .collect();
    if !results.is_empty() {
        return format!("with these operands the result is {}", results.join(" or "));
    }
    if placed.iter().any(|p| p.is_pending()) {
        let takes_pending = rules.iter().any(|r| r.operands.iter().any(|p| p.is_pending()));
        if !takes_pending {
            return "the op is not linear: reduce the pending operand first".to_owned();
        }
    }
    let legal: Vec<String> = rules.iter().map(ToString::to_string).collect();
    format!("legal are {}", legal.join(" · "))
}

impl std::fmt::Display for AxisRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}→{}", list(&self.operands), self.result)
    }
}
