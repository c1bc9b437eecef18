//! A plan as a runnable NumPy script: all ranks simulated, the local shape beside every expression, collectives as small
//! functions, the outputs compared with the dense program at the end.
//!
//! It is the readable pseudocode of the plan and an oracle in another language. Floats are computed in float64 whatever
//! the program's type, so that what differs between ranks and dense is the layout's fault and not rounding. Inputs are
//! drawn by a seeded generator.

use std::fmt::Write;

use shardgrad_core::geometry::block;
use shardgrad_core::ops::{Comparison, Role, Unary};
use shardgrad_core::{DType, Layout, Mesh, Op, Placement, TensorType, Transition, TransitionKind};

use super::prelude::PRELUDE;
use crate::node::{Node, NodeId};
use crate::plan::Plan;
use crate::program::Program;

/// The script of a plan. Plan and program must be [valid](Plan::validate) and belong together.
///
/// ```
/// use shardgrad_core::{DType, Layout, Mesh};
/// use shardgrad_graph::{Graph, OutputRole, export, text};
/// # use shardgrad_graph::Plan;
/// let g = Graph::new("double", DType::F32);
/// let x = g.input("x", [5, 2])?;
/// g.output("y", x.scale(2.0)?, OutputRole::Value)?;
/// let program = g.finish();
/// let mesh: Mesh = "dp=2".parse()?;
/// let rows = Layout::parse("dp: S(0)", &mesh)?;
/// let plan = Plan {
///     layout: "by hand".into(),
///     nodes: program.nodes.clone(),
///     layouts: vec![rows; 2],
///     origins: program.ids().collect(),
///     slots: vec![0, 1],
///     outputs: program.outputs.clone(),
///     pins: program.pins.clone(),
///     reasons: Default::default(),
///     buckets: Vec::new(),
///     waits: Default::default(),
///     mesh,
/// };
/// let script = export::numpy(&plan, &program);
/// assert!(script.contains("v1 = [2.0 * a for a in v0]  # [dp: S(0)] [3, 2] or [2, 2]"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn numpy(plan: &Plan, program: &Program) -> String {
    let mut script = String::new();
    header(&mut script, plan, program);
    script.push_str(PRELUDE);
    inputs(&mut script, program);
    dense(&mut script, program);
    sharded(&mut script, plan, program);
    compare(&mut script, plan);
    script
}

/// A Python string literal. JSON's escapes are Python's.
fn literal(text: &str) -> String {
    serde_json::Value::String(text.to_owned()).to_string()
}

/// Text that cannot leave its comment.
fn comment(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') { ' ' } else { c })
        .collect()
}

fn tuple(shape: &[usize]) -> String {
    match shape {
        [one] => format!("({one},)"),
        many => {
            format!("({})", many.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
        }
    }
}

fn numpy_type(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 | DType::F64 => "np.float64",
        DType::I32 => "np.int32",
        DType::I64 => "np.int64",
    }
}

/// A constant; Python's floats print as Rust's do, but for the infinities and NaN.
fn number(value: f64, dtype: DType) -> String {
    if dtype.is_float() {
        match value {
            v if v.is_nan() => "np.nan".to_owned(),
            f64::INFINITY => "np.inf".to_owned(),
            f64::NEG_INFINITY => "-np.inf".to_owned(),
            v => format!("{v:?}"),
        }
    } else {
        format!("{}({value})", numpy_type(dtype))
    }
}

fn placements(layout: &Layout) -> String {
    let all: Vec<String> = layout.iter().map(|p| format!("\"{p}\"")).collect();
    format!("[{}]", all.join(", "))
}

fn axis_list(mesh: &Mesh, axes: impl Iterator<Item = usize>) -> String {
    let all: Vec<String> = axes.map(|a| literal(&mesh.axes()[a].name)).collect();
    format!("[{}]", all.join(", "))
}

fn header(script: &mut String, plan: &Plan, program: &Program) {
    let mesh = &plan.mesh;
    let totals = plan.totals();
    let sizes: Vec<String> =
        mesh.axes().iter().map(|a| format!("{}: {}", literal(&a.name), a.size)).collect();
    let names = axis_list(mesh, 0..mesh.rank());
    // Writing to a string cannot fail.
    let _ = writeln!(
        script,
        "#!/usr/bin/env python3\n\
         # Program {}, laid out as {} over {mesh}: {} collectives, {} bytes per device.\n\
         # Every rank is simulated; v7[r] is what rank r holds of value 7. The local shape stands beside every\n\
         # expression: that of all ranks, or those that occur. At the end the dense program is computed and compared.\n\n\
         import functools\n\n\
         import numpy as np\n\n\
         AXES = {names}\n\
         SIZES = {{{}}}",
        comment(&format!("{:?}", program.name)),
        comment(&format!("{:?}", plan.layout)),
        totals.collectives(),
        totals.bytes_per_device + totals.scalar_bytes_per_device,
        sizes.join(", "),
    );
}

fn inputs(script: &mut String, program: &Program) {
    script.push_str(
        "\n\n# ---- the values that exist before the step -------------------------------------------------------\n\n\
         rng = np.random.default_rng(0)\n\
         inputs = {\n",
    );
    for id in program.leaves() {
        let node = program.node(id);
        let (Some(name), Some(role)) = (node.leaf_name(), node.leaf_role()) else { continue };
        let shape = tuple(&node.ty.shape);
        let drawn = if node.ty.dtype.is_float() {
            match role {
                Role::Input | Role::Param => format!("np.asarray(rng.standard_normal({shape}))"),
                // Second moments are not negative, bias corrections not 0.
                Role::State | Role::Scalar => {
                    format!("np.asarray(0.25 + 0.5 * rng.random({shape}))")
                }
            }
        } else {
            // Labels name classes, ids name rows.
            let classes = program.users()[id.index()].iter().find_map(|&(user, position)| {
                let (read, count) = program.node(user).op.names_one_of()?;
                (read == position).then_some(count)
            });
            let dtype = numpy_type(node.ty.dtype);
            let (low, high) = classes.map_or(("-9".to_owned(), 10), |n| ("0".to_owned(), n));
            format!("np.asarray(rng.integers({low}, {high}, {shape}, {dtype}))")
        };
        let _ = writeln!(script, "    {}: {drawn},", literal(name));
    }
    script.push_str("}\n");
}

/// The expression of an op on operands that lie at `places`, for the block of the result.
fn expression(
    node: &Node,
    types: &[TensorType],
    operands: &[&str],
    places: &[Local<'_>],
    block: &Local<'_>,
) -> String {
    let a = operands.first().copied().unwrap_or("?");
    let b = operands.get(1).copied().unwrap_or("?");
    let dtype = node.ty.dtype;
    let operand_type = types.first().map_or(dtype, |t| t.dtype);
    let compare = |c: Comparison, right: &str| {
        let sign = match c {
            Comparison::Lt => "<",
            Comparison::Le => "<=",
            Comparison::Gt => ">",
            Comparison::Ge => ">=",
            Comparison::Eq => "==",
            Comparison::Ne => "!=",
        };
        format!("np.asarray({a} {sign} {right}).astype({})", numpy_type(dtype))
    };
    match &node.op {
        Op::Leaf(leaf) => format!("inputs[{}]", literal(&leaf.name)),
        Op::Fill(fill) => format!(
            "np.full({}, {}, {})",
            block.shape(),
            number(fill.value.value(), dtype),
            numpy_type(dtype)
        ),
        Op::Iota(iota) => {
            format!("iota({}, {}, {})", iota.dim, block.slices(), numpy_type(dtype))
        }
        Op::Uniform(uniform) => {
            let shape = tuple(&uniform.ty.shape);
            format!("uniform({a}, {}, {shape}, {})", uniform.stream, block.slices())
        }
        Op::Einsum(einsum) => format!("np.einsum(\"{einsum}\", {})", operands.join(", ")),
        Op::Add => format!("{a} + {b}"),
        Op::Sub => format!("{a} - {b}"),
        Op::Mul => format!("{a} * {b}"),
        Op::Div if dtype.is_float() => format!("{a} / {b}"),
        Op::Div => format!("int_div({a}, {b})"),
        Op::Maximum => format!("np.maximum({a}, {b})"),
        Op::Minimum => format!("np.minimum({a}, {b})"),
        Op::Where => {
            format!("np.where({a} != 0, {b}, {})", operands.get(2).copied().unwrap_or("?"))
        }
        Op::Cast(_) => format!("np.asarray({a}).astype({})", numpy_type(dtype)),
        Op::Scale(c) => format!("{} * {a}", number(c.value(), dtype)),
        Op::AddConst(c) => format!("{a} + {}", number(c.value(), dtype)),
        Op::Unary(unary) => match unary {
            Unary::Neg => format!("-{a}"),
            Unary::Relu => format!("np.maximum({a}, 0)"),
            Unary::Gelu => format!("gelu({a})"),
            Unary::Tanh => format!("np.tanh({a})"),
            Unary::Sigmoid => format!("sigmoid({a})"),
            Unary::Exp => format!("np.exp({a})"),
            Unary::Log => format!("np.log({a})"),
            Unary::Sqrt => format!("np.sqrt({a})"),
            Unary::Square => format!("np.square({a})"),
            Unary::Abs => format!("np.abs({a})"),
            Unary::Reciprocal => format!("1 / {a}"),
        },
        Op::Compare(c) => compare(*c, b),
        Op::CompareConst(c, k) => compare(*c, &number(k.value(), operand_type)),
        Op::Sum(dims) => {
            format!("np.sum({a}, axis={}, dtype={})", tuple(dims.dims()), numpy_type(dtype))
        }
        Op::Max(dims) => format!("np.max({a}, axis={}, initial=lowest({a}))", tuple(dims.dims())),
        Op::CumSum(cumsum) => {
            let (dim, from) = (cumsum.dim, if cumsum.reverse { "::-1" } else { "::1" });
            format!("cumsum({a}, {dim}, np.s_[{from}])")
        }
        Op::Slice(slice) => {
            let (index, stop) = (slice.dim, block.extent(slice.dim));
            format!("take({a}, {index}, {}, {}, {stop})", slice.start, slice.step)
        }
        Op::Pad(pad) => format!(
            "put({a}, {}, {}, {}, np.full({}, {}, {}))",
            pad.dim,
            pad.before,
            pad.between + 1,
            block.shape(),
            number(pad.value.value(), dtype),
            numpy_type(dtype)
        ),
        Op::Concat(dim) => format!("np.concatenate([{}], axis={dim})", operands.join(", ")),
        Op::Broadcast(broadcast) => {
            let new: Vec<usize> = broadcast.new_dims().collect();
            format!("np.broadcast_to(np.expand_dims({a}, {}), {})", tuple(&new), block.shape())
        }
        Op::Transpose(perm) => format!("np.transpose({a}, {})", tuple(perm)),
        Op::Reshape(_) => format!("np.reshape({a}, {})", block.shape()),
        Op::OneHot { .. } => {
            let (first, last) = block.range(node.ty.rank().saturating_sub(1));
            format!("one_hot({a}, {first}, {last}, {})", numpy_type(dtype))
        }
        Op::Lookup { .. } => {
            let first = places.first().map_or("0".to_owned(), |table| table.range(0).0);
            format!("lookup({a}, {b}, {first})")
        }
        Op::ScatterAdd { .. } => {
            let (first, last) = block.range(0);
            format!("scatter_add({a}, {b}, {first}, {last})")
        }
        Op::StopGradient | Op::Constrain | Op::Transition(_) => a.to_owned(),
    }
}

/// Where a result's block lies: the whole, or by rank.
struct Local<'a> {
    shape: &'a [usize],
    /// The layout in Python, if by rank.
    layout: Option<&'a str>,
}

impl Local<'_> {
    fn shape(&self) -> String {
        let whole = tuple(self.shape);
        self.layout.map_or(whole.clone(), |layout| format!("local({whole}, {layout}, r)"))
    }

    /// The slices of the block in the whole.
    fn slices(&self) -> String {
        let whole = tuple(self.shape);
        self.layout
            .map_or(format!("whole({whole})"), |layout| format!("block({whole}, {layout}, r)"))
    }

    /// Extent of a dim.
    fn extent(&self, dim: usize) -> String {
        let whole = self.shape.get(dim).copied().unwrap_or(1).to_string();
        self.layout.map_or(whole, |_| format!("{}[{dim}]", self.shape()))
    }

    /// Where a dim of the block starts and stops in the whole.
    fn range(&self, dim: usize) -> (String, String) {
        let n = self.shape.get(dim).copied().unwrap_or(1);
        self.layout.map_or(("0".to_owned(), n.to_string()), |_| {
            let slice = format!("{}[{dim}]", self.slices());
            (format!("{slice}.start"), format!("{slice}.stop"))
        })
    }
}

fn dense(script: &mut String, program: &Program) {
    script.push_str(
        "\n\n# ---- the dense program ------------------------------------------------------------------------------\n\n\n\
         def dense():\n",
    );
    for id in program.ids() {
        let node = program.node(id);
        let operands: Vec<String> =
            node.operands.iter().map(|o| format!("v{}", o.index())).collect();
        let by_ref: Vec<&str> = operands.iter().map(String::as_str).collect();
        let types = program.operand_types(id);
        let whole = |shape| Local { shape, layout: None };
        let places: Vec<Local<'_>> = types.iter().map(|ty| whole(ty.shape.as_slice())).collect();
        let value = expression(node, &types, &by_ref, &places, &whole(&node.ty.shape));
        let _ = writeln!(
            script,
            "    v{} = {value}  # {}{}",
            id.index(),
            tuple(&node.ty.shape),
            name_note(program, id)
        );
    }
    let outputs: Vec<String> = program
        .outputs
        .iter()
        .map(|o| format!("{}: v{}", literal(&o.name), o.node.index()))
        .collect();
    let _ = writeln!(script, "    return {{{}}}", outputs.join(", "));
}

/// The names of a value, as the end of a comment.
fn name_note(program: &Program, id: NodeId) -> String {
    let leaf = program.node(id).leaf_name();
    let names: Vec<String> = program
        .names
        .iter()
        .filter(|(name, named)| **named == id && leaf != Some(name.as_str()))
        .map(|(name, _)| comment(&format!("{name:?}")))
        .collect();
    if names.is_empty() { String::new() } else { format!(" {}", names.join(", ")) }
}

/// The local shapes that occur, largest first.
fn local_shapes(plan: &Plan, id: NodeId) -> String {
    let mut shapes: Vec<String> = Vec::new();
    for rank in 0..plan.mesh.size() {
        let shape = block(&plan.node(id).ty.shape, plan.layout(id), &plan.mesh, rank).shape();
        let text = format!("{:?}", shape.as_slice());
        if !shapes.contains(&text) {
            shapes.push(text);
        }
    }
    shapes.join(" or ")
}

fn sharded(script: &mut String, plan: &Plan, program: &Program) {
    script.push_str(
        "\n\n# ---- the plan: every value is a list of blocks, one per rank --------------------------------------\n\n",
    );
    let mut phase = None;
    for id in plan.ids() {
        let node = plan.node(id);
        if phase.replace(node.phase) != Some(node.phase) {
            let _ = writeln!(script, "# {}", node.phase);
        }
        let layout = placements(plan.layout(id));
        let value = match &node.op {
            Op::Leaf(leaf) => format!("scatter(inputs[{}], {layout})", literal(&leaf.name)),
            Op::Transition(transition) => moved(plan, id, *transition),
            _ => by_rank(plan, id, &layout),
        };
        let note = match &node.op {
            Op::Transition(t) if t.kind.is_collective() => {
                let sent = node.operands.first().map_or(0, |&o| {
                    t.bytes_sent(&plan.mesh, &node.ty, plan.layout(o), plan.layout(id))
                });
                format!("; {sent} bytes sent per device")
            }
            _ => String::new(),
        };
        let _ = writeln!(
            script,
            "v{} = {value}  # {} {}{note}{}",
            id.index(),
            plan.layout(id).display(&plan.mesh),
            local_shapes(plan, id),
            name_note(program, plan.origins[id.index()]),
        );
    }
}

/// An op on every rank's blocks.
fn by_rank(plan: &Plan, id: NodeId, layout: &str) -> String {
    let node = plan.node(id);
    let letters: Vec<String> = (0..node.operands.len())
        .map(|i| ["a", "b"].get(i).map_or_else(|| format!("x{i}"), |&name| name.to_owned()))
        .collect();
    let by_ref: Vec<&str> = letters.iter().map(String::as_str).collect();
    let local = Local { shape: &node.ty.shape, layout: Some(layout) };
    let types = plan.operand_types(id);
    let layouts: Vec<String> = node.operands.iter().map(|&o| placements(plan.layout(o))).collect();
    let places: Vec<Local<'_>> = types
        .iter()
        .zip(&layouts)
        .map(|(ty, layout)| Local { shape: &ty.shape, layout: Some(layout) })
        .collect();
    let value = expression(node, &types, &by_ref, &places, &local);
    let ranks = match &node.op {
        Op::Fill(_)
        | Op::Iota(_)
        | Op::Uniform(_)
        | Op::Broadcast(_)
        | Op::Reshape(_)
        | Op::Slice(_)
        | Op::Pad(_)
        | Op::OneHot { .. }
        | Op::Lookup { .. }
        | Op::ScatterAdd { .. } => vec!["r"],
        _ => Vec::new(),
    };
    let lists: Vec<String> = node.operands.iter().map(|o| format!("v{}", o.index())).collect();
    let variables: Vec<&str> = ranks.iter().copied().chain(by_ref.iter().copied()).collect();
    let over: Vec<&str> =
        ranks.iter().map(|_| "RANKS").chain(lists.iter().map(String::as_str)).collect();
    match over.as_slice() {
        [one] => format!("[{value} for {} in {one}]", variables.join(", ")),
        many => format!("[{value} for {} in zip({})]", variables.join(", "), many.join(", ")),
    }
}

/// A transition of every rank's blocks.
fn moved(plan: &Plan, id: NodeId, transition: Transition) -> String {
    let node = plan.node(id);
    let Some(&operand) = node.operands.first() else { return "None".to_owned() };
    let (from, to) = (plan.layout(operand), plan.layout(id));
    let (x, shape) = (format!("v{}", operand.index()), tuple(&node.ty.shape));
    let (src, dst) = (placements(from), placements(to));
    let axes = axis_list(&plan.mesh, transition.axes.iter());
    let reducing: Vec<usize> =
        transition.axes.iter().filter(|&a| from.on(a).is_pending()).collect();
    let reduced = axis_list(&plan.mesh, reducing.iter().copied());
    let max = reducing.iter().any(|&a| from.on(a) == Placement::PendingMax);
    let combine = if max { ", all_max" } else { "" };
    let to_max = transition.axes.iter().any(|a| to.on(a) == Placement::PendingMax);
    let identity = if to_max { format!(", lowest({x}[0])") } else { String::new() };
    match transition.kind {
        TransitionKind::Relabel => format!("same({x})"),
        TransitionKind::Slice => format!("take_slice({x}, {shape}, {src}, {dst})"),
        TransitionKind::Mask => format!("mask({x}, {axes}{identity})"),
        TransitionKind::Pad => format!("pad({x}, {shape}, {src}, {dst}{identity})"),
        TransitionKind::AllGather => format!("all_gather({x}, {shape}, {src}, {dst})"),
        TransitionKind::ReduceScatter => {
            format!("reduce_scatter({x}, {shape}, {src}, {dst}, {axes}{combine})")
        }
        TransitionKind::AllReduce if max => format!("all_max({x}, {axes})"),
        TransitionKind::AllReduce => format!("all_reduce({x}, {axes})"),
        TransitionKind::AllToAll => format!("all_to_all({x}, {shape}, {src}, {dst})"),
        TransitionKind::Reshard => {
            format!("reshard({x}, {shape}, {src}, {dst}, {reduced}{combine})")
        }
    }
}

fn compare(script: &mut String, plan: &Plan) {
    script.push_str(
        "\n\n# ---- the ranks together hold what the dense program computes -----------------------------------------\n\n\
         expected = dense()\n",
    );
    for output in &plan.outputs {
        let node = plan.node(output.node);
        let _ = writeln!(
            script,
            "np.testing.assert_allclose(\n    gather(v{}, {}, {}), expected[{}], rtol=1e-9, atol=1e-12, err_msg={}\n)",
            output.node.index(),
            tuple(&node.ty.shape),
            placements(plan.layout(output.node)),
            literal(&output.name),
            literal(&output.name),
        );
    }
    let _ = writeln!(
        script,
        "print({})",
        literal(&format!(
            "{} outputs on {} ranks equal the dense ones",
            plan.outputs.len(),
            plan.mesh.size()
        ))
    );
}
