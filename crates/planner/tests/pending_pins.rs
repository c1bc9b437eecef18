//! Pins of pending values: what they allow, and what cannot be.

use shardgrad_core::{DType, Mesh};
use shardgrad_graph::{Graph, OutputRole, Program};
use shardgrad_planner::{LayoutRequest, Options, plan};

fn program() -> Program {
    let g = Graph::new("pinned", DType::F32);
    let h = g.input("x", [6, 8]).unwrap().relu().unwrap().named("h").unwrap();
    g.output("s", h.sum_all().unwrap(), OutputRole::Loss).unwrap();
    g.finish()
}

fn mesh() -> Mesh {
    Mesh::new([("tp", 2)]).unwrap()
}

/// A value that is pinned pending is summed as terms: only the scalar is reduced.
#[test]
fn readers_of_a_pending_pin_use_their_linear_rules() {
    let request = LayoutRequest::default().pin("h", "tp: P".parse().unwrap());
    let found = plan(&program(), &mesh(), &request, &Options::default()).unwrap();
    assert_eq!(found.cost.bytes, 4);
    assert_eq!(found.plan.totals().scalar_reductions, 1);
}

#[test]
fn a_maximum_cannot_be_pending_where_there_is_none() {
    let request = LayoutRequest::default().pin("h", "tp: Pmax".parse().unwrap());
    let error = plan(&program(), &mesh(), &request, &Options::default()).unwrap_err();
    assert!(error.to_string().contains("`h`"), "{error}");
}

#[test]
fn a_request_may_not_contradict_the_program() {
    let g = Graph::new("constrained", DType::F32);
    let h = g.input("x", [6, 8]).unwrap().constrain("h", "tp: S(0)").unwrap();
    g.output("y", h, OutputRole::Value).unwrap();
    let program = g.finish();
    let same = LayoutRequest::default().pin("h", "tp: S(0)".parse().unwrap());
    assert!(plan(&program, &mesh(), &same, &Options::default()).is_ok());
    let other = LayoutRequest::default().pin("h", "tp: R".parse().unwrap());
    let error = plan(&program, &mesh(), &other, &Options::default()).unwrap_err();
    assert!(error.to_string().contains("S(0)"), "{error}");
}
