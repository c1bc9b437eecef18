//! The two textbook products on any number of ranks and any sizes, in every element type.

use ndarray::{Array2, s};
use shardgrad_core::geometry::split;
use shardgrad_runtime::kernels::gemm::Gemm;
use shardgrad_runtime::matmul::{Rotation, data_parallel_matmul, fully_sharded_matmul};
use shardgrad_runtime::{Communicator, Error, World, WorldOptions};

fn ramp<T: Gemm>(rows: usize, columns: usize, salt: usize) -> Array2<T> {
    Array2::from_shape_fn((rows, columns), |(i, j)| {
        T::from_f64(((i * 7 + j * 3 + salt) % 11) as f64 - 5.0)
    })
}

/// By the definition, in f64: integers of this size are exact.
fn product<T: Gemm>(a: &Array2<T>, b: &Array2<T>) -> Array2<T> {
    Array2::from_shape_fn((a.nrows(), b.ncols()), |(i, j)| {
        T::from_f64((0..a.ncols()).map(|k| a[[i, k]].to_f64() * b[[k, j]].to_f64()).sum())
    })
}

fn both<T: Gemm>(p: usize, (m, k, n): (usize, usize, usize)) {
    let options = WorldOptions { capacity: 0, ..WorldOptions::default() };
    let results = World::new(p).with(options).run(move |comm| {
        let (a, b) = (ramp::<T>(m, k, 1), ramp::<T>(k, n, 4));
        let gathered = data_parallel_matmul(comm, a.view(), b.view())?;
        let sent = comm.traffic().bytes as usize;
        let me = comm.rank();
        let own = split(m, p, me);
        let chunk = if me == 0 { 0 } else { own.len() * n };
        assert_eq!(sent, chunk * T::DTYPE.size());
        let (rows, columns) = (a.slice(s![own, ..]), b.slice(s![.., split(n, p, me)]));
        let part = fully_sharded_matmul(comm, rows, columns, n)?;
        // Every block but the own predecessor's passes, with its owner's index.
        let passed: usize = (0..p - 1).map(|k| split(n, p, (me + k) % p).len()).sum();
        let expected = passed * k * T::DTYPE.size() + (p - 1) * 8;
        assert_eq!(comm.traffic().bytes as usize - sent, expected);
        Ok((gathered, part))
    });
    let expected = product(&ramp::<T>(m, k, 1), &ramp::<T>(k, n, 4));
    for (rank, result) in results.into_iter().enumerate() {
        let (gathered, part) = result.unwrap();
        assert_eq!(gathered.is_some(), rank == 0);
        assert!(gathered.is_none_or(|c| c == expected));
        assert_eq!(part, expected.slice(s![split(m, p, rank), ..]), "rank {rank} of {p}");
    }
}

#[test]
fn both_products_are_right_on_any_number_of_ranks() {
    for p in 1..=6 {
        for sizes in [(12, 6, 12), (7, 5, 3), (2, 3, 4), (1, 1, 1), (5, 9, 11)] {
            both::<f32>(p, sizes);
            both::<f64>(p, sizes);
            both::<i32>(p, sizes);
            both::<i64>(p, sizes);
        }
    }
}

#[test]
fn wrong_blocks_and_overflows_are_refused() {
    let errors = World::new(2).run(|comm| {
        let a = Array2::<f32>::zeros((1, 3));
        fully_sharded_matmul(comm, a.view(), Array2::zeros((3, 3)).view(), 5)
    });
    assert!(errors.iter().any(|e| e.as_ref().is_err_and(|e| e.code() == "E306")), "{errors:?}");
    let errors = World::new(2).run(|comm| {
        data_parallel_matmul(
            comm,
            Array2::<f32>::zeros((2, 3)).view(),
            Array2::zeros((2, 2)).view(),
        )
    });
    assert!(errors.iter().any(|e| e.as_ref().is_err_and(|e| e.code() == "E313")), "{errors:?}");
    let errors = World::new(2).run(|comm| {
        let large = Array2::from_elem((2, 2), 1_i32 << 20);
        data_parallel_matmul(comm, large.view(), large.view())
    });
    assert!(errors.iter().any(|e| matches!(e, Err(Error::Overflow { .. }))), "{errors:?}");
}

#[test]
fn the_rotation_can_be_printed() {
    let expected = [
        "                    rank 0           rank 1           rank 2",
        "round 0            B0 0..2          B1 2..4          B2 4..5",
        "round 1            B1 2..4          B2 4..5          B0 0..2",
        "round 2            B2 4..5          B0 0..2          B1 2..4",
    ];
    assert_eq!(Rotation::new(3, 5).to_string(), expected.join("\n"));
}
