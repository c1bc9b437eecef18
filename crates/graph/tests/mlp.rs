//! Training programs: what they are made of, that micro-batches change nothing, and what is refused.

use std::collections::BTreeMap;

use shardgrad_core::ops::Role;
use shardgrad_core::{DType, Op};
use shardgrad_graph::{
    Activation, Error, Graph, LayerSpec, Loss, MlpSpec, Optimizer, OutputRole, Phase, Program,
    Value, eval,
};

fn layer(inputs: usize, outputs: usize, activation: Activation) -> LayerSpec {
    LayerSpec { inputs, outputs, bias: true, activation }
}

fn two_layers() -> MlpSpec {
    MlpSpec {
        dtype: DType::F64,
        layers: vec![layer(5, 7, Activation::Relu), layer(7, 3, Activation::None)],
        input_gradient: true,
        ..MlpSpec::new("two", 6)
    }
}

/// Small integers of mixed sign for floats, classes for labels, one step's scalars.
fn inputs(program: &Program, optimizer: Optimizer, classes: usize) -> BTreeMap<String, Value> {
    let mut inputs: BTreeMap<String, Value> = program
        .leaves()
        .enumerate()
        .map(|(k, id)| {
            let (name, ty) = (program.node(id).leaf_name().unwrap(), &program.node(id).ty);
            let value = if ty.dtype.is_float() {
                Value::from_fn(ty, |i| ((i * i * 7 + i * 5 + 3 * k) % 17) as f64 - 8.0)
            } else {
                Value::from_fn(ty, |i| ((i * 3 + 1) % classes) as f64)
            };
            (name.to_owned(), value)
        })
        .collect();
    for (name, value) in optimizer.scalars(1) {
        inputs.insert(
            name,
            Value::scalar(value, program.node(program.named("w0").unwrap()).ty.dtype),
        );
    }
    inputs
}

fn contractions(program: &Program, layer: u32) -> Vec<String> {
    program
        .nodes
        .iter()
        .filter(|n| n.layer == Some(layer))
        .map(|n| format!("{}: {}", n.phase, n.op))
        .collect()
}

#[test]
fn a_layer_owns_its_three_contractions() {
    let program = two_layers().training_program().unwrap();
    for index in 0..2 {
        assert_eq!(
            contractions(&program, index),
            [
                "forward: einsum(bi,io->bo)",
                "backward: einsum(bo,io->bi)",
                "backward: einsum(bi,bo->io)"
            ]
        );
        let layer = &program.layers[index as usize];
        assert_eq!(program.named(&format!("w{index}")), Some(layer.weight));
        assert_eq!(program.named(&format!("b{index}")), layer.bias);
        assert_eq!(program.named(&format!("h{index}")), Some(layer.output));
        assert_eq!(
            (layer.batch.as_slice(), layer.in_label, layer.out_label),
            (&['b'][..], 'i', 'o')
        );
    }
    assert_eq!(program.layers[1].input, program.layers[0].output);
    assert_eq!(program.named("out"), program.named("h1"));
    // Without an input gradient, the first layer has no contraction for it.
    let spec = MlpSpec { input_gradient: false, ..two_layers() };
    let program = spec.training_program().unwrap();
    let first = contractions(&program, 0);
    assert_eq!(first, ["forward: einsum(bi,io->bo)", "backward: einsum(bi,bo->io)"]);
    assert!(program.named("grad(x)").is_none());
}

#[test]
fn a_layer_over_sequences_keeps_its_labels() {
    let g = Graph::new("sequence", DType::F64);
    let (x, w, b) = (
        g.input("x", [2, 4, 3]).unwrap(),
        g.param("w0", [3, 5]).unwrap(),
        g.param("b0", [5]).unwrap(),
    );
    let loss = x.linear(w, Some(b), Activation::Tanh).unwrap().sum_all().unwrap();
    for (name, gradient) in ["dx", "dw", "db"].iter().zip(g.grad(loss, &[x, w, b]).unwrap()) {
        g.output(name, gradient, OutputRole::Value).unwrap();
    }
    let program = g.finish();
    assert_eq!(
        contractions(&program, 0),
        [
            "forward: einsum(bsi,io->bso)",
            "backward: einsum(bso,io->bsi)",
            "backward: einsum(bsi,bso->io)"
        ]
    );
    assert_eq!(program.layers[0].batch.as_slice(), &['b', 's']);
}

#[test]
fn contractions_outside_layers_have_none() {
    let g = Graph::new("mixed", DType::F64);
    let x = g.input("x", [4, 3]).unwrap();
    let (w, v, u) = (
        g.param("w0", [3, 5]).unwrap(),
        g.param("v", [5, 2]).unwrap(),
        g.param("u", [3, 3]).unwrap(),
    );
    // Before a layer, after it, and after its gradient.
    let before = x.matmul(u).unwrap();
    let after = before.linear(w, None, Activation::None).unwrap().matmul(v).unwrap();
    for gradient in g.grad(after.sum_all().unwrap(), &[x, w, v, u]).unwrap() {
        g.output(&format!("gradient {}", gradient.id()), gradient, OutputRole::Value).unwrap();
    }
    g.output("later", after.matmul(after.transpose(&[1, 0]).unwrap()).unwrap(), OutputRole::Value)
        .unwrap();
    let program = g.finish();
    let (mine, others): (Vec<_>, Vec<_>) = program
        .nodes
        .iter()
        .filter(|n| matches!(n.op, Op::Einsum(_)))
        .partition(|n| n.layer.is_some());
    assert_eq!((mine.len(), others.len()), (3, 7));
    let of_layer =
        |n: &&shardgrad_graph::Node| n.operands.iter().any(|o| Some(*o) == program.named("w0"));
    assert_eq!(mine.iter().filter(|n| of_layer(n)).count(), 2);
    assert!(!others.iter().any(of_layer));
}

#[test]
fn outputs_are_gradients_or_updates() {
    let roles = |program: &Program| -> Vec<(String, &'static str, Option<String>)> {
        let leaf = |of| program.node(of).leaf_name().map(str::to_owned);
        program
            .outputs
            .iter()
            .map(|o| {
                let (role, of) = match o.role {
                    OutputRole::Loss => ("loss", None),
                    OutputRole::Value => ("value", None),
                    OutputRole::Gradient { of } => ("gradient", leaf(of)),
                    OutputRole::Update { of } => ("update", leaf(of)),
                };
                (o.name.clone(), role, of)
            })
            .collect()
    };
    let expect = |entries: &[(&str, &'static str, &str)]| -> Vec<_> {
        entries
            .iter()
            .map(|(name, role, of)| {
                (name.to_string(), *role, Some(of.to_string()).filter(|of| !of.is_empty()))
            })
            .collect()
    };
    let spec = MlpSpec { layers: vec![layer(5, 3, Activation::None)], ..two_layers() };
    let program = spec.training_program().unwrap();
    assert_eq!(
        roles(&program),
        expect(&[
            ("loss", "loss", ""),
            ("grad(w0)", "gradient", "w0"),
            ("grad(b0)", "gradient", "b0"),
            ("grad(x)", "gradient", "x"),
        ])
    );
    let spec = MlpSpec { optimizer: Optimizer::named("adam").unwrap(), ..spec };
    let program = spec.training_program().unwrap();
    assert_eq!(
        roles(&program),
        expect(&[
            ("loss", "loss", ""),
            ("grad(x)", "gradient", "x"),
            ("m(w0)", "update", "m(w0)"),
            ("v(w0)", "update", "v(w0)"),
            ("w0", "update", "w0"),
            ("m(b0)", "update", "m(b0)"),
            ("v(b0)", "update", "v(b0)"),
            ("b0", "update", "b0"),
        ])
    );
    // Gradients keep their names when they are consumed, and every node is in its phase.
    for name in ["grad(w0)", "grad(b0)", "grad(x)"] {
        assert_eq!(program.node(program.named(name).unwrap()).phase, Phase::Backward, "{name}");
    }
    for output in &program.outputs {
        let node = program.node(output.node);
        match output.role {
            OutputRole::Loss => assert_eq!(node.phase, Phase::Forward),
            OutputRole::Gradient { of } => {
                assert_eq!((node.phase, &node.ty), (Phase::Backward, &program.node(of).ty));
            }
            OutputRole::Update { of } => {
                assert_eq!((node.phase, &node.ty), (Phase::Update, &program.node(of).ty));
            }
            OutputRole::Value => unreachable!(),
        }
    }
    let leaves = |role: Role| -> Vec<&str> {
        let leaves = program.leaves().filter(|&l| program.node(l).leaf_role() == Some(role));
        leaves.filter_map(|l| program.node(l).leaf_name()).collect()
    };
    assert_eq!(leaves(Role::Scalar), ["lr", "bias1", "bias2"]);
    assert_eq!(leaves(Role::State), ["m(w0)", "v(w0)", "m(b0)", "v(b0)"]);
    assert_eq!(leaves(Role::Param), ["w0", "b0"]);
    assert_eq!(leaves(Role::Input), ["x", "y"]);
}

#[test]
fn the_backward_pass_has_no_needless_op() {
    let ops = |spec: &MlpSpec| -> Vec<String> {
        let program = spec.training_program().unwrap();
        let backward = program.nodes.iter().filter(|n| n.phase == Phase::Backward);
        backward.map(|n| n.op.to_string()).collect()
    };
    let affine = ["einsum(bi,bo->io)", "einsum(bo,io->bi)", "sum([0])"];
    let relu = ["gt_const(0.0)", "mul"];
    let check = |loss: Loss, own: &[&str]| {
        let mut actual = ops(&MlpSpec { loss, ..two_layers() });
        let mut expected: Vec<String> =
            [own, &relu, &affine, &affine].concat().into_iter().map(str::to_owned).collect();
        actual.sort();
        expected.sort();
        assert_eq!(actual, expected, "{loss}");
    };
    // The seed is folded into the first op that needs it.
    check(Loss::Mse, &["scale(0.1111111111111111)"]);
    check(Loss::Sum, &["fill(1.0)"]);
    // −onehot/B, and softmax · (its sum over classes).
    let scaled = "scale(-0.16666666666666666)";
    let wide = "broadcast(dims=[0], shape=[6, 3])";
    check(Loss::CrossEntropy, &[scaled, "neg", "sum([1])", "div", wide, "mul", "add"]);
}

/// The seed of a sum is 1: a slope that it multiplies is the gradient itself.
#[test]
fn a_seed_of_1_is_multiplied_with_nothing() {
    let g = Graph::new("one", DType::F64);
    let x = g.input("x", [3, 2]).unwrap();
    let slope = g.grad(x.exp().unwrap().sum_all().unwrap(), &[x]).unwrap()[0];
    g.output("slope", slope, OutputRole::Gradient { of: x.id() }).unwrap();
    let ops: Vec<String> = g.finish().nodes.iter().map(|n| n.op.name().to_owned()).collect();
    assert_eq!(ops, ["leaf", "exp"]);
}

#[test]
fn micro_batches_make_the_gradients_of_the_whole_batch() {
    for loss in Loss::ALL {
        let whole = MlpSpec { loss, ..two_layers() };
        let program = whole.training_program().unwrap();
        let data = inputs(&program, Optimizer::None, 3);
        let expected = eval::evaluate_outputs(&program, &data).unwrap();
        for micro_batches in [2, 3, 6] {
            let parts = MlpSpec { micro_batches, ..whole.clone() };
            let program = parts.training_program().unwrap();
            let actual =
                eval::evaluate_outputs(&program, &parts.program_inputs(data.clone())).unwrap();
            for name in ["loss", "grad(w0)", "grad(b0)", "grad(w1)", "grad(b1)"] {
                let (a, e) = (actual[name].to_f64s(), expected[name].to_f64s());
                assert_eq!(a.len(), e.len());
                assert!(e.iter().any(|&v| v != 0.0), "{loss} {name}");
                let largest = e.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
                // Sums of integers are exact. Otherwise a gradient has at most 6 · 7 terms, each scaled twice: its
                // rounding is below 64 units of the largest sum of magnitudes, which stays below 16 times the largest.
                let bound = match loss {
                    Loss::Sum => 0.0,
                    Loss::Mse | Loss::CrossEntropy => 1024.0 * f64::EPSILON / 2.0 * largest,
                };
                for (a, e) in a.iter().zip(&e) {
                    assert!((a - e).abs() <= bound, "{loss} {name} in {micro_batches}: {a}, {e}");
                }
            }
            let rows: Vec<f64> = (0..micro_batches)
                .flat_map(|part| actual[&format!("grad(x.{part})")].to_f64s())
                .collect();
            let whole_rows = expected["grad(x)"].to_f64s();
            for (a, e) in rows.iter().zip(&whole_rows) {
                assert!(
                    (a - e).abs() <= 1024.0 * f64::EPSILON * (1.0 + e.abs()),
                    "{loss}: {a}, {e}"
                );
            }
            assert_eq!(rows.len(), whole_rows.len());
            for name in ["grad(w0)", "grad(b1)"] {
                let node = program.node(program.named(name).unwrap());
                assert_eq!((node.phase, node.op.name()), (Phase::Backward, "add"), "{name}");
            }
            let loss = program.node(program.outputs[0].node);
            assert_eq!((loss.phase, loss.op.name()), (Phase::Forward, "add"));
            // One recorded layer each, whose contractions are those of all parts; backward of a part before the next.
            assert_eq!(program.layers.len(), 2);
            assert_eq!(contractions(&program, 1).len(), 3 * micro_batches);
            let order: Vec<Phase> =
                program.nodes.iter().filter(|n| n.layer == Some(0)).map(|n| n.phase).collect();
            let part = [Phase::Forward, Phase::Backward, Phase::Backward];
            assert_eq!(order, part.repeat(micro_batches));
        }
    }
}

#[test]
fn f32_and_f64_agree_exactly_on_integers() {
    let spec = MlpSpec { loss: Loss::Sum, ..two_layers() };
    let wide = spec.training_program().unwrap();
    let narrow = MlpSpec { dtype: DType::F32, ..spec }.training_program().unwrap();
    let expected = eval::evaluate_outputs(&wide, &inputs(&wide, Optimizer::None, 3)).unwrap();
    let actual = eval::evaluate_outputs(&narrow, &inputs(&narrow, Optimizer::None, 3)).unwrap();
    assert_eq!(expected.len(), actual.len());
    for (name, value) in actual {
        assert_eq!(value.ty().dtype, DType::F32);
        assert_eq!(value.cast(DType::F64), expected[&name], "{name}");
        assert!(value.to_f64s().iter().any(|&v| v != 0.0), "{name}");
    }
}

#[test]
fn the_forward_program_makes_the_training_programs_output() {
    let spec = two_layers();
    let training = spec.training_program().unwrap();
    let data = inputs(&training, Optimizer::None, 3);
    let out = training.named("out").unwrap().index();
    let expected = eval::evaluate(&training, &data).unwrap()[out].clone();
    let forward = spec.forward_program(6).unwrap();
    let outputs = eval::evaluate_outputs(&forward, &data).unwrap();
    assert_eq!(outputs, BTreeMap::from([("out".to_owned(), expected)]));
    assert_eq!(spec.forward_program(11).unwrap().outputs.len(), 1);
    assert!(spec.forward_program(0).is_err());
}

#[test]
fn bad_descriptions_are_refused_by_key() {
    let key = |spec: MlpSpec| match spec.training_program().unwrap_err() {
        Error::BadModel { key, .. } => key,
        other => panic!("{other}"),
    };
    assert_eq!(key(MlpSpec { batch: 0, ..two_layers() }), "batch");
    assert_eq!(key(MlpSpec { dtype: DType::I32, ..two_layers() }), "dtype");
    assert_eq!(key(MlpSpec { micro_batches: 4, ..two_layers() }), "micro_batches");
    assert_eq!(key(MlpSpec { micro_batches: 0, ..two_layers() }), "micro_batches");
    assert_eq!(key(MlpSpec { layers: vec![], ..two_layers() }), "layer");
    let mut spec = two_layers();
    spec.layers[1].inputs = 6;
    assert_eq!(key(spec.clone()), "layer[1].in");
    let message = spec.validate().unwrap_err().to_string();
    assert_eq!(message, "`layer[1].in` is 6, but layer[0].out is 7; they must be equal");
    spec.layers[1].outputs = 0;
    assert_eq!(key(spec), "layer[1].out");
    let optimizer = Optimizer::Sgd { lr: f64::NAN, weight_decay: 0.0 };
    assert_eq!(key(MlpSpec { optimizer, ..two_layers() }), "optimizer.lr");
}

#[test]
fn descriptions_have_the_keys_of_model_files() {
    let text = r#"
        name = "two"
        batch = 6
        dtype = "f64"
        loss = "cross_entropy"
        input_gradient = true
        [optimizer]
        name = "adamw"
        lr = 0.25
        [[layer]]
        in = 5
        out = 7
        activation = "relu"
        [[layer]]
        in = 7
        out = 3
        bias = false
    "#;
    let spec: MlpSpec = toml::from_str(text).unwrap();
    let mut expected = MlpSpec { loss: Loss::CrossEntropy, ..two_layers() };
    expected.layers[1].bias = false;
    expected.optimizer =
        Optimizer::AdamW { lr: 0.25, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.01 };
    assert_eq!(spec, expected);
    let again: MlpSpec = toml::from_str(&toml::to_string(&spec).unwrap()).unwrap();
    assert_eq!(again, spec);
    for (unknown, name) in
        [("btach = 3", "btach"), ("[[layer]]\nin = 1\nout = 1\nbais = 1", "bais")]
    {
        let error = toml::from_str::<MlpSpec>(&format!("batch = 1\n{unknown}")).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn programs_survive_serialisation() {
    let spec = MlpSpec { optimizer: Optimizer::named("adam").unwrap(), ..two_layers() };
    let program = spec.training_program().unwrap();
    let json = serde_json::to_string(&program).unwrap();
    assert_eq!(serde_json::from_str::<Program>(&json).unwrap(), program);
    assert!(program.nodes.iter().any(|n| matches!(&n.op, Op::Leaf(l) if l.name == "v(b1)")));
}
