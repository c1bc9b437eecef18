//! The text form of programs round-trips exactly; errors name line and what was expected; plans read well.

mod support;

use shardgrad_core::DType;
use shardgrad_core::ops::{Comparison, Role};
use shardgrad_graph::text::{display_plan, parse_program};
use shardgrad_graph::{
    Activation, Graph, Half, Layer, LayerSpec, Loss, MlpSpec, Optimizer, OutputRole, Phase,
    PlanFile, Program,
};
use support::{data_parallel, megatron, two_layers};

/// Every op, odd names, layers, pins, all roles of outputs.
fn everything() -> Program {
    let g = Graph::new("all \"kinds\"\nof things", DType::F64);
    let x = g.input("x", [4, 6]).unwrap();
    let w = g.param("w / 0, # (odd)", [6, 3]).unwrap();
    let m = g.leaf("m(w0)", Role::State, w.ty()).unwrap();
    let lr = g.scalar("lr").unwrap();
    let t = g.labels("t", [4]).unwrap();
    let h = x.einsum("bi,io->bo", w).unwrap().named("h0").unwrap().named("another name").unwrap();
    let c = h.constrain("c", "tp: S(0), dp: Pmax").unwrap();
    let hot = t.one_hot(3).unwrap();
    let fill = g.fill(-0.1, [4, 3]).unwrap();
    let inf = g.fill(f64::NEG_INFINITY, [4, 3]).unwrap();
    let mut y = c.add(hot).unwrap().sub(fill).unwrap().mul(inf).unwrap().div(h).unwrap();
    y = y.scale(1e-300).unwrap().add_const(0.1 + 0.2).unwrap();
    y = y.relu().unwrap().gelu().unwrap().tanh().unwrap().sigmoid().unwrap().exp().unwrap();
    y = y.log().unwrap().sqrt().unwrap().square().unwrap().abs().unwrap();
    y = y.reciprocal().unwrap().neg().unwrap().stop_gradient().unwrap();
    for comparison in Comparison::ALL {
        y = y.compare(comparison, h).unwrap().compare_const(comparison, 0.5).unwrap();
    }
    let r = y.reshape(&[2, 2, 3]).unwrap().transpose(&[2, 0, 1]).unwrap();
    let s = r.max(&[1]).unwrap().sum(&[0, 1]).unwrap();
    g.set_phase(Phase::Backward);
    let up = s.broadcast(&[], &[6, 3]).unwrap();
    let up2 = s.broadcast(&[], &[6]).unwrap().broadcast(&[0], &[6, 3]).unwrap();
    g.set_phase(Phase::Forward);
    let new = up.mul(up2).unwrap();
    let scalar = s.mul(lr).unwrap();
    g.output("loss", scalar, OutputRole::Loss).unwrap();
    g.output("y, y", y, OutputRole::Value).unwrap();
    g.output("grad(w)", up, OutputRole::Gradient { of: w.id() }).unwrap();
    g.output("m(w0)", new, OutputRole::Update { of: m.id() }).unwrap();
    let mut program = g.finish();
    let layer = Layer {
        input: program.named("x").unwrap(),
        weight: program.named("w / 0, # (odd)").unwrap(),
        bias: None,
        output: program.named("h0").unwrap(),
        batch: ['b', 'c'].into_iter().collect(),
        in_label: 'i',
        out_label: 'o',
        weight_labels: Default::default(),
        half: None,
    };
    let with_bias = Layer { bias: Some(layer.weight), batch: Default::default(), ..layer.clone() };
    let half = |half, weight: &str| Layer {
        weight_labels: weight.chars().collect(),
        half: Some(half),
        ..layer.clone()
    };
    let halves = [half(Half::Opens, "ihk"), half(Half::Closes, "")];
    program.nodes[layer.output.index()].layer = Some(1);
    program.layers = [layer, with_bias].into_iter().chain(halves).collect();
    program
}

#[test]
fn the_text_of_a_program_reads_back_exactly() {
    let programs =
        [everything(), two_layers(8, [6, 4, 2], true), Graph::new("empty", DType::F32).finish()];
    for program in programs {
        program.validate().unwrap();
        let text = program.to_string();
        let back = parse_program(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert_eq!(back, program, "{text}");
        assert_eq!(back.to_string(), text);
    }
}

#[test]
fn training_programs_round_trip_and_their_replicated_plans_are_right() {
    let layer = |inputs, outputs, activation| LayerSpec { inputs, outputs, bias: true, activation };
    for (optimizer, loss) in [
        ("none", Loss::Sum),
        ("sgd", Loss::Mse),
        ("momentum", Loss::CrossEntropy),
        ("adam", Loss::Mse),
        ("adamw", Loss::CrossEntropy),
    ] {
        let spec = MlpSpec {
            layers: vec![layer(5, 7, Activation::Gelu), layer(7, 3, Activation::None)],
            loss,
            optimizer: Optimizer::named(optimizer).unwrap(),
            micro_batches: 2,
            input_gradient: true,
            ..MlpSpec::new("mlp", 6)
        };
        let program = spec.training_program().unwrap();
        program.validate().unwrap();
        assert_eq!(parse_program(&program.to_string()).unwrap(), program, "{program}");
        let plan = support::lay_out(&program, "a=2, b=3", &[], &[]);
        let report = shardgrad_graph::check(&plan, &program);
        assert!(report.is_right(), "{report}");
        assert!(report.lints.is_empty(), "{report}\n{program}");
        let file = PlanFile::new(program, plan);
        assert_eq!(PlanFile::read(&file.to_json().unwrap()).unwrap(), file);
    }
}

#[test]
fn the_text_of_a_small_program_is_this() {
    let g = Graph::new("small", DType::F32);
    let x = g.input("x", [8, 6]).unwrap();
    let w = g.param("w0", [6, 4]).unwrap();
    let h = x.einsum("bi,io->bo", w).unwrap().named("h0").unwrap();
    g.set_phase(Phase::Backward);
    let l = h.sum_all().unwrap().constrain("l", "tp: R").unwrap();
    g.output("l", l, OutputRole::Loss).unwrap();
    assert_eq!(
        g.finish().to_string(),
        "\
program small

forward:
  %0 = input x                    : f32[8, 6]
  %1 = param w0                   : f32[6, 4]
  %2 = einsum(bi,io->bo)(%0, %1)  : f32[8, 4]  # h0

backward:
  %3 = sum([0, 1])(%2)            : f32[]
  %4 = constrain(%3)              : f32[]      # l

outputs:
  l = %4, loss

pins:
  l = [tp: R]
"
    );
}

#[test]
fn errors_name_the_line_and_what_was_expected() {
    let head = "program p\nforward:\n  %0 = input x : f32[4, 3]\n";
    let cases = [
        ("", "line 1: found the end of the line, expected `program` and a name"),
        ("hello", "line 1: found `hello`, expected `program`"),
        ("program p\n%0 = input x : f32[]", "expected a section"),
        (
            "%2 = relu(%0) : f32[4, 3]",
            "line 4: found `%2 = relu(%0) : f32[4, 3]`, expected node %1",
        ),
        ("%1 = rleu(%0) : f32[4, 3]", "expected the name of an op"),
        ("%1 = all_reduce(%0) : f32[4, 3]", "transitions stand in plans only"),
        ("%1 = relu(%0) : f33[4, 3]", "found `f33[4, 3]`, expected a type"),
        ("%1 = relu(%0) : f32[4, 3", "expected a type"),
        ("%1 = relu(%0 : f32[4, 3]", "expected `)`"),
        ("%1 = relu(2)(%0) : f32[4, 3]", "no attribute"),
        ("%1 = scale(%0) : f32[4, 3]", "expected a number as an attribute"),
        ("%1 = scale(x)(%0) : f32[4, 3]", "expected a number"),
        ("%1 = sum([0, x])(%0) : f32[4]", "whole numbers in brackets"),
        ("%1 = einsum(ii->i)(%0) : f32[4]", "an einsum"),
        ("%1 = relu(%0) : f32[4, 3] # x", "a name that no other value has"),
        ("%1 = relu(%0) : f32[4, 3] layer x", "the number of a layer"),
        ("%1 = relu(%0) : f32[4, 3] extra", "the end of the line"),
        ("%1 = relu(%99999999999) : f32[4, 3]", "a node like %0"),
        ("%1 = relu(%1) : f32[4, 3]", "malformed program: node %1: its operand %1"),
        ("%1 = relu(%0) : f32[3, 4]", "its type is f32[3, 4], but its op makes f32[4, 3]"),
        ("%1 = input x : f32[3, 4]", "its name `x` must name this leaf"),
        ("%1 = relu(%0) : f32[4, 3] layer 0", "layer 0 is not one of the 0 recorded layers"),
        ("%1 = input z : f32[99999999999, 99999999999]", "at most 2^40 elements"),
        ("%1 = input z : f32[1, 1, 1, 1, 1, 1, 1, 1, 1]", "at most 8 dims"),
        ("%1 = input z : f32[0]", "extent 1 or more"),
        ("outputs:\n y = %0", "line 5: found the end of the line, expected `,`"),
        ("outputs:\n y = %0, los", "loss, value, gradient of %n or update of %n"),
        ("outputs:\n y = %7, value", "%7 is out of range"),
        ("outputs:\n y = %0, loss", "a loss is a scalar"),
        ("outputs:\n y = %0, update of %0", "%0 is not a parameter or state"),
        ("outputs:\n y = %0, value\n y = %0, value", "two outputs named `y`"),
        ("pins:\n x = dp S(0)", "a layout"),
        ("pins:\n x = dp: R\n x = dp: R", "one pin for each name"),
        ("pins:\n \"x = dp: R", "a name in double quotes"),
        ("layers:\n input %0, weight %0, output %0, labels b|i", "labels of batch"),
        ("layers:\n input %0, weight %9, output %0, labels b|i|o", "layer 0: %9 is out of range"),
    ];
    for (text, expected) in cases {
        let whole = if text.starts_with('%') || text.contains(":\n") && !text.contains("program") {
            format!("{head}{text}")
        } else {
            text.to_owned()
        };
        let error = parse_program(&whole).unwrap_err();
        assert!(error.to_string().contains(expected), "{text}: {error}");
        assert!(["E120", "E121"].contains(&error.code()));
    }
}

/// Small deterministic generator for damaging text.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }
}

#[test]
fn damaged_text_never_panics() {
    let text = everything().to_string();
    let chars: Vec<char> = text.chars().collect();
    let (mut dice, mut refused) = (Dice(1), 0);
    for _ in 0..3000 {
        let mut damaged = chars.clone();
        for _ in 0..1 + dice.roll(3) {
            let at = dice.roll(damaged.len());
            match dice.roll(4) {
                0 => drop(damaged.remove(at)),
                1 => damaged[at] = chars[dice.roll(chars.len())],
                2 => damaged.insert(at, ['9', '%', '(', '"', 'é', ',', '\n', ']'][dice.roll(8)]),
                _ => damaged.truncate(at.max(8)),
            }
        }
        let damaged: String = damaged.into_iter().collect();
        match parse_program(&damaged) {
            // What is accepted is a program that says what it reads.
            Ok(program) => assert_eq!(parse_program(&program.to_string()).unwrap(), program),
            Err(error) => {
                refused += 1;
                assert!(!error.to_string().contains('\n'), "{error}");
            }
        }
    }
    assert!(refused > 1000, "{refused}");
}

#[test]
fn a_plan_shows_layouts_and_sets_off_transitions() {
    let program = two_layers(6, [5, 4, 3], true);
    let plan = megatron(&program, "tp=2");
    let text = display_plan(&plan, &program).to_string();
    assert!(text.starts_with("plan two-layers over tp=2, layout `by hand`\n"), "{text}");
    let reduce = text.lines().find(|l| l.starts_with("→") && l.contains("all_reduce")).unwrap();
    // y is 6×3 f32: either rank sends a half to reduce and a half to gather.
    assert!(reduce.contains("over tp (%"), "{reduce}");
    assert!(reduce.contains("[tp: P] → [tp: R], 72 bytes"), "{reduce}");
    assert!(reduce.ends_with("# y"), "{reduce}");
    let columns: Vec<usize> = text
        .lines()
        .filter(|l| l.contains(" = ") && l.contains("slot"))
        .map(|l| l[..l.find("  : ").unwrap()].chars().count())
        .collect();
    assert!(
        columns.len() == plan.nodes.len() && columns.iter().all(|c| *c == columns[0]),
        "{text}"
    );
    let alone = data_parallel(&two_layers(6, [5, 4, 3], false), "dp=2").to_string();
    assert!(alone.contains("# w0") && alone.contains("[dp: S(0)]"), "{alone}");
}
