//! Every transition between all layouts of a matrix, run over threads: the global value stays, bytes are as counted.

#[path = "common/suite.rs"]
mod suite;

use std::sync::Arc;
use std::time::Duration;

use shardgrad_core::{DType, Layout, Mesh, TensorType};
use shardgrad_runtime::{Collective, Communicator, Data, Number, Pool, World, WorldOptions};

use suite::cases;

fn walk<T: Number>(mesh: &str, shape: &'static [usize], capacity: usize) -> usize {
    let mesh: Arc<Mesh> = Arc::new(mesh.parse().unwrap());
    let cases = Arc::new(cases(&mesh, shape.len()));
    let options =
        WorldOptions { capacity, timeout: Duration::from_secs(20), ..WorldOptions::default() };
    let results = World::new(mesh.size()).with(options).run({
        let (mesh, cases) = (Arc::clone(&mesh), Arc::clone(&cases));
        move |comm| suite::transitions::<T, _>(comm, &mesh, shape, &cases)
    });
    let by_rank: Vec<_> = results.into_iter().map(|r| r.unwrap()).collect();
    suite::assert_value_kept(&mesh, shape, &cases, &by_rank);
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
        let results =
            World::new(mesh.size()).run(move |comm| suite::gathers_interleave(comm, &mesh, &shape));
        assert!(results.iter().all(Result::is_ok), "{results:?}");
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
    let mesh: Arc<Mesh> = Arc::new("a=2,b=2".parse().unwrap());
    let mut seen = Vec::new();
    for _ in 0..20 {
        let mesh = Arc::clone(&mesh);
        let results = World::new(4).run(move |comm| {
            let mut lent = Data::F32(vec![[1e8_f32, 1.0, -1e8, 1.0][comm.rank()]; 7]);
            let buffer = suite::sum_of_odd_terms(comm, &mesh)?;
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
