//! A run of a plan against its ops, one at a time, each on the operands that the ranks had.
//!
//! Bounds on rounding over a whole step ([`crate::tolerance`]) widen with every op that errors go through: behind attention and
//! norms they soon say nothing. Here no error goes through more than one op. Of a recorded run
//! (`shardgrad_runtime::Buffers::Record`) the value of every node is put together from the ranks' blocks, terms reduced;
//! the op is evaluated in f64 on its operands' values, and what the ranks made of them must lie within the rounding of this one
//! op, whatever the order of its additions. A transition must leave the value as it is, but for the rounding of a reduction;
//! copies must be equal to the last bit, and leaves what was given.
//!
//! If all nodes pass, the sharded step is a run of the dense program in which every op rounded a little differently, as any
//! two dense runs may differ whose sums are added in other orders.

use std::collections::BTreeMap;

use shardgrad_core::geometry::block;
use shardgrad_core::{AxisSet, DType, Op, Placement, TensorType};
use shardgrad_graph::{NodeId, Plan, Value, blocks};
use shardgrad_runtime::Data;

use crate::error::Error;
use crate::rounding::{Estimate, Format, leaf, propagate};
use crate::tolerance::{Deviation, RUNS, input};

/// Compares every node with its op, and leaves with what they were given. `recorded` gives what each rank made of a node.
///
/// ```
/// use shardgrad_core::{DType, Mesh};
/// use shardgrad_graph::{Graph, OutputRole, Value};
/// use shardgrad_planner::{LayoutRequest, Options, plan};
/// use shardgrad_runtime::{Buffers, Trainer, TrainerOptions};
/// use shardgrad_testkit::{Error, op_by_op};
/// let g = Graph::new("product", DType::F32);
/// let (x, w) = (g.input("x", [4, 6])?, g.param("w", [6, 8])?);
/// g.output("y", x.matmul(w)?.tanh()?, OutputRole::Value)?;
/// let (program, request) = (g.finish(), LayoutRequest::default().pin("w", "tp: S(0)".parse()?));
/// let plan = plan(&program, &Mesh::new([("tp", 2)])?, &request, &Options::default())?.plan;
/// let options = TrainerOptions { buffers: Buffers::Record, ..TrainerOptions::default() };
/// let mut trainer = Trainer::with_options(&plan, options)?;
/// let x = Value::from_fn(&shardgrad_core::TensorType::new([4, 6], DType::F32), |i| i as f64 / 7.0);
/// let w = trainer.gather("w")?;
/// trainer.step(&[("x".to_owned(), x.clone())].into())?;
/// let leaves = [("x".to_owned(), x), ("w".to_owned(), w)].into();
/// let ops = op_by_op::compare(&plan, &leaves, |node| trainer.recorded(node).map_err(Error::from))?;
/// assert!(ops.iter().all(|(_, deviation)| deviation.is_within() && deviation.unbounded == 0));
/// assert!(ops.iter().any(|(_, deviation)| deviation.ratio > 0.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// A node of which nothing was recorded, or not by all ranks; copies that differ; a leaf that was given nothing or a value of
/// another type; whatever `recorded` reports.
pub fn compare<E: From<Error>>(
    plan: &Plan,
    leaves: &BTreeMap<String, Value>,
    mut recorded: impl FnMut(NodeId) -> Result<Option<Vec<Data>>, E>,
) -> Result<Vec<(NodeId, Deviation)>, E> {
    let mut last_reader: Vec<usize> = (0..plan.nodes.len()).collect();
    for id in plan.ids() {
        plan.node(id).operands.iter().for_each(|o| last_reader[o.index()] = id.index());
    }
    let mut held: Vec<Option<Estimate>> = vec![None; plan.nodes.len()];
    let mut found = Vec::new();
    for id in plan.ids() {
        let blocks = recorded(id)?.ok_or_else(|| nothing(id))?;
        let made = together(plan, id, &blocks)?;
        let node = plan.node(id);
        if let Op::Leaf(own) = &node.op {
            let given = leaf(input(&own.name, &own.ty, leaves)?);
            found.push((id, deviation(&node.ty, &given, &made)?));
        } else {
            let operands: Option<Vec<&Estimate>> =
                node.operands.iter().map(|o| held[o.index()].as_ref()).collect();
            let operands = operands.ok_or_else(|| nothing(id))?;
            let wanted = one_op(&node.op, &operands, &node.ty);
            found.push((id, deviation(&node.ty, &wanted, &made)?));
        }
        held[id.index()] = Some(made);
        for operand in &node.operands {
            if last_reader[operand.index()] == id.index() {
                held[operand.index()] = None;
            }
        }
    }
    Ok(found)
}

/// What the ranks' blocks of a node are together.
///
/// # Errors
/// A block that is missing or of another length; copies that differ.
pub fn gathered(plan: &Plan, id: NodeId, by_rank: &[Data]) -> Result<Value, Error> {
    let ty = &plan.node(id).ty;
    Ok(blocks::gather(&blocks_of(plan, id, by_rank)?, ty, plan.layout(id), &plan.mesh)?)
}

/// What each rank holds of a node, in the shape of its block.
fn blocks_of(plan: &Plan, id: NodeId, by_rank: &[Data]) -> Result<Vec<Value>, Error> {
    let (ty, layout, mesh) = (&plan.node(id).ty, plan.layout(id), &plan.mesh);
    let shape = |rank| block(&ty.shape, layout, mesh, rank).shape();
    (0..).zip(by_rank).map(|(rank, data)| Ok(data.to_value(&shape(rank))?)).collect()
}

fn nothing(id: NodeId) -> Error {
    let problem = "nothing was recorded of it or of an operand".to_owned();
    Error::CannotRun { node: id.to_string(), problem }
}

/// What the ranks hold of a node, as operands of its readers: known but for the rounding of putting terms together.
fn together(plan: &Plan, id: NodeId, by_rank: &[Data]) -> Result<Estimate, Error> {
    let (node, layout, mesh) = (plan.node(id), plan.layout(id), &plan.mesh);
    let ty = TensorType::new(node.ty.shape.iter().copied(), DType::F64);
    let own = blocks_of(plan, id, by_rank)?;
    let in_f64 = |of: &dyn Fn(f64) -> f64| -> Result<Value, Error> {
        let parts = own.iter().map(|part| {
            let elements = part.to_f64s();
            Value::from_fn(&TensorType::new(part.ty().shape, DType::F64), |i| of(elements[i]))
        });
        Ok(blocks::gather(&parts.collect::<Vec<_>>(), &ty, layout, mesh)?)
    };
    let sums: AxisSet =
        (0..mesh.rank()).filter(|&a| layout.on(a) == Placement::PendingSum).collect();
    let parts = mesh.group_size(sums);
    let whole = leaf(&in_f64(&|x| x)?);
    if parts == 1 {
        return Ok(whole);
    }
    let terms = leaf(&in_f64(&f64::abs)?).value;
    #[allow(clippy::cast_precision_loss)]
    let parts = parts as f64;
    let error = if node.ty.dtype.is_float() {
        terms.mapv(|t| (parts - 1.0) * f64::EPSILON * t)
    } else {
        whole.error
    };
    // A term may be negative where their sum is not.
    Ok(Estimate { value: whole.value, error, terms, parts, quantum: None, nonnegative: false })
}

/// What an op makes of operands that are known, with the error of its own rounding.
fn one_op(op: &Op, operands: &[&Estimate], ty: &TensorType) -> Estimate {
    let format = Format::of(ty.dtype, usize::MAX);
    let mut estimate = propagate(op, operands, ty, format);
    if let Op::Transition(_) = op {
        // Each of the terms is added at most once.
        let Estimate { error, terms, parts, .. } = &mut estimate;
        let gamma = format.gamma(*parts - 1.0);
        error.zip_mut_with(terms, |e, t| *e += gamma * t);
    }
    estimate
}

fn deviation(ty: &TensorType, wanted: &Estimate, made: &Estimate) -> Result<Deviation, Error> {
    let ty = TensorType::new(ty.shape.iter().copied(), DType::F64);
    let value = |of: &Estimate| {
        let elements: Vec<f64> = of.value.iter().copied().collect();
        Value::from_fn(&ty, |i| elements[i])
    };
    if wanted.value.len() != made.value.len() {
        return Err(Error::CannotRun {
            node: ty.to_string(),
            problem: format!("{} elements were made of it", made.value.len()),
        });
    }
    let bound: Vec<f64> =
        wanted.error.iter().zip(&made.error).map(|(one, own)| RUNS * (one + own)).collect();
    Ok(Deviation::of(&value(wanted), &value(made), &bound))
}
