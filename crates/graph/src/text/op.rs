//! Ops as text: what [`Op`] prints, with names quoted where needed, and the way back.

use shardgrad_core::ops::{
    Broadcast, Comparison, Const, CumSum, Einsum, Fill, Iota, Leaf, Pad, ReduceDims, Role, Slice,
    Unary, Uniform,
};
use shardgrad_core::{DType, Op, TensorType};

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
    let number = |expected: &str| {
        let text = attribute_as(expected)?;
        text.trim().parse::<usize>().map_err(|_| expected.to_owned())
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
        "iota" => Ok(Op::Iota(Iota { dim: number("a dim")?, ty: ty.clone() })),
        "uniform" => {
            let stream = u32::try_from(number("a stream")?).map_err(|_| "a stream below 2^32")?;
            Ok(Op::Uniform(Uniform { stream, ty: ty.clone() }))
        }
        "einsum" => {
            let text = attribute_as("labels like mk,kn->mn")?;
            text.parse::<Einsum>().map(Op::Einsum).map_err(|e| format!("an einsum ({e})"))
        }
        "add" => plain(Op::Add),
        "sub" => plain(Op::Sub),
        "mul" => plain(Op::Mul),
        "div" => plain(Op::Div),
        "maximum" => plain(Op::Maximum),
        "minimum" => plain(Op::Minimum),
        "where" => plain(Op::Where),
        "cast" => {
            let text = attribute_as("an element type")?.trim();
            let all = [DType::F32, DType::F64, DType::I32, DType::I64];
            let dtype = all.into_iter().find(|dtype| dtype.to_string() == text);
            dtype.map(Op::Cast).ok_or_else(|| "f32, f64, i32 or i64".to_owned())
        }
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
        "cumsum" => {
            let expected = "dim=…, reverse=…";
            let [dim, reverse] = fields(attribute_as(expected)?, ["dim", "reverse"], expected)?;
            Ok(Op::CumSum(CumSum { dim: read(dim, expected)?, reverse: read(reverse, expected)? }))
        }
        "slice" => {
            let expected = "dim=…, start=…, stop=…, step=…";
            let keys = ["dim", "start", "stop", "step"];
            let [dim, start, stop, step] = fields(attribute_as(expected)?, keys, expected)?;
            Ok(Op::Slice(Slice {
                dim: read(dim, expected)?,
                start: read(start, expected)?,
                stop: read(stop, expected)?,
                step: read(step, expected)?,
            }))
        }
        "pad" => {
            let expected = "dim=…, before=…, after=…, between=…, value=…";
            let keys = ["dim", "before", "after", "between", "value"];
            let [dim, before, after, between, value] =
                fields(attribute_as(expected)?, keys, expected)?;
            Ok(Op::Pad(Pad {
                dim: read(dim, expected)?,
                before: read(before, expected)?,
                after: read(after, expected)?,
                between: read(between, expected)?,
                value: Const::new(read(value, expected)?),
            }))
        }
        "concat" => Ok(Op::Concat(number("a dim")?)),
        "one_hot" => Ok(Op::OneHot { classes: number("the number of classes")?, dtype: ty.dtype }),
        "lookup" => Ok(Op::Lookup { rows: number("the number of rows")? }),
        "scatter_add" => Ok(Op::ScatterAdd { rows: number("the number of rows")? }),
        "stop_gradient" => plain(Op::StopGradient),
        "constrain" => plain(Op::Constrain),
        _ => Err("the name of an op; transitions stand in plans only".to_owned()),
    }
}

/// The values of `key=value, …` with these keys in this order.
fn fields<'a, const N: usize>(
    text: &'a str,
    keys: [&str; N],
    expected: &str,
) -> Result<[&'a str; N], String> {
    let wrong = || expected.to_owned();
    let parts: [&str; N] = text.split(',').collect::<Vec<_>>().try_into().map_err(|_| wrong())?;
    let mut values = [""; N];
    for ((value, part), key) in values.iter_mut().zip(parts).zip(keys) {
        let (name, text) = part.split_once('=').ok_or_else(wrong)?;
        if name.trim() != key {
            return Err(wrong());
        }
        *value = text.trim();
    }
    Ok(values)
}

fn read<T: std::str::FromStr>(text: &str, expected: &str) -> Result<T, String> {
    text.parse().map_err(|_| expected.to_owned())
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
