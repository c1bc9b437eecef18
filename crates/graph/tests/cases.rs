//! Cases from public bug reports about values: the dense side, and the same values from blocks where a rule lets the
//! case pass without a collective.

use std::collections::BTreeMap;

use shardgrad_core::ops::{ReduceDims, Unary};
use shardgrad_core::{Block, DType, Layout, Mesh, Op, TensorType, rules};
use shardgrad_graph::blocks::{gather, scatter};
use shardgrad_graph::{Graph, OutputRole, Value, Var, eval};

type Inputs = BTreeMap<String, Value>;

fn tensor<const N: usize>(shape: [usize; N], values: &[f64]) -> Value {
    Value::from_fn(&TensorType::new(shape, DType::F64), |i| values[i])
}

fn value_of(g: &Graph, v: Var<'_>, inputs: &Inputs) -> Vec<f64> {
    let name = format!("value {}", v.id());
    g.output(&name, v, OutputRole::Value).unwrap();
    eval::evaluate_outputs(&g.finish(), inputs).unwrap()[&name].to_f64s()
}

fn assert_close(actual: &[f64], expected: &[f64]) {
    // The expected values are printed with six decimals.
    assert_eq!(actual.len(), expected.len());
    for (a, e) in actual.iter().zip(expected) {
        assert!((a - e).abs() <= 5e-7, "{actual:?} is not {expected:?}");
    }
}

#[test]
fn case_p1_a_constant_is_added_to_a_sum_once() {
    let g = Graph::new("p1", DType::F64);
    let x = g.input("x", [10]).unwrap();
    let ten = g.scalar("ten").unwrap();
    let s = x.sum_all().unwrap();
    let inputs = Inputs::from([
        ("x".to_owned(), Value::from_fn(&x.ty(), |i| i as f64)),
        ("ten".to_owned(), Value::scalar(10.0, DType::F64)),
    ]);
    let value = |v: Var<'_>| value_of(&g, v, &inputs)[0];
    assert_eq!(value(s.add_const(10.0).unwrap()), 55.0);
    assert_eq!(value(s.add(ten).unwrap()), 55.0);
    assert_eq!(value(s.sub(ten).unwrap()), 35.0);
    assert_eq!(value(s.neg().unwrap().add_const(10.0).unwrap()), -35.0);

    // A pending sum is refused; each term with the constant added would make 65.
    let mesh: Mesh = "a=2".parse().unwrap();
    let pending = Layout::parse("a: P", &mesh).unwrap();
    let scalar = TensorType::new([], DType::F64);
    let op = Op::AddConst(shardgrad_core::ops::Const::new(10.0));
    let types = [scalar.clone()];
    assert!(rules::check(&op, &mesh, &types, &scalar, &[&pending], &pending).is_err());
    let replicated = Layout::replicated(1);
    let types = [scalar.clone(), scalar.clone()];
    let operands = [&pending, &replicated];
    assert!(rules::check(&Op::Add, &mesh, &types, &scalar, &operands, &pending).is_err());
}

#[test]
fn case_p3_nonlinear_functions_of_a_pending_sum_are_refused() {
    let mesh: Mesh = "a=2".parse().unwrap();
    let split = Layout::parse("a: S(0)", &mesh).unwrap();
    let pending = Layout::parse("a: P", &mesh).unwrap();
    let v = tensor([2, 2], &[3.0, -1.0, -1.0, -1.0]);
    let sum = Op::Sum(ReduceDims::new([0]));
    let ty = TensorType::new([2], DType::F64);
    let terms: Vec<Value> = scatter(&v, &split, &mesh)
        .iter()
        .map(|block| {
            eval::apply(&sum, &[block], &ty, &eval::Places::at(&Block::whole(&ty.shape))).unwrap()
        })
        .collect();
    let s = gather(&terms, &ty, &pending, &mesh).unwrap();
    assert_eq!(s.to_f64s(), [2.0, -2.0]);
    for (unary, expected) in [
        (Unary::Relu, [2.0, 0.0]),
        (Unary::Abs, [2.0, 2.0]),
        (Unary::Square, [4.0, 4.0]),
        (Unary::Exp, [2.0_f64.exp(), (-2.0_f64).exp()]),
        (Unary::Gelu, [1.954_597_694_087_775, -0.045_402_305_912_225]),
    ] {
        let op = Op::Unary(unary);
        let apply = |v: &Value| {
            eval::apply(&op, &[v], &ty, &eval::Places::at(&Block::whole(&ty.shape))).unwrap()
        };
        let whole = apply(&s).to_f64s();
        for (a, e) in whole.iter().zip(expected) {
            assert!((a - e).abs() <= 4.0 * f64::EPSILON * e.abs().max(1.0), "{unary:?}: {whole:?}");
        }
        // The contributions have mixed signs, so that the function of the terms is something else.
        let terms: Vec<Value> = terms.iter().map(apply).collect();
        assert_ne!(gather(&terms, &ty, &pending, &mesh).unwrap().to_f64s(), whole, "{unary:?}");
        let types = [ty.clone()];
        assert!(rules::check(&op, &mesh, &types, &ty, &[&pending], &pending).is_err());
    }
}

#[test]
fn case_t7_what_is_broadcast_forward_is_summed_backward() {
    let g = Graph::new("t7", DType::F64);
    let x = g.input("x", [2, 1]).unwrap();
    let b = g.input("b", [1, 3]).unwrap();
    let shape = g.input("shape", [2, 3]).unwrap();
    let inputs = Inputs::from([
        ("x".to_owned(), tensor([2, 1], &[1.0, 2.0])),
        ("b".to_owned(), tensor([1, 3], &[10.0, 20.0, 30.0])),
        ("shape".to_owned(), tensor([2, 3], &[0.0; 6])),
    ]);
    let (wide_x, wide_b) = (x.broadcast_like(shape).unwrap(), b.broadcast_like(shape).unwrap());
    let gradients = |y: Var<'_>| {
        let loss = y.square().unwrap().sum_all().unwrap();
        let gradients = g.grad(g.var(loss.id()), &[x, b]).unwrap();
        assert_eq!((gradients[0].ty(), gradients[1].ty()), (x.ty(), b.ty()));
        (value_of(&g, gradients[0], &inputs), value_of(&g, gradients[1], &inputs))
    };
    let (dx, db) = gradients(wide_x.add(wide_b).unwrap());
    assert_eq!((dx, db), (vec![126.0, 132.0], vec![46.0, 86.0, 126.0]));
    // 2 (x − b) summed.
    let (dx, db) = gradients(wide_x.sub(wide_b).unwrap());
    assert_eq!((dx, db), (vec![-114.0, -108.0], vec![34.0, 74.0, 114.0]));
    // 2 x b² and 2 x² b summed.
    let (dx, db) = gradients(wide_x.mul(wide_b).unwrap());
    assert_eq!((dx, db), (vec![2800.0, 5600.0], vec![100.0, 200.0, 300.0]));
    // 2 b / x² and −2 b² / x³ summed, for b / x.
    let (dx, db) = gradients(wide_b.div(wide_x).unwrap());
    assert_eq!((dx, db), (vec![-2800.0, -350.0], vec![25.0, 50.0, 75.0]));
}

#[test]
fn case_v1_softmax_shifts_by_the_maximum() {
    for (shift, dtype) in [(100.0, DType::F32), (-1000.0, DType::F64), (1e8, DType::F64)] {
        let g = Graph::new("v1", dtype);
        let x = g.input("x", [4]).unwrap();
        let softmax = x.log_softmax(0).unwrap().exp().unwrap();
        let inputs =
            Inputs::from([("x".to_owned(), Value::from_fn(&x.ty(), |i| shift + i as f64))]);
        let expected = [0.032_059, 0.087_144, 0.236_883, 0.643_914];
        assert_close(&value_of(&g, softmax, &inputs), &expected);
    }
    // The maxima of blocks combine by maximum, and an empty block holds the identity.
    let mesh: Mesh = "a=5".parse().unwrap();
    let split = Layout::parse("a: S(0)", &mesh).unwrap();
    let pending = Layout::parse("a: Pmax", &mesh).unwrap();
    let max = Op::Max(ReduceDims::new([0]));
    let scalar = TensorType::new([], DType::F64);
    let x = tensor([4], &[-103.0, -101.0, -100.0, -102.0]);
    let maxima: Vec<Value> = scatter(&x, &split, &mesh)
        .iter()
        .map(|block| {
            eval::apply(&max, &[block], &scalar, &eval::Places::at(&Block::whole(&[]))).unwrap()
        })
        .collect();
    assert_eq!(maxima[4].item(), Some(f64::NEG_INFINITY));
    assert_eq!(gather(&maxima, &scalar, &pending, &mesh).unwrap().item(), Some(-100.0));
}

#[test]
fn case_v4_every_class_gets_its_softmax_term() {
    use shardgrad_graph::Loss;
    let g = Graph::new("v4", DType::F64);
    let (x, y) = (g.input("x", [4]).unwrap(), g.labels("y", []).unwrap());
    let loss = Loss::CrossEntropy.of(x, Some(y)).unwrap();
    let gradient = g.grad(loss, &[x]).unwrap()[0];
    let inputs = Inputs::from([
        ("x".to_owned(), tensor([4], &[2.0, 0.0, 1.0, 0.0])),
        ("y".to_owned(), Value::scalar(3.0, DType::I32)),
    ]);
    let softmax = [0.610_296, 0.082_595, 0.224_515, 0.082_595];
    assert_close(&value_of(&g, loss, &inputs), &[2.493_812]);
    let expected = [0.610_296, 0.082_595, 0.224_515, -0.917_405];
    assert_close(&value_of(&g, gradient, &inputs), &expected);

    // A batch of 4 equal rows with labels 0..3: (softmax − onehot) / 4.
    let g = Graph::new("v4 batch", DType::F64);
    let (x, y) = (g.input("x", [4, 4]).unwrap(), g.labels("y", [4]).unwrap());
    let loss = Loss::CrossEntropy.of(x, Some(y)).unwrap();
    let gradient = g.grad(loss, &[x]).unwrap()[0];
    let inputs = Inputs::from([
        ("x".to_owned(), Value::from_fn(&x.ty(), |i| [2.0, 0.0, 1.0, 0.0][i % 4])),
        ("y".to_owned(), Value::from_fn(&y.ty(), |i| i as f64)),
    ]);
    let expected: Vec<f64> =
        (0..16).map(|i| (softmax[i % 4] - f64::from(i / 4 == i % 4)) / 4.0).collect();
    assert_close(&value_of(&g, gradient, &inputs), &expected);
}

#[test]
fn case_v6_log_softmax_without_cross_entropy() {
    let g = Graph::new("v6", DType::F64);
    let (x, c) = (g.input("x", [4]).unwrap(), g.input("c", [4]).unwrap());
    let loss = x.log_softmax(0).unwrap().mul(c).unwrap().sum_all().unwrap();
    let gradient = g.grad(loss, &[x]).unwrap()[0];
    let inputs = Inputs::from([
        ("x".to_owned(), tensor([4], &[2.0, 0.0, 1.0, 0.0])),
        ("c".to_owned(), tensor([4], &[1.0, 0.0, 0.0, 2.0])),
    ]);
    let expected = [-0.830_887, -0.247_784, -0.673_546, 1.752_216];
    assert_close(&value_of(&g, gradient, &inputs), &expected);
}
