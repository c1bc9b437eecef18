//! Every row of the table of ops, under every combination of its rules on small meshes: the op applied to local blocks
//! makes the blocks of the unsharded result.
//!
//! Operands hold small integers, and pending operands are split into distinct integer terms of mixed sign, so that
//! equality is exact; functions with irrational values are elementwise, and equal bits in give equal bits out.

use shardgrad_core::geometry::block;
use shardgrad_core::ops::{Role, Unary, catalog};
use shardgrad_core::rules::{AxisRule, axis_rules};
use shardgrad_core::{Block, DType, Error, Layout, Mesh, Op, TensorType, rules};
use shardgrad_graph::blocks::{gather, scatter, scatter_terms};
use shardgrad_graph::{Value, eval};

fn meshes() -> Vec<Mesh> {
    ["a=2", "a=3", "a=2, b=2", "a=1, b=3", "a=2, b=3"].map(|m| m.parse().unwrap()).into()
}

/// Integers without a pattern that a swap of rows or columns would keep; positive where the op needs it, powers of two
/// where it divides by them, classes where it reads labels.
fn operand(op: &Op, position: usize, ty: &TensorType) -> Value {
    let wave = |i: usize| ((i * i * 7 + i * 5 + position * 3) % 17) as f64 - 8.0;
    Value::from_fn(ty, |i| match op {
        Op::Div if position == 1 => [1.0, -2.0, 0.5, 4.0, -0.25][i % 5],
        Op::Where if position == 0 => f64::from(u8::from(wave(i) > -2.0)),
        _ if op.names_one_of().is_some_and(|(read, _)| read == position) => {
            op.names_one_of().map_or(0.0, |(_, count)| ((i * 3 + 1) % count) as f64)
        }
        Op::Unary(Unary::Log | Unary::Sqrt | Unary::Reciprocal) => wave(i) + 9.0,
        _ => wave(i),
    })
}

/// All ways to choose one rule per axis.
fn choices(rules: &[AxisRule], axes: usize) -> Vec<Vec<&AxisRule>> {
    (0..axes).fold(vec![Vec::new()], |chosen, _| {
        chosen
            .into_iter()
            .flat_map(|c| rules.iter().map(move |r| [c.clone(), vec![r]].concat()))
            .collect()
    })
}

/// Walks one row on one mesh; returns how many choices of rules were admissible.
fn walk(op: &Op, operand_types: &[TensorType], mesh: &Mesh) -> usize {
    let ty = op.infer(operand_types).unwrap();
    let operands: Vec<Value> =
        operand_types.iter().enumerate().map(|(i, ty)| operand(op, i, ty)).collect();
    let whole = Block::whole(&ty.shape);
    let dense = match op {
        Op::Leaf(_) => operand(op, 0, &ty),
        _ => {
            let by_ref: Vec<&Value> = operands.iter().collect();
            eval::apply(op, &by_ref, &ty, &eval::Places::at(&whole)).unwrap()
        }
    };
    let rules = axis_rules(&op.signature(operand_types, &ty));
    let mut admissible = 0;
    for chosen in choices(&rules, mesh.rank()) {
        let layouts: Vec<Layout> = (0..operands.len())
            .map(|i| Layout(chosen.iter().map(|rule| rule.operands[i]).collect()))
            .collect();
        let result_layout = Layout(chosen.iter().map(|rule| rule.result).collect());
        let all: Vec<&Layout> = layouts.iter().collect();
        let context = || format!("{op} on {mesh}: {layouts:?} → {result_layout:?}");
        match rules::check(op, mesh, operand_types, &ty, &all, &result_layout) {
            Ok(_) => admissible += 1,
            Err(Error::BlocksDiffer { .. } | Error::MixedPending { .. }) => continue,
            Err(error) => panic!("{}: {error}", context()),
        }
        let local_operands: Vec<Vec<Value>> = operands
            .iter()
            .zip(&layouts)
            .enumerate()
            .map(|(i, (value, layout))| scatter_terms(value, layout, mesh, 11 + i as u64))
            .collect();
        let blocks: Vec<Value> = (0..mesh.size())
            .map(|rank| {
                let place = block(&ty.shape, &result_layout, mesh, rank);
                let local = TensorType { shape: place.shape(), dtype: ty.dtype };
                let operands: Vec<&Value> = local_operands.iter().map(|o| &o[rank]).collect();
                let of: Vec<Block> = operand_types
                    .iter()
                    .zip(&layouts)
                    .map(|(ty, layout)| block(&ty.shape, layout, mesh, rank))
                    .collect();
                let places = eval::Places { operands: &of, result: &place };
                match op {
                    Op::Leaf(_) => scatter(&dense, &result_layout, mesh)[rank].clone(),
                    _ => eval::apply(op, &operands, &local, &places)
                        .unwrap_or_else(|e| panic!("{}: rank {rank}: {e}", context())),
                }
            })
            .collect();
        let gathered = gather(&blocks, &ty, &result_layout, mesh)
            .unwrap_or_else(|e| panic!("{}: {e}", context()));
        assert_eq!(gathered, dense, "{}", context());
    }
    admissible
}

#[test]
fn every_rule_of_every_op_makes_the_blocks_of_the_unsharded_result() {
    let mut walked = 0;
    for row in catalog::rows() {
        for mesh in meshes() {
            let count = walk(&row.op, &row.operands, &mesh);
            assert!(count > 0, "{} on {mesh}", row.op);
            walked += count;
        }
    }
    // 4,075 when this was written; a new op adds to it, a rule that vanishes does not go unnoticed.
    assert!(walked >= 4_075, "{walked}");
}

#[test]
fn the_rules_hold_for_integers_too() {
    for row in catalog::rows() {
        let fits = match &row.op {
            Op::Unary(unary) => *unary == Unary::Neg,
            Op::Leaf(leaf) => leaf.role != Role::Input,
            Op::Div
            | Op::OneHot { .. }
            | Op::Fill(_)
            | Op::Iota(_)
            | Op::Uniform(_)
            | Op::AddConst(_)
            | Op::CompareConst(..) => false,
            Op::Pad(pad) => pad.value.value().fract() == 0.0,
            Op::Maximum
            | Op::Minimum
            | Op::Where
            | Op::Cast(_)
            | Op::CumSum(_)
            | Op::Slice(_)
            | Op::Concat(_)
            | Op::Lookup { .. }
            | Op::ScatterAdd { .. }
            | Op::Einsum(_)
            | Op::Add
            | Op::Sub
            | Op::Mul
            | Op::Scale(_)
            | Op::Compare(_)
            | Op::Sum(_)
            | Op::Max(_)
            | Op::Broadcast(_)
            | Op::Transpose(_)
            | Op::Reshape(_)
            | Op::StopGradient
            | Op::Constrain
            | Op::Transition(_) => true,
        };
        if !fits {
            continue;
        }
        for dtype in [DType::I32, DType::I64] {
            let operands: Vec<TensorType> = row
                .operands
                .iter()
                .map(|ty| TensorType { shape: ty.shape.clone(), dtype })
                .collect();
            walk(&row.op, &operands, &"a=2, b=2".parse().unwrap());
        }
    }
}
