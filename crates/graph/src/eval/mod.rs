//! The meaning of a program: every op as a naive loop over dense arrays. This is the oracle that plans are compared
//! with, so it favours being evidently right over being fast.
//!
//! The same loops work on local blocks: [`apply`] takes the blocks of the operands and where they and the result's block
//! lie in their global values ([`Places`]), which only ops that deal in indices look at. Blocks may be empty; a sum over
//! nothing is 0, a maximum −∞.
//!
//! Values are computed in their own type, sums in index order. [`evaluate_in`] computes an f32 program in f64, which
//! tells rounding from faults.

mod along;
mod einsum;
mod elementwise;
mod indices;
mod lookup;
mod number;
mod one_hot;
mod reduce;
mod shape;
mod strided;

use std::collections::BTreeMap;

use shardgrad_core::ops::Reduction;
use shardgrad_core::{Block, DType, Op, TensorType};

pub(crate) use number::Number;

use crate::error::Error;
use crate::node::NodeId;
use crate::program::Program;
use crate::value::{Element, Value};

/// The value of every node of a program.
///
/// ```
/// use std::collections::BTreeMap;
/// use shardgrad_core::{DType, TensorType};
/// use shardgrad_graph::{Graph, OutputRole, Value, eval};
/// let g = Graph::new("sum of squares", DType::F64);
/// let x = g.input("x", [3])?;
/// g.output("loss", x.square()?.sum_all()?, OutputRole::Loss)?;
/// let x = Value::from_fn(&TensorType::new([3], DType::F64), |i| i as f64);
/// let outputs = eval::evaluate_outputs(&g.finish(), &BTreeMap::from([("x".to_owned(), x)]))?;
/// assert_eq!(outputs["loss"].item(), Some(5.0));
/// # Ok::<(), shardgrad_graph::Error>(())
/// ```
///
/// # Errors
/// As [`check_inputs`]; integer arithmetic without a result.
pub fn evaluate(program: &Program, inputs: &BTreeMap<String, Value>) -> Result<Vec<Value>, Error> {
    check_inputs(program, inputs)?;
    let mut values: Vec<Value> = Vec::with_capacity(program.nodes.len());
    for node in &program.nodes {
        let value = match node.leaf_name() {
            Some(name) => inputs[name].clone(),
            None => {
                let operands: Vec<&Value> =
                    node.operands.iter().map(|o| &values[o.index()]).collect();
                let read = node.op.names_one_of().map_or(0, |(operand, _)| operand);
                let name = node.operands.get(read).map(|&o| name_of(program, o));
                let whole = Block::whole(&node.ty.shape);
                let (places, name) = (Places::at(&whole), name.unwrap_or_default());
                apply_named(&node.op, &operands, &node.ty, &places, &name)?
            }
        };
        values.push(value);
    }
    Ok(values)
}

/// The outputs of a program, by name.
///
/// # Errors
/// As [`evaluate`].
pub fn evaluate_outputs(
    program: &Program,
    inputs: &BTreeMap<String, Value>,
) -> Result<BTreeMap<String, Value>, Error> {
    let values = evaluate(program, inputs)?;
    Ok(program.outputs.iter().map(|o| (o.name.clone(), values[o.node.index()].clone())).collect())
}

/// The value of every node, all floats being computed in `dtype`; float inputs are converted.
///
/// # Errors
/// As [`evaluate`]; `dtype` is no float type.
pub fn evaluate_in(
    program: &Program,
    inputs: &BTreeMap<String, Value>,
    dtype: DType,
) -> Result<Vec<Value>, Error> {
    if !dtype.is_float() {
        return Err(Error::WrongValue {
            name: program.name.clone(),
            expected: "evaluated in f32 or f64".to_owned(),
            found: dtype.to_string(),
        });
    }
    let inputs = inputs
        .iter()
        .map(|(name, value)| {
            let value = if value.ty().dtype.is_float() { value.cast(dtype) } else { value.clone() };
            (name.clone(), value)
        })
        .collect();
    evaluate(&in_dtype(program, dtype), &inputs)
}

/// The same program with all floats in another type.
fn in_dtype(program: &Program, dtype: DType) -> Program {
    let convert = |ty: &mut TensorType| {
        if ty.dtype.is_float() {
            ty.dtype = dtype;
        }
    };
    let mut program = program.clone();
    for node in &mut program.nodes {
        convert(&mut node.ty);
        match &mut node.op {
            Op::Leaf(leaf) => convert(&mut leaf.ty),
            Op::Fill(fill) => convert(&mut fill.ty),
            Op::Iota(iota) => convert(&mut iota.ty),
            Op::Uniform(uniform) => convert(&mut uniform.ty),
            Op::OneHot { dtype: d, .. } | Op::Cast(d) if d.is_float() => *d = dtype,
            Op::OneHot { .. }
            | Op::Cast(_)
            | Op::Lookup { .. }
            | Op::ScatterAdd { .. }
            | Op::Einsum(_)
            | Op::Add
            | Op::Sub
            | Op::Mul
            | Op::Div
            | Op::Maximum
            | Op::Minimum
            | Op::Where
            | Op::Scale(_)
            | Op::AddConst(_)
            | Op::Unary(_)
            | Op::Compare(_)
            | Op::CompareConst(..)
            | Op::Sum(_)
            | Op::Max(_)
            | Op::CumSum(_)
            | Op::Broadcast(_)
            | Op::Transpose(_)
            | Op::Reshape(_)
            | Op::Slice(_)
            | Op::Pad(_)
            | Op::Concat(_)
            | Op::StopGradient
            | Op::Constrain
            | Op::Transition(_) => {}
        }
    }
    program
}

/// Checks that every leaf has a value of its type, and that leaves read as labels name classes that exist.
///
/// # Errors
/// The leaf that has no value or a value of another type; the row whose label is out of range.
pub fn check_inputs(program: &Program, inputs: &BTreeMap<String, Value>) -> Result<(), Error> {
    for id in program.leaves() {
        let Some(name) = program.node(id).leaf_name() else { continue };
        let Some(value) = inputs.get(name) else {
            let known: Vec<&str> = inputs.keys().map(String::as_str).collect();
            return Err(Error::UnknownName {
                name: name.to_owned(),
                known: format!("values are given for {}", known.join(", ")),
            });
        };
        let expected = &program.node(id).ty;
        if value.ty() != *expected {
            return Err(Error::WrongValue {
                name: name.to_owned(),
                expected: expected.to_string(),
                found: value.ty().to_string(),
            });
        }
    }
    for node in &program.nodes {
        let Some((position, classes)) = node.op.names_one_of() else { continue };
        let Some(&operand) = node.operands.get(position) else { continue };
        let leaf = program.node(operand).leaf_name();
        let Some((name, value)) = leaf.and_then(|name| Some((name, inputs.get(name)?))) else {
            continue;
        };
        if let Some((row, label)) = one_hot::first_bad_label(value, classes) {
            let name = name.to_owned();
            return Err(Error::LabelOutOfRange { name, row, label, classes });
        }
    }
    Ok(())
}

fn name_of(program: &Program, id: NodeId) -> String {
    program.name_of(id).map_or_else(|| id.to_string(), str::to_owned)
}

/// Where blocks lie in their global values.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    /// The operands' blocks; an operand without one starts at index 0.
    pub operands: &'a [Block],
    /// The result's block.
    pub result: &'a Block,
}

impl<'a> Places<'a> {
    /// The result's block, of operands that start at index 0.
    #[must_use]
    pub fn at(result: &'a Block) -> Self {
        Self { operands: &[], result }
    }
}

/// One op on local blocks: the operands' blocks make the block of the result that `places` names, of type `local_ty`.
///
/// # Errors
/// The op is a leaf; the blocks do not fit each other; a label is no class; integer arithmetic has no result.
pub fn apply(
    op: &Op,
    operands: &[&Value],
    local_ty: &TensorType,
    places: &Places<'_>,
) -> Result<Value, Error> {
    apply_named(op, operands, local_ty, places, "labels")
}

/// `$body` with `$t` as the element type `$dtype`.
macro_rules! with_type {
    ($dtype:expr, $t:ident => $body:expr) => {
        match $dtype {
            DType::F32 => {
                type $t = f32;
                $body
            }
            DType::F64 => {
                type $t = f64;
                $body
            }
            DType::I32 => {
                type $t = i32;
                $body
            }
            DType::I64 => {
                type $t = i64;
                $body
            }
        }
    };
}
pub(crate) use with_type;

fn apply_named(
    op: &Op,
    operands: &[&Value],
    local: &TensorType,
    places: &Places<'_>,
    name: &str,
) -> Result<Value, Error> {
    let block = places.result;
    let start = |operand: usize| {
        let first = places.operands.get(operand).and_then(|block| block.ranges.first());
        first.map_or(0, |range| range.start)
    };
    match op {
        Op::Leaf(leaf) => Err(Error::UnknownName {
            name: leaf.name.clone(),
            known: "a leaf is not computed, its value must be given".to_owned(),
        }),
        Op::Fill(fill) => with_type!(local.dtype, T => {
            let value = <T as Number>::constant(fill.value.value()).ok_or_else(|| overflow::<T>("fill"))?;
            strided::block_of("fill", local, vec![value; local.elements()])
        }),
        Op::Iota(iota) => with_type!(local.dtype, T => indices::iota::<T>(iota, local, block)),
        Op::Uniform(uniform) => with_type!(local.dtype, T => {
            indices::uniform::<T>(uniform, operands, local, block)
        }),
        Op::Einsum(spec) => {
            with_type!(local.dtype, T => einsum::einsum::<T>(spec, operands, local))
        }
        Op::Add => with_type!(local.dtype, T => {
            elementwise::zip::<T>("add", operands, local, <T as Number>::plus)
        }),
        Op::Sub => with_type!(local.dtype, T => {
            elementwise::zip::<T>("sub", operands, local, <T as Number>::minus)
        }),
        Op::Mul => with_type!(local.dtype, T => {
            elementwise::zip::<T>("mul", operands, local, <T as Number>::times)
        }),
        Op::Div => with_type!(local.dtype, T => {
            elementwise::zip::<T>("div", operands, local, <T as Number>::over)
        }),
        Op::Maximum => with_type!(local.dtype, T => {
            elementwise::zip::<T>("maximum", operands, local, |x, y| Some(x.larger(y)))
        }),
        Op::Minimum => with_type!(local.dtype, T => {
            elementwise::zip::<T>("minimum", operands, local, |x, y| Some(x.smaller(y)))
        }),
        Op::Where => with_type!(local.dtype, T => elementwise::choose::<T>(operands, local)),
        Op::Scale(c) => with_type!(local.dtype, T => elementwise::scale::<T>(*c, operands, local)),
        Op::AddConst(c) => {
            with_type!(local.dtype, T => elementwise::add_const::<T>(*c, operands, local))
        }
        Op::Unary(unary) => elementwise::unary(*unary, operands, local),
        Op::Compare(comparison) => {
            with_type!(local.dtype, T => elementwise::compare::<T>(*comparison, operands, local))
        }
        Op::CompareConst(comparison, c) => with_type!(local.dtype, T => {
            elementwise::compare_const::<T>(*comparison, *c, operands, local)
        }),
        Op::Sum(dims) => with_type!(local.dtype, T => {
            reduce::reduce::<T>(Reduction::Sum, dims, operands, local)
        }),
        Op::Max(dims) => with_type!(local.dtype, T => {
            reduce::reduce::<T>(Reduction::Max, dims, operands, local)
        }),
        Op::Cast(_) => with_type!(local.dtype, T => elementwise::cast::<T>(operands, local)),
        Op::CumSum(cumsum) => {
            with_type!(local.dtype, T => along::cumsum::<T>(cumsum, operands, local))
        }
        Op::Slice(slice) => with_type!(local.dtype, T => along::slice::<T>(slice, operands, local)),
        Op::Pad(pad) => with_type!(local.dtype, T => along::pad::<T>(pad, operands, local)),
        Op::Concat(dim) => with_type!(local.dtype, T => along::concat::<T>(*dim, operands, local)),
        Op::Broadcast(broadcast) => {
            with_type!(local.dtype, T => shape::broadcast::<T>(broadcast, operands, local))
        }
        Op::Transpose(perm) => {
            with_type!(local.dtype, T => shape::transpose::<T>(perm, operands, local))
        }
        Op::Reshape(_) => with_type!(local.dtype, T => shape::reshape::<T>(operands, local)),
        Op::OneHot { classes, .. } => with_type!(local.dtype, T => {
            one_hot::one_hot::<T>(*classes, operands, local, block, name)
        }),
        Op::Lookup { rows } => with_type!(local.dtype, T => {
            let held = operands.first().and_then(|table| table.ty().shape.first().copied());
            let (first, ids) = (start(0), lookup::Ids { name, first: start(1) });
            lookup::lookup::<T>(*rows, operands, local, first..first + held.unwrap_or(0), &ids)
        }),
        Op::ScatterAdd { rows } => with_type!(local.dtype, T => {
            let held = block.ranges.first().cloned().unwrap_or(0..0);
            let ids = lookup::Ids { name, first: start(0) };
            lookup::scatter_add::<T>(*rows, operands, local, held, &ids)
        }),
        Op::StopGradient | Op::Constrain | Op::Transition(_) => {
            with_type!(local.dtype, T => elementwise::map::<T>(op.name(), operands, local, Some))
        }
    }
}

fn mismatch(op: &'static str, operands: &[&Value], local: &TensorType) -> Error {
    let operands: Vec<String> = operands.iter().map(|v| v.ty().to_string()).collect();
    Error::Blocks { op, operands: operands.join(", "), result: local.to_string() }
}

fn overflow<T: Element>(op: &'static str) -> Error {
    Error::Arithmetic {
        op,
        problem: format!("a result does not fit {}, or is divided by 0", T::DTYPE),
    }
}
