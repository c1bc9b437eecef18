//! The messages of guards on one layout are true, on everything that can reach them; so are those about meshes and dims.

use std::collections::BTreeSet;

use shardgrad_core::Placement::{self, PendingSum as P, Replicated as R, Shard as S};
use shardgrad_core::types::axes::SameMesh;
use shardgrad_core::types::elementwise::{ConstantRule, ElementwiseOut, NonlinearRule};
use shardgrad_core::types::matmul::MatmulOut;
use shardgrad_core::types::matmul_nt::MatmulNtOut;
use shardgrad_core::types::matmul_tn::MatmulTnOut;
use shardgrad_core::types::reduce::SumRule;
use shardgrad_core::types::transition::{
    AnotherDimThan, CanBeSliced, DoesNotSplit, HasShardsToGather, HasTermsToReduce,
    HasTermsToScatter, IsShardOf, NotYetPending,
};
use shardgrad_core::types::{
    At, FitsRank, LayoutOn, LayoutType, MeshAxis, PendingSum, Replicated, Shard, StoredLayout,
};

use crate::messages::Advice;
use crate::texts::{calls, text};

/// Names of the guards that are walked here.
pub(crate) const WALKED: [&str; 21] = [
    "AnotherDimThan",
    "At",
    "CanBeSliced",
    "ConstantRule",
    "DoesNotSplit",
    "ElementwiseOut",
    "FitsRank",
    "HasShardsToGather",
    "HasTermsToReduce",
    "HasTermsToScatter",
    "IsShardOf",
    "LayoutOn",
    "LayoutType",
    "MatmulNtOut",
    "MatmulOut",
    "MatmulTnOut",
    "NonlinearRule",
    "NotYetPending",
    "SameMesh",
    "StoredLayout",
    "SumRule",
];

/// Whether a type has a trait.
macro_rules! has {
    ($l:ty: $($bound:tt)*) => {{
        #[allow(dead_code)]
        struct Probe<T>(std::marker::PhantomData<T>);
        #[allow(dead_code)]
        impl<T: $($bound)*> Probe<T> {
            const HOLDS: bool = true;
        }
        #[allow(dead_code)]
        trait Fails {
            const HOLDS: bool = false;
        }
        impl<T> Fails for Probe<T> {}
        <Probe<$l>>::HOLDS
    }};
}

/// Placements of a cube, and whether they have a trait.
macro_rules! placements {
    ($($bound:tt)*) => {
        [
            (R, has!(Replicated: $($bound)*)),
            (S(0), has!(Shard<0>: $($bound)*)),
            (S(1), has!(Shard<1>: $($bound)*)),
            (S(2), has!(Shard<2>: $($bound)*)),
            (P, has!(PendingSum: $($bound)*)),
        ]
    };
}

/// Checks a guard on one placement: it fails exactly where its message's `claim` holds, and there a call that the message
/// names leads to where it holds or to `wanted`, or the message says to drop the call.
fn check(
    name: &str,
    holds: &[(Placement, bool)],
    claim: fn(Placement) -> bool,
    wanted: Option<Placement>,
) {
    let refused: Vec<Placement> =
        holds.iter().filter(|(_, holds)| !holds).map(|(placement, _)| *placement).collect();
    assert!(!refused.is_empty() && refused.len() < holds.len(), "{name}");
    let good = |p: &Placement| wanted == Some(*p) || holds.contains(&(*p, true));
    for (placement, holds) in holds {
        assert_eq!(!holds, claim(*placement), "{name} of {placement:?}");
        let helped = calls(name).into_iter().flat_map(|advice| advice.apply(*placement, 3));
        let drop = text(name).contains("drop this call");
        assert!(*holds || drop || helped.into_iter().any(|p| good(&p)), "{name} of {placement:?}");
    }
}

#[test]
fn functions_and_stored_values() {
    check("NonlinearRule", &placements!(NonlinearRule), |p| p == P, None);
    check("ConstantRule", &placements!(ConstantRule), |p| p == P, None);
    // A stored value is no result of a call: it is declared otherwise, and made terms afterwards.
    for (placement, holds) in placements!(StoredLayout) {
        assert_eq!(holds, placement != P);
        assert_eq!(holds, Advice::ToPending.apply(placement, 3) == [P]);
    }
    assert_eq!(calls("StoredLayout"), BTreeSet::from([Advice::ToPending]));
    assert!(text("StoredLayout").contains("declare the value `Replicated` or `Shard<DIM>`"));
}

#[test]
fn transitions() {
    check("HasTermsToReduce", &placements!(HasTermsToReduce<MeshAxis<0>>), |p| p != P, None);
    let scatter = placements!(HasTermsToScatter<MeshAxis<0>>);
    for dim in 0..3 {
        // The blocks that were wanted, from any other complete value.
        let others: Vec<_> = scatter.into_iter().filter(|(p, _)| *p != S(dim)).collect();
        check("HasTermsToScatter", &others, |p| p != P, Some(S(dim)));
    }
    let gather = placements!(HasShardsToGather<MeshAxis<0>>);
    let others: Vec<_> = gather.into_iter().filter(|(p, _)| *p != R).collect();
    check("HasShardsToGather", &others, |p| p == P, Some(R));
    assert!(gather.contains(&(R, false)) && text("HasShardsToGather").contains("whole already"));
    let slice = placements!(CanBeSliced<MeshAxis<0>>);
    for dim in 0..3 {
        let others: Vec<_> = slice.into_iter().filter(|(p, _)| *p != S(dim)).collect();
        check("CanBeSliced", &others, |p| p != R, Some(S(dim)));
    }
    check("NotYetPending", &placements!(NotYetPending<MeshAxis<0>>), |p| p == P, None);
    // `all_to_all::<FROM, _>` of a shard of another dim: write that dim first.
    assert!(text("IsShardOf").contains("write the dim that is sharded first"));
    let not_shards = |holds: [(Placement, bool); 5]| {
        holds.into_iter().filter(|(p, holds)| *holds || !matches!(p, S(_))).collect::<Vec<_>>()
    };
    let from = placements!(IsShardOf<0, MeshAxis<0>>);
    assert_eq!(from.map(|(_, holds)| holds), [false, true, false, false, false]);
    check("IsShardOf", &not_shards(from), |p| p != S(0), None);
    let from = placements!(IsShardOf<1, MeshAxis<0>>);
    assert_eq!(from.map(|(_, holds)| holds), [false, false, true, false, false]);
    check("IsShardOf", &not_shards(from), |p| p != S(1), None);
    let from = placements!(IsShardOf<2, MeshAxis<0>>);
    assert_eq!(from.map(|(_, holds)| holds), [false, false, false, true, false]);
    check("IsShardOf", &not_shards(from), |p| p != S(2), None);
}

/// Guards between two dims, below 3 and beyond: a dim of 3 or more is refused by the guard of both.
#[test]
fn pairs_of_dims() {
    macro_rules! from {
        ($from:literal) => {{
            let other = [
                has!(Shard<0>: AnotherDimThan<$from>),
                has!(Shard<1>: AnotherDimThan<$from>),
                has!(Shard<2>: AnotherDimThan<$from>),
                has!(Shard<3>: AnotherDimThan<$from>),
            ];
            let inner = placements!(DoesNotSplit<$from, MeshAxis<0>>);
            for (to, other) in other.into_iter().enumerate() {
                // "needs two different dims below 3"
                assert_eq!(other, $from != to && $from < 3 && to < 3, "{} {to}", $from);
            }
            for (placement, holds) in inner {
                // "only where no inner mesh axis shards it, but an inner axis is …"
                let shards = matches!(placement, S(dim) if dim == $from || $from >= 3);
                assert_eq!(holds, !shards, "{} {placement:?}", $from);
                assert!(holds || Advice::AllGather.apply(placement, 3) == [R]);
            }
        }};
    }
    from!(0);
    from!(1);
    from!(2);
    from!(3);
    assert_eq!(calls("DoesNotSplit"), BTreeSet::from([Advice::AllGather]));
    assert!(text("AnotherDimThan").contains("two different dims below 3"));
}

#[test]
fn dims_of_a_tensor() {
    macro_rules! rank {
        ($rank:literal) => {
            for (placement, holds) in placements!(FitsRank<$rank>) {
                // "the dim is not there, or the tensor has more than three"
                let refused = matches!(placement, S(dim) if dim >= $rank || $rank > 3);
                assert_eq!(holds, !refused, "{} {placement:?}", $rank);
            }
        };
    }
    rank!(1);
    rank!(2);
    rank!(3);
    rank!(4);
    // "a tensor with RANK dim(s) has no dim DIM": refused for every layout alike.
    macro_rules! sum {
        ($rank:literal, $dim:literal) => {
            for (placement, holds) in placements!(SumRule<$rank, $dim>) {
                let fits = !matches!(placement, S(dim) if dim >= $rank);
                assert_eq!(holds && fits, $dim < $rank && fits, "{} {} {placement:?}", $rank, $dim);
            }
        };
    }
    sum!(1, 0);
    sum!(1, 1);
    sum!(2, 0);
    sum!(2, 1);
    sum!(2, 2);
    sum!(3, 2);
    sum!(3, 3);
}

#[test]
fn numbers_of_mesh_axes() {
    type One = Shard<0>;
    type Two = (Shard<0>, PendingSum);
    type Three = (Shard<0>, PendingSum, Replicated);
    macro_rules! by_mesh {
        ($($l:ty),*) => { $(
            let axes = <$l>::AXES;
            // "does not fit a mesh of AXES axis(es)"
            assert_eq!([has!($l: LayoutOn<1>), has!($l: LayoutOn<2>), has!($l: LayoutOn<3>)],
                [axes == 1, axes == 2, axes == 3]);
            // "has no mesh axis X"
            assert_eq!([has!($l: At<MeshAxis<0>>), has!($l: At<MeshAxis<1>>), has!($l: At<MeshAxis<2>>)],
                [true, axes > 1, axes > 2]);
            by_mesh!(operands $l: ElementwiseOut, MatmulOut, MatmulNtOut, MatmulTnOut, SameMesh);
        )* };
        (operands $l:ty: $($rule:ident),*) => { $(
            // "layouts over meshes of different numbers of axes"
            let axes = <$l>::AXES;
            assert_eq!([has!($l: $rule<One>), has!($l: $rule<Two>), has!($l: $rule<Three>)],
                [axes == 1, axes == 2, axes == 3], stringify!($rule));
        )* };
    }
    by_mesh!(One, Two, Three);
}

/// What the message calls a layout is one, and nothing else is.
#[test]
fn a_layout_is_a_placement_or_a_tuple_of_two_or_three() {
    let layouts = [
        has!(Replicated: LayoutType),
        has!(Shard<1>: LayoutType),
        has!(PendingSum: LayoutType),
        has!((Shard<0>, PendingSum): LayoutType),
        has!((Replicated, Shard<1>, PendingSum): LayoutType),
    ];
    assert_eq!(layouts, [true; 5]);
    let others = [
        has!((): LayoutType),
        has!((Replicated,): LayoutType),
        has!(((Replicated, Replicated), Replicated): LayoutType),
        has!((Replicated, Replicated, Replicated, Replicated): LayoutType),
        has!((Replicated, usize): LayoutType),
    ];
    assert_eq!(others, [false; 5]);
    let text = text("LayoutType");
    for part in [
        "a placement, or a tuple of two or three",
        "`Replicated`",
        "`Shard<DIM>`",
        "`PendingSum`",
        "the bare placement",
    ] {
        assert!(text.contains(part), "{part}");
    }
}
