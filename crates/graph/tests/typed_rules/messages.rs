//! The messages are true: for every pair of placements that a rule refuses, exactly one guard fails; what its message
//! claims of the pair holds; and doing what it says leads to a pair that is admitted, at most over one more message.

use std::collections::BTreeMap;

use shardgrad_core::DType;
use shardgrad_core::Placement::{self, PendingSum as P, Replicated as R, Shard as S};
use shardgrad_core::types::bias::{BiasAfterReduction, BiasAlongFeatures, BiasComplete};
use shardgrad_core::types::cotangent::CotangentFor;
use shardgrad_core::types::elementwise::{
    BothPendingOrNeither, NotBothPending, PendingMeetsReplicated, SameShards,
};
use shardgrad_core::types::loss::{ClassesWhole, CompleteForLoss, LabelsAlongRows};
use shardgrad_core::types::matmul::{MatmulContraction, MatmulRowsOrColumns};
use shardgrad_core::types::matmul_nt::{MatmulNtContraction, MatmulNtRowsOrColumns};
use shardgrad_core::types::matmul_tn::{MatmulTnContraction, MatmulTnRowsOrColumns};
use shardgrad_core::types::{PendingSum, PlacementType, Replicated, Shard};
use shardgrad_graph::{Error, Loss, Var};

use crate::reach::Reach;

type Pair = (Placement, Placement);

/// A guard on the pairs of one axis, what its message claims of a pair that fails it, and what it says to do.
struct Guard {
    name: &'static str,
    /// Pairs and whether the guard holds on them.
    holds: BTreeMap<Pair, bool>,
    claim: fn(Placement, Placement) -> bool,
    advice: &'static [Advice],
}

/// A call that a message names.
#[derive(Clone, Copy)]
enum Advice {
    AllReduce,
    ReduceScatter,
    AllGather,
    Slice,
    AllToAll,
}

impl Advice {
    /// Where the call leads from a placement, for a tensor with this many dims.
    fn apply(self, from: Placement, rank: usize) -> Vec<Placement> {
        let shards = || (0..rank).map(S);
        match (self, from) {
            (Advice::AllReduce, P) | (Advice::AllGather, S(_)) => vec![R],
            (Advice::ReduceScatter, P) | (Advice::Slice, R) => shards().collect(),
            (Advice::AllToAll, S(d)) => shards().filter(|p| *p != S(d)).collect(),
            _ => Vec::new(),
        }
    }
}

macro_rules! probes {
    ($($name:ident)*) => {
        #[allow(non_snake_case)]
        mod probe { $(
            pub(super) mod $name {
                pub(crate) struct Probe<L, R>(std::marker::PhantomData<(L, R)>);
                #[allow(dead_code)]
                impl<L, R: crate::messages::$name<L>> Probe<L, R> {
                    pub(crate) const HOLDS: bool = true;
                }
                impl<L, R> crate::messages::Fails for Probe<L, R> {}
            }
        )* }
    };
}

/// What a probe has where its guard does not hold.
trait Fails {
    const HOLDS: bool = false;
}

probes! {
    BothPendingOrNeither NotBothPending PendingMeetsReplicated SameShards
    MatmulContraction MatmulRowsOrColumns MatmulTnContraction MatmulTnRowsOrColumns
    MatmulNtContraction MatmulNtRowsOrColumns
    BiasAfterReduction BiasComplete BiasAlongFeatures
    CompleteForLoss ClassesWhole LabelsAlongRows CotangentFor
}

macro_rules! holds {
    ($name:ident, [$($l:ty),*], $rights:tt) => {
        BTreeMap::from_iter([$(holds!(row $name, $l, $rights)),*].concat())
    };
    (row $name:ident, $l:ty, [$($r:ty),*]) => {
        vec![$((
            (<$l>::PLACEMENT, <$r>::PLACEMENT),
            <probe::$name::Probe<$l, $r>>::HOLDS,
        )),*]
    };
}

macro_rules! guard {
    ($name:ident on matrices, $claim:expr, $advice:expr) => {
        Guard {
            name: stringify!($name),
            holds: holds!(
                $name,
                [Replicated, Shard<0>, Shard<1>, PendingSum],
                [Replicated, Shard<0>, Shard<1>, PendingSum]
            ),
            claim: $claim,
            advice: $advice,
        }
    };
    ($name:ident on a vector, $claim:expr, $advice:expr) => {
        Guard {
            name: stringify!($name),
            holds: holds!(
                $name,
                [Replicated, Shard<0>, Shard<1>, PendingSum],
                [Replicated, Shard<0>, PendingSum]
            ),
            claim: $claim,
            advice: $advice,
        }
    };
}

const REDUCE: &[Advice] = &[Advice::AllReduce, Advice::ReduceScatter];
const MOVE: &[Advice] = &[Advice::Slice, Advice::AllGather, Advice::AllToAll];
const GATHER: &[Advice] = &[Advice::AllGather];

fn complete(p: Placement) -> bool {
    p != P
}

/// Walks all pairs of a rule whose right operand has `right_rank` dims.
fn walk(
    rule: &str,
    guards: &[Guard],
    right: (Vec<usize>, DType),
    build: impl for<'g> Fn(&[Var<'g>]) -> Result<Var<'g>, Error>,
) {
    let right_rank = right.0.len();
    let mut reach = Reach::new(&[(vec![4, 4], DType::F64), right], build);
    let mut admitted = |pair: Pair| !reach.on_axis(&[pair.0, pair.1]).is_empty();
    let failing = |pair: Pair| guards.iter().filter(|g| !g.holds[&pair]).collect::<Vec<_>>();
    let next = |pair: Pair, guard: &Guard| {
        let mut reached = Vec::new();
        for advice in guard.advice {
            reached.extend(advice.apply(pair.0, 2).into_iter().map(|l| (l, pair.1)));
            reached.extend(advice.apply(pair.1, right_rank).into_iter().map(|r| (pair.0, r)));
        }
        reached
    };
    let mut refused = 0;
    for &pair in guards[0].holds.keys() {
        let failing_here = failing(pair);
        if admitted(pair) {
            assert!(failing_here.is_empty(), "{rule} of {pair:?} is admitted");
            continue;
        }
        refused += 1;
        assert_eq!(failing_here.len(), 1, "{rule} of {pair:?} has one message");
        let guard = failing_here[0];
        assert!((guard.claim)(pair.0, pair.1), "{} of {pair:?} tells the truth", guard.name);
        let helps = next(pair, guard).into_iter().any(|then| {
            admitted(then)
                || failing(then).iter().any(|g| next(then, g).into_iter().any(&mut admitted))
        });
        assert!(helps, "{} of {pair:?} helps", guard.name);
    }
    assert!(refused > 0, "{rule}");
}

fn matrix() -> (Vec<usize>, DType) {
    (vec![4, 4], DType::F64)
}

fn not_both() -> Guard {
    guard!(NotBothPending on matrices, |l, r| l == P && r == P, &[Advice::AllReduce])
}

fn meets_replicated() -> Guard {
    guard!(
        PendingMeetsReplicated on matrices,
        |l, r| matches!((l, r), (P, S(_)) | (S(_), P)),
        REDUCE
    )
}

fn same_shards() -> Guard {
    guard!(SameShards on matrices, |l, r| complete(l) && complete(r) && l != r, MOVE)
}

#[test]
fn sums() {
    let guards = [
        guard!(BothPendingOrNeither on matrices, |l, r| complete(l) != complete(r), REDUCE),
        same_shards(),
    ];
    walk("add", &guards, matrix(), |v| v[0].add(v[1]));
    walk("sub", &guards, matrix(), |v| v[0].sub(v[1]));
}

#[test]
fn elementwise_products() {
    walk("mul", &[not_both(), meets_replicated(), same_shards()], matrix(), |v| v[0].mul(v[1]));
}

#[test]
fn matrix_products() {
    // The contraction is dim 1 of the left and dim 0 of the right operand: sharded on one side only.
    let guards = [
        not_both(),
        meets_replicated(),
        guard!(MatmulContraction on matrices, |l, r| (l == S(1)) != (r == S(0)), MOVE),
        guard!(MatmulRowsOrColumns on matrices, |l, r| (l, r) == (S(0), S(1)), GATHER),
    ];
    walk("matmul", &guards, matrix(), |v| v[0].matmul(v[1]));
    let guards = [
        not_both(),
        meets_replicated(),
        guard!(MatmulTnContraction on matrices, |l, r| (l == S(0)) != (r == S(0)), MOVE),
        guard!(MatmulTnRowsOrColumns on matrices, |l, r| (l, r) == (S(1), S(1)), GATHER),
    ];
    walk("matmul_tn", &guards, matrix(), |v| v[0].einsum("km,kn->mn", v[1]));
    let guards = [
        not_both(),
        meets_replicated(),
        guard!(MatmulNtContraction on matrices, |l, r| (l == S(1)) != (r == S(1)), MOVE),
        guard!(MatmulNtRowsOrColumns on matrices, |l, r| (l, r) == (S(0), S(0)), GATHER),
    ];
    walk("matmul_nt", &guards, matrix(), |v| v[0].einsum("mk,nk->mn", v[1]));
}

#[test]
fn bias() {
    let guards = [
        guard!(BiasAfterReduction on a vector, |l, r| l == P && complete(r), REDUCE),
        guard!(BiasComplete on a vector, |l, r| complete(l) && r == P, REDUCE),
        guard!(
            BiasAlongFeatures on a vector,
            |l, r| complete(l) && complete(r) && (l == S(1)) != (r == S(0)),
            &[Advice::Slice, Advice::AllGather]
        ),
    ];
    walk("add_bias", &guards, (vec![4], DType::F64), |v| v[0].add(v[1].broadcast(&[1], &[4, 4])?));
}

#[test]
fn losses() {
    let guards =
        [guard!(CompleteForLoss on matrices, |l, r| l == P || r == P, REDUCE), same_shards()];
    walk("mse", &guards, matrix(), |v| Loss::Mse.of(v[0], Some(v[1])));
    let guards = [
        guard!(CompleteForLoss on a vector, |l, r| l == P || r == P, REDUCE),
        guard!(
            ClassesWhole on a vector,
            |l, r| l == S(1) && complete(r),
            &[Advice::AllGather, Advice::AllToAll]
        ),
        guard!(
            LabelsAlongRows on a vector,
            |l, r| complete(l) && complete(r) && (l == S(0)) != (r == S(0)),
            &[Advice::Slice, Advice::AllGather]
        ),
    ];
    walk("cross_entropy", &guards, (vec![4], DType::I32), |v| {
        Loss::CrossEntropy.of(v[0], Some(v[1]))
    });
}

/// A pullback takes exactly the cotangents for which the dynamic rules make both operands' cotangents without a
/// transition. The cotangents of `a · b` are `dY · bᵀ` and `aᵀ · dY`; elementwise, `dY · b` and `dY · a`.
#[test]
fn cotangents() {
    let guard = guard!(CotangentFor on matrices, |_, _| true, &[
        Advice::AllReduce,
        Advice::ReduceScatter,
        Advice::Slice,
        Advice::AllGather,
        Advice::AllToAll,
    ]);
    type Product = for<'g> fn(&[Var<'g>]) -> Result<Var<'g>, Error>;
    let leaves = [matrix(), matrix()];
    let reach = |product: Product| Reach::new(&leaves, product);
    let forms: [(Product, Product, Product); 2] = [
        (
            |v| v[0].einsum("mk,kn->mn", v[1]),
            |v| v[0].einsum("mn,kn->mk", v[1]),
            |v| v[0].einsum("mk,mn->kn", v[1]),
        ),
        (|v| v[0].mul(v[1]), |v| v[0].mul(v[1]), |v| v[0].mul(v[1])),
    ];
    let all = [R, S(0), S(1), P];
    for (forward, to_left, to_right) in forms {
        let (mut forward, mut to_left, mut to_right) =
            (reach(forward), reach(to_left), reach(to_right));
        let mut products = 0;
        for a in all {
            for b in all {
                for y in forward.on_axis(&[a, b]) {
                    products += 1;
                    for d in all {
                        let free = !to_left.on_axis(&[d, b]).is_empty()
                            && !to_right.on_axis(&[a, d]).is_empty();
                        assert_eq!(guard.holds[&(y, d)], free, "{a:?}, {b:?} → {y:?}, {d:?}");
                        let helped = guard
                            .advice
                            .iter()
                            .flat_map(|advice| advice.apply(d, 2))
                            .any(|d| guard.holds[&(y, d)]);
                        assert!(free || helped, "{y:?}, {d:?}");
                    }
                }
            }
        }
        assert!(products >= 5);
    }
    // Nonlinear functions: the slope is laid out as the value.
    let mut slope = reach(|v| v[0].mul(v[1]));
    for y in [R, S(0), S(1)] {
        for d in all {
            assert_eq!(guard.holds[&(y, d)], !slope.on_axis(&[d, y]).is_empty(), "{y:?}, {d:?}");
        }
    }
}
