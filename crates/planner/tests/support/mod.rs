//! What every test of the planner asks of a plan: that the checker, which knows nothing of the planner, agrees.

use shardgrad_graph::Program;
use shardgrad_graph::check::optimality::{Proof, Verdict, verify};
use shardgrad_planner::Planned;

/// The proof that the plan's certificate gives.
#[allow(dead_code)] // Each test file compiles this module for itself.
pub(crate) fn proven(planned: &Planned, program: &Program) -> Proof {
    match verify(&planned.plan, program, &planned.certificate) {
        Verdict::Proven(proof) => proof,
        other => panic!("not proven: {other:?}"),
    }
}

/// The same, of a plan that is optimal.
#[allow(dead_code)]
pub(crate) fn proven_optimal(planned: &Planned, program: &Program) {
    let proof = proven(planned, program);
    assert!(proof.optimal && planned.optimal, "{proof:?}");
    assert_eq!(proof.gap(), 0);
}
