//! Cases from public bug reports: what plans must communicate, and what ops must do when the axis they work along is
//! split. Kinds V (sharded-axis op), M (mesh), Q (plan).
//!
//! Q12 (chosen cost against exhaustive search) is the planner's own test.

mod cases_everywhere;

use cases_everywhere::{Inputs, everywhere, mesh, outputs, pinned, plan, value};
use shardgrad_core::{DType, Layout, TransitionKind};
use shardgrad_graph::{Activation, Graph, OutputRole, Program, Var};
use shardgrad_planner::LayoutRequest;
use shardgrad_testkit::assert_collectives;

const F: DType = DType::F64;

fn inputs<const N: usize>(values: [(&str, shardgrad_graph::Value); N]) -> Inputs {
    values.into_iter().map(|(n, v)| (n.to_owned(), v)).collect()
}

fn ramp(n: usize) -> Vec<f64> {
    (0..n).map(|i| i as f64).collect()
}

/// x − max − ln Σ exp over the last of two dims, with and without the shift's gradient stopped.
fn log_softmax<'g>(x: Var<'g>) -> Var<'g> {
    let shape = x.shape();
    let wide = |v: Var<'g>| v.broadcast(&[0], &shape).unwrap();
    let shifted = x.sub(wide(x.max(&[1]).unwrap().stop_gradient().unwrap())).unwrap();
    let norm = shifted.exp().unwrap().sum(&[1]).unwrap().log().unwrap();
    shifted.sub(wide(norm)).unwrap()
}

#[test]
fn case_v1_softmax_over_a_sharded_axis_combines_maxima_by_maximum() {
    for sign in [1.0, -1.0] {
        let g = Graph::new("v1", F);
        let x = g.param("x", [1, 4]).unwrap();
        let y = log_softmax(x).exp().unwrap();
        g.output("y", y.named("y").unwrap(), OutputRole::Value).unwrap();
        let program = g.finish();
        let logits: Vec<f64> = (0..4).map(|i| sign * (100.0 + f64::from(i))).collect();
        let data = inputs([("x", value([1, 4], F, &logits))]);
        let mut answer = [0.032_058_6, 0.087_144_32, 0.236_882_8, 0.643_914_3];
        if sign < 0.0 {
            answer.reverse();
        }
        everywhere(&program, &["tp=2", "tp=4"], &data, &[("y", &answer)]);
    }
    // One maximum and one sum of a single element; a row that is longer than two such reductions does not move.
    let g = Graph::new("v1-long", F);
    let y = log_softmax(g.param("x", [1, 16]).unwrap()).exp().unwrap();
    g.output("y", y.named("y").unwrap(), OutputRole::Value).unwrap();
    let request = pinned(&[("x", "tp: S(1)"), ("y", "tp: S(1)")]);
    let planned = plan(&g.finish(), &mesh("tp=2"), &request);
    assert_collectives!(planned, forward: [all_reduce(tp), all_reduce(tp)]);
    assert!(planned.collectives().all(|c| c.ty.elements() == 1));
}

/// Cross entropy of rows of logits.
fn cross_entropy(rows: usize) -> Program {
    let g = Graph::new("v4", F);
    let (x, y) = (g.param("x", [rows, 4]).unwrap(), g.labels("y", [rows]).unwrap());
    let picked = log_softmax(x).mul(y.one_hot(4).unwrap()).unwrap().sum_all().unwrap();
    outputs(&g, picked.scale(-1.0 / rows as f64).unwrap(), &[("x", x)]);
    g.finish()
}

#[test]
fn case_v4_ranks_without_the_target_class_get_the_softmax_term() {
    let data =
        inputs([("x", value([1, 4], F, &[2., 0., 1., 0.])), ("y", value([1], DType::I32, &[3.]))]);
    let gradient = [0.610_296, 0.082_595, 0.224_515, -0.917_405];
    let answers: [(&str, &[f64]); 2] = [("loss", &[2.493_812]), ("grad(x)", &gradient)];
    everywhere(&cross_entropy(1), &["tp=2", "tp=4", "dp=2, tp=2"], &data, &answers);
    let rows: Vec<f64> = (0..16).map(|i| f64::from(i % 7) - 2.0).collect();
    let data =
        inputs([("x", value([4, 4], F, &rows)), ("y", value([4], DType::I32, &[0., 1., 2., 3.]))]);
    everywhere(&cross_entropy(4), &["tp=2", "tp=3", "dp=2, tp=2"], &data, &[]);
}

#[test]
fn case_v6_log_softmax_is_differentiated_under_any_loss() {
    let g = Graph::new("v6", F);
    let (x, c) = (g.param("x", [1, 4]).unwrap(), g.input("c", [1, 4]).unwrap());
    outputs(&g, log_softmax(x).mul(c).unwrap().sum_all().unwrap(), &[("x", x)]);
    let data = inputs([
        ("x", value([1, 4], F, &[2., 0., 1., 0.])),
        ("c", value([1, 4], F, &[1., 0., 0., 2.])),
    ]);
    let answer = [-0.830_887, -0.247_784, -0.673_546, 1.752_216];
    everywhere(&g.finish(), &["tp=2", "tp=3"], &data, &[("grad(x)", &answer)]);
}

#[test]
fn case_v7_argmax_over_a_sharded_dim_is_the_lowest_global_index() {
    // Largest and smallest; ties; the same value in every block; the largest in the last.
    for (x, most, least) in [
        ([10., 5., 3., 8.], 0., 2.),
        ([7., 1., 7., 1.], 0., 1.),
        ([2., 2., 2., 2.], 0., 0.),
        ([-9., -8., -7., -6.], 3., 0.),
    ] {
        let g = Graph::new("v7", F);
        let v = g.input("x", [4]).unwrap();
        g.output("argmax", v.argmax(0).unwrap(), OutputRole::Value).unwrap();
        g.output("argmin", v.argmin(0).unwrap(), OutputRole::Value).unwrap();
        let data = inputs([("x", value([4], F, &x))]);
        let answers: [(&str, &[f64]); 2] = [("argmax", &[most]), ("argmin", &[least])];
        everywhere(&g.finish(), &["tp=2", "tp=3"], &data, &answers);
    }
    // Long rows: two maxima of two elements move, no row.
    let g = Graph::new("v7-rows", F);
    let v = g.input("x", [2, 64]).unwrap();
    g.output("argmax", v.argmax(1).unwrap().named("index").unwrap(), OutputRole::Value).unwrap();
    let request = pinned(&[("x", "tp: S(1)"), ("index", "tp: R")]);
    let planned = plan(&g.finish(), &mesh("tp=4"), &request);
    assert_collectives!(planned, forward: [all_reduce(tp), all_reduce(tp)]);
    assert!(planned.collectives().all(|c| c.ty.elements() == 2));
}

#[test]
fn case_v7_the_largest_few_over_a_sharded_dim_come_in_order() {
    let g = Graph::new("v7-top", F);
    let x = g.param("x", [2, 5]).unwrap();
    let (values, indices) = x.top_k(3, 1).unwrap();
    let weights = g.fill(2.0, [2, 3]).unwrap().mul(g.iota(1, [2, 3]).unwrap()).unwrap();
    outputs(&g, values.mul(weights).unwrap().sum_all().unwrap(), &[("x", x)]);
    g.output("values", values, OutputRole::Value).unwrap();
    g.output("indices", indices, OutputRole::Value).unwrap();
    let data = inputs([("x", value([2, 5], F, &[4., 7., -1., 7., 5., 0., -3., -3., -9., -3.]))]);
    let answers: [(&str, &[f64]); 3] = [
        ("values", &[7., 7., 5., 0., -3., -3.]),
        ("indices", &[1., 3., 4., 0., 1., 2.]),
        ("grad(x)", &[0., 0., 0., 2., 4., 0., 2., 4., 0., 0.]),
    ];
    everywhere(&g.finish(), &["tp=2", "tp=3"], &data, &answers);
}

/// Rows of a table by so many ids, and their sum as the loss, in some equal micro-batches.
fn lookup(ids: usize, rows: usize, batches: usize) -> Program {
    let g = Graph::new("lookup", F);
    let (id, table) = (g.labels("ids", [ids]).unwrap(), g.param("table", [rows, 1]).unwrap());
    let y = table.lookup(id).unwrap().named("y").unwrap();
    let mut loss = y.sum_all().unwrap();
    for _ in 1..batches {
        loss = loss.add(table.lookup(id).unwrap().sum_all().unwrap()).unwrap();
    }
    outputs(&g, loss, &[("table", table)]);
    g.output("y", y, OutputRole::Value).unwrap();
    g.finish()
}

#[test]
fn case_v9_repeated_ids_add_up_in_the_right_rows() {
    let data = inputs([
        ("ids", value([4], DType::I32, &[0., 2., 5., 5.])),
        ("table", value([8, 1], F, &ramp(8))),
    ]);
    for (batches, gradient) in
        [(1, [1., 0., 1., 0., 0., 2., 0., 0.]), (2, [2., 0., 2., 0., 0., 4., 0., 0.])]
    {
        let answers: [(&str, &[f64]); 2] = [("grad(table)", &gradient), ("y", &[0., 2., 5., 5.])];
        everywhere(&lookup(4, 8, batches), &["tp=2", "tp=3"], &data, &answers);
    }
    // A table that is split by rows stays where it is, and so does its gradient: only the rows that are read are added up.
    let request = pinned(&[("table", "tp: S(0)"), ("ids", "tp: R"), ("y", "tp: R")]);
    let planned = plan(&lookup(4, 8, 1), &mesh("tp=2"), &request);
    assert_collectives!(planned, forward: [all_reduce(tp)], backward: []);
}

#[test]
fn case_v12_an_uneven_table_is_read_by_the_rule_it_is_stored_by() {
    let data =
        inputs([("ids", value([7], DType::I32, &ramp(7))), ("table", value([7, 1], F, &ramp(7)))]);
    everywhere(&lookup(7, 7, 1), &["tp=2", "tp=4", "tp=5"], &data, &[("y", &ramp(7))]);
}

#[test]
fn case_m3_axes_of_size_1_change_nothing_and_send_nothing() {
    let g = Graph::new("m3", F);
    let (a, b) = (g.param("a", [4, 4]).unwrap(), g.param("b", [4, 4]).unwrap());
    outputs(&g, a.matmul(b).unwrap().square().unwrap().sum_all().unwrap(), &[("a", a), ("b", b)]);
    let program = g.finish();
    let left: Vec<f64> = (0..16).map(|i| f64::from(i % 5) - 2.0).collect();
    let data = inputs([("a", value([4, 4], F, &left)), ("b", value([4, 4], F, &ramp(16)))]);
    let meshes = ["dp=4, tp=1", "dp=1, tp=4", "dp=1, tp=1", "tp=4"];
    everywhere(&program, &meshes, &data, &[]);
    for text in meshes {
        let mesh = mesh(text);
        for request in cases_everywhere::requests(&program, &mesh) {
            let planned = plan(&program, &mesh, &request);
            let small = |axis: usize| mesh.axis_size(axis) == 1;
            assert!(planned.collectives().all(|c| !c.transition.axes.iter().any(small)));
        }
    }
}

#[test]
fn case_m5_a_scalar_may_be_pending_on_several_axes() {
    let g = Graph::new("m5", F);
    let (f, h) = (g.input("f", [4]).unwrap(), g.input("g", [4]).unwrap());
    g.output("y", f.einsum("a,a->", h).unwrap(), OutputRole::Loss).unwrap();
    let program = g.finish();
    let data = inputs([("f", value([4], F, &[1., 2., 3., 4.])), ("g", value([4], F, &[1.0; 4]))]);
    everywhere(&program, &["dp=2, tp=2"], &data, &[("y", &[10.])]);
    let both = "dp: S(0), tp: S(0)";
    let planned = plan(&program, &mesh("dp=2, tp=2"), &pinned(&[("f", both), ("g", both)]));
    let totals = planned.totals();
    assert!(totals.launches == 0 && (1..=2).contains(&totals.scalar_reductions), "{totals:?}");
    let apart = pinned(&[("f", "dp: S(0)"), ("g", "tp: S(0)")]);
    let planned = plan(&program, &mesh("dp=2, tp=2"), &apart);
    assert!(planned.totals().launches <= 1, "one operand moves\n{planned}");

    let g = Graph::new("m5-matrix", F);
    let (m, v) = (g.input("m", [4, 3]).unwrap(), g.input("v", [4]).unwrap());
    g.output("y", m.einsum("ab,a->b", v).unwrap(), OutputRole::Value).unwrap();
    let data =
        inputs([("m", value([4, 3], F, &ramp(12))), ("v", value([4], F, &[1., 2., 3., 4.]))]);
    everywhere(&g.finish(), &["dp=2, tp=2"], &data, &[("y", &[60., 70., 80.])]);
}

#[test]
fn case_m7_a_pending_axis_is_scattered_into_a_dim_that_another_splits() {
    let g = Graph::new("m7", F);
    let (a, b) = (g.input("a", [4, 4]).unwrap(), g.input("b", [4, 2]).unwrap());
    g.output("y", a.matmul(b).unwrap().named("y").unwrap(), OutputRole::Value).unwrap();
    let program = g.finish();
    let data = inputs([("a", value([4, 4], F, &ramp(16))), ("b", value([4, 2], F, &[1.0; 8]))]);
    let answer = [6., 6., 22., 22., 38., 38., 54., 54.];
    everywhere(&program, &["dp=2, tp=1", "dp=2, tp=2"], &data, &[("y", &answer)]);
    let request = pinned(&[
        ("a", "dp: S(0), tp: S(1)"),
        ("b", "dp: R, tp: S(0)"),
        ("y", "dp: S(0), tp: S(0)"),
    ]);
    let planned = plan(&program, &mesh("dp=2, tp=2"), &request);
    assert_collectives!(planned, forward: [reduce_scatter(tp)]);
    let planned = plan(&program, &mesh("dp=2, tp=1"), &request);
    assert_collectives!(planned, forward: []);
}

#[test]
fn case_q1_a_matmul_that_is_local_gathers_nothing() {
    let g = Graph::new("q1", F);
    let (v, s) = (g.input("v", [2, 2, 3]).unwrap(), g.param("s", [3, 1]).unwrap());
    let y = v.einsum("abk,kn->abn", s).unwrap();
    outputs(&g, y.square().unwrap().sum_all().unwrap(), &[("s", s)]);
    let program = g.finish();
    let values: Vec<f64> = (0..12).map(|i| f64::from(i) - 5.0).collect();
    let data =
        inputs([("v", value([2, 2, 3], F, &values)), ("s", value([3, 1], F, &[1., -2., 3.]))]);
    everywhere(&program, &["dp=2, tp=2"], &data, &[]);
    let planned = plan(
        &program,
        &mesh("dp=2, tp=2"),
        &pinned(&[("v", "dp: S(0), tp: S(1)"), ("s", "dp: R, tp: R")]),
    );
    assert_collectives!(planned, forward: []);
    let totals = planned.totals();
    assert!((1..=2).contains(&totals.launches), "only ds is reduced: {totals:?}");
    assert_eq!(totals.by_kind.get("all_reduce"), Some(&totals.launches));
}

#[test]
fn case_q4_blocks_change_dims_without_a_gather() {
    for shape in [[8, 8], [7, 5]] {
        let g = Graph::new("q4", F);
        let x = g.input("x", shape).unwrap();
        g.output("y", x.scale(1.0).unwrap().named("y").unwrap(), OutputRole::Value).unwrap();
        let program = g.finish();
        let n = shape[0] * shape[1];
        let data = inputs([("x", value(shape, F, &ramp(n)))]);
        everywhere(&program, &["tp=4"], &data, &[("y", &ramp(n))]);
        let planned =
            plan(&program, &mesh("tp=4"), &pinned(&[("x", "tp: S(0)"), ("y", "tp: S(1)")]));
        assert_collectives!(planned, forward: [all_to_all(tp)]);
        let both = mesh("dp=2, tp=2");
        let request = pinned(&[("x", "dp: S(0), tp: S(1)"), ("y", "dp: S(1), tp: S(0)")]);
        let planned = plan(&program, &both, &request);
        let whole = |layout: &Layout| *layout == Layout::replicated(2);
        assert!(!planned.layouts.iter().any(whole), "no rank holds all of it\n{planned}");
        assert!(planned.collectives().all(|c| c.transition.kind != TransitionKind::AllReduce));
    }
}

/// Two layers under tensor parallelism, mean(y²).
fn two_layers(trainable_input: bool) -> Program {
    let g = Graph::new("q6", F);
    let x = g.input("x", [4, 8]).unwrap();
    let (w1, w2) = (g.param("w1", [8, 16]).unwrap(), g.param("w2", [16, 8]).unwrap());
    let hidden = x.linear(w1, None, Activation::Gelu).unwrap();
    let y = hidden.linear(w2, None, Activation::None).unwrap();
    let loss = y.mul(y).unwrap().mean_all().unwrap();
    let mut leaves = vec![("w1", w1), ("w2", w2)];
    if trainable_input {
        leaves.push(("x", x));
    }
    outputs(&g, loss, &leaves);
    g.finish()
}

#[test]
fn case_q6_a_tensor_parallel_pair_reduces_once_forward_and_once_for_the_input() {
    let pair: LayoutRequest = "megatron".parse().unwrap();
    let planned = plan(&two_layers(false), &mesh("tp=2"), &pair);
    assert_collectives!(planned, forward: [all_reduce(tp)], backward: [], scalar: []);
    let planned = plan(&two_layers(true), &mesh("tp=2"), &pair);
    assert_collectives!(planned, forward: [all_reduce(tp)], backward: [all_reduce(tp)], scalar: []);
    let four: LayoutRequest = "dp=data, tp=megatron".parse().unwrap();
    let planned = plan(&two_layers(false), &mesh("dp=2, tp=2"), &four);
    assert_collectives!(
        planned,
        forward: [all_reduce(tp)],
        backward: [all_reduce(dp), all_reduce(dp)],
        scalar: [all_reduce(dp)]
    );
    for (program, axes) in [(two_layers(false), "tp=2"), (two_layers(true), "dp=2, tp=2")] {
        let request = if axes == "tp=2" { pair.clone() } else { four.clone() };
        let options = shardgrad_testkit::Options::default();
        shardgrad_testkit::assert_gradients_equivalent(&program, &mesh(axes), &request, &options);
    }
}

#[test]
fn case_q8_plans_are_the_same_each_time_and_linear_in_depth() {
    for layers in [4, 8] {
        let g = Graph::new("q8", F);
        let mut y = g.input("x", [4, 4]).unwrap();
        for i in 0..layers {
            let w = g.param(&format!("w{i}"), [4, 4]).unwrap();
            y = y.matmul(w).unwrap().tanh().unwrap();
        }
        g.output("loss", y.square().unwrap().sum_all().unwrap(), OutputRole::Loss).unwrap();
        let program = g.finish();
        let request = LayoutRequest::default().pin("x", "tp: S(0)".parse().unwrap());
        let first = plan(&program, &mesh("tp=4"), &request);
        assert_eq!(first, plan(&program, &mesh("tp=4"), &request));
        assert!(first.nodes.len() <= 3 * program.nodes.len());
    }
}

#[test]
fn case_q10_a_plan_belongs_to_its_constants_shapes_and_types() {
    for (dtype, n) in [(DType::F32, 2), (DType::F64, 2), (DType::F64, 5)] {
        for k in [1.0, 2.0, 3.0] {
            let g = Graph::new("q10", dtype);
            let x = g.input("x", [n]).unwrap();
            g.output("y", x.sum_all().unwrap().scale(k).unwrap(), OutputRole::Value).unwrap();
            let data = inputs([("x", value([n], dtype, &vec![1.0; n]))]);
            everywhere(&g.finish(), &["tp=2"], &data, &[("y", &[k * n as f64])]);
        }
    }
}
