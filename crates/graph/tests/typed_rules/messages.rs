//! The messages are true: for every pair of placements that a rule refuses, exactly one guard fails; what its message
//! claims of the pair holds; and doing what it says leads to a pair that is admitted, at most over one more message. The
//! calls that a test tries are those that the message names (module `texts` reads them from the source), and every guard
//! is the one that fails somewhere.

use std::collections::{BTreeMap, BTreeSet};

use shardgrad_core::DType;
use shardgrad_core::Placement::{self, PendingSum as P, Replicated as R, Shard as S};
use shardgrad_core::types::bias::{BiasAfterReduction, BiasAlongFeatures, BiasComplete};
use shardgrad_core::types::cotangent::{CotangentFor, LaidOutAs};
use shardgrad_core::types::division::{DivisorComplete, PendingOverReplicated};
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
use crate::texts;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Advice {
    AllReduce,
    ReduceScatter,
    AllGather,
    Slice,
    AllToAll,
    ToPending,
}

impl Advice {
    /// Every call, by its method.
    pub(crate) const BY_METHOD: [(&'static str, Self); 6] = [
        ("all_reduce", Advice::AllReduce),
        ("reduce_scatter", Advice::ReduceScatter),
        ("all_gather", Advice::AllGather),
        ("slice", Advice::Slice),
        ("all_to_all", Advice::AllToAll),
        ("to_pending", Advice::ToPending),
    ];

    /// Where the call leads from a placement, for a tensor with this many dims.
    pub(crate) fn apply(self, from: Placement, rank: usize) -> Vec<Placement> {
        let shards = || (0..rank).map(S);
        match (self, from) {
            (Advice::AllReduce, P) | (Advice::AllGather, S(_)) => vec![R],
            (Advice::ReduceScatter, P) | (Advice::Slice, R) => shards().collect(),
            (Advice::ToPending, R | S(_)) => vec![P],
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
    CompleteForLoss ClassesWhole LabelsAlongRows CotangentFor LaidOutAs
    DivisorComplete PendingOverReplicated
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

/// Makes the result of a rule's op of its operands.
type Build = for<'g> fn(&[Var<'g>]) -> Result<Var<'g>, Error>;

/// A rule on two operands: its guards, the right operand, and its op. The left operand is a matrix.
struct Rule {
    name: &'static str,
    guards: Vec<Guard>,
    right: (Vec<usize>, DType),
    build: Build,
}

/// Walks all pairs of a rule.
fn walk(rule: &Rule) {
    let Rule { name, guards, right, build } = rule;
    let right_rank = right.0.len();
    let mut reach = Reach::new(&[(vec![4, 4], DType::F64), right.clone()], build);
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
    let mut printed = BTreeSet::new();
    for &pair in guards[0].holds.keys() {
        let failing_here = failing(pair);
        if admitted(pair) {
            assert!(failing_here.is_empty(), "{name} of {pair:?} is admitted");
            continue;
        }
        assert_eq!(failing_here.len(), 1, "{name} of {pair:?} has one message");
        let guard = failing_here[0];
        printed.insert(guard.name);
        assert!((guard.claim)(pair.0, pair.1), "{} of {pair:?} tells the truth", guard.name);
        let helps = next(pair, guard).into_iter().any(|then| {
            admitted(then)
                || failing(then).iter().any(|g| next(then, g).into_iter().any(&mut admitted))
        });
        assert!(helps, "{} of {pair:?} helps", guard.name);
    }
    for guard in guards {
        assert!(printed.contains(guard.name), "{} is the reason somewhere in {name}", guard.name);
        assert_eq!(texts::calls(guard.name), BTreeSet::from_iter(guard.advice.iter().copied()));
    }
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

fn rules() -> Vec<Rule> {
    let sums = || {
        vec![
            guard!(BothPendingOrNeither on matrices, |l, r| complete(l) != complete(r), &[
                Advice::AllReduce,
                Advice::ReduceScatter,
                Advice::ToPending,
            ]),
            same_shards(),
        ]
    };
    let product =
        |contraction, diagonal| vec![not_both(), meets_replicated(), contraction, diagonal];
    let vector = |dtype| (vec![4], dtype);
    vec![
        Rule { name: "add", guards: sums(), right: matrix(), build: |v| v[0].add(v[1]) },
        Rule { name: "sub", guards: sums(), right: matrix(), build: |v| v[0].sub(v[1]) },
        Rule {
            name: "mul",
            guards: vec![not_both(), meets_replicated(), same_shards()],
            right: matrix(),
            build: |v| v[0].mul(v[1]),
        },
        Rule {
            name: "div",
            guards: vec![
                guard!(DivisorComplete on matrices, |_, r| r == P, REDUCE),
                guard!(
                    PendingOverReplicated on matrices,
                    |l, r| matches!((l, r), (P, S(_))),
                    &[Advice::ReduceScatter, Advice::AllGather]
                ),
                same_shards(),
            ],
            right: matrix(),
            build: |v| v[0].div(v[1]),
        },
        // The contraction is dim 1 of the left and dim 0 of the right operand: sharded on one side only.
        Rule {
            name: "matmul",
            guards: product(
                guard!(MatmulContraction on matrices, |l, r| (l == S(1)) != (r == S(0)), MOVE),
                guard!(MatmulRowsOrColumns on matrices, |l, r| (l, r) == (S(0), S(1)), GATHER),
            ),
            right: matrix(),
            build: |v| v[0].matmul(v[1]),
        },
        Rule {
            name: "matmul_tn",
            guards: product(
                guard!(MatmulTnContraction on matrices, |l, r| (l == S(0)) != (r == S(0)), MOVE),
                guard!(MatmulTnRowsOrColumns on matrices, |l, r| (l, r) == (S(1), S(1)), GATHER),
            ),
            right: matrix(),
            build: |v| v[0].einsum("km,kn->mn", v[1]),
        },
        Rule {
            name: "matmul_nt",
            guards: product(
                guard!(MatmulNtContraction on matrices, |l, r| (l == S(1)) != (r == S(1)), MOVE),
                guard!(MatmulNtRowsOrColumns on matrices, |l, r| (l, r) == (S(0), S(0)), GATHER),
            ),
            right: matrix(),
            build: |v| v[0].einsum("mk,nk->mn", v[1]),
        },
        Rule {
            name: "add_bias",
            guards: vec![
                guard!(BiasAfterReduction on a vector, |l, r| l == P && complete(r), REDUCE),
                guard!(BiasComplete on a vector, |l, r| complete(l) && r == P, REDUCE),
                guard!(
                    BiasAlongFeatures on a vector,
                    |l, r| complete(l) && complete(r) && (l == S(1)) != (r == S(0)),
                    &[Advice::Slice, Advice::AllGather]
                ),
            ],
            right: vector(DType::F64),
            build: |v| v[0].add(v[1].broadcast(&[1], &[4, 4])?),
        },
        Rule {
            name: "mse",
            guards: vec![
                guard!(CompleteForLoss on matrices, |l, r| l == P || r == P, REDUCE),
                same_shards(),
            ],
            right: matrix(),
            build: |v| Loss::Mse.of(v[0], Some(v[1])),
        },
        Rule {
            name: "cross_entropy",
            guards: vec![
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
            ],
            right: vector(DType::I32),
            build: |v| Loss::CrossEntropy.of(v[0], Some(v[1])),
        },
    ]
}

/// Names of the guards that are walked here.
pub(crate) fn walked() -> BTreeSet<&'static str> {
    let rules = rules();
    let guards = rules.iter().flat_map(|rule| &rule.guards).map(|guard| guard.name);
    guards.chain(["CotangentFor", "LaidOutAs"]).collect()
}

#[test]
fn rules_on_two_operands() {
    for rule in rules() {
        walk(&rule);
    }
}

/// The gradient and the next value of a parameter are laid out as it is.
#[test]
fn updates() {
    let guard = guard!(LaidOutAs on matrices, |parameter, found| parameter != found, &[
        Advice::AllReduce,
        Advice::ReduceScatter,
        Advice::Slice,
        Advice::AllGather,
        Advice::AllToAll,
    ]);
    for (&(parameter, found), &holds) in &guard.holds {
        if parameter == P {
            continue; // No parameter is pending.
        }
        assert_eq!(holds, !(guard.claim)(parameter, found), "{parameter:?}, {found:?}");
        let reached = || guard.advice.iter().flat_map(|advice| advice.apply(found, 2));
        assert!(holds || reached().any(|to| to == parameter), "{parameter:?}, {found:?}");
    }
    assert_eq!(texts::calls(guard.name), BTreeSet::from_iter(guard.advice.iter().copied()));
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
    let leaves = [matrix(), matrix()];
    let reach = |product: Build| Reach::new(&leaves, product);
    let forms: [(Build, Build, Build); 5] = [
        (
            |v| v[0].einsum("mk,kn->mn", v[1]),
            |v| v[0].einsum("mn,kn->mk", v[1]),
            |v| v[0].einsum("mk,mn->kn", v[1]),
        ),
        (
            |v| v[0].einsum("km,kn->mn", v[1]),
            |v| v[0].einsum("mn,kn->km", v[1]),
            |v| v[0].einsum("km,mn->kn", v[1]),
        ),
        (
            |v| v[0].einsum("mk,nk->mn", v[1]),
            |v| v[0].einsum("mn,nk->mk", v[1]),
            |v| v[0].einsum("mk,mn->nk", v[1]),
        ),
        (|v| v[0].mul(v[1]), |v| v[0].mul(v[1]), |v| v[0].mul(v[1])),
        // The divisor's cotangent is the numerator's, times a quotient laid out as the numerator.
        (|v| v[0].div(v[1]), |v| v[0].div(v[1]), |v| v[0].mul(v[1])),
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
        assert!(products >= 4);
    }
    assert_eq!(texts::calls(guard.name), BTreeSet::from_iter(guard.advice.iter().copied()));
    // Nonlinear functions: the slope is laid out as the value.
    let mut slope = reach(|v| v[0].mul(v[1]));
    for y in [R, S(0), S(1)] {
        for d in all {
            assert_eq!(guard.holds[&(y, d)], !slope.on_axis(&[d, y]).is_empty(), "{y:?}, {d:?}");
        }
    }
}
