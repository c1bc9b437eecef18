//! What tests of the planner share: networks, and what every one asks of a plan: that the checker, which knows nothing of
//! the planner, agrees.

use shardgrad_graph::check::optimality::{Proof, Verdict, verify};
use shardgrad_graph::{Activation, LayerSpec, Program};
use shardgrad_planner::Planned;

/// Layers of these widths, with an activation after each but the last.
#[allow(dead_code)] // Each test file compiles this module for itself.
pub(crate) fn layers(widths: &[usize], bias: bool, between: Activation) -> Vec<LayerSpec> {
    let last = widths.len() - 2;
    let layer = |(i, pair): (usize, &[usize])| LayerSpec {
        inputs: pair[0],
        outputs: pair[1],
        bias,
        activation: if i == last { Activation::None } else { between },
    };
    widths.windows(2).enumerate().map(layer).collect()
}

/// The proof that the plan's certificate gives.
#[allow(dead_code)]
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
