//! Every systematic fault in a plan that changes a value, or keeps the plan from running, is rejected by the checker.
//!
//! The numbers are kept in `docs/testing.md`: run with `SHARDGRAD_UPDATE_DOCS=1` to write them anew.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use shardgrad_core::{DType, Mesh};
use shardgrad_graph::{
    Activation, Graph, LayerSpec, Loss, MlpSpec, Optimizer, OutputRole, Plan, Program, check,
};
use shardgrad_planner::{LayoutRequest, Options};
use shardgrad_testkit::data::{self, Style};
use shardgrad_testkit::mutate::{Effect, Fault, Right, Verdict, judge, mutants};
use shardgrad_testkit::random_plan::random_plan;

#[derive(Default)]
struct Row {
    all: usize,
    changes: usize,
    cannot_run: usize,
    harmless_rejected: usize,
    harmless_accepted: usize,
}

fn mlp(loss: Loss, optimizer: Optimizer, batch: usize, sizes: &[usize]) -> Program {
    let layers = sizes
        .windows(2)
        .map(|w| LayerSpec {
            inputs: w[0],
            outputs: w[1],
            bias: true,
            activation: Activation::Relu,
        })
        .collect();
    let spec = MlpSpec {
        layers,
        loss,
        optimizer,
        dtype: DType::F64,
        input_gradient: true,
        ..MlpSpec::new("mlp", batch)
    };
    spec.training_program().unwrap()
}

/// Softmax by hand: a maximum that may stay pending.
fn softmax() -> Program {
    let g = Graph::new("softmax", DType::F64);
    let x = g.input("x", [3, 5]).unwrap();
    let wide = |v: shardgrad_graph::Var<'_>| v.broadcast(&[0], &[3, 5]).unwrap().id();
    let top = g.var(wide(x.max(&[1]).unwrap()));
    let e = x.sub(top).unwrap().exp().unwrap();
    let y = e.div(g.var(wide(e.sum(&[1]).unwrap()))).unwrap();
    g.output("y", y, OutputRole::Value).unwrap();
    g.finish()
}

/// Judges all mutants of a plan; no wrong one may escape.
fn sweep(program: &Program, plan: &Plan, table: &mut BTreeMap<Fault, Row>) {
    let report = check::check(plan, program);
    assert!(report.is_right(), "the plan itself: {report}\n{plan}");
    let inputs = data::inputs(program, Style::Ramp, 5);
    let right = Right::run(plan, &inputs).unwrap();
    for mutant in mutants(plan) {
        let verdict: Verdict = judge(&mutant, program, &inputs, &right);
        assert!(
            !verdict.escaped(),
            "{}: {} escapes: {verdict}\nright plan:\n{plan}\nmutant:\n{}",
            mutant.fault.name(),
            mutant.what,
            mutant.plan
        );
        let row = table.entry(mutant.fault).or_default();
        row.all += 1;
        match verdict.effect {
            Effect::Changes(_) => row.changes += 1,
            Effect::CannotRun(_) => row.cannot_run += 1,
            Effect::Nothing if verdict.violations.is_empty() => row.harmless_accepted += 1,
            Effect::Nothing => row.harmless_rejected += 1,
        }
    }
}

#[test]
fn no_mutant_of_a_planned_program_escapes() {
    let mut table = BTreeMap::new();
    let two = Mesh::new([("tp", 2)]).unwrap();
    let four = Mesh::new([("dp", 2), ("tp", 2)]).unwrap();
    let sum = mlp(Loss::Sum, Optimizer::None, 3, &[4, 5, 3]);
    let adam = mlp(Loss::Mse, Optimizer::named("adam").unwrap(), 3, &[3, 4]);
    let classes = mlp(Loss::CrossEntropy, Optimizer::None, 3, &[3, 4]);
    for (program, mesh, layout) in [
        (&sum, &two, "megatron"),
        (&sum, &four, "dp=data, tp=megatron"),
        (&sum, &four, "dp=fsdp, tp=row"),
        (&adam, &two, "zero1"),
        (&classes, &two, "column"),
    ] {
        let request: LayoutRequest = layout.parse().unwrap();
        let planned =
            shardgrad_planner::plan(program, mesh, &request, &Options::default()).unwrap();
        sweep(program, &planned.plan, &mut table);
    }
    let placed = shardgrad_tests::placed();
    for (mesh, seed) in [(&two, 1), (&four, 2)] {
        sweep(&placed, &random_plan(&placed, mesh, seed, 200), &mut table);
    }
    assert!(table.values().map(|r| r.changes + r.cannot_run).sum::<usize>() > 1000);
}

#[test]
fn no_mutant_of_a_random_plan_escapes_and_the_page_has_the_numbers() {
    let programs = [
        softmax(),
        mlp(Loss::Sum, Optimizer::None, 3, &[4, 3]),
        mlp(Loss::Mse, Optimizer::None, 2, &[2, 3]),
    ];
    let meshes = ["tp=2", "tp=3", "dp=2, tp=2", "dp=2, tp=1"];
    let mut table = BTreeMap::new();
    for (p, program) in programs.iter().enumerate() {
        for (m, mesh) in meshes.iter().enumerate() {
            let mesh: Mesh = mesh.parse().unwrap();
            let seed = (10 * p + m) as u64;
            sweep(program, &random_plan(program, &mesh, seed, 200), &mut table);
        }
    }
    assert_eq!(table.len(), Fault::ALL.len(), "every kind of fault occurs");
    let mut text = String::from(
        "| fault | mutants | change a value | cannot run | of these rejected | change nothing, rejected | change nothing, accepted | why they change nothing |\n|---|---|---|---|---|---|---|---|\n",
    );
    for (fault, row) in &table {
        let wrong = row.changes + row.cannot_run;
        writeln!(
            text,
            "| {} | {} | {} | {} | {wrong} of {wrong} | {} | {} | {} |",
            fault.name(),
            row.all,
            row.changes,
            row.cannot_run,
            row.harmless_rejected,
            row.harmless_accepted,
            fault.harmless()
        )
        .unwrap();
    }
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/testing.md");
    let old = std::fs::read_to_string(page).unwrap();
    let (begin, end) = ("<!-- mutations: begin -->\n", "<!-- mutations: end -->");
    let (head, rest) = old.split_once(begin).unwrap();
    let (kept, tail) = rest.split_once(end).unwrap();
    if std::env::var_os("SHARDGRAD_UPDATE_DOCS").is_some() {
        std::fs::write(page, format!("{head}{begin}{text}{end}{tail}")).unwrap();
    } else {
        assert_eq!(kept, text, "docs/testing.md is out of date; run with SHARDGRAD_UPDATE_DOCS=1");
    }
}
