//! Ops as text: what [`Op`] prints, with names quoted where needed, and the way back.

use shardgrad_core::ops::{
    Broadcast, Comparison, Const, Einsum, Fill, Leaf, ReduceDims, Role, Unary,
};
use shardgrad_core::{Op, TensorType};

use super::quoted;

/// The op with its attributes.
pub(super) fn display(op: &Op) -> String {
    match op {
        Op::Leaf(leaf) => format!("{} {}", leaf.role, quoted(&leaf.name)),
        other => other.to_string(),
    }
}

/// The role that a word names.
pub(super) fn role(word: &str) -> Option<Role> {
    [Role::Input, Role::Param, Role::State, Role::Scalar]
        .into_iter()
        .find(|role| role.to_string() == word)
}

/// A leaf.
pub(super) fn leaf(role: Role, name: String, ty: &TensorType) -> Op {
    Op::Leaf(Leaf { name, role, ty: ty.clone() })
}

/// The op with this name and attribute, whose result has type `ty`; else what was expected.
pub(super) fn parse(name: &str, attribute: Option<&str>, ty: &TensorType) -> Result<Op, String> {
    let plain = |op: Op| match attribute {
        None => Ok(op),
        Some(_) => Err(format!("no attribute: {name} takes operands only")),
    };
    let attribute_as =
        |expected: &str| attribute.ok_or_else(|| format!("{expected} as an attribute of {name}"));
    let constant = || {
        let text = attribute_as("a number")?;
        text.trim().parse().map(Const::new).map_err(|_| "a number".to_owned())
    };
    let dims = || dims(attribute_as("dims like [0, 1]")?);
    if let Some(unary) = Unary::ALL.into_iter().find(|u| u.name() == name) {
        return plain(Op::Unary(unary));
    }
    if let Some(comparison) = Comparison::ALL.into_iter().find(|c| c.name() == name) {
        return plain(Op::Compare(comparison));
    }
    let of_const = name.strip_suffix("_const");
    if let Some(comparison) =
        Comparison::ALL.into_iter().find(|c| of_const.is_some_and(|n| n == c.name()))
    {
        return Ok(Op::CompareConst(comparison, constant()?));
    }
    match name {
        "fill" => Ok(Op::Fill(Fill { value: constant()?, ty: ty.clone() })),
        "einsum" => {
            let text = attribute_as("labels like mk,kn->mn")?;
            text.parse::<Einsum>().map(Op::Einsum).map_err(|e| format!("an einsum ({e})"))
        }
        "add" => plain(Op::Add),
        "sub" => plain(Op::Sub),
        "mul" => plain(Op::Mul),
        "div" => plain(Op::Div),
        "scale" => Ok(Op::Scale(constant()?)),
        "add_const" => Ok(Op::AddConst(constant()?)),
        "sum" => Ok(Op::Sum(ReduceDims::new(dims()?))),
        "max" => Ok(Op::Max(ReduceDims::new(dims()?))),
        "transpose" => Ok(Op::Transpose(dims()?.into_iter().collect())),
        "reshape" => Ok(Op::Reshape(dims()?.into_iter().collect())),
        "broadcast" => {
            let expected = "dims=[…], shape=[…]";
            let text = attribute_as(expected)?.trim();
            let (places, shape) = text
                .strip_prefix("dims=")
                .and_then(|rest| rest.split_once("], shape="))
                .ok_or_else(|| expected.to_owned())?;
            Ok(Op::Broadcast(Broadcast {
                dims: self::dims(&format!("{places}]"))?.into_iter().collect(),
                shape: self::dims(shape)?.into_iter().collect(),
            }))
        }
        "one_hot" => {
            let text = attribute_as("the number of classes")?;
            let classes = text.trim().parse().map_err(|_| "the number of classes".to_owned())?;
            Ok(Op::OneHot { classes, dtype: ty.dtype })
        }
        "stop_gradient" => plain(Op::StopGradient),
        "constrain" => plain(Op::Constrain),
        _ => Err("the name of an op; transitions stand in plans only".to_owned()),
    }
}

/// `[0, 1]`.
pub(super) fn dims(text: &str) -> Result<Vec<usize>, String> {
    let expected = || "whole numbers in brackets, like [0, 1]".to_owned();
    let inner = text.trim().strip_prefix('[').and_then(|t| t.strip_suffix(']'));
    let inner = inner.ok_or_else(expected)?.trim();
    if inner.is_empty() {
        return Ok(Vec::new());
    }
    inner.split(',').map(|n| n.trim().parse().map_err(|_| expected())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardgrad_core::ops::catalog;

    #[test]
    fn every_op_of_the_table_round_trips() {
        for row in catalog::rows() {
            let ty = row.op.infer(&row.operands).unwrap();
            let text = display(&row.op);
            if let Op::Leaf(leaf) = &row.op {
                assert_eq!(text, format!("{} {}", leaf.role, leaf.name));
                continue;
            }
            let (name, attribute) = match text.split_once('(') {
                Some((name, rest)) => (name, Some(rest.strip_suffix(')').unwrap())),
                None => (text.as_str(), None),
            };
            assert_eq!(parse(name, attribute, &ty).as_ref(), Ok(&row.op), "{text}");
        }
    }
}
