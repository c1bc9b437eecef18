//! Cases from public bug reports: what values must be, on every admissible layout. Kinds P (pending), T (transpose), L
//! (linear), N (loss norm), U (uneven), Y (layout).

mod cases_everywhere;

use cases_everywhere::{Inputs, everywhere, mesh, outputs, pinned, plan, value};
use shardgrad_core::ops::Comparison;
use shardgrad_core::{DType, Layout, LayoutSpec};
use shardgrad_graph::{Activation, Graph, OutputRole, Plan, Var, blocks};
use shardgrad_planner::LayoutRequest;
use shardgrad_testkit::random_plan::random_plan;
use shardgrad_testkit::simulate::simulate;
use shardgrad_testkit::{Backend, Options, Reference, assert_collectives};

const F: DType = DType::F32;

fn inputs<const N: usize>(values: [(&str, shardgrad_graph::Value); N]) -> Inputs {
    values.into_iter().map(|(n, v)| (n.to_owned(), v)).collect()
}

fn ramp(n: usize) -> Vec<f64> {
    (0..n).map(|i| i as f64).collect()
}

#[test]
fn case_p1_a_constant_is_added_once_to_an_unreduced_sum() {
    let g = Graph::new("p1", F);
    let x = g.input("x", [10]).unwrap();
    let s = x.sum_all().unwrap();
    let ten = g.fill(10.0, []).unwrap();
    let leaf = g.scalar("ten").unwrap();
    for (name, y) in [
        ("literal", s.add_const(10.0)),
        ("fill", s.add(ten)),
        ("leaf", s.add(leaf)),
        ("minus", s.sub(ten)),
        ("from", ten.sub(s)),
    ] {
        g.output(name, y.unwrap(), OutputRole::Value).unwrap();
    }
    let program = g.finish();
    let data = inputs([("x", value([10], F, &ramp(10))), ("ten", value([], F, &[10.0]))]);
    let answers: [(&str, &[f64]); 5] = [
        ("literal", &[55.0]),
        ("fill", &[55.0]),
        ("leaf", &[55.0]),
        ("minus", &[35.0]),
        ("from", &[-35.0]),
    ];
    everywhere(&program, &["tp=2", "tp=4", "tp=3"], &data, &answers);
    let planned = plan(&program, &mesh("tp=2"), &pinned(&[("x", "tp: S(0)")]));
    assert_collectives!(planned, forward: [], scalar: [all_reduce(tp)]);
}

#[test]
fn case_p3_a_nonlinear_op_waits_for_the_reduction() {
    let g = Graph::new("p3", F);
    let v = g.input("v", [2, 2]).unwrap();
    let s = v.sum(&[0]).unwrap();
    for (name, y) in
        [("relu", s.relu()), ("abs", s.abs()), ("square", s.square()), ("exp", s.exp())]
    {
        g.output(name, y.unwrap(), OutputRole::Value).unwrap();
    }
    g.output("gelu", s.gelu().unwrap(), OutputRole::Value).unwrap();
    let data = inputs([("v", value([2, 2], F, &[3.0, -1.0, -1.0, -1.0]))]);
    let answers: [(&str, &[f64]); 5] = [
        ("relu", &[2.0, 0.0]),
        ("abs", &[2.0, 2.0]),
        ("square", &[4.0, 4.0]),
        ("exp", &[7.389_056_1, 0.135_335_28]),
        ("gelu", &[1.954_597_7, -0.045_402_3]),
    ];
    everywhere(&g.finish(), &["tp=2", "tp=3", "dp=2, tp=2"], &data, &answers);
}

#[test]
fn case_p6_every_rank_reads_the_reduced_loss() {
    let g = Graph::new("p6", F);
    let x = g.input("x", [8]).unwrap();
    g.output("loss", x.sum_all().unwrap(), OutputRole::Loss).unwrap();
    let program = g.finish();
    let data = inputs([("x", value([8], F, &[1.0; 8]))]);
    everywhere(&program, &["tp=2", "tp=4"], &data, &[("loss", &[8.0])]);
    for text in ["tp=2", "tp=4"] {
        let planned = plan(&program, &mesh(text), &pinned(&[("x", "tp: S(0)")]));
        let run = simulate(&planned, &data).unwrap();
        assert!(run.blocks["loss"].iter().all(|held| held.item() == Some(8.0)));
    }
}

#[test]
fn case_t1_a_replicated_weight_gets_all_rows_gradients() {
    let g = Graph::new("t1", F);
    let (x, w) = (g.input("x", [4, 2]).unwrap(), g.param("w", [2]).unwrap());
    let loss = x.mul(w.broadcast_like(x).unwrap()).unwrap().sum_all().unwrap();
    outputs(&g, loss, &[("w", w)]);
    let program = g.finish();
    let data = inputs([
        ("x", value([4, 2], F, &[1., 2., 3., 4., 5., 6., 7., 8.])),
        ("w", value([2], F, &[1., 1.])),
    ]);
    everywhere(&program, &["tp=2", "tp=3", "dp=2, tp=2"], &data, &[("grad(w)", &[16., 20.])]);
    let planned = plan(&program, &mesh("tp=2"), &pinned(&[("x", "tp: S(0)"), ("w", "tp: R")]));
    assert_collectives!(planned, forward: [], backward: [all_reduce(tp)]);
}

#[test]
fn case_t1_a_layer_norms_scale_and_shift_get_all_rows_gradients() {
    let g = Graph::new("t1-norm", DType::F64);
    let (x, scale, shift) =
        (g.input("x", [4, 2]).unwrap(), g.param("w", [2]).unwrap(), g.param("b", [2]).unwrap());
    let wide = |v: Var<'_>| g.var(v.broadcast(&[0], &[4, 2]).unwrap().id());
    let centred = x.sub(wide(x.mean(&[1]).unwrap())).unwrap();
    let variance = centred.square().unwrap().mean(&[1]).unwrap().add_const(1e-5).unwrap();
    let y = centred.div(wide(variance.sqrt().unwrap())).unwrap();
    let y = y.mul(scale.broadcast_like(x).unwrap()).unwrap();
    let y = y.add(shift.broadcast_like(x).unwrap()).unwrap();
    outputs(&g, y.square().unwrap().sum_all().unwrap(), &[("x", x), ("w", scale), ("b", shift)]);
    let data = inputs([
        ("x", value([4, 2], DType::F64, &[1., 2., 3., -4., 5., 6., 7., 8.5])),
        ("w", value([2], DType::F64, &[1., -2.])),
        ("b", value([2], DType::F64, &[0.5, 0.25])),
    ]);
    everywhere(&g.finish(), &["tp=2", "tp=3"], &data, &[]);
}

#[test]
fn case_t3_the_input_gradient_is_reduced_once_per_block() {
    let g = Graph::new("t3", DType::F64);
    let x = g.input("x", [1, 2]).unwrap();
    let mut y = x;
    let mut leaves = vec![("x".to_owned(), x)];
    let mut data = inputs([("x", value([1, 2], DType::F64, &[1., 1.]))]);
    for block in 0..3 {
        let up = g.param(&format!("up{block}"), [2, 4]).unwrap();
        let down = g.param(&format!("down{block}"), [4, 2]).unwrap();
        y = y.matmul(up).unwrap().matmul(down).unwrap();
        leaves.push((format!("up{block}"), up));
        leaves.push((format!("down{block}"), down));
        data.insert(format!("up{block}"), value([2, 4], DType::F64, &[1.0; 8]));
        data.insert(format!("down{block}"), value([4, 2], DType::F64, &[0.125; 8]));
    }
    let named: Vec<(&str, Var<'_>)> = leaves.iter().map(|(n, v)| (n.as_str(), *v)).collect();
    outputs(&g, y.sum_all().unwrap(), &named);
    g.output("y", y, OutputRole::Value).unwrap();
    let program = g.finish();
    let (quarter, two) = ([0.25; 8], [2.0; 8]);
    let mut answers: Vec<(String, &[f64])> =
        vec![("y".to_owned(), &[1., 1.]), ("grad(x)".to_owned(), &[1., 1.])];
    for block in 0..3 {
        answers.push((format!("grad(up{block})"), &quarter));
        answers.push((format!("grad(down{block})"), &two));
    }
    let answers: Vec<(&str, &[f64])> = answers.iter().map(|(n, a)| (n.as_str(), *a)).collect();
    everywhere(&program, &["tp=2"], &data, &answers);
    let mut request = LayoutRequest::default();
    for block in 0..3 {
        request = request
            .pin(&format!("up{block}"), "tp: S(1)".parse().unwrap())
            .pin(&format!("down{block}"), "tp: S(0)".parse().unwrap());
    }
    let planned = plan(&program, &mesh("tp=2"), &request);
    let options = shardgrad_testkit::Options { inputs: data, ..Default::default() };
    let reference = shardgrad_testkit::Reference::new(&program, 2, &options).unwrap();
    let found = reference.compare(&planned, shardgrad_testkit::Backend::Threads).unwrap();
    assert!(found.holds() && found.is_exact(), "{found}");
}

#[test]
fn case_t5_a_round_trip_through_pending_scales_nothing() {
    for through in ["tp: P", "tp: S(0)"] {
        for around in ["tp: R", "tp: S(0)"] {
            let g = Graph::new("t5", F);
            let x = g.input("x", [2]).unwrap();
            let y = x.constrain("p", through).unwrap().constrain("q", around).unwrap();
            outputs(&g, y.mul(y).unwrap().sum_all().unwrap(), &[("x", x)]);
            g.output("y", y, OutputRole::Value).unwrap();
            let program = g.finish();
            let data = inputs([("x", value([2], F, &[1., 2.]))]);
            let options = shardgrad_testkit::Options { inputs: data, ..Default::default() };
            for text in ["tp=2", "tp=3"] {
                for spec in ["tp: R", "tp: S(0)"] {
                    let planned = plan(&program, &mesh(text), &pinned(&[("x", spec)]));
                    let reference =
                        shardgrad_testkit::Reference::new(&program, 3, &options).unwrap();
                    assert_eq!(reference.output("grad(x)").unwrap().to_f64s(), [2., 4.]);
                    let found =
                        reference.compare(&planned, shardgrad_testkit::Backend::Threads).unwrap();
                    assert!(found.holds() && found.is_exact(), "{found}");
                }
            }
        }
    }
}

#[test]
fn case_t7_a_broadcast_operand_gets_the_sum_over_what_it_repeats_along() {
    let build = |op: &str| {
        let g = Graph::new("t7", DType::F64);
        let (x, b) = (g.input("x", [2, 1]).unwrap(), g.param("b", [1, 3]).unwrap());
        let like = g.fill(0.0, [2, 3]).unwrap();
        let (wx, wb) = (x.broadcast_like(like).unwrap(), b.broadcast_like(like).unwrap());
        let z = match op {
            "add" => wx.add(wb),
            "sub" => wx.sub(wb),
            "mul" => wx.mul(wb),
            _ => wx.div(wb),
        };
        outputs(&g, z.unwrap().square().unwrap().sum_all().unwrap(), &[("x", x), ("b", b)]);
        g.finish()
    };
    let data = inputs([
        ("x", value([2, 1], DType::F64, &[1., 2.])),
        ("b", value([1, 3], DType::F64, &[10., 20., 30.])),
    ]);
    let meshes = ["tp=2", "tp=3"];
    let add: [(&str, &[f64]); 2] = [("grad(b)", &[46., 86., 126.]), ("grad(x)", &[126., 132.])];
    everywhere(&build("add"), &meshes, &data, &add);
    let sub: [(&str, &[f64]); 2] = [("grad(b)", &[34., 74., 114.]), ("grad(x)", &[-114., -108.])];
    everywhere(&build("sub"), &meshes, &data, &sub);
    let mul: [(&str, &[f64]); 2] = [("grad(b)", &[100., 200., 300.]), ("grad(x)", &[2800., 5600.])];
    everywhere(&build("mul"), &meshes, &data, &mul);

    everywhere(&build("div"), &meshes, &data, &[]);
    let planned = plan(&build("add"), &mesh("tp=2"), &pinned(&[("x", "tp: S(0)"), ("b", "tp: R")]));
    // Two numbers of x are cheaper to gather than three of db to reduce; either is one collective.
    assert!(planned.totals().launches <= 1, "{planned}");
}

#[test]
fn case_l1_the_bias_of_a_row_parallel_layer_is_added_once() {
    let g = Graph::new("l1", F);
    let (x, w, b) =
        (g.input("x", [1, 4]).unwrap(), g.param("w", [4, 2]).unwrap(), g.param("b", [2]).unwrap());
    let y = x.matmul(w).unwrap();
    let y = y.add(b.broadcast_like(y).unwrap()).unwrap();
    outputs(&g, y.sum_all().unwrap(), &[("w", w), ("b", b)]);
    g.output("y", y.named("y").unwrap(), OutputRole::Value).unwrap();
    let program = g.finish();
    let data = inputs([
        ("x", value([1, 4], F, &[1., 2., 3., 4.])),
        ("w", value([4, 2], F, &[1.0; 8])),
        ("b", value([2], F, &[10., 20.])),
    ]);
    let answers: [(&str, &[f64]); 2] = [("y", &[20., 30.]), ("grad(b)", &[1., 1.])];
    everywhere(&program, &["tp=2", "tp=4"], &data, &answers);
    let row = pinned(&[("x", "tp: S(1)"), ("w", "tp: S(0)"), ("b", "tp: R"), ("y", "tp: R")]);
    for text in ["tp=2", "tp=4"] {
        let planned = plan(&program, &mesh(text), &row);
        assert_collectives!(planned, forward: [all_reduce(tp)], backward: [], scalar: []);
    }
}

#[test]
fn case_l4_operands_keep_their_order() {
    for divide in [false, true] {
        let g = Graph::new("l4", F);
        let (a, b) = (g.param("a", [2, 2]).unwrap(), g.param("b", [2, 2]).unwrap());
        let y = if divide { a.div(b) } else { a.sub(b) }.unwrap();
        outputs(&g, y.square().unwrap().sum_all().unwrap(), &[("a", a), ("b", b)]);
        g.output("y", y, OutputRole::Value).unwrap();
        let data = inputs([
            ("a", value([2, 2], F, &[8., 6., 4., 2.])),
            ("b", value([2, 2], F, &[2., 3., 4., 1.])),
        ]);
        let answer: &[f64] = if divide { &[4., 2., 1., 2.] } else { &[6., 3., 0., 1.] };
        everywhere(&g.finish(), &["tp=2", "dp=2, tp=2"], &data, &[("y", answer)]);
    }
}

/// Mean of losses over the entries that a mask keeps.
fn masked_mean() -> shardgrad_graph::Program {
    let g = Graph::new("masked", DType::F64);
    let (l, m) = (g.param("l", [6]).unwrap(), g.input("m", [6]).unwrap());
    let count = m.sum_all().unwrap();
    // No valid entry: 0/1.
    let none = count.compare_const(Comparison::Eq, 0.0).unwrap();
    let loss = l.mul(m).unwrap().sum_all().unwrap().div(count.add(none).unwrap()).unwrap();
    outputs(&g, loss, &[("l", l)]);
    g.finish()
}

#[test]
fn case_n1_the_loss_is_a_mean_over_all_valid_entries() {
    let data = inputs([
        ("l", value([6], DType::F64, &[1., 1., 1., 5., 7., 9.])),
        ("m", value([6], DType::F64, &[1., 1., 1., 1., 0., 0.])),
    ]);
    let answers: [(&str, &[f64]); 2] =
        [("loss", &[2.0]), ("grad(l)", &[0.25, 0.25, 0.25, 0.25, 0.0, 0.0])];
    everywhere(&masked_mean(), &["tp=2", "tp=3", "dp=2, tp=2"], &data, &answers);
}

#[test]
fn case_n4_a_rank_without_valid_entries_divides_nothing_by_zero() {
    let mut data = inputs([
        ("l", value([6], DType::F64, &[2., 4., 9., 9., 9., 9.])),
        ("m", value([6], DType::F64, &[1., 1., 0., 0., 0., 0.])),
    ]);
    let first: [(&str, &[f64]); 2] = [("loss", &[3.0]), ("grad(l)", &[0.5, 0.5, 0., 0., 0., 0.])];
    everywhere(&masked_mean(), &["tp=2", "tp=3"], &data, &first);
    data.insert("m".to_owned(), value([6], DType::F64, &[0.0; 6]));
    let second: [(&str, &[f64]); 2] = [("loss", &[0.0]), ("grad(l)", &[0.0; 6])];
    everywhere(&masked_mean(), &["tp=2", "tp=3"], &data, &second);
}

#[test]
fn case_n5_gradients_are_reduced_over_the_data_axis_only() {
    for mean in [false, true] {
        let g = Graph::new("n5", F);
        let (x, w) = (g.input("x", [2, 1]).unwrap(), g.param("w", [1, 2]).unwrap());
        let y = x.linear(w, None, Activation::None).unwrap();
        let loss = if mean { y.mean_all() } else { y.sum_all() }.unwrap();
        outputs(&g, loss, &[("w", w)]);
        let program = g.finish();
        let data = inputs([("x", value([2, 1], F, &[1., 2.])), ("w", value([1, 2], F, &[1., 1.]))]);
        let answer: &[f64] = if mean { &[0.75, 0.75] } else { &[3., 3.] };
        everywhere(&program, &["dp=2, tp=2"], &data, &[("grad(w)", answer)]);
        let request: LayoutRequest = "dp=data, tp=column".parse().unwrap();
        let planned = plan(&program, &mesh("dp=2, tp=2"), &request);
        assert_collectives!(planned, forward: [], backward: [all_reduce(dp)]);
    }
}

#[test]
fn case_u1_a_mean_counts_elements_not_blocks() {
    for (shape, answer, weight) in [([3, 4], 5.5, 1.0 / 12.0), ([1, 4], 1.5, 0.25)] {
        let g = Graph::new("u1", F);
        let x = g.param("x", shape).unwrap();
        outputs(&g, x.mean_all().unwrap(), &[("x", x)]);
        let n = shape[0] * shape[1];
        let data = inputs([("x", value(shape, F, &ramp(n)))]);
        let answers: [(&str, &[f64]); 2] = [("loss", &[answer]), ("grad(x)", &vec![weight; n])];
        everywhere(&g.finish(), &["tp=2", "tp=4", "tp=5", "dp=2, tp=3"], &data, &answers);
    }
}

#[test]
fn case_u4_flattening_uneven_rows_moves_data_where_it_must() {
    let g = Graph::new("u4", F);
    let (x, v) = (g.param("x", [6, 2]).unwrap(), g.param("v", [12]).unwrap());
    let flat = x.reshape(&[12]).unwrap();
    let y = flat.mul(v).unwrap();
    outputs(&g, y.square().unwrap().sum_all().unwrap(), &[("x", x), ("v", v)]);
    g.output("flat", flat, OutputRole::Value).unwrap();
    g.output("y", y, OutputRole::Value).unwrap();
    let weights: Vec<f64> = (0..12).map(|i| f64::from(i % 5) - 2.0).collect();
    let data = inputs([("x", value([6, 2], F, &ramp(12))), ("v", value([12], F, &weights))]);
    let product: Vec<f64> = ramp(12).iter().zip(&weights).map(|(a, b)| a * b).collect();
    let answers: [(&str, &[f64]); 2] = [("flat", &ramp(12)), ("y", &product)];
    everywhere(&g.finish(), &["tp=4", "tp=5", "dp=2, tp=2"], &data, &answers);
}

#[test]
fn case_u6_blocks_that_break_the_split_rule_are_refused() {
    let mesh = mesh("tp=2");
    let layout = Layout::parse("tp: S(0)", &mesh).unwrap();
    let ty = shardgrad_core::TensorType::new([4], F);
    let held = [value([1], F, &[1.]), value([3], F, &[2., 3., 4.])];
    let error = blocks::gather(&held, &ty, &layout, &mesh).unwrap_err().to_string();
    assert!(error.contains("f32[1]") && error.contains("f32[2]"), "{error}");
    let mixed = [value([2], F, &[1., 2.]), value([2], DType::F64, &[3., 4.])];
    let error = blocks::gather(&mixed, &ty, &layout, &mesh).unwrap_err().to_string();
    assert!(error.contains("f64[2]"), "{error}");
    let found = shardgrad_testkit::diagnose::diagnose_ranks(
        &value([4], F, &[1., 2., 3., 4.]),
        &held,
        &mesh,
        &layout,
    );
    assert_eq!(found.fault.name(), "shapes");
}

#[test]
fn case_y1_a_gather_along_an_inner_dim_keeps_elements_in_place() {
    let g = Graph::new("y1", F);
    let x = g.param("x", [2, 4]).unwrap();
    let t = g.param("t", [2, 4, 3]).unwrap();
    let y = x.square().unwrap().sum_all().unwrap().add(t.square().unwrap().sum_all().unwrap());
    outputs(&g, y.unwrap(), &[("x", x), ("t", t)]);
    g.output("whole", x.scale(1.0).unwrap().named("whole").unwrap(), OutputRole::Value).unwrap();
    g.output("cube", t.scale(1.0).unwrap().named("cube").unwrap(), OutputRole::Value).unwrap();
    let program = g.finish();
    let data = inputs([("x", value([2, 4], F, &ramp(8))), ("t", value([2, 4, 3], F, &ramp(24)))]);
    let answers: [(&str, &[f64]); 2] = [("whole", &ramp(8)), ("cube", &ramp(24))];
    everywhere(&program, &["tp=2", "tp=4"], &data, &answers);
    let request =
        pinned(&[("x", "tp: S(1)"), ("t", "tp: S(1)"), ("whole", "tp: R"), ("cube", "tp: R")]);
    for text in ["tp=2", "tp=4", "tp=3"] {
        let planned = plan(&program, &mesh(text), &request);
        let run = simulate(&planned, &data).unwrap();
        for held in &run.blocks["whole"] {
            assert_eq!(held.to_f64s(), ramp(8));
        }
    }
}

#[test]
fn case_y3_gradients_of_joined_values_keep_their_elements_in_place() {
    let incoming = |n| value([2, 2, 2], F, &ramp(n));
    let (first, second) = ([0., 1., 2., 3.], [4., 5., 6., 7.]);
    let numbers = [3., -1., 2., 5.];
    for dim in [None, Some(0), Some(1)] {
        let g = Graph::new("y3", F);
        let (a, b) = (g.param("a", [2, 2]).unwrap(), g.param("b", [2, 2]).unwrap());
        let c = g.input("c", [2, 2, 2]).unwrap();
        let joined = match dim {
            None => g.stack(0, &[a, b]).unwrap(),
            Some(0) => g.concat(0, &[a, b]).unwrap().reshape(&[2, 2, 2]).unwrap(),
            // Columns of a and b in turn: the cotangent is laid out as the joined rows are.
            Some(dim) => {
                let wide = g.concat(dim, &[a, b]).unwrap().reshape(&[2, 2, 2]).unwrap();
                wide.transpose(&[1, 0, 2]).unwrap()
            }
        };
        outputs(&g, joined.mul(c).unwrap().sum_all().unwrap(), &[("a", a), ("b", b)]);
        let data = inputs([
            ("a", value([2, 2], F, &numbers)),
            ("b", value([2, 2], F, &numbers)),
            ("c", incoming(8)),
        ]);
        let answers: [(&str, &[f64]); 2] = [("grad(a)", &first), ("grad(b)", &second)];
        everywhere(&g.finish(), &["tp=2", "tp=3"], &data, &answers);
    }
}

#[test]
fn case_y5_thirds_of_a_fused_projection_are_its_rows() {
    let g = Graph::new("y5", F);
    let w = g.param("w", [6]).unwrap();
    let fused = w.scale(1.0).unwrap();
    g.output("fused", fused, OutputRole::Value).unwrap();
    for (i, name) in ["q", "k", "v"].into_iter().enumerate() {
        let third = fused.slice(0, 2 * i, 2 * i + 2).unwrap();
        g.output(name, third, OutputRole::Value).unwrap();
    }
    let data = inputs([("w", value([6], F, &ramp(6)))]);
    let answers: [(&str, &[f64]); 4] =
        [("q", &[0., 1.]), ("k", &[2., 3.]), ("v", &[4., 5.]), ("fused", &ramp(6))];
    everywhere(&g.finish(), &["tp=2", "tp=3", "tp=4"], &data, &answers);
}

#[test]
fn case_m1_no_layout_can_state_another_nesting_than_the_meshs() {
    let mesh = mesh("dp=2, tp=2");
    let one: LayoutSpec = "dp: S(0), tp: S(0)".parse().unwrap();
    let other: LayoutSpec = "tp: S(0), dp: S(0)".parse().unwrap();
    let fallback = Layout::replicated(2);
    let resolved = one.resolve(&mesh, &fallback).unwrap();
    assert_eq!(resolved, other.resolve(&mesh, &fallback).unwrap());
    // The only layout in which both axes split the dim gives rank (0, 1) the second quarter.
    assert_eq!(shardgrad_core::geometry::block(&[4], &resolved, &mesh, 1).ranges[0], 1..2);
    let g = Graph::new("m1", F);
    let (a, b) = (g.input("a", [1, 4]).unwrap(), g.input("b", [4, 1]).unwrap());
    g.output("y", a.matmul(b).unwrap(), OutputRole::Value).unwrap();
    let data = inputs([
        ("a", value([1, 4], F, &[1., 2., 3., 4.])),
        ("b", value([4, 1], F, &[1., 10., 100., 1000.])),
    ]);
    everywhere(&g.finish(), &["dp=2, tp=2"], &data, &[("y", &[4321.])]);
}

/// Attention of four query heads (g, r) of width 2 (e) over tokens t, s; keys and values have one head for each g, or copies
/// for each r.
fn attention<'g>(g: &'g Graph, repeated: bool) -> (Var<'g>, [Var<'g>; 3]) {
    let x = g.input("x", [3, 4]).unwrap();
    let wq = g.param("wq", [4, 2, 2, 2]).unwrap();
    let of_kv = |name: &str| {
        if repeated { g.param(name, [4, 2, 2, 2]) } else { g.param(name, [4, 2, 2]) }.unwrap()
    };
    let (wk, wv) = (of_kv("wk"), of_kv("wv"));
    let project = if repeated { "td,dgre->tgre" } else { "td,dge->tge" };
    let q = x.einsum("td,dgre->tgre", wq).unwrap();
    let (k, v) = (x.einsum(project, wk).unwrap(), x.einsum(project, wv).unwrap());
    let heads = if repeated { "sgre" } else { "sge" };
    let scores = q.einsum(&format!("tgre,{heads}->grts"), k).unwrap();
    let shape = scores.shape();
    let wide = |row: Var<'g>| row.broadcast(&[0, 1, 2], &shape).unwrap();
    let shift = scores.max(&[3]).unwrap().stop_gradient().unwrap();
    let raised = scores.sub(wide(shift)).unwrap().exp().unwrap();
    let weights = raised.div(wide(raised.sum(&[3]).unwrap())).unwrap();
    let out = weights.einsum(&format!("grts,{heads}->tgre"), v).unwrap();
    let loss = out.square().unwrap().sum_all().unwrap();
    (loss, [wq, wk, wv])
}

/// Two heads of keys and values for four of queries, on more devices than there are such heads: the gradient of keys and
/// values is the sum over the query heads that share them.
#[test]
fn case_y7_fewer_key_value_heads_than_devices() {
    let number = |i: usize| ((i * 7 + 3) % 11) as f64 / 8.0 - 0.5;
    let program = |repeated: bool| {
        let g = Graph::new("y7", DType::F64);
        let (loss, [wq, wk, wv]) = attention(&g, repeated);
        outputs(&g, loss, &[("wq", wq), ("wk", wk), ("wv", wv)]);
        g.finish()
    };
    let (shared, repeated) = (program(false), program(true));
    let ty = |shape: &[usize]| shardgrad_core::TensorType::new(shape.iter().copied(), DType::F64);
    let tensor = |shape: &[usize], salt: usize| {
        shardgrad_graph::Value::from_fn(&ty(shape), |i| number(i * 5 + salt))
    };
    let data = inputs([
        ("x", tensor(&[3, 4], 1)),
        ("wq", tensor(&[4, 2, 2, 2], 2)),
        ("wk", tensor(&[4, 2, 2], 3)),
        ("wv", tensor(&[4, 2, 2], 4)),
    ]);
    // [d, g, r, e] from [d, g, e].
    let twice = |v: &shardgrad_graph::Value| {
        let flat = v.to_f64s();
        shardgrad_graph::Value::from_fn(&ty(&[4, 2, 2, 2]), |i| flat[i / 4 * 2 + i % 2])
    };
    let mut copies = data.clone();
    for name in ["wk", "wv"] {
        copies.insert(name.to_owned(), twice(&data[name]));
    }
    let one = shardgrad_graph::eval::evaluate_outputs(&shared, &data).unwrap();
    let two = shardgrad_graph::eval::evaluate_outputs(&repeated, &copies).unwrap();
    let node = |p: &shardgrad_graph::Program, name: &str| {
        p.outputs.iter().find(|o| o.name == name).unwrap().node
    };
    let bound = |p: &shardgrad_graph::Program, data: &Inputs, name: &str| {
        let all = shardgrad_testkit::tolerance::bounds(p, data).unwrap().of(node(p, name));
        all.iter().copied().fold(0.0, f64::max)
    };
    for name in ["grad(wk)", "grad(wv)"] {
        let (sum, parts) = (one[name].to_f64s(), two[name].to_f64s());
        let most = bound(&shared, &data, name) + 2.0 * bound(&repeated, &copies, name);
        assert!(sum.iter().any(|v| v.abs() > 1e-2) && most < 1e-9, "{name}: {most}");
        for (i, s) in sum.iter().enumerate() {
            let (first, second) = (parts[i / 2 * 4 + i % 2], parts[i / 2 * 4 + 2 + i % 2]);
            assert!((s - first - second).abs() <= most, "{name}: {s}, not {first} + {second}");
        }
    }
    // Layouts of rank-4 values are many: the ones that share heads out, and random plans.
    let options = Options { inputs: data, ..Options::default() };
    let reference = Reference::new(&shared, 4, &options).unwrap();
    let holds = |plan: &Plan| {
        let found = reference.compare(plan, Backend::Threads).unwrap();
        assert!(found.holds(), "{found}\n{plan}");
    };
    for pins in [
        // Two heads on four devices: two of them hold none.
        vec![("wq", "tp: S(1)"), ("wk", "tp: S(1)"), ("wv", "tp: S(1)")],
        // Queries by shared head, keys and values copied: their gradient is summed over the devices.
        vec![("wq", "tp: S(2)"), ("wk", "tp: R"), ("wv", "tp: R")],
        vec![("wq", "tp: S(3)"), ("wk", "tp: S(2)"), ("wv", "tp: R")],
    ] {
        holds(&plan(&shared, &mesh("tp=4"), &pinned(&pins)));
    }
    for text in ["tp=4", "dp=2, tp=2"] {
        for seed in 0..40 {
            holds(&random_plan(&shared, &mesh(text), seed, 230));
        }
    }
}
