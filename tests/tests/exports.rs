//! Plans in other languages: the NumPy script runs and its ranks agree with its dense program, on every preset and on uneven
//! meshes; the Graphviz file is valid DOT.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

use shardgrad_core::ops::Comparison;
use shardgrad_core::{DType, Mesh};
use shardgrad_graph::{
    Activation, Graph, LayerSpec, Loss, MlpSpec, Optimizer, OutputRole, Plan, Program, export,
};
use shardgrad_planner::LayoutRequest;
use shardgrad_tests::{checked, placed};

fn mlp(loss: Loss, optimizer: &str, activation: Activation) -> Program {
    let layer = |inputs, outputs, activation| LayerSpec { inputs, outputs, bias: true, activation };
    MlpSpec {
        loss,
        optimizer: Optimizer::named(optimizer).unwrap(),
        input_gradient: true,
        layers: vec![layer(5, 7, activation), layer(7, 3, Activation::None)],
        ..MlpSpec::new("mlp", 6)
    }
    .training_program()
    .unwrap()
}

/// Runs Python on a script; standard output, or what went wrong. `None` where there is no Python with NumPy.
fn python(script: &str) -> Option<Result<String, String>> {
    let mut child = Command::new("python3")
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    child.stdin.take()?.write_all(script.as_bytes()).ok()?;
    let output = child.wait_with_output().ok()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr).into_owned();
    Some(if output.status.success() { Ok(said) } else { Err(complained) })
}

fn has_numpy() -> bool {
    let found = matches!(python("import numpy"), Some(Ok(_)));
    if !found {
        eprintln!("skipped: NumPy scripts are not run, since python3 with numpy is missing");
    }
    found
}

fn plan(program: &Program, mesh: &str, layout: &str) -> Plan {
    let mesh: Mesh = mesh.parse().unwrap();
    let request: LayoutRequest = layout.parse().unwrap();
    checked(program, &mesh, &request)
}

fn run(plan: &Plan, program: &Program) {
    let script = export::numpy(plan, program);
    let at = format!("{} on {}", plan.layout, plan.mesh);
    let said = python(&script).expect("python is there").unwrap_or_else(|e| panic!("{at}: {e}"));
    let (outputs, ranks) = (plan.outputs.len(), plan.mesh.size());
    assert_eq!(said, format!("{outputs} outputs on {ranks} ranks equal the dense ones\n"), "{at}");
}

#[test]
fn numpy_scripts_of_every_preset_hold() {
    if !has_numpy() {
        return;
    }
    let programs = [
        mlp(Loss::CrossEntropy, "adamw", Activation::Gelu),
        mlp(Loss::Mse, "none", Activation::Tanh),
    ];
    let layouts = [
        ("d=1", "replicated"),
        ("d=3", "data"),
        ("d=2", "column"),
        ("d=3", "row"),
        ("d=4", "megatron"),
        ("d=2", "megatron-sp"),
        ("d=3", "fsdp"),
        ("d=2", "zero1"),
        ("d=5", "auto"),
        ("d=2, t=2", "d=data, t=megatron"),
        ("d=2, t=3", "d=fsdp, t=megatron"),
        ("d=3, t=2", "d=zero1, t=row"),
        ("d=2, t=2", "d=auto, t=auto"),
        ("d=2, t=2, u=2", "d=data, t=column, u=fsdp"),
    ];
    for (i, (mesh, layout)) in layouts.into_iter().enumerate() {
        let program = &programs[i % 2];
        run(&plan(program, mesh, layout), program);
    }
}

/// Ops that a network does not have: integers, comparisons, transposes, reshapes, maxima of empty blocks.
#[test]
fn numpy_scripts_of_other_programs_hold() {
    if !has_numpy() {
        return;
    }
    let g = Graph::new("others \"quoted\"\nand broken", DType::F64);
    let x = g.input("x", [3, 4]).unwrap();
    let labels = g.labels("labels", [3]).unwrap();
    let hot = labels.one_hot(5).unwrap();
    let top = x.max(&[1]).unwrap();
    g.output("top", top, OutputRole::Value).unwrap();
    g.output("hot", hot.transpose(&[1, 0]).unwrap(), OutputRole::Value).unwrap();
    let positive = x.compare_const(Comparison::Gt, 0.25).unwrap();
    g.output("flat", positive.mul(x).unwrap().reshape(&[12]).unwrap(), OutputRole::Value).unwrap();
    g.output("all", x.abs().unwrap().sum_all().unwrap(), OutputRole::Value).unwrap();
    let program = g.finish();
    for (mesh, pins) in [
        ("t=5", vec![("x", "t: S(1)"), ("labels", "t: R")]),
        ("a=2, b=2", vec![("x", "a: S(0), b: S(0)"), ("hot", "a: S(0), b: S(1)"), ("top", "a: R")]),
        ("a=2, b=3", vec![("x", "a: S(1), b: S(1)"), ("top", "a: S(0), b: R")]),
    ] {
        let mesh: Mesh = mesh.parse().unwrap();
        let request = pins.into_iter().fold(LayoutRequest::auto(), |request, (name, pin)| {
            request.pin(name, pin.parse().unwrap())
        });
        run(&checked(&program, &mesh, &request), &program);
    }
}

/// Ops that take elements by place: the script's functions are written from their definitions, the draws' too.
#[test]
fn numpy_scripts_of_placed_ops_hold() {
    if !has_numpy() {
        return;
    }
    let program = placed();
    for (mesh, pins) in [
        ("t=3", vec![("table", "t: S(0)"), ("x", "t: S(0)"), ("dropped", "t: S(0)")]),
        ("a=2, b=2", vec![("table", "a: S(0), b: S(1)"), ("dropped", "a: S(1), b: S(0)")]),
        (
            "a=2, b=5",
            vec![("table", "b: S(0)"), ("ids", "a: S(0)"), ("chosen", "a: S(0), b: S(0)")],
        ),
    ] {
        let mesh: Mesh = mesh.parse().unwrap();
        let request = pins.into_iter().fold(LayoutRequest::default(), |request, (name, pin)| {
            request.pin(name, pin.parse().unwrap())
        });
        run(&checked(&program, &mesh, &request), &program);
    }
    // The script's draws are the library's.
    let mut script = export::numpy(&plan(&program, "t=1", "replicated"), &program);
    script += "print([float(v) for v in uniform(-7, 3, (3, 2), whole((3, 2))).ravel()])\n";
    let said = python(&script).unwrap().unwrap();
    let mut draws = shardgrad_core::random::Draws::new(-7, 3);
    let expected: Vec<f64> = (0..6).map(|i| draws.at(i)).collect();
    assert_eq!(said.lines().last().unwrap(), format!("{expected:?}"));
}

/// The script notices what it should: without one collective the ranks disagree with the dense program.
#[test]
fn a_numpy_script_without_its_reduction_fails() {
    if !has_numpy() {
        return;
    }
    let program = mlp(Loss::Mse, "sgd", Activation::Relu);
    let script = export::numpy(&plan(&program, "d=2", "megatron"), &program);
    let reduction = script.lines().find(|l| l.contains(" = all_reduce(v")).unwrap();
    let (left, right) = reduction.split_once(" = all_reduce(").unwrap();
    let operand = right.split(',').next().unwrap();
    let broken = script.replace(reduction, &format!("{left} = {operand}"));
    let complaint = python(&broken).unwrap().unwrap_err();
    assert!(complaint.contains("AssertionError"), "{complaint}");
}

/// What a DOT file is made of.
#[derive(Debug, PartialEq)]
enum Token {
    Word(String),
    Mark(char),
    Arrow,
}

fn tokens(dot: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut chars = dot.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            c if c.is_whitespace() => {}
            '"' => {
                let mut text = String::new();
                loop {
                    match chars.next().expect("a string ends") {
                        '"' => break,
                        '\\' => {
                            text.extend(['\\', chars.next().expect("an escape has a character")])
                        }
                        '\n' => panic!("a line break within a string"),
                        c => text.push(c),
                    }
                }
                tokens.push(Token::Word(text));
            }
            '-' => {
                assert_eq!(chars.next(), Some('>'), "an arrow");
                tokens.push(Token::Arrow);
            }
            '{' | '}' | '[' | ']' | ';' | '=' | ',' => tokens.push(Token::Mark(c)),
            c => {
                let mut word = String::from(c);
                while let Some(&next) =
                    chars.peek().filter(|c| c.is_ascii_alphanumeric() || **c == '_')
                {
                    word.push(next);
                    chars.next();
                }
                assert!(word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'), "{word}");
                tokens.push(Token::Word(word));
            }
        }
    }
    tokens
}

/// Parses the part of DOT that exports use; the nodes and the edges.
fn parse(dot: &str) -> (BTreeSet<String>, Vec<(String, String)>) {
    let tokens = tokens(dot);
    let (mut nodes, mut edges, mut depth, mut at) = (BTreeSet::new(), Vec::new(), 0, 0);
    assert_eq!(tokens[0], Token::Word("digraph".into()));
    while at < tokens.len() {
        match (&tokens[at], tokens.get(at + 1), tokens.get(at + 2)) {
            (Token::Word(w), Some(Token::Word(_)), Some(Token::Mark('{'))) => {
                assert!(w == if depth == 0 { "digraph" } else { "subgraph" });
                depth += 1;
                at += 3;
            }
            (Token::Mark('}'), ..) => {
                depth -= 1;
                at += 1;
            }
            (Token::Word(a), Some(Token::Arrow), Some(Token::Word(b))) => {
                edges.push((a.clone(), b.clone()));
                assert_eq!(tokens[at + 3], Token::Mark(';'));
                at += 4;
            }
            (Token::Word(_), Some(Token::Mark('=')), Some(Token::Word(_))) => {
                assert_eq!(tokens[at + 3], Token::Mark(';'));
                at += 4;
            }
            (Token::Word(name), Some(Token::Mark('[')), _) => {
                if name != "node" && name != "edge" {
                    assert!(nodes.insert(name.clone()), "{name} twice");
                }
                at += 2;
                loop {
                    assert!(matches!(tokens[at], Token::Word(_)));
                    assert_eq!(tokens[at + 1], Token::Mark('='));
                    assert!(matches!(tokens[at + 2], Token::Word(_)));
                    at += 3;
                    match tokens[at] {
                        Token::Mark(',') => at += 1,
                        Token::Mark(']') => break,
                        ref other => panic!("{other:?} in attributes"),
                    }
                }
                assert_eq!(tokens[at + 1], Token::Mark(';'));
                at += 2;
            }
            other => panic!("{other:?} is no statement"),
        }
    }
    assert_eq!(depth, 0);
    (nodes, edges)
}

#[test]
fn graphviz_files_are_valid_and_complete() {
    let program = mlp(Loss::CrossEntropy, "adam", Activation::Relu);
    let plan = plan(&program, "d=2, t=2", "d=fsdp, t=megatron");
    let dot = export::dot(&plan, &program);
    let (nodes, edges) = parse(&dot);
    assert_eq!(nodes.len(), plan.nodes.len() + plan.outputs.len());
    let operands: usize = plan.nodes.iter().map(|n| n.operands.len()).sum();
    assert_eq!(edges.len(), operands + plan.outputs.len());
    assert!(edges.iter().all(|(a, b)| nodes.contains(a) && nodes.contains(b)));
    assert_eq!(dot.matches("fillcolor=\"orange\"").count(), plan.collectives().count());
    for phase in ["forward", "backward", "update"] {
        assert!(dot.contains(&format!("subgraph \"cluster_{phase}\"")), "{phase}");
    }
}

#[test]
fn hostile_names_stay_within_their_strings() {
    let g = Graph::new("a \"b\" \\ } \n ] ; -> c", DType::F32);
    let x = g.input("x\"; n0 -> n1; \\", [4, 2]).unwrap();
    g.output("y\\\"]\n}", x.relu().unwrap(), OutputRole::Value).unwrap();
    let program = g.finish();
    let plan = plan(&program, "d=2", "auto");
    let (nodes, edges) = parse(&export::dot(&plan, &program));
    assert_eq!((nodes.len(), edges.len()), (plan.nodes.len() + 1, plan.nodes.len()));
    if has_numpy() {
        run(&plan, &program);
    }
}
