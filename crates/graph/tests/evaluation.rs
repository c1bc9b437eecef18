//! Blocks, and what evaluation refuses.

use std::collections::BTreeMap;

use shardgrad_core::transition::all_layouts;
use shardgrad_core::{Block, DType, Layout, Mesh, Op, Placement, TensorType};
use shardgrad_graph::blocks::{gather, scatter, scatter_terms};
use shardgrad_graph::{Error, Graph, Loss, OutputRole, Value, eval};

fn ramp(ty: &TensorType) -> Value {
    Value::from_fn(ty, |i| i as f64 - 6.0)
}

#[test]
fn every_layout_gathers_what_was_scattered() {
    for (mesh, shape) in
        [("a=1", [5, 4]), ("a=4", [3, 5]), ("a=2, b=3", [5, 4]), ("a=2, b=2, c=2", [7, 3])]
    {
        let mesh: Mesh = mesh.parse().unwrap();
        for dtype in [DType::F32, DType::F64, DType::I32, DType::I64] {
            let ty = TensorType::new(shape, dtype);
            let value = ramp(&ty);
            for layout in all_layouts(&mesh, 2, true) {
                for blocks in
                    [scatter(&value, &layout, &mesh), scatter_terms(&value, &layout, &mesh, 5)]
                {
                    assert_eq!(gather(&blocks, &ty, &layout, &mesh).unwrap(), value, "{layout:?}");
                }
                let max = Layout(
                    layout
                        .iter()
                        .map(|p| if p.is_pending() { Placement::PendingMax } else { p })
                        .collect(),
                );
                for blocks in [scatter(&value, &max, &mesh), scatter_terms(&value, &max, &mesh, 5)]
                {
                    assert_eq!(gather(&blocks, &ty, &max, &mesh).unwrap(), value, "{max:?}");
                }
            }
        }
    }
}

#[test]
fn terms_differ_from_each_other_and_from_the_value() {
    let mesh: Mesh = "a=2, b=2".parse().unwrap();
    let ty = TensorType::new([4, 5], DType::F64);
    let value = ramp(&ty);
    let terms = scatter_terms(&value, &Layout::parse("a: P, b: P", &mesh).unwrap(), &mesh, 3);
    for (i, a) in terms.iter().enumerate() {
        assert_ne!(a, &value);
        assert!(a.to_f64s().iter().any(|&x| x < 0.0) && a.to_f64s().iter().any(|&x| x > 0.0));
        assert!(a.to_f64s().iter().all(|x| x.fract() == 0.0 && x.abs() < 100.0));
        assert!(terms[..i].iter().all(|b| a != b));
    }
    // A pending block is the block of the terms: replicas over b hold the same, and other seeds other terms.
    let layout = Layout::parse("a: P", &mesh).unwrap();
    let half = scatter_terms(&value, &layout, &mesh, 3);
    assert_eq!(half[0], half[1]);
    assert_ne!(half[0], half[2]);
    assert_ne!(half, scatter_terms(&value, &layout, &mesh, 4));
    // The first rank of a group keeps the value, the others the identity.
    let plain = scatter(&value, &layout, &mesh);
    assert_eq!(plain[1], value);
    assert!(plain[3].to_f64s().iter().all(|&x| x == 0.0));
    let layout = Layout::parse("a: Pmax", &mesh).unwrap();
    let plain = scatter(&value, &layout, &mesh);
    assert!(plain[3].to_f64s().iter().all(|&x| x == f64::NEG_INFINITY));
    let terms = scatter_terms(&value, &layout, &mesh, 3);
    assert!(terms.iter().all(|t| *t != value));
}

#[test]
fn blocks_that_do_not_fit_are_refused() {
    let mesh: Mesh = "a=2".parse().unwrap();
    let ty = TensorType::new([3], DType::F64);
    let value = ramp(&ty);
    let split = Layout::parse("a: S(0)", &mesh).unwrap();
    let replicated = Layout::replicated(1);
    let code = |blocks: &[Value], layout: &Layout| {
        let error = gather(blocks, &ty, layout, &mesh).unwrap_err();
        error.code()
    };
    let mut blocks = scatter(&value, &split, &mesh);
    assert_eq!(code(&blocks[..1], &split), "E110");
    blocks.swap(0, 1);
    assert_eq!(code(&blocks, &split), "E110");
    assert_eq!(code(&blocks, &Layout::parse("a: S(1)", &mesh).unwrap()), "E011");
    let copies = scatter(&value, &replicated, &mesh);
    assert_eq!(code(&[copies[0].clone(), copies[1].cast(DType::F32)], &replicated), "E110");
    let other = Value::from_fn(&ty, |i| if i == 2 { 9.0 } else { i as f64 - 6.0 });
    let error = gather(&[value, other], &ty, &replicated, &mesh).unwrap_err();
    assert!(
        matches!(error, Error::ReplicasDiffer { first: 0, second: 1, index: 2, .. }),
        "{error}"
    );
}

#[test]
fn replicas_of_inner_blocks_are_located_in_the_whole() {
    let mesh: Mesh = "a=2, b=2".parse().unwrap();
    let ty = TensorType::new([3, 5], DType::F32);
    let layout = Layout::parse("b: S(1)", &mesh).unwrap();
    let mut blocks = scatter(&ramp(&ty), &layout, &mesh);
    // Rank 3 holds columns 3..5; its element [1, 1] is the whole's [1, 4].
    let Value::F32(block) = &mut blocks[3] else { panic!() };
    block[[1, 1]] = -0.5;
    let error = gather(&blocks, &ty, &layout, &mesh).unwrap_err();
    assert!(
        matches!(error, Error::ReplicasDiffer { first: 1, second: 3, index: 9, .. }),
        "{error}"
    );
}

#[test]
fn leaves_must_have_values_of_their_type() {
    let g = Graph::new("inputs", DType::F32);
    let (x, y) = (g.input("x", [3, 4]).unwrap(), g.labels("y", [3]).unwrap());
    let loss = Loss::CrossEntropy.of(x, Some(y)).unwrap();
    g.output("loss", loss, OutputRole::Loss).unwrap();
    let program = g.finish();
    let fine = BTreeMap::from([
        ("x".to_owned(), ramp(&x.ty())),
        ("y".to_owned(), Value::from_fn(&y.ty(), |i| i as f64 + 1.0)),
    ]);
    assert!(eval::evaluate(&program, &fine).is_ok());
    let with = |name: &str, value: Value| {
        let mut inputs = fine.clone();
        inputs.insert(name.to_owned(), value);
        eval::evaluate_outputs(&program, &inputs).unwrap_err()
    };
    let mut missing = fine.clone();
    missing.remove("y");
    let error = eval::evaluate(&program, &missing).unwrap_err();
    assert_eq!(error.to_string(), "there is no value named `y`; values are given for x");
    for wrong in [ramp(&TensorType::new([4, 3], DType::F32)), fine["x"].cast(DType::F64)] {
        let error = with("x", wrong);
        assert!(matches!(&error, Error::WrongValue { name, .. } if name == "x"), "{error}");
    }
    for (label, row) in [(4.0, 2), (-1.0, 0)] {
        let value = Value::from_fn(&y.ty(), |i| if i == row { label } else { 0.0 });
        let error = with("y", value);
        let expected =
            Error::LabelOutOfRange { name: "y".to_owned(), row, label: label as i64, classes: 4 };
        assert_eq!(error, expected);
    }
}

#[test]
fn a_bad_label_on_a_block_is_named_by_its_global_row() {
    let op = Op::OneHot { classes: 4, dtype: DType::F64 };
    let labels = Value::from_fn(&TensorType::new([2], DType::I64), |i| i as f64 * 7.0);
    let block = Block { ranges: [3..5, 1..4].into_iter().collect() };
    let ty = TensorType::new([2, 3], DType::F64);
    let error = eval::apply(&op, &[&labels], &ty, &eval::Places::at(&block)).unwrap_err();
    assert!(matches!(error, Error::LabelOutOfRange { row: 4, label: 7, .. }), "{error}");
}

#[test]
fn a_program_of_f32_can_be_evaluated_in_f64() {
    let g = Graph::new("wide", DType::F32);
    let (x, y) = (g.input("x", [3, 4]).unwrap(), g.labels("y", [3]).unwrap());
    let loss = Loss::CrossEntropy.of(x.tanh().unwrap(), Some(y)).unwrap();
    let loss = loss.add(g.fill(0.1, []).unwrap()).unwrap();
    g.output("loss", loss, OutputRole::Loss).unwrap();
    let program = g.finish();
    let inputs = BTreeMap::from([
        ("x".to_owned(), Value::from_fn(&x.ty(), |i| 0.3 * i as f64 - 1.0)),
        ("y".to_owned(), Value::from_fn(&y.ty(), |i| i as f64)),
    ]);
    let at = program.outputs[0].node.index();
    let narrow = eval::evaluate(&program, &inputs).unwrap()[at].clone();
    let wide = eval::evaluate_in(&program, &inputs, DType::F64).unwrap()[at].clone();
    assert_eq!((narrow.ty().dtype, wide.ty().dtype), (DType::F32, DType::F64));
    let (narrow, wide) = (narrow.item().unwrap(), wide.item().unwrap());
    assert_ne!(narrow, wide);
    assert!((narrow - wide).abs() <= 32.0 * f64::from(f32::EPSILON) * wide, "{narrow}, {wide}");
    assert_eq!(eval::evaluate_in(&program, &inputs, DType::I32).unwrap_err().code(), "E105");
}

#[test]
fn arithmetic_without_a_result_is_refused() {
    let ty = TensorType::new([2], DType::I32);
    let whole = Block::whole(&[2]);
    let large = Value::from_fn(&ty, |_| 2_147_483_647.0);
    let zero = Value::from_fn(&ty, |_| 0.0);
    let code = |op: Op, operands: &[&Value]| {
        let ty = op.infer(&operands.iter().map(|v| v.ty()).collect::<Vec<_>>()).unwrap();
        eval::apply(&op, operands, &ty, &eval::Places::at(&whole)).unwrap_err().code()
    };
    let sum = Op::Sum(shardgrad_core::ops::ReduceDims::new([0]));
    assert_eq!(code(sum, &[&large]), "E111");
    assert_eq!(code(Op::Add, &[&large, &large]), "E111");
    assert_eq!(code(Op::Mul, &[&large, &large]), "E111");
    assert_eq!(code(Op::Div, &[&large, &zero]), "E111");
    assert_eq!(code(Op::Einsum("a,a->".parse().unwrap()), &[&large, &large]), "E111");
    assert_eq!(code(Op::Scale(shardgrad_core::ops::Const::new(0.5)), &[&large]), "E111");
    // Blocks that belong to different layouts.
    let three = Value::from_fn(&TensorType::new([3], DType::I32), |i| i as f64);
    for op in [Op::Add, Op::Einsum("a,a->a".parse().unwrap())] {
        assert_eq!(
            eval::apply(&op, &[&large, &three], &ty, &eval::Places::at(&whole)).unwrap_err().code(),
            "E110"
        );
    }
    let leaf = Op::Leaf(shardgrad_core::ops::Leaf {
        name: "x".to_owned(),
        role: shardgrad_core::ops::Role::Input,
        ty: ty.clone(),
    });
    assert_eq!(eval::apply(&leaf, &[], &ty, &eval::Places::at(&whole)).unwrap_err().code(), "E104");
}

#[test]
fn ids_that_are_no_rows_are_refused_by_name_and_row() {
    let g = Graph::new("rows", DType::F32);
    let (table, ids) = (g.param("table", [5, 2]).unwrap(), g.labels("ids", [3, 2]).unwrap());
    let rows = table.lookup(ids).unwrap();
    g.output("back", rows.scatter_add(ids, 7).unwrap(), OutputRole::Value).unwrap();
    let program = g.finish();
    let with = |bad: f64| {
        let ids = Value::from_fn(&ids.ty(), |i| if i == 3 { bad } else { 4.0 });
        eval::evaluate(
            &program,
            &BTreeMap::from([("table".to_owned(), ramp(&table.ty())), ("ids".to_owned(), ids)]),
        )
    };
    assert!(with(2.0).is_ok());
    for label in [5, -1] {
        let error = with(label as f64).unwrap_err();
        let expected = Error::LabelOutOfRange { name: "ids".to_owned(), row: 1, label, classes: 5 };
        assert_eq!(error, expected);
    }
    // On a block of ids, by the row in the whole; a row of another block of the table is none of its faults.
    let op = Op::Lookup { rows: 5 };
    let table = ramp(&TensorType::new([2, 2], DType::F32));
    let (ty, result) =
        (TensorType::new([2, 2], DType::F32), Block { ranges: [4..6, 0..2].into_iter().collect() });
    let of = [3..5, 0..2].into_iter().collect();
    let of = [Block { ranges: of }, Block { ranges: std::iter::once(4..6).collect() }];
    let places = eval::Places { operands: &of, result: &result };
    let lookup = |ids: [f64; 2]| {
        let ids = Value::from_fn(&TensorType::new([2], DType::I32), |i| ids[i]);
        eval::apply(&op, &[&table, &ids], &ty, &places)
    };
    assert_eq!(lookup([0.0, 4.0]).unwrap().to_f64s(), [0.0, 0.0, -4.0, -3.0]);
    let error = lookup([0.0, 5.0]).unwrap_err();
    assert!(matches!(error, Error::LabelOutOfRange { row: 5, label: 5, .. }), "{error}");
}

#[test]
fn the_largest_come_in_order_whatever_they_are() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    for (x, indices) in [
        ([1.0, 3.0, 3.0, -inf], [1.0, 2.0, 0.0, 3.0]),
        ([-inf, 2.0, -inf, -inf], [1.0, 0.0, 2.0, 3.0]),
        ([4.0, nan, inf, nan], [1.0, 3.0, 2.0, 0.0]),
        ([-inf; 4], [0.0, 1.0, 2.0, 3.0]),
    ] {
        let g = Graph::new("top", DType::F64);
        let v = g.input("x", [4]).unwrap();
        let (values, places) = v.top_k(4, 0).unwrap();
        g.output("values", values, OutputRole::Value).unwrap();
        g.output("indices", places, OutputRole::Value).unwrap();
        g.output("first", v.argmax(0).unwrap(), OutputRole::Value).unwrap();
        let data = BTreeMap::from([("x".to_owned(), Value::from_fn(&v.ty(), |i| x[i]))]);
        let outputs = eval::evaluate_outputs(&g.finish(), &data).unwrap();
        assert_eq!(outputs["indices"].to_f64s(), indices, "{x:?}");
        assert_eq!(outputs["first"].item(), Some(indices[0]));
        for (value, index) in outputs["values"].to_f64s().into_iter().zip(indices) {
            assert_eq!(value.to_bits(), x[index as usize].to_bits());
        }
    }
    let g = Graph::new("too few", DType::F64);
    let v = g.input("x", [4]).unwrap();
    for (k, dim) in [(0, 0), (5, 0), (1, 1)] {
        assert_eq!(v.top_k(k, dim).unwrap_err().code(), "E103");
    }
}

#[test]
fn draws_are_spread_and_dropout_scales_what_it_keeps() {
    let g = Graph::new("draws", DType::F32);
    let x = g.input("x", [40, 50]).unwrap();
    let key = g.key("key").unwrap();
    let (first, second) = (x.dropout(0.25, key).unwrap(), x.dropout(0.25, key).unwrap());
    g.output("first", first, OutputRole::Value).unwrap();
    g.output("second", second, OutputRole::Value).unwrap();
    let gradient = g.grad(first.sum_all().unwrap(), &[x]).unwrap()[0];
    g.output("slope", gradient, OutputRole::Value).unwrap();
    let program = g.finish();
    let run = |key: f64, dtype: DType| {
        let data = BTreeMap::from([
            ("x".to_owned(), Value::from_fn(&x.ty(), |_| 3.0)),
            ("key".to_owned(), Value::scalar(key, DType::I64)),
        ]);
        let values = eval::evaluate_in(&program, &data, dtype).unwrap();
        program.outputs.iter().map(|o| values[o.node.index()].to_f64s()).collect::<Vec<_>>()
    };
    let found = run(5.0, DType::F32);
    assert_eq!(found, run(5.0, DType::F32));
    assert!(found[0].iter().all(|&v| v == 0.0 || v == 4.0));
    // The gradient drops what the value dropped.
    assert!(found[0].iter().zip(&found[2]).all(|(v, s)| (*v != 0.0) == (*s != 0.0)));
    // Five standard errors of 2,000 draws at a rate of 1/4.
    let dropped = found[0].iter().filter(|v| **v == 0.0).count() as f64;
    assert!((dropped - 500.0).abs() < 5.0 * (2_000.0 * 0.25 * 0.75_f64).sqrt(), "{dropped}");
    // Another call and another key draw anew; another type draws the same.
    assert_ne!(found[0], found[1]);
    assert_ne!(found[0], run(6.0, DType::F32)[0]);
    let zeros = |v: &[f64]| v.iter().map(|x| *x == 0.0).collect::<Vec<_>>();
    assert_eq!(zeros(&found[0]), zeros(&run(5.0, DType::F64)[0]));
    for rate in [1.0, -0.1, f64::NAN] {
        assert_eq!(x.dropout(rate, key).unwrap_err().code(), "E103");
    }
    assert!(x.dropout(0.5, x).is_err());
}

#[test]
fn maxima_and_relu_pass_nan_on() {
    let g = Graph::new("nan", DType::F64);
    let x = g.input("x", [3]).unwrap();
    g.output("max", x.max(&[0]).unwrap(), OutputRole::Value).unwrap();
    g.output("relu", x.relu().unwrap(), OutputRole::Value).unwrap();
    let program = g.finish();
    for place in 0..3 {
        let xs = Value::from_fn(&x.ty(), |i| if i == place { f64::NAN } else { i as f64 - 1.0 });
        let inputs = BTreeMap::from([("x".to_owned(), xs)]);
        let outputs = eval::evaluate_outputs(&program, &inputs).unwrap();
        assert!(outputs["max"].item().unwrap().is_nan());
        assert_eq!(outputs["relu"].to_f64s().iter().filter(|v| v.is_nan()).count(), 1);
    }
}
