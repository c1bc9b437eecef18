//! Gradients against finite differences, for every op, at first and second order.
//!
//! The difference is the four-point one, (8 (f₊ − f₋) − (f₊₊ − f₋₋)) / 12h with h = 10⁻³ in f64. Its truncation is
//! h⁴/30 · |f⁽⁵⁾| ≈ 3·10⁻¹⁴ · |f⁽⁵⁾|, and the rounding of f adds at most 1.5 · 2⁻⁵³ · |terms of f| / h ≈ 2·10⁻¹³ times the
//! sum of the magnitudes of some hundred terms. Values are chosen so that fifth derivatives stay below 10⁴ times the
//! gradient: 10⁻⁹ · (1 + the largest gradient) bounds both, and is far below any wrong sign, factor or transpose.

use std::collections::BTreeMap;

use shardgrad_core::ops::{Comparison, Unary, catalog};
use shardgrad_core::{DType, Op, TensorType};
use shardgrad_graph::{CrossEntropy, Error, Graph, Loss, OutputRole, Value, Var, eval};

type Inputs = BTreeMap<String, Value>;

const STEP: f64 = 1e-3;

fn loss_at(g: &Graph, loss: Var<'_>, inputs: &Inputs) -> f64 {
    eval::evaluate(&g.finish(), inputs).unwrap()[position(g, loss)].item().unwrap()
}

/// Where a node of the graph is in the finished program, of which it must be an output.
fn position(g: &Graph, v: Var<'_>) -> usize {
    let program = g.finish();
    let name = format!("value {}", v.id());
    program.outputs.iter().find(|o| o.name == name).unwrap().node.index()
}

fn expose(g: &Graph, v: Var<'_>) {
    // The value may be exposed already.
    let _ = g.output(&format!("value {}", v.id()), v, OutputRole::Value);
}

/// Compares `gradient` with the finite difference of `loss` in the leaf `name`.
fn check(context: &str, g: &Graph, loss: Var<'_>, name: &str, gradient: Var<'_>, inputs: &Inputs) {
    expose(g, loss);
    expose(g, gradient);
    let program = g.finish();
    let (loss_at_node, gradient_at) = (position(g, loss), position(g, gradient));
    let f =
        |inputs: &Inputs| eval::evaluate(&program, inputs).unwrap()[loss_at_node].item().unwrap();
    let actual = eval::evaluate(&program, inputs).unwrap()[gradient_at].clone();
    let leaf = &inputs[name];
    assert_eq!(actual.ty(), leaf.ty(), "{context}: type of the gradient in {name}");
    let actual = actual.to_f64s();
    let values = leaf.to_f64s();
    let largest = actual.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
    for (i, &actual) in actual.iter().enumerate() {
        let shifted = |by: f64| {
            let mut inputs = inputs.clone();
            let moved = Value::from_fn(&leaf.ty(), |j| values[j] + if i == j { by } else { 0.0 });
            inputs.insert(name.to_owned(), moved);
            f(&inputs)
        };
        let expected = (8.0 * (shifted(STEP) - shifted(-STEP))
            - (shifted(2.0 * STEP) - shifted(-2.0 * STEP)))
            / (12.0 * STEP);
        assert!(
            (actual - expected).abs() <= 1e-9 * (1.0 + largest),
            "{context}: d/d{name}[{i}] is {actual} but differences give {expected}",
        );
    }
}

/// Values of mixed sign between −1.9 and 1.9, none within 0.05 of 0, no two equal, so that no kink or tie is within the
/// step. Where the op has a pole or a branch point at 0, magnitudes are between 1 and 3; log and sqrt get no negatives.
fn values(op: &Op, position: usize, ty: &TensorType) -> Value {
    let n = ty.elements();
    let positive = matches!(op, Op::Unary(Unary::Log | Unary::Sqrt));
    let pole = positive
        || matches!(op, Op::Unary(Unary::Reciprocal))
        || (matches!(op, Op::Div) && position == 1);
    Value::from_fn(ty, |i| {
        // A permutation of 0..n, as 7 and the extents used here have no common factor.
        let place = ((i * 7 + 3 + position) % n) as f64;
        let magnitude = 0.1 + 1.7 * (place + 0.3 + 0.2 * position as f64) / n as f64;
        let magnitude = if pole { magnitude + 1.0 } else { magnitude };
        if positive || (i + position) % 3 != 1 { magnitude } else { -magnitude }
    })
}

/// A leaf of fixed weights of mixed sign, none of them 1.
fn weights<'g>(g: &'g Graph, name: &str, like: Var<'_>, inputs: &mut Inputs) -> Var<'g> {
    let ty = like.ty();
    let value = Value::from_fn(&ty, |i| (0.9 * i as f64 + 0.4).sin() * 1.3 + 0.2);
    inputs.insert(name.to_owned(), value);
    g.input(name, ty.shape.iter().copied()).unwrap()
}

struct Instance {
    op: Op,
    operands: Vec<TensorType>,
}

/// The rows of the table with float operands, and more einsums.
fn instances() -> Vec<Instance> {
    let mut all: Vec<Instance> = catalog::rows()
        .into_iter()
        .filter(|row| !row.operands.is_empty())
        .filter(|row| row.operands.iter().all(|ty| ty.dtype.is_float()))
        // Conversions round; their gradients have a test of their own.
        .filter(|row| !matches!(row.op, Op::Cast(_)))
        .map(|row| Instance { op: row.op, operands: row.operands })
        .collect();
    let extent = |label: char| label as usize - 'a' as usize + 2;
    for spec in [
        "bc,cd->db",
        "abc,cd->bd",
        "ab,cd->ac",
        "ab->",
        "ab->a",
        "abc->ca",
        "ab,ab->",
        "ab,ab->ab",
        "ab,b->a",
        ",ab->ba",
        "ab,->b",
        "ab,bcd->cda",
        "a,b->",
        "abc,abd->acd",
    ] {
        let (operands, _) = spec.split_once("->").unwrap();
        let operands = operands
            .split(',')
            .map(|l| TensorType::new(l.chars().map(extent), DType::F64))
            .collect();
        all.push(Instance { op: Op::Einsum(spec.parse().unwrap()), operands });
    }
    all
}

/// Checks sum(op), sum(c · op) and sum(c · op²) at first order, and the last at second.
fn check_op(instance: &Instance) {
    for power in [0, 1, 2] {
        let g = Graph::new("op", DType::F64);
        let mut inputs = Inputs::new();
        let leaves: Vec<Var<'_>> = (0..instance.operands.len())
            .map(|i| {
                let ty = &instance.operands[i];
                inputs.insert(format!("x{i}"), values(&instance.op, i, ty));
                g.input(&format!("x{i}"), ty.shape.iter().copied()).unwrap()
            })
            .collect();
        let result = g.apply(instance.op.clone(), &leaves).unwrap();
        let weighted = match power {
            0 => result,
            1 => result.mul(weights(&g, "c", result, &mut inputs)).unwrap(),
            _ => {
                let c = weights(&g, "c", result, &mut inputs);
                result.square().unwrap().mul(c).unwrap()
            }
        };
        let loss = weighted.sum_all().unwrap();
        let context = format!("{} of power {power}", instance.op);
        let gradients = g.grad(loss, &leaves).unwrap();
        for (i, &gradient) in gradients.iter().enumerate() {
            check(&context, &g, loss, &format!("x{i}"), gradient, &inputs);
            if power < 2 {
                continue;
            }
            let d = weights(&g, &format!("d{i}"), gradient, &mut inputs);
            let second_loss = gradient.mul(d).unwrap().sum_all().unwrap();
            for (j, second) in g.grad(second_loss, &leaves).unwrap().into_iter().enumerate() {
                let context = format!("{context}, gradient {i} differentiated");
                check(&context, &g, second_loss, &format!("x{j}"), second, &inputs);
            }
        }
    }
}

#[test]
fn gradients_of_every_op_at_both_orders() {
    let mut checked = 0;
    for instance in instances() {
        // Its gradient is not its derivative.
        if !matches!(instance.op, Op::StopGradient) {
            check_op(&instance);
            checked += 1;
        }
    }
    assert!(checked >= 72, "{checked}");
}

#[test]
fn gradients_of_both_operands_of_one_value() {
    // x · x, x / x² and x·xᵀ: contributions of all uses are added.
    let g = Graph::new("shared", DType::F64);
    let x = g.input("x", [3, 4]).unwrap();
    let mut inputs = Inputs::from([("x".to_owned(), values(&Op::Div, 1, &x.ty()))]);
    let y = x.mul(x).unwrap().add(x.div(x.square().unwrap()).unwrap()).unwrap();
    let z = x.einsum("ac,bc->ab", x).unwrap();
    let c = weights(&g, "c", z, &mut inputs);
    let loss = y.sum_all().unwrap().add(z.mul(c).unwrap().sum_all().unwrap()).unwrap();
    let gradient = g.grad(loss, &[x]).unwrap()[0];
    check("shared operand", &g, loss, "x", gradient, &inputs);
}

/// The value at a node of an unfinished graph.
fn value_of(g: &Graph, v: Var<'_>, inputs: &Inputs) -> Vec<f64> {
    expose(g, v);
    eval::evaluate(&g.finish(), inputs).unwrap()[position(g, v)].to_f64s()
}

/// First and second derivatives of Σ c · v², v being what `made` makes of one leaf.
fn check_squares(
    context: &str,
    shape: &[usize],
    ids: &[f64],
    made: impl for<'g> Fn(&'g Graph, Var<'g>) -> Var<'g>,
) {
    let g = Graph::new("squares", DType::F64);
    let x = g.input("x", shape.iter().copied()).unwrap();
    let mut inputs = Inputs::from([("x".to_owned(), values(&Op::Add, 0, &x.ty()))]);
    let v = made(&g, x);
    let program = g.finish();
    for id in program.leaves() {
        let ty = &program.node(id).ty;
        if !ty.dtype.is_float() {
            inputs.insert("ids".to_owned(), Value::from_fn(ty, |i| ids[i]));
        }
    }
    let c = weights(&g, "c", v, &mut inputs);
    let loss = v.square().unwrap().mul(c).unwrap().sum_all().unwrap();
    let gradient = g.grad(loss, &[x]).unwrap()[0];
    check(context, &g, loss, "x", gradient, &inputs);
    let d = weights(&g, "d", gradient, &mut inputs);
    let second_loss = gradient.mul(d).unwrap().sum_all().unwrap();
    let second = g.grad(second_loss, &[x]).unwrap()[0];
    check(&format!("{context}, second order"), &g, second_loss, "x", second, &inputs);
}

#[test]
fn rows_by_id_at_both_orders() {
    // Repeated ids, a row that no id names, ids of one and two dims, a table of scalars.
    let ids = [3.0, 0.0, 3.0, 3.0, 1.0, 0.0];
    for (table, places) in [(&[4, 3][..], &[6][..]), (&[4, 2], &[2, 3]), (&[5], &[3, 2])] {
        check_squares("lookup", table, &ids, |g, x| {
            x.lookup(g.labels("ids", places.iter().copied()).unwrap()).unwrap()
        });
    }
    for (terms, places) in [(&[6, 3][..], &[6][..]), (&[2, 3, 2], &[2, 3]), (&[6], &[6])] {
        check_squares("scatter_add", terms, &ids, |g, x| {
            x.scatter_add(g.labels("ids", places.iter().copied()).unwrap(), 5).unwrap()
        });
    }
}

#[test]
fn values_that_are_built_of_slices_and_masks_at_both_orders() {
    check_squares("stack, select", &[4, 3], &[], |g, x| {
        let rows = [x.select(0, 2).unwrap(), x.select(0, 0).unwrap(), x.select(0, 2).unwrap()];
        g.stack(1, &rows)
            .unwrap()
            .mul(g.concat(0, &rows).unwrap().reshape(&[3, 3]).unwrap())
            .unwrap()
    });
    check_squares("choose", &[3, 4], &[], |g, x| {
        let early = g.iota(1, [3, 4]).unwrap().compare_const(Comparison::Le, 1.0).unwrap();
        // The value that is not taken may be anything.
        let log = x.compare_const(Comparison::Gt, f64::INFINITY).unwrap().log().unwrap();
        let rest = early.choose(x.square().unwrap(), x.neg().unwrap()).unwrap();
        early.choose(rest, early.choose(log, x).unwrap()).unwrap()
    });
    check_squares("rsqrt", &[5], &[], |_, x| {
        x.square().unwrap().add_const(0.5).unwrap().rsqrt().unwrap()
    });
}

#[test]
fn equal_operands_share_the_gradient_of_the_larger_and_the_smaller() {
    let g = Graph::new("equals", DType::F64);
    let (a, b) = (g.input("a", [3]).unwrap(), g.input("b", [3]).unwrap());
    let inputs = Inputs::from([
        ("a".to_owned(), Value::from_fn(&a.ty(), |i| [1.0, 5.0, -2.0][i])),
        ("b".to_owned(), Value::from_fn(&b.ty(), |i| [1.0, 3.0, 7.0][i])),
    ]);
    for (larger, first, second) in
        [(true, [0.5, 1.0, 0.0], [0.5, 0.0, 1.0]), (false, [0.5, 0.0, 1.0], [0.5, 1.0, 0.0])]
    {
        let of_two = if larger { a.maximum(b) } else { a.minimum(b) };
        let gradients = g.grad(of_two.unwrap().sum_all().unwrap(), &[a, b]).unwrap();
        assert_eq!(value_of(&g, gradients[0], &inputs), first);
        assert_eq!(value_of(&g, gradients[1], &inputs), second);
    }
}

#[test]
fn gradients_pass_between_float_types_and_not_through_integers() {
    let g = Graph::new("types", DType::F64);
    let x = g.input("x", [3]).unwrap();
    let inputs = Inputs::from([("x".to_owned(), Value::from_fn(&x.ty(), |i| 1.75 - i as f64))]);
    let narrow = x.cast(DType::F32).unwrap();
    let scaled = narrow.scale(3.0).unwrap().cast(DType::F64).unwrap();
    let whole = x.cast(DType::I32).unwrap().cast(DType::F64).unwrap();
    // Towards zero on both sides.
    assert_eq!(value_of(&g, whole, &inputs), [1.0, 0.0, 0.0]);
    let loss = scaled.add(whole).unwrap().sum_all().unwrap();
    let gradient = g.grad(loss, &[x]).unwrap()[0];
    assert_eq!(gradient.ty(), x.ty());
    assert_eq!(value_of(&g, gradient, &inputs), [3.0; 3]);
}

#[test]
fn log_softmax_cross_entropy_at_both_orders() {
    let g = Graph::new("ce", DType::F64);
    let logits = g.input("x", [4, 5]).unwrap();
    let labels = g.labels("y", [4]).unwrap();
    let mut inputs = Inputs::from([
        ("x".to_owned(), values(&Op::Add, 0, &logits.ty())),
        ("y".to_owned(), Value::from_fn(&labels.ty(), |i| ((3 * i + 1) % 5) as f64)),
    ]);
    let loss = Loss::CrossEntropy.of(logits, Some(labels)).unwrap();
    let gradient = g.grad(loss, &[logits]).unwrap()[0];
    check("cross entropy", &g, loss, "x", gradient, &inputs);
    let d = weights(&g, "d", gradient, &mut inputs);
    let second_loss = gradient.mul(d).unwrap().sum_all().unwrap();
    let second = g.grad(second_loss, &[logits]).unwrap()[0];
    check("cross entropy, second order", &g, second_loss, "x", second, &inputs);
}

/// A leaf of a smooth wave, another for every name.
fn wave<'g>(g: &'g Graph, name: &str, shape: &[usize], inputs: &mut Inputs) -> Var<'g> {
    let leaf = g.input(name, shape.iter().copied()).unwrap();
    let phase = name.bytes().map(f64::from).sum::<f64>();
    let value = Value::from_fn(&leaf.ty(), |i| (0.7 * i as f64 + phase).sin());
    inputs.insert(name.to_owned(), value);
    leaf
}

/// Checks the gradients of a weighted sum of a value in leaves.
fn check_value(
    context: &str,
    g: &Graph,
    value: Var<'_>,
    leaves: &[(&str, Var<'_>)],
    inputs: &mut Inputs,
) {
    let c = weights(g, "c", value, inputs);
    let loss = value.mul(c).unwrap().sum_all().unwrap();
    let vars: Vec<Var<'_>> = leaves.iter().map(|(_, v)| *v).collect();
    for ((name, _), gradient) in leaves.iter().zip(g.grad(loss, &vars).unwrap()) {
        check(context, g, loss, name, gradient, inputs);
    }
}

#[test]
fn softmax_and_norms() {
    for dim in [0, 1, 2] {
        let (g, mut inputs) = (Graph::new("softmax", DType::F64), Inputs::new());
        let x = wave(&g, "x", &[2, 3, 4], &mut inputs);
        check_value("softmax", &g, x.softmax(dim).unwrap(), &[("x", x)], &mut inputs);
    }
    let (g, mut inputs) = (Graph::new("norms", DType::F64), Inputs::new());
    let x = wave(&g, "x", &[2, 3, 5], &mut inputs);
    let (scale, shift) = (wave(&g, "s", &[5], &mut inputs), wave(&g, "t", &[5], &mut inputs));
    let layer = x.layer_norm(Some(scale), Some(shift), 1e-5).unwrap();
    let both = layer.add(x.rms_norm(Some(shift), 1e-5).unwrap()).unwrap();
    check_value("norms", &g, both, &[("x", x), ("s", scale), ("t", shift)], &mut inputs);
    // Rows of a norm have mean 0 and mean square 1, but for ε.
    let plain = value_of(&g, x.layer_norm(None, None, 0.0).unwrap(), &inputs);
    for row in plain.chunks(5) {
        assert!(row.iter().sum::<f64>().abs() < 1e-12);
        assert!((row.iter().map(|v| v * v).sum::<f64>() - 5.0).abs() < 1e-12);
    }
    assert_eq!(x.layer_norm(Some(x), None, 0.0).unwrap_err().code(), "E103");
}

#[test]
fn attention_with_and_without_groups() {
    for (groups, causal) in [(None, false), (None, true), (Some(2), true)] {
        let (g, mut inputs) = (Graph::new("attention", DType::F64), Inputs::new());
        let queries: &[usize] = if groups.is_some() { &[2, 3, 2, 2, 2] } else { &[2, 3, 2, 2] };
        let q = wave(&g, "q", queries, &mut inputs);
        let (k, v) =
            (wave(&g, "k", &[2, 3, 2, 2], &mut inputs), wave(&g, "v", &[2, 3, 2, 2], &mut inputs));
        let keep = causal.then(|| g.causal(3).unwrap());
        let y = q.attention(k, v, keep).unwrap();
        check_value("attention", &g, y, &[("q", q), ("k", k), ("v", v)], &mut inputs);
        let first = value_of(&g, y, &inputs);
        // The first place of a sequence that looks back sees itself alone.
        let own = inputs["v"].to_f64s();
        let equals = (0..4).all(|i| (first[i] - own[i]).abs() < 1e-15);
        assert_eq!(equals, causal && groups.is_none());
        assert_eq!(k.attention(v, v, Some(k)).unwrap_err().code(), "E103");
    }
}

#[test]
fn masked_and_smoothed_cross_entropy() {
    for (smoothing, masked) in [(0.0, true), (0.2, false), (0.2, true)] {
        let (g, mut inputs) = (Graph::new("ce", DType::F64), Inputs::new());
        let x = wave(&g, "x", &[2, 3, 4], &mut inputs);
        let (labels, mask) = (g.labels("y", [2, 3]).unwrap(), g.input("mask", [2, 3]).unwrap());
        inputs.insert("y".to_owned(), Value::from_fn(&labels.ty(), |i| ((3 * i + 1) % 4) as f64));
        let kept = |i: usize| f64::from(u8::from(i % 3 != 1));
        inputs.insert("mask".to_owned(), Value::from_fn(&mask.ty(), kept));
        let loss = CrossEntropy { labels, mask: masked.then_some(mask), smoothing };
        let loss = loss.mean(x).unwrap();
        let gradient = g.grad(loss, &[x]).unwrap()[0];
        check("cross entropy", &g, loss, "x", gradient, &inputs);
        // By hand, row after row.
        let (logits, mut sum, mut count) = (inputs["x"].to_f64s(), 0.0, 0.0);
        for (i, row) in logits.chunks(4).enumerate().filter(|(i, _)| !masked || kept(*i) > 0.0) {
            let log_sum = row.iter().map(|v| v.exp()).sum::<f64>().ln();
            let target =
                |c| smoothing / 4.0 + if c == (3 * i + 1) % 4 { 1.0 - smoothing } else { 0.0 };
            sum += (0..4).map(|c| target(c) * (log_sum - row[c])).sum::<f64>();
            count += 1.0;
        }
        assert!((value_of(&g, loss, &inputs)[0] - sum / count).abs() < 1e-14);
        // Where no token counts, nothing is divided by zero.
        inputs.insert("mask".to_owned(), Value::from_fn(&mask.ty(), |_| 0.0));
        if masked {
            assert_eq!(value_of(&g, loss, &inputs), [0.0]);
            assert!(value_of(&g, gradient, &inputs).iter().all(|&e| e == 0.0));
        }
    }
}

#[test]
fn clipping_keeps_short_gradients_and_shortens_long_ones() {
    let (g, mut inputs) = (Graph::new("clip", DType::F64), Inputs::new());
    let (a, b) = (wave(&g, "a", &[2, 2], &mut inputs), wave(&g, "b", &[3], &mut inputs));
    for (limit, shortens) in [(0.5, true), (100.0, false)] {
        let (clipped, norm) = g.clip_by_global_norm(&[a, b], limit).unwrap();
        let all = [inputs["a"].to_f64s(), inputs["b"].to_f64s()].concat();
        let length = all.iter().map(|v| v * v).sum::<f64>().sqrt();
        assert!((value_of(&g, norm, &inputs)[0] - length).abs() < 1e-14);
        let factor = if shortens { limit / length } else { 1.0 };
        let found: Vec<f64> = clipped.iter().flat_map(|&v| value_of(&g, v, &inputs)).collect();
        for (found, given) in found.iter().zip(&all) {
            assert!((found - factor * given).abs() < 1e-14, "{found} of {given} at {limit}");
        }
    }
    for limit in [0.0, f64::NAN] {
        assert_eq!(g.clip_by_global_norm(&[a], limit).unwrap_err().code(), "E103");
    }
    assert_eq!(g.clip_by_global_norm(&[], 1.0).unwrap_err().code(), "E103");
}

#[test]
fn third_derivatives_of_smooth_functions() {
    for unary in [Unary::Tanh, Unary::Gelu, Unary::Sigmoid, Unary::Exp, Unary::Reciprocal] {
        let g = Graph::new("third", DType::F64);
        let x = g.input("x", [7]).unwrap();
        let inputs = Inputs::from([("x".to_owned(), values(&Op::Unary(unary), 0, &x.ty()))]);
        let mut loss = g.apply(Op::Unary(unary), &[x]).unwrap().sum_all().unwrap();
        for _ in 0..2 {
            loss = g.grad(loss, &[x]).unwrap()[0].sum_all().unwrap();
        }
        let third = g.grad(loss, &[x]).unwrap()[0];
        check(unary.name(), &g, loss, "x", third, &inputs);
    }
}

#[test]
fn slopes_at_the_kinks_are_zero() {
    for unary in [Unary::Relu, Unary::Abs] {
        let g = Graph::new("kink", DType::F64);
        let x = g.input("x", [4]).unwrap();
        let xs = [0.0, -0.0, -1.0, 2.0];
        let inputs = Inputs::from([("x".to_owned(), Value::from_fn(&x.ty(), |i| xs[i]))]);
        let loss = g.apply(Op::Unary(unary), &[x]).unwrap().sum_all().unwrap();
        let gradient = g.grad(loss, &[x]).unwrap()[0];
        let left = if unary == Unary::Relu { 0.0 } else { -1.0 };
        assert_eq!(value_of(&g, gradient, &inputs), [0.0, 0.0, left, 1.0], "{unary:?}");
    }
}

#[test]
fn global_ties_share_the_gradient_of_a_maximum() {
    let g = Graph::new("ties", DType::F64);
    let x = g.input("x", [2, 4]).unwrap();
    let xs = [7.0, 1.0, 7.0, 7.0, -2.0, -1.0, -3.0, -1.0];
    let inputs = Inputs::from([("x".to_owned(), Value::from_fn(&x.ty(), |i| xs[i]))]);
    let rows = x.max(&[1]).unwrap();
    let weighted = rows.mul(rows).unwrap().sum_all().unwrap();
    let gradient = g.grad(weighted, &[x]).unwrap()[0];
    // d/d max is 14 and −2; 14 is shared by three, −2 by two.
    let third = 14.0 / 3.0;
    assert_eq!(value_of(&g, gradient, &inputs), [third, 0.0, third, third, 0.0, -1.0, 0.0, -1.0]);
    let whole = g.grad(x.max(&[0, 1]).unwrap(), &[x]).unwrap()[0];
    let third = 1.0 / 3.0;
    assert_eq!(value_of(&g, whole, &inputs), [third, 0.0, third, third, 0.0, 0.0, 0.0, 0.0]);
}

#[test]
fn no_gradient_passes_masks_labels_and_stopped_values() {
    let g = Graph::new("none", DType::F64);
    let x = g.input("x", [3]).unwrap();
    let labels = g.labels("y", [3]).unwrap();
    let mask = x.compare_const(Comparison::Gt, 0.0).unwrap();
    let stopped = x.square().unwrap().stop_gradient().unwrap();
    let hot = labels.one_hot(2).unwrap().sum(&[1]).unwrap();
    let only = mask.add(stopped).unwrap().add(hot).unwrap().sum_all().unwrap();
    let before = g.len();
    let zeros = g.grad(only, &[x]).unwrap()[0];
    // The seed, which nothing uses, and the zeros.
    assert_eq!(g.len(), before + 2);
    assert_eq!(g.node(zeros.id()).op.to_string(), "fill(0.0)");
    // x · stop(x²): the stopped factor is a constant.
    let inputs = Inputs::from([
        ("x".to_owned(), Value::from_fn(&x.ty(), |i| i as f64 - 1.0)),
        ("y".to_owned(), Value::from_fn(&labels.ty(), |_| 1.0)),
    ]);
    let mixed = g.grad(x.mul(stopped).unwrap().sum_all().unwrap(), &[x]).unwrap()[0];
    assert_eq!(value_of(&g, mixed, &inputs), [1.0, 0.0, 1.0]);
}

#[test]
fn gradients_that_do_not_exist_are_refused() {
    let g = Graph::new("refused", DType::F64);
    let other = Graph::new("other", DType::F64);
    let x = g.input("x", [3]).unwrap();
    let labels = g.labels("y", [3]).unwrap();
    let scalar = x.sum_all().unwrap();
    let foreign = other.input("x", [3]).unwrap();
    for (error, code) in [
        (g.grad(x, &[x]), "E103"),
        (g.grad(labels.sum_all().unwrap(), &[x]), "E103"),
        (g.grad(scalar, &[labels]), "E103"),
        (g.grad(scalar, &[foreign]), "E102"),
    ] {
        let error: Error = error.unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains("finite_differences.rs"), "{error}");
    }
    // The loss itself, and a value that comes after the loss.
    let later = x.square().unwrap();
    let inputs = Inputs::from([
        ("x".to_owned(), Value::from_fn(&x.ty(), |i| i as f64)),
        ("y".to_owned(), Value::from_fn(&labels.ty(), |_| 0.0)),
    ]);
    let gradients = g.grad(scalar, &[scalar, later, x]).unwrap();
    assert_eq!(value_of(&g, gradients[0], &inputs), [1.0]);
    assert_eq!(value_of(&g, gradients[1], &inputs), [0.0; 3]);
    assert_eq!(value_of(&g, gradients[2], &inputs), [1.0; 3]);
    assert_eq!(loss_at(&g, gradients[0], &inputs), 1.0);
}
