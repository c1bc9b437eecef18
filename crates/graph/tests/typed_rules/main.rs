//! Static rules equal dynamic ones, for all layouts, both ways.
//!
//! *Static*: on concrete types, an inherent constant that needs the impl shadows a trait's constant that does not, which
//! shows whether the impl is there and what its result is. *Dynamic*: the ops that the typed method builds, with every
//! choice of `axis_rules` for each of them and no transition in between. What the table refuses must have no impl; what it
//! admits must have one, with its result. Mesh axes choose independently, so a layout's result is that of each axis.
//!
//! *What is walked.* Everything that rules can say of matrices: each rule on two operands on all 16 + 256 + 4096 pairs of
//! layouts over one, two and three axes (fewer where the right operand is a vector), each rule on one operand on all
//! 4 + 16 + 64 layouts, each transition on every axis of all of these. Nothing is inferred from smaller meshes.
//!
//! `messages`, `singles` and `texts` show that the compiler's messages are true.

#[macro_use]
mod layouts;
mod messages;
mod reach;
mod singles;
mod texts;
mod transitions;

use layouts::{P, R, S0, S1};
use reach::{OnLayouts, Reach};
use shardgrad_core::types::bias::BiasRule;
use shardgrad_core::types::division::DivRule;
use shardgrad_core::types::elementwise::{AddRule, ConstantRule, MulRule, NonlinearRule};
use shardgrad_core::types::loss::{CrossEntropyRule, MseRule};
use shardgrad_core::types::matmul::MatmulRule;
use shardgrad_core::types::matmul_nt::MatmulNtRule;
use shardgrad_core::types::matmul_tn::MatmulTnRule;
use shardgrad_core::types::reduce::{SumAllRule, SumRule, TransposeRule};
use shardgrad_core::types::{LayoutType, Shard};
use shardgrad_core::{DType, Layout};
use shardgrad_graph::{Loss, Var};

/// Module `$name`, whose `Probe<L, R>::OUT` is the layout of the result if `R: $rule<L>`, else `None`.
macro_rules! binary {
    ($name:ident, $rule:ident) => {
        mod $name {
            use super::*;
            pub(crate) struct Probe<L, R>(std::marker::PhantomData<(L, R)>);
            #[allow(dead_code)]
            impl<L, R> Probe<L, R>
            where
                R: $rule<L>,
                R::Out: LayoutType,
            {
                pub(crate) const OUT: Option<fn() -> Layout> = Some(<R::Out as LayoutType>::layout);
            }
            impl<L, R> Refused for Probe<L, R> {}
        }
    };
}

/// Module `$name`, whose `Probe<L>::OUT` is the layout of the result if `L: $rule`, else `None`.
macro_rules! unary {
    ($name:ident, $($rule:tt)*) => {
        mod $name {
            use super::*;
            pub(crate) struct Probe<L>(std::marker::PhantomData<L>);
            #[allow(dead_code)]
            impl<L> Probe<L>
            where
                L: $($rule)*,
                L::Out: LayoutType,
            {
                pub(crate) const OUT: Option<fn() -> Layout> =
                    Some(<L::Out as LayoutType>::layout);
            }
            impl<L> Refused for Probe<L> {}
        }
    };
}

/// Module `$name`, whose `Probe<L>::OUT` is L if `L: $rule`, a rule that keeps the layout, else `None`.
macro_rules! keeping {
    ($name:ident, $rule:ident) => {
        mod $name {
            use super::*;
            pub(crate) struct Probe<L>(std::marker::PhantomData<L>);
            #[allow(dead_code)]
            impl<L: LayoutType + $rule> Probe<L> {
                pub(crate) const OUT: Option<fn() -> Layout> = Some(L::layout);
            }
            impl<L> Refused for Probe<L> {}
        }
    };
}

/// What a probe has where its rule does not hold.
trait Refused {
    const OUT: Option<fn() -> Layout> = None;
}

binary!(add, AddRule);
binary!(mul, MulRule);
binary!(div, DivRule);
binary!(matmul, MatmulRule);
binary!(matmul_tn, MatmulTnRule);
binary!(matmul_nt, MatmulNtRule);
binary!(bias_add, BiasRule);
binary!(mse, MseRule);
binary!(cross_entropy, CrossEntropyRule);
keeping!(nonlinear, NonlinearRule);
keeping!(constant, ConstantRule);
keeping!(always, Sized);
unary!(sum_all, SumAllRule);
unary!(transpose, TransposeRule);
unary!(sum_2_0, SumRule<2, 0>);
unary!(sum_2_1, SumRule<2, 1>);
unary!(sum_1_0, SumRule<1, 0>);
unary!(sum_3_0, SumRule<3, 0>);
unary!(sum_3_1, SumRule<3, 1>);
unary!(sum_3_2, SumRule<3, 2>);

/// A layout type as a value.
type OfType = fn() -> Layout;

/// Layout types of the operands, and what a probe found. Tables of these are constants, which compile fast.
type Entry = (&'static [OfType], Option<OfType>);

/// The probes of a rule on one operand in each layout of a list.
macro_rules! each {
    ($name:ident [$($l:ty),*]) => {{
        const TABLE: &[Entry] = &[$((&[<$l>::layout], <$name::Probe<$l>>::OUT)),*];
        TABLE.iter().map(evaluate)
    }};
}

/// The probes of a rule on two operands, in each pair of layouts over so many axes.
macro_rules! pairs {
    ($name:ident $left:ident $right:ident $axes:tt) => {
        layouts!($left $axes => pairs!(with $name $right $axes))
    };
    (with $name:ident $right:ident $axes:tt $lefts:tt) => {
        layouts!($right $axes => pairs!(table $name $lefts))
    };
    (table $name:ident [$($l:ty),*] $rights:tt) => {{
        const TABLES: &[&[Entry]] = &[$(pairs!(row $name $l, $rights)),*];
        TABLES.iter().copied().flatten().map(evaluate)
    }};
    (row $name:ident $l:ty, [$($r:ty),*]) => {
        &[$((&[<$l>::layout, <$r>::layout], <$name::Probe<$l, $r>>::OUT)),*]
    };
}

fn evaluate((operands, found): &Entry) -> OnLayouts {
    (operands.iter().map(|of| of()).collect(), found.map(|of| of()))
}

/// The probes of a rule in all layouts over one, two and three axes.
macro_rules! everywhere {
    ($name:ident of a $kind:ident) => {
        layouts!($kind 1 => each!($name))
            .chain(layouts!($kind 2 => each!($name)))
            .chain(layouts!($kind 3 => each!($name)))
            .collect::<Vec<OnLayouts>>()
    };
    ($name:ident of a $left:ident and a $right:ident) => {
        pairs!($name $left $right 1)
            .chain(pairs!($name $left $right 2))
            .chain(pairs!($name $left $right 3))
            .collect::<Vec<OnLayouts>>()
    };
}

fn matrices(count: usize) -> Vec<(Vec<usize>, DType)> {
    vec![(vec![4, 4], DType::F64); count]
}

/// Checks one rule against what the ops of `build` admit, in all layouts.
fn agree(
    name: &str,
    leaves: &[(Vec<usize>, DType)],
    probes: &[OnLayouts],
    build: impl for<'g> Fn(&[Var<'g>]) -> Result<Var<'g>, shardgrad_graph::Error>,
) {
    let mut reach = Reach::new(leaves, build);
    let mut admitted = 0;
    for (operands, found) in probes {
        let expected = reach.result(operands);
        assert_eq!(*found, expected, "{name} of {operands:?}");
        admitted += usize::from(expected.is_some());
    }
    // The list must not be empty on either side by accident.
    assert!(admitted > 0, "{name}");
}

#[test]
fn sums_and_differences() {
    let probes = everywhere!(add of a matrix and a matrix);
    assert_eq!(probes.len(), 16 + 256 + 4096);
    agree("add", &matrices(2), &probes, |v| v[0].add(v[1]));
    agree("sub", &matrices(2), &probes, |v| v[0].sub(v[1]));
}

#[test]
fn products_elementwise() {
    agree("mul", &matrices(2), &everywhere!(mul of a matrix and a matrix), |v| v[0].mul(v[1]));
}

#[test]
fn quotients() {
    agree("div", &matrices(2), &everywhere!(div of a matrix and a matrix), |v| v[0].div(v[1]));
}

#[test]
fn matrix_products() {
    agree("matmul", &matrices(2), &everywhere!(matmul of a matrix and a matrix), |v| {
        v[0].matmul(v[1])
    });
    agree("matmul_tn", &matrices(2), &everywhere!(matmul_tn of a matrix and a matrix), |v| {
        v[0].einsum("km,kn->mn", v[1])
    });
    agree("matmul_nt", &matrices(2), &everywhere!(matmul_nt of a matrix and a matrix), |v| {
        v[0].einsum("mk,nk->mn", v[1])
    });
}

#[test]
fn bias() {
    let leaves = [(vec![4, 4], DType::F64), (vec![4], DType::F64)];
    let probes = everywhere!(bias_add of a matrix and a vector);
    assert_eq!(probes.len(), 12 + 144 + 1728);
    agree("add_bias", &leaves, &probes, |v| v[0].add(v[1].broadcast(&[1], &[4, 4])?));
}

#[test]
fn losses() {
    agree("mse", &matrices(2), &everywhere!(mse of a matrix and a matrix), |v| {
        Loss::Mse.of(v[0], Some(v[1]))
    });
    let leaves = [(vec![4, 4], DType::F64), (vec![4], DType::I32)];
    agree("cross_entropy", &leaves, &everywhere!(cross_entropy of a matrix and a vector), |v| {
        Loss::CrossEntropy.of(v[0], Some(v[1]))
    });
}

#[test]
fn functions_of_one_operand() {
    let nonlinear = everywhere!(nonlinear of a matrix);
    assert_eq!(nonlinear.len(), 4 + 16 + 64);
    type Function = for<'g> fn(Var<'g>) -> Result<Var<'g>, shardgrad_graph::Error>;
    let functions: [(&str, Function); 10] = [
        ("relu", |v| v.relu()),
        ("gelu", |v| v.gelu()),
        ("tanh", |v| v.tanh()),
        ("sigmoid", |v| v.sigmoid()),
        ("exp", |v| v.exp()),
        ("log", |v| v.log()),
        ("sqrt", |v| v.sqrt()),
        ("square", |v| v.square()),
        ("abs", |v| v.abs()),
        ("reciprocal", |v| v.reciprocal()),
    ];
    for (name, function) in functions {
        agree(name, &matrices(1), &nonlinear, |v| function(v[0]));
    }
    agree("add_const", &matrices(1), &everywhere!(constant of a matrix), |v| v[0].add_const(1.0));
    // Linear functions have no bound: every layout must pass.
    let linear = everywhere!(always of a matrix);
    agree("neg", &matrices(1), &linear, |v| v[0].neg());
    agree("scale", &matrices(1), &linear, |v| v[0].scale(-2.0));
}

#[test]
fn reductions_and_transpose() {
    let sum0 = everywhere!(sum_2_0 of a matrix);
    let sum1 = everywhere!(sum_2_1 of a matrix);
    let all = everywhere!(sum_all of a matrix);
    agree("sum 0", &matrices(1), &sum0, |v| v[0].sum(&[0]));
    agree("sum 1", &matrices(1), &sum1, |v| v[0].sum(&[1]));
    agree("mean 0", &matrices(1), &sum0, |v| v[0].mean(&[0]));
    agree("mean 1", &matrices(1), &sum1, |v| v[0].mean(&[1]));
    agree("sum_all", &matrices(1), &all, |v| v[0].sum_all());
    agree("mean_all", &matrices(1), &all, |v| v[0].mean_all());
    agree("transpose", &matrices(1), &everywhere!(transpose of a matrix), |v| {
        v[0].transpose(&[1, 0])
    });
    let vector = [(vec![4], DType::F64)];
    agree("sum of a vector", &vector, &everywhere!(sum_1_0 of a vector), |v| v[0].sum(&[0]));
    let cube = [(vec![4, 4, 4], DType::F64)];
    macro_rules! cube {
        ($name:ident, $dim:literal) => {{
            let probes: Vec<OnLayouts> =
                each!($name [R, S0, S1, Shard<2>, P]).collect();
            agree("sum of a cube", &cube, &probes, |v| v[0].sum(&[$dim]));
        }};
    }
    cube!(sum_3_0, 0);
    cube!(sum_3_1, 1);
    cube!(sum_3_2, 2);
}
