//! An explicit transition exists exactly where `Transition::between` finds that one kind, on every axis of every layout.

use crate::layouts::{P, R, S0, S1};
use shardgrad_core::types::transition::{
    AllGatherRule, AllReduceRule, AllToAllRule, Becomes, ReduceScatterRule, SliceRule,
    ToPendingRule,
};
use shardgrad_core::types::{LayoutType, MeshAxis, PendingSum, Replicated, Shard};
use shardgrad_core::{Layout, Mesh, Placement, Transition, TransitionKind};

macro_rules! transitions {
    ($($name:ident: $rule:ident<$($arg:literal),*> to $to:ty;)*) => { $(
        mod $name {
            #[allow(unused_imports)]
            use super::{PendingSum, Replicated, Shard};
            pub(super) struct Probe<L, X>(std::marker::PhantomData<(L, X)>);
            #[allow(dead_code)]
            impl<L, X> Probe<L, X>
            where
                X: super::$rule<$($arg,)* L>,
                L: super::Becomes<$to, X>,
                <L as super::Becomes<$to, X>>::Out: super::LayoutType,
            {
                pub(super) const OUT: Option<fn() -> super::Layout> =
                    Some(<<L as super::Becomes<$to, X>>::Out as super::LayoutType>::layout);
            }
            impl<L, X> super::Illegal for Probe<L, X> {}
        }
    )* };
}

/// What a probe has where its transition is illegal.
trait Illegal {
    const OUT: Option<fn() -> Layout> = None;
}

transitions! {
    all_reduce: AllReduceRule<> to Replicated;
    all_gather: AllGatherRule<> to Replicated;
    to_pending: ToPendingRule<> to PendingSum;
    reduce_scatter_0: ReduceScatterRule<0> to Shard<0>;
    reduce_scatter_1: ReduceScatterRule<1> to Shard<1>;
    all_to_all_0_1: AllToAllRule<0, 1> to Shard<1>;
    all_to_all_1_0: AllToAllRule<1, 0> to Shard<0>;
    all_to_all_0_0: AllToAllRule<0, 0> to Shard<0>;
    slice_0: SliceRule<0> to Shard<0>;
    slice_1: SliceRule<1> to Shard<1>;
}

/// Layout before, axis, layout after if it is legal.
type Step = (Layout, usize, Option<Layout>);

/// Layout type before and what a probe found.
type Entry = (fn() -> Layout, Option<fn() -> Layout>);

macro_rules! steps {
    ($name:ident $axis:tt [$($l:ty),*]) => {{
        const TABLE: &[Entry] =
            &[$((<$l>::layout, <$name::Probe<$l, MeshAxis<$axis>>>::OUT)),*];
        TABLE.iter().map(|(before, found)| (before(), $axis, found.map(|of| of())))
    }};
}

macro_rules! every_step {
    ($name:ident) => {
        layouts!(matrix 1 => steps!($name 0))
            .chain(layouts!(matrix 2 => steps!($name 0)))
            .chain(layouts!(matrix 2 => steps!($name 1)))
            .chain(layouts!(matrix 3 => steps!($name 0)))
            .chain(layouts!(matrix 3 => steps!($name 1)))
            .chain(layouts!(matrix 3 => steps!($name 2)))
            .collect::<Vec<Step>>()
    };
}

fn mesh(axes: usize) -> Mesh {
    Mesh::new([("a", 2), ("b", 3), ("c", 2)].into_iter().take(axes)).unwrap()
}

/// Checks the steps of one method, which leads to the placement `to` by one of `kinds` from a placement that `from` admits.
fn agree(
    name: &str,
    steps: &[Step],
    from: impl Fn(Placement) -> bool,
    to: Placement,
    kinds: &[TransitionKind],
) {
    assert_eq!(steps.len(), 4 + 2 * 16 + 3 * 64);
    for (layout, axis, found) in steps {
        let mesh = mesh(layout.0.len());
        let after = layout.with(*axis, to);
        let legal = from(layout.on(*axis))
            && *layout != after
            && Transition::between(&mesh, layout, &after).is_ok_and(|t| kinds.contains(&t.kind));
        let expected = legal.then_some(after);
        assert_eq!(*found, expected, "{name} of {} on axis {axis}", layout.display(&mesh));
    }
}

#[test]
fn transitions_are_there_exactly_where_they_are_legal() {
    use Placement::Shard as S;
    let (replicated, pending) = (Placement::Replicated, Placement::PendingSum);
    use TransitionKind::{AllGather, AllReduce, AllToAll, Mask, Pad, ReduceScatter, Slice};
    agree("all_reduce", &every_step!(all_reduce), |_| true, replicated, &[AllReduce]);
    agree("all_gather", &every_step!(all_gather), |_| true, replicated, &[AllGather]);
    agree("to_pending", &every_step!(to_pending), |_| true, pending, &[Mask, Pad]);
    agree("reduce_scatter", &every_step!(reduce_scatter_0), |_| true, S(0), &[ReduceScatter]);
    agree("reduce_scatter", &every_step!(reduce_scatter_1), |_| true, S(1), &[ReduceScatter]);
    agree("slice", &every_step!(slice_0), |_| true, S(0), &[Slice]);
    agree("slice", &every_step!(slice_1), |_| true, S(1), &[Slice]);
    agree("all_to_all", &every_step!(all_to_all_0_1), |p| p == S(0), S(1), &[AllToAll]);
    agree("all_to_all", &every_step!(all_to_all_1_0), |p| p == S(1), S(0), &[AllToAll]);
    agree("all_to_all", &every_step!(all_to_all_0_0), |p| p == S(0), S(0), &[AllToAll]);
}

#[test]
fn joint_reductions() {
    macro_rules! joint {
        ($l:ty) => {
            <all_reduce::Probe<$l, (MeshAxis<0>, MeshAxis<1>)>>::OUT.map(|f| f())
        };
    }
    assert_eq!(joint!((PendingSum, PendingSum)), Some(<(Replicated, Replicated)>::layout()));
    assert_eq!(joint!((PendingSum, Replicated)), None);
    assert_eq!(
        <all_reduce::Probe<(PendingSum, PendingSum), (MeshAxis<0>, MeshAxis<0>)>>::OUT.map(|f| f()),
        None,
        "the same axis twice"
    );
    assert_eq!(joint!((Replicated, PendingSum)), None);
    assert_eq!(
        joint!((PendingSum, PendingSum, Shard<0>)),
        Some(<(Replicated, Replicated, Shard<0>)>::layout())
    );
}
