//! What a step needs from its caller, and the checks before any rank runs.

use std::collections::BTreeMap;

use ndarray::Dimension;
use shardgrad_core::ops::Role;
use shardgrad_core::{Block, Layout, TensorType};
use shardgrad_graph::{NodeId, Plan, Value};

use crate::error::Error;

/// An input or a scalar.
pub(crate) struct Input {
    pub(crate) name: String,
    pub(crate) ty: TensorType,
    pub(crate) layout: Layout,
    role: Role,
    /// Numbers of classes that the values must be below, if they are labels.
    classes: Option<usize>,
}

/// The inputs and scalars of a plan, in its order.
pub(crate) fn inputs_of(plan: &Plan) -> Vec<Input> {
    let mut inputs = Vec::new();
    for id in plan.ids() {
        let node = plan.node(id);
        let (Some(name), Some(role)) = (node.leaf_name(), node.leaf_role()) else { continue };
        if matches!(role, Role::Input | Role::Scalar) {
            inputs.push(Input {
                name: name.to_owned(),
                ty: node.ty.clone(),
                layout: plan.layout(id).clone(),
                role,
                classes: fewest_classes(plan, id),
            });
        }
    }
    inputs
}

/// The fewest things that these integers name, classes or rows, reached through transitions and moves of whole values.
fn fewest_classes(plan: &Plan, labels: NodeId) -> Option<usize> {
    let mut same: Vec<bool> = vec![false; plan.nodes.len()];
    same[labels.index()] = true;
    let mut fewest: Option<usize> = None;
    for id in plan.ids() {
        let node = plan.node(id);
        let reads = |position: usize| node.operands.get(position).is_some_and(|o| same[o.index()]);
        if let Some((position, count)) = node.op.names_one_of()
            && reads(position)
        {
            fewest = Some(fewest.map_or(count, |n| n.min(count)));
        }
        same[id.index()] |= reads(0) && node.op.moves_all();
    }
    fewest
}

/// Checks names, types and labels.
pub(crate) fn check_inputs(
    inputs: &[Input],
    values: &BTreeMap<String, Value>,
) -> Result<(), Error> {
    let known = || {
        if inputs.is_empty() {
            return "none".to_owned();
        }
        inputs.iter().map(|i| format!("`{}`", i.name)).collect::<Vec<_>>().join(", ")
    };
    if let Some(name) = values.keys().find(|name| inputs.iter().all(|i| i.name != **name)) {
        return Err(Error::UnknownName {
            name: name.clone(),
            wanted: "input or scalar",
            known: known(),
        });
    }
    for input in inputs {
        let Some(value) = values.get(&input.name) else {
            return Err(Error::MissingInput { name: input.name.clone(), known: known() });
        };
        expect_type(&input.name, &input.ty, value)?;
        if let (Some(classes), Role::Input) = (input.classes, input.role)
            && let Some((row, label)) = bad_label(value, classes)
        {
            let name = input.name.clone();
            return Err(
                shardgrad_graph::Error::LabelOutOfRange { name, row, label, classes }.into()
            );
        }
    }
    Ok(())
}

/// Checks the elements of a block of an input: type, shape and labels.
pub(crate) fn check_block(input: &Input, block: &Block, value: &Value) -> Result<(), Error> {
    let expected = TensorType::new(block.shape(), input.ty.dtype);
    expect_type(&input.name, &expected, value)?;
    if let (Some(classes), Role::Input) = (input.classes, input.role)
        && let Some((row, label)) = bad_label(value, classes)
    {
        let (name, first) = (input.name.clone(), block.ranges.first().map_or(0, |r| r.start));
        let row = first + row;
        return Err(shardgrad_graph::Error::LabelOutOfRange { name, row, label, classes }.into());
    }
    Ok(())
}

fn bad_label(value: &Value, classes: usize) -> Option<(usize, i64)> {
    fn first<T: Copy + Into<i64>>(
        labels: &ndarray::ArrayD<T>,
        classes: usize,
    ) -> Option<(usize, i64)> {
        let wrong = |label: i64| usize::try_from(label).map_or(true, |l| l >= classes);
        labels.indexed_iter().find(|(_, label)| wrong((**label).into())).map(|(index, &label)| {
            (index.as_array_view().first().copied().unwrap_or(0), label.into())
        })
    }
    match value {
        Value::I32(labels) => first(labels, classes),
        Value::I64(labels) => first(labels, classes),
        Value::F32(_) | Value::F64(_) => None,
    }
}

/// Refuses a value of another type.
pub(crate) fn expect_type(name: &str, expected: &TensorType, value: &Value) -> Result<(), Error> {
    let found = value.ty();
    if found == *expected {
        return Ok(());
    }
    Err(Error::WrongValue {
        name: name.to_owned(),
        expected: expected.to_string(),
        found: found.to_string(),
    })
}
