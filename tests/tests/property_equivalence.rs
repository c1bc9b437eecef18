//! The central property: random program × mesh × layout → plan → check → run → equals dense, and takes what was
//! predicted. Plans come from the planner, under presets and random pins, and from `random_plan`, which takes every rule and
//! every transition there is.
//!
//! Each case follows from its number alone. `SHARDGRAD_CASES=0..100000` runs a range of numbers instead of the default;
//! progress is printed every thousand cases, so that a run that was stopped can go on where it was. A failing case shrinks,
//! and prints itself as a program text with its mesh and layout; pin it in `REGRESSIONS`.

use std::collections::BTreeMap;
use std::ops::Range;

use proptest::strategy::ValueTree;
use shardgrad_planner::LayoutRequest;
use shardgrad_testkit::case::{self, Case};
use shardgrad_testkit::{Backend, Error, Options, Reference, assert_gradients_equivalent};

/// Cases of `cargo test`, for each of the two kinds of programs.
const DEFAULT: Range<u64> = 0..1200;

/// Numbers of cases that failed once, by kind; they run before all others.
const REGRESSIONS: [(&str, u64); 3] = [("random", 12), ("random", 500), ("mlp", 22_642)];

/// Why a case says nothing.
#[derive(Debug, PartialEq)]
enum Outcome {
    /// Sharded equals dense; with or without `==`, with or without communication.
    Holds { exact: bool, communicates: bool },
    /// The pins contradict each other, and the planner says so.
    Refused(&'static str),
}

fn run(case: &Case, planned: bool, backend: Backend) -> Result<Outcome, String> {
    let program = case.model.program().map_err(|e| format!("the program is refused: {e}"))?;
    let options = case.options();
    let plan = if planned {
        let request = case.request(&program);
        match shardgrad_planner::plan(&program, &case.mesh, &request, &options.planner) {
            Ok(planned) => planned.plan,
            // Pins that contradict each other; a search too large or too wide.
            Err(error) if matches!(error.code(), "E208" | "E211" | "E212" | "E213") => {
                return Ok(Outcome::Refused(error.code()));
            }
            Err(error) => return Err(format!("cannot plan: {error}")),
        }
    } else {
        case.random_plan(&program)
    };
    let found = Reference::new(&program, case.mesh.size(), &options)
        .and_then(|reference| reference.compare(&plan, backend))
        .map_err(|e: Error| format!("cannot compare: {e}\n{}", plan))?;
    if !found.holds() {
        return Err(format!("{found}\n{}", plan));
    }
    let communicates = plan.collectives().next().is_some();
    Ok(Outcome::Holds { exact: found.is_exact(), communicates })
}

/// Runs one numbered case; shrinks it if it fails.
fn numbered(kind: &str, number: u64, backend: Backend) -> Outcome {
    let mut tree = case::numbered(kind, number).unwrap();
    // Planned cases are as many as time allows; random plans are cheap, and wilder.
    let planned = number.is_multiple_of(if kind == "mlp" { 12 } else { 6 });
    let guarded = |case: &Case| {
        std::panic::catch_unwind(|| run(case, planned, backend))
            .unwrap_or_else(|_| Err("it panics; see above".to_owned()))
    };
    let mut failure = match guarded(&tree.current()) {
        Ok(outcome) => return outcome,
        Err(failure) => failure,
    };
    let mut smallest = tree.current();
    for _ in 0..2000 {
        let moved = if let Err(found) = guarded(&tree.current()) {
            (failure, smallest) = (found, tree.current());
            tree.simplify()
        } else {
            tree.complicate()
        };
        if !moved {
            break;
        }
    }
    panic!("case {number} of kind {kind} fails; shrunk:\n{smallest:?}\n\n{failure}");
}

fn range() -> Range<u64> {
    std::env::var("SHARDGRAD_CASES")
        .ok()
        .and_then(|text| {
            let (from, to) = text.split_once("..")?;
            Some(from.parse().ok()?..to.parse().ok()?)
        })
        .unwrap_or(DEFAULT)
}

fn sweep(kind: &str) {
    for (_, number) in REGRESSIONS.iter().filter(|(k, _)| *k == kind) {
        numbered(kind, *number, Backend::Threads);
    }
    let range = range();
    let long = range != DEFAULT;
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for number in range.clone() {
        // Every fourth case on paper: the two backends check each other.
        let backend = if number % 4 == 3 { Backend::Paper } else { Backend::Threads };
        let outcome = numbered(kind, number, backend);
        match outcome {
            Outcome::Holds { exact, communicates } => {
                *counts.entry("hold").or_default() += 1;
                *counts.entry("with ==").or_default() += u64::from(exact);
                *counts.entry("communicate").or_default() += u64::from(communicates);
            }
            Outcome::Refused(code) => *counts.entry(code).or_default() += 1,
        }
        if long && (number + 1) % 1000 == 0 {
            println!("{kind}: cases {}..{} done: {counts:?}", range.start, number + 1);
        }
    }
    println!("{kind}: {counts:?}");
    // Cases must say something: most plan, many communicate, some are exact.
    let all = range.end.saturating_sub(range.start);
    let share = |what: &str| counts.get(what).copied().unwrap_or(0) as f64 / all.max(1) as f64;
    if all >= 500 {
        assert!(share("hold") > 0.7, "{counts:?}");
        assert!(share("communicate") > 0.3, "{counts:?}");
        assert!(share("with ==") > 0.05, "{counts:?}");
    }
}

#[test]
fn sharded_random_programs_equal_dense() {
    sweep("random");
}

#[test]
fn sharded_mlps_equal_dense() {
    sweep("mlp");
}

/// Found by case 12 of kind random: the gradient %3 stands before its leaf %4, and on an axis of size 1 it did not get the
/// leaf's placement.
#[test]
fn a_gradient_that_stands_before_its_leaf_has_the_leafs_layout() {
    let text = "program regression
        forward:
          %0 = input y           : i32[1]
          %1 = one_hot(2)(%0)    : f64[1, 2]
          %2 = scale(2.0)(%1)    : f64[1, 2]
          %3 = scale(1.0)(%2)    : f64[1, 2]
          %4 = input x           : f64[1, 2]
          %5 = mul(%3, %4)       : f64[1, 2]
          %6 = sum([0, 1])(%5)   : f64[]
        outputs:
          loss = %6, loss
          grad(x) = %3, gradient of %4";
    let program = shardgrad_graph::text::parse_program(text).unwrap();
    let request = LayoutRequest::default().pin("x", "tp: S(0)".parse().unwrap());
    for mesh in ["dp=2, tp=1", "dp=2, tp=2"] {
        assert_gradients_equivalent(
            &program,
            &mesh.parse().unwrap(),
            &request,
            &Options::default(),
        );
    }
}
