//! Every transition between all layouts of a matrix, run over threads: the global value stays, bytes are as counted.

use std::sync::Arc;
use std::time::Duration;

use shardgrad_core::geometry::block;
use shardgrad_core::schedule::staging_bytes;
use shardgrad_core::transition::all_layouts;
use shardgrad_core::{Algorithm, Block, DType, Layout, Mesh, Placement, TensorType, Transition};
use shardgrad_runtime::{
    Collective, Communicator, Data, Number, Pool, Source, World, WorldOptions,
};

/// Row-major positions of a box in a tensor.
fn positions(shape: &[usize], block: &Block) -> Vec<usize> {
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

struct Case {
    from: Layout,
    to: Layout,
    transition: Transition,
}

fn cases(mesh: &Mesh, rank: usize) -> Vec<Case> {
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

fn walk<T: Number>(mesh: &str, shape: &'static [usize], capacity: usize) -> usize {
    let mesh: Arc<Mesh> = Arc::new(mesh.parse().unwrap());
    let cases = Arc::new(cases(&mesh, shape.len()));
    let options =
        WorldOptions { capacity, timeout: Duration::from_secs(20), ..WorldOptions::default() };
    let results = World::new(mesh.size()).with(options).run({
        let (mesh, cases) = (Arc::clone(&mesh), Arc::clone(&cases));
        move |comm| {
            let mut all = Vec::new();
            for case in cases.iter() {
                let rank = comm.rank();
                let ty = TensorType::new(shape.iter().copied(), T::DTYPE);
                let source = local::<T>(shape, &case.from, &mesh, rank);
                let algorithm = case.transition.algorithm;
                let collective = Collective::by(algorithm, &mesh, &ty, &case.from, &case.to, rank)?;
                let before = comm.traffic().bytes;
                let mut result = vec![T::from_f64(77.0); collective.result_len()];
                let sent = collective.run(comm, Source::Apart(&source), &mut result)?;
                assert_eq!(comm.traffic().bytes - before, sent.bytes);
                if collective.can_run_in_place() {
                    let mut buffer = source.clone();
                    assert_eq!(collective.run(comm, Source::InPlace, &mut buffer)?, sent);
                    assert_eq!(buffer, result, "in place");
                }
                // The same by reading peers' buffers; the source stays as it was.
                let before = comm.traffic().bytes;
                let mut lent = T::into_data(source.clone());
                let mut made = T::into_data(vec![T::from_f64(55.0); collective.result_len()]);
                let pool = &mut Pool::default();
                let direct = collective.run_data(comm, Some(&mut lent), &mut made, pool, true)?;
                assert_eq!(direct, sent);
                assert_eq!(comm.traffic().bytes - before, sent.bytes);
                assert_eq!(
                    (T::slice(&made), T::slice(&lent)),
                    (Some(&result[..]), Some(&source[..]))
                );
                if collective.can_run_in_place() {
                    let mut buffer = lent;
                    assert_eq!(collective.run_data(comm, None, &mut buffer, pool, true)?, sent);
                    assert_eq!(T::slice(&buffer), Some(&result[..]), "lent, in place");
                }
                let predicted =
                    case.transition.elements_sent_by(&mesh, shape, &case.from, &case.to, rank)
                        * T::DTYPE.size() as u64;
                assert_eq!(sent.bytes, predicted);
                let staging =
                    staging_bytes(case.transition, &mesh, &ty, &case.from, &case.to, rank);
                assert_eq!(sent.staging, staging as u64);
                all.push(result.into_iter().map(Number::to_f64).collect::<Vec<f64>>());
            }
            Ok(all)
        }
    });
    let by_rank: Vec<_> = results.into_iter().map(|r| r.unwrap()).collect();
    let whole = |layout: &Layout| {
        let blocks: Vec<Vec<f64>> =
            (0..mesh.size()).map(|r| local::<f64>(shape, layout, &mesh, r)).collect();
        global(shape, layout, &mesh, &blocks)
    };
    for (i, case) in cases.iter().enumerate() {
        let blocks: Vec<Vec<f64>> = by_rank.iter().map(|r| r[i].clone()).collect();
        let expected = whole(&case.from);
        let got = global(shape, &case.to, &mesh, &blocks);
        assert_eq!(
            got,
            expected,
            "{mesh} {shape:?}: {:?} {} → {}",
            case.transition,
            case.from.display(&mesh),
            case.to.display(&mesh)
        );
    }
    cases.len()
}

#[test]
fn every_transition_keeps_the_value_on_one_axis() {
    for mesh in ["a=1", "a=2", "a=3", "a=4", "a=5"] {
        for shape in [&[4, 6], &[3, 2], &[7, 5]] {
            for capacity in [0, 1] {
                assert!(walk::<f32>(mesh, shape, capacity) >= 16);
            }
        }
    }
    walk::<f64>("a=3", &[2, 7], 0);
    walk::<i32>("a=3", &[2, 7], 0);
    walk::<i64>("a=4", &[2, 7], 1);
}

#[test]
fn every_transition_keeps_the_value_on_two_axes() {
    for shape in [&[4, 6], &[3, 2], &[7, 5]] {
        assert!(walk::<f64>("a=2,b=2", shape, 0) > 100);
        assert!(walk::<f32>("a=2,b=3", shape, 1) > 100);
    }
    walk::<i64>("a=3,b=1", &[5, 2], 0);
}

#[test]
fn every_transition_keeps_the_value_on_three_axes() {
    assert!(walk::<i32>("a=2,b=2,c=2", &[5, 3], 0) > 1000);
}

/// Gathering along an inner dim must not concatenate raw buffers, in any rank.
#[test]
fn gathers_along_inner_dims_interleave() {
    for (mesh, shape) in
        [("a=2", &[2, 4][..]), ("a=4", &[2, 4]), ("a=2", &[2, 4, 3]), ("a=3", &[2, 4, 3])]
    {
        let mesh: Arc<Mesh> = Arc::new(mesh.parse().unwrap());
        let shape: Vec<usize> = shape.to_vec();
        let n: usize = shape.iter().product();
        let results = World::new(mesh.size()).run(move |comm| {
            let layout = Layout::parse("a: S(1)", &mesh)?;
            let mine: Vec<i32> = positions(&shape, &block(&shape, &layout, &mesh, comm.rank()))
                .into_iter()
                .map(|p| p as i32)
                .collect();
            shardgrad_runtime::groups::all_gather(comm, &mesh, mesh.all_axes(), &shape, 1, &mine)
        });
        for result in results {
            assert_eq!(result.unwrap(), (0..n as i32).collect::<Vec<_>>());
        }
    }
}

/// Sums of integers that overflow are refused on every rank; in a wider type they are right.
#[test]
fn integer_sums_do_not_wrap() {
    use shardgrad_runtime::{Error, Reduce, groups::all_reduce};
    let mesh: Arc<Mesh> = Arc::new("a=4".parse().unwrap());
    let m = Arc::clone(&mesh);
    let narrow = World::new(4).run(move |comm| {
        let mut buffer = vec![1_i32 << 30; 5];
        all_reduce(comm, &m, m.all_axes(), Reduce::Sum, &mut buffer)
    });
    for (rank, result) in narrow.into_iter().enumerate() {
        match result.unwrap_err() {
            Error::Overflow { dtype: DType::I32, .. } => {}
            Error::PeerFailed { cause, .. } => assert!(cause.contains("overflows i32"), "{cause}"),
            other => panic!("rank {rank}: {other}"),
        }
    }
    let wide = World::new(4).run(move |comm| {
        let mut buffer = vec![1_i64 << 30; 5];
        all_reduce(comm, &mesh, mesh.all_axes(), Reduce::Sum, &mut buffer)?;
        Ok(buffer)
    });
    for result in wide {
        assert_eq!(result.unwrap(), [4_294_967_296; 5]);
    }
}

/// The order of additions does not depend on the rank or the run.
#[test]
fn sums_are_the_same_bits_on_every_rank_and_run() {
    use shardgrad_runtime::{Reduce, groups::all_reduce};
    let mesh: Arc<Mesh> = Arc::new("a=2,b=2".parse().unwrap());
    let mut seen = Vec::new();
    for _ in 0..20 {
        let mesh = Arc::clone(&mesh);
        let results = World::new(4).run(move |comm| {
            let mut buffer = vec![[1e8_f32, 1.0, -1e8, 1.0][comm.rank()]; 7];
            let mut lent = Data::F32(buffer.clone());
            all_reduce(comm, &mesh, mesh.all_axes(), Reduce::Sum, &mut buffer)?;
            // Reading peers' buffers changes nothing either.
            let ty = TensorType::new([7], DType::F32);
            let (from, to) = ("a: P, b: P", "a: R, b: R");
            let (from, to) = (Layout::parse(from, &mesh)?, Layout::parse(to, &mesh)?);
            let collective = Collective::new(&mesh, &ty, &from, &to, comm.rank())?;
            collective.run_data(comm, None, &mut lent, &mut Pool::default(), true)?;
            assert_eq!(lent, Data::F32(buffer.clone()));
            Ok(buffer)
        });
        seen.extend(results.into_iter().map(|r| r.unwrap()));
    }
    assert!(seen.windows(2).all(|w| w[0] == w[1]), "{seen:?}");
}
