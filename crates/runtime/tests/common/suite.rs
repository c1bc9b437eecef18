//! What every communicator must do: the rank's part of each check, for any backend.

#![allow(dead_code)] // Every test uses its own part.

use shardgrad_core::geometry::block;
use shardgrad_core::schedule::staging_bytes;
use shardgrad_core::transition::all_layouts;
use shardgrad_core::{Algorithm, Block, Layout, Mesh, Placement, TensorType, Transition};
use shardgrad_runtime::groups::{all_gather, all_reduce, all_to_all, reduce_scatter};
use shardgrad_runtime::{
    Collective, Communicator, Data, Error, Incoming, Number, Outgoing, Pool, Reduce, Source, Tag,
};

/// Row-major positions of a box in a tensor.
pub(crate) fn positions(shape: &[usize], block: &Block) -> Vec<usize> {
    let mut all = vec![0];
    for (n, range) in shape.iter().zip(&block.ranges) {
        all = all.into_iter().flat_map(|p| range.clone().map(move |i| p * n + i)).collect();
    }
    all
}

/// The pending group's terms of an element: distinct, of mixed sign, summing (or with maximum) to `value`.
fn term(value: i64, index: usize, of: usize, max: bool) -> i64 {
    let odd = |i: usize| (i as i64 + 1) * if i.is_multiple_of(2) { 1_000 } else { -700 };
    match (max, index) {
        (true, i) if i == of / 2 => value,
        (true, i) => value - 1 - i as i64,
        (false, 0) => value - (1..of).map(odd).sum::<i64>(),
        (false, i) => odd(i),
    }
}

fn pending_index(mesh: &Mesh, layout: &Layout, rank: usize) -> (usize, usize, bool) {
    let axes = (0..mesh.rank()).filter(|&a| layout.on(a).is_pending()).collect();
    let max = layout.iter().any(|p| p == Placement::PendingMax);
    (mesh.index_in_group(rank, axes), mesh.group_size(axes), max)
}

fn local<T: Number>(shape: &[usize], layout: &Layout, mesh: &Mesh, rank: usize) -> Vec<T> {
    let (index, of, max) = pending_index(mesh, layout, rank);
    positions(shape, &block(shape, layout, mesh, rank))
        .into_iter()
        .map(|p| {
            let value = if p % 3 == 0 { -(p as i64) - 1 } else { p as i64 + 1 };
            T::from_f64(term(value, index, of, max) as f64)
        })
        .collect()
}

/// The global value that the ranks' blocks stand for; replicas must agree.
fn global(shape: &[usize], layout: &Layout, mesh: &Mesh, blocks: &[Vec<f64>]) -> Vec<f64> {
    let max = layout.iter().any(|p| p == Placement::PendingMax);
    let pending = (0..mesh.rank()).filter(|&a| layout.on(a).is_pending()).collect();
    let mut result: Vec<Option<f64>> = vec![None; shape.iter().product()];
    for rank in 0..mesh.size() {
        let group = mesh.group(rank, pending);
        for (i, p) in positions(shape, &block(shape, layout, mesh, rank)).into_iter().enumerate() {
            let terms = group.iter().map(|&r| blocks[r][i]);
            let value =
                if max { terms.fold(f64::NEG_INFINITY, f64::max) } else { terms.sum::<f64>() };
            assert!(result[p].is_none_or(|old| old == value), "replicas differ at {p}");
            result[p] = Some(value);
        }
    }
    result.into_iter().map(|v| v.expect("every element is somewhere")).collect()
}

/// A transition between two layouts.
pub(crate) struct Case {
    pub(crate) from: Layout,
    pub(crate) to: Layout,
    pub(crate) transition: Transition,
}

/// Every transition between all layouts of a tensor of this rank, by every algorithm.
pub(crate) fn cases(mesh: &Mesh, rank: usize) -> Vec<Case> {
    let mut layouts = all_layouts(mesh, rank, true);
    let max: Vec<Layout> = layouts
        .iter()
        .filter(|l| l.is_pending())
        .map(|l| {
            let swap = |p| if p == Placement::PendingSum { Placement::PendingMax } else { p };
            Layout(l.iter().map(swap).collect())
        })
        .collect();
    layouts.extend(max);
    let mut cases = Vec::new();
    for from in &layouts {
        for to in &layouts {
            if let Ok(transition) = Transition::between(mesh, from, to) {
                for algorithm in Algorithm::ALL.into_iter().filter(|a| a.fits(transition, mesh)) {
                    let transition = transition.by(algorithm);
                    cases.push(Case { from: from.clone(), to: to.clone(), transition });
                }
            }
        }
    }
    cases
}

/// A rank runs all cases, packed and with buffers read in place, and returns its blocks. Bytes and staging are held to the
/// prediction.
pub(crate) fn transitions<T: Number, C: Communicator>(
    comm: &mut C,
    mesh: &Mesh,
    shape: &[usize],
    cases: &[Case],
) -> Result<Vec<Vec<f64>>, Error> {
    let mut all = Vec::new();
    // What a transport's own collectives send, nobody counts.
    let counts = comm.native().is_none();
    for case in cases {
        let rank = comm.rank();
        let ty = TensorType::new(shape.iter().copied(), T::DTYPE);
        let source = local::<T>(shape, &case.from, mesh, rank);
        let algorithm = case.transition.algorithm;
        let collective = Collective::by(algorithm, mesh, &ty, &case.from, &case.to, rank)?;
        let before = comm.traffic().bytes;
        let mut result = vec![T::from_f64(77.0); collective.result_len()];
        let sent = collective.run(comm, Source::Apart(&source), &mut result)?;
        assert_eq!(comm.traffic().bytes - before, sent.bytes);
        if collective.can_run_in_place() {
            let mut buffer = source.clone();
            assert_eq!(collective.run(comm, Source::InPlace, &mut buffer)?, sent);
            assert_eq!(buffer, result, "in place");
        }
        // The same by reading peers' buffers, if there is shared memory; the source stays as it was.
        let before = comm.traffic().bytes;
        let mut lent = T::into_data(source.clone());
        let mut made = T::into_data(vec![T::from_f64(55.0); collective.result_len()]);
        let pool = &mut Pool::default();
        let direct = collective.run_data(comm, Some(&mut lent), &mut made, pool, true)?;
        assert_eq!(direct, sent);
        assert!(!counts || comm.traffic().bytes - before == sent.bytes);
        assert_eq!((T::slice(&made), T::slice(&lent)), (Some(&result[..]), Some(&source[..])));
        if collective.can_run_in_place() {
            let mut buffer = lent;
            assert_eq!(collective.run_data(comm, None, &mut buffer, pool, true)?, sent);
            assert_eq!(T::slice(&buffer), Some(&result[..]), "lent, in place");
        }
        let predicted = case.transition.elements_sent_by(mesh, shape, &case.from, &case.to, rank)
            * T::DTYPE.size() as u64;
        assert_eq!(sent.bytes, predicted);
        let staging = staging_bytes(case.transition, mesh, &ty, &case.from, &case.to, rank);
        assert_eq!(sent.staging, staging as u64);
        all.push(result.into_iter().map(Number::to_f64).collect::<Vec<f64>>());
    }
    Ok(all)
}

/// The blocks of all ranks, by rank and case, stand for the value that there was before.
pub(crate) fn assert_value_kept(
    mesh: &Mesh,
    shape: &[usize],
    cases: &[Case],
    by_rank: &[Vec<Vec<f64>>],
) {
    let whole = |layout: &Layout| {
        let blocks: Vec<Vec<f64>> =
            (0..mesh.size()).map(|r| local::<f64>(shape, layout, mesh, r)).collect();
        global(shape, layout, mesh, &blocks)
    };
    for (i, case) in cases.iter().enumerate() {
        let blocks: Vec<Vec<f64>> = by_rank.iter().map(|r| r[i].clone()).collect();
        let expected = whole(&case.from);
        let got = global(shape, &case.to, mesh, &blocks);
        assert_eq!(
            got,
            expected,
            "{mesh} {shape:?}: {:?} {} → {}",
            case.transition,
            case.from.display(mesh),
            case.to.display(mesh)
        );
    }
}

/// Messages are told apart by source and tag, whatever the order in which they are asked for. Three ranks or more.
pub(crate) fn messages_match(comm: &mut impl Communicator) -> Result<(), Error> {
    let message = |v| Data::I32(vec![v]);
    match comm.rank() {
        0 => {
            let later = comm.recv(2, Tag::User(1))?;
            let second = comm.recv(1, Tag::User(2))?;
            let first = comm.recv(1, Tag::User(1))?;
            assert_eq!([later, second, first], [21, 12, 11].map(message));
        }
        1 => {
            comm.send(0, Tag::User(1), message(11))?;
            comm.send(0, Tag::User(2), message(12))?;
        }
        2 => comm.send(0, Tag::User(1), message(21))?,
        _ => {}
    }
    Ok(())
}

/// Ring shift and collectives of blocks of `n` elements.
pub(crate) fn messages_pass(
    comm: &mut impl Communicator,
    mesh: &Mesh,
    n: usize,
) -> Result<(), Error> {
    let (me, p, axes) = (comm.rank(), comm.size(), mesh.all_axes());
    let mine = vec![me as f32; n];
    let send = Outgoing { to: (me + 1) % p, tag: Tag::User(1), payload: Data::F32(mine.clone()) };
    let previous = (me + p - 1) % p;
    let receive = Incoming { from: previous, tag: Tag::User(1) };
    let shifted = comm.exchange(Some(send), Some(receive))?;
    assert_eq!(shifted, Some(Data::F32(vec![previous as f32; n])));

    let gathered = all_gather(comm, mesh, axes, &[p * n], 0, &mine)?;
    assert!((0..p * n).all(|i| gathered[i] == (i / n) as f32));

    let ramp: Vec<f32> = (0..p * n).map(|i| (i % 1000) as f32 - me as f32).collect();
    let reduced = reduce_scatter(comm, mesh, axes, Reduce::Sum, &[p * n], 0, &ramp)?;
    let shift = (p * (p - 1) / 2) as f32;
    let right = |i: usize| p as f32 * ((me * n + i) % 1000) as f32 - shift;
    assert!((0..n).all(|i| reduced[i] == right(i)));

    let turned = all_to_all(comm, mesh, 0, &[p, n], 0, 1, &mine)?;
    let width = turned.len() / p;
    assert!((0..turned.len()).all(|i| turned[i] == (i / width.max(1)) as f32));
    Ok(())
}

/// Gathering along an inner dim must not concatenate raw buffers, in any rank.
pub(crate) fn gathers_interleave(
    comm: &mut impl Communicator,
    mesh: &Mesh,
    shape: &[usize],
) -> Result<(), Error> {
    let layout = Layout::parse("a: S(1)", mesh)?;
    let mine: Vec<i32> = positions(shape, &block(shape, &layout, mesh, comm.rank()))
        .into_iter()
        .map(|p| p as i32)
        .collect();
    let all = all_gather(comm, mesh, mesh.all_axes(), shape, 1, &mine)?;
    let n: usize = shape.iter().product();
    assert_eq!(all, (0..n as i32).collect::<Vec<_>>());
    Ok(())
}

/// A sum in which every order of additions gives other bits.
pub(crate) fn sum_of_odd_terms(
    comm: &mut impl Communicator,
    mesh: &Mesh,
) -> Result<Vec<f32>, Error> {
    let mut buffer = vec![[1e8_f32, 1.0, -1e8, 1.0][comm.rank() % 4]; 7];
    all_reduce(comm, mesh, mesh.all_axes(), Reduce::Sum, &mut buffer)?;
    Ok(buffer)
}
