//! Rules of an op on a mesh: by which it is admitted, on which axis it is refused, and what is said then.

use shardgrad_core::ops::Einsum;
use shardgrad_core::rules::{RuleKind, check};
use shardgrad_core::{DType, Layout, Mesh, Op, TensorType};

fn ty<const N: usize>(shape: [usize; N]) -> TensorType {
    TensorType::new(shape, DType::F32)
}

/// Checks a product `[4, 6] × [6, 5]` on `dp=2, tp=2`.
fn matmul(a: &str, b: &str, result: &str) -> Result<Vec<RuleKind>, String> {
    let mesh: Mesh = "dp=2, tp=2".parse().unwrap();
    let layout = |text: &str| Layout::parse(text, &mesh).unwrap();
    let op = Op::Einsum("mk,kn->mn".parse::<Einsum>().unwrap());
    let (a, b, result) = (layout(a), layout(b), layout(result));
    check(&op, &mesh, &[ty([4, 6]), ty([6, 5])], &ty([4, 5]), &[&a, &b], &result)
        .map(|kinds| kinds.to_vec())
        .map_err(|error| error.to_string())
}

#[test]
fn a_product_is_admitted_by_one_rule_on_each_axis() {
    let kinds = matmul("dp: S(0), tp: S(1)", "tp: S(0)", "dp: S(0), tp: P").unwrap();
    assert!(matches!(kinds[..], [RuleKind::Split(m), RuleKind::Split(k)] if m != k), "{kinds:?}");
    let kinds = matmul("dp: P", "tp: S(1)", "dp: P, tp: S(1)").unwrap();
    assert!(!matches!(kinds[0], RuleKind::Split(_)) && matches!(kinds[1], RuleKind::Split(_)));
}

#[test]
fn the_axis_that_no_rule_fits_is_named_with_what_would() {
    // The operands fit a rule of the second axis, the result does not.
    let error = matmul("tp: S(1)", "tp: S(0)", "tp: R").unwrap_err();
    assert!(error.contains("`tp`") && error.contains("the result is P"), "{error}");
    // The result fits, the operands do not.
    let error = matmul("dp: S(0)", "dp: S(1)", "dp: S(0)").unwrap_err();
    assert!(error.contains("`dp`") && error.contains("S(0),R→S(0)"), "{error}");
    let error = matmul("tp: P", "tp: P", "tp: P").unwrap_err();
    assert!(error.contains("`tp`") && error.contains("P,R→P"), "{error}");
    // A dim that the tensor does not have.
    assert!(matmul("tp: S(2)", "tp: R", "tp: R").unwrap_err().contains("S(2)"));
}

#[test]
fn a_nonlinear_op_says_to_reduce_first() {
    let mesh: Mesh = "tp=3".parse().unwrap();
    let (pending, whole) = (Layout::parse("tp: P", &mesh).unwrap(), Layout::replicated(1));
    let square = Op::Unary(shardgrad_core::ops::Unary::Square);
    let error =
        check(&square, &mesh, &[ty([4])], &ty([4]), &[&pending], &whole).unwrap_err().to_string();
    assert!(error.contains("not linear: reduce the pending operand first"), "{error}");
}

#[test]
fn blocks_of_a_reshape_must_line_up() {
    let mesh: Mesh = "tp=4".parse().unwrap();
    let rows = Layout::parse("tp: S(0)", &mesh).unwrap();
    let flatten = |n: usize| {
        let op = Op::Reshape([n * 2].into_iter().collect());
        check(&op, &mesh, &[ty([n, 2])], &ty([n * 2]), &[&rows], &rows)
    };
    assert_eq!(flatten(8).unwrap().len(), 1);
    // Rows 2, 2, 1, 1 are elements 4, 4, 2, 2, not 3 each.
    let error = flatten(6).unwrap_err().to_string();
    assert!(error.contains("line up") && error.contains("[6, 12]"), "{error}");
}
