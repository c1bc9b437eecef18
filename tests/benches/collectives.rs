//! Collectives of two ranks on two threads, as the executor runs them: latency, and time against what copies and additions
//! of the same bytes take on both threads at once, measured in turn in the same run.
//!
//! `cargo bench -p shardgrad-tests --bench collectives`. With n bytes in the group the bounds are, on each rank: all_reduce,
//! n/2 added and n/2 copied; all_gather, n copied (the rank's own half too); reduce_scatter, n/2 copied and n/2 added. The
//! fastest samples are compared: what disturbs a sample only makes it slower.

use std::time::{Duration, Instant};

use shardgrad_core::{DType, Layout, Mesh, TensorType};
use shardgrad_runtime::{Collective, Communicator, Data, Error, Pool, ThreadComm, World};

const SAMPLES: usize = 15;

const KINDS: [(&str, &str, &str); 3] =
    [("all_reduce", "P", "R"), ("all_gather", "S(0)", "R"), ("reduce_scatter", "P", "S(0)")];

/// What one rank runs, ready.
struct Ready {
    collective: Collective,
    source: Option<Data>,
    result: Data,
    pool: Pool,
}

impl Ready {
    fn new(rank: usize, elements: usize, from: &str, to: &str) -> Result<Self, Error> {
        let mesh: Mesh = "d=2".parse()?;
        let ty = TensorType::new([elements], DType::F32);
        let layout = |text: &str| Layout::parse(&format!("d: {text}"), &mesh);
        let (from, to) = (layout(from)?, layout(to)?);
        let own = shardgrad_core::geometry::block(&ty.shape, &from, &mesh, rank).len();
        let collective = Collective::new(&mesh, &ty, &from, &to, rank)?;
        // Zeros stay zeros, however often they are added.
        let (source, result) = if collective.can_run_in_place() {
            (None, Data::F32(vec![0.0; own]))
        } else {
            let result = Data::F32(vec![0.0; collective.result_len()]);
            (Some(Data::F32(vec![0.0; own])), result)
        };
        Ok(Self { collective, source, result, pool: Pool::default() })
    }

    fn run(&mut self, comm: &mut ThreadComm) -> Result<(), Error> {
        let Self { collective, source, result, pool } = self;
        collective.run_data(comm, source.as_mut(), result, pool, true).map(|_| ())
    }
}

/// The fastest samples of the collectives of one size, and of copies and additions of half its elements.
fn measure(comm: &mut ThreadComm, elements: usize) -> Result<[f64; 5], Error> {
    let reps = ((1 << 22) / (elements + 2048)).max(1);
    let rank = comm.rank();
    let mut ready = Vec::new();
    for (_, from, to) in KINDS {
        ready.push(Ready::new(rank, elements, from, to)?);
    }
    let mut meet = Ready::new(rank, 2, "P", "R")?;
    let (mut a, b) = (vec![0.0_f32; elements / 2], vec![0.0_f32; elements / 2]);
    let mut best = [Duration::MAX; 5];
    for _ in 0..SAMPLES {
        for (i, ready) in ready.iter_mut().enumerate() {
            ready.run(comm)?;
            let start = Instant::now();
            for _ in 0..reps {
                ready.run(comm)?;
            }
            best[i] = best[i].min(start.elapsed() / u32::try_from(reps).unwrap_or(1));
        }
        for (i, add) in [(3, false), (4, true)] {
            meet.run(comm)?;
            let start = Instant::now();
            for _ in 0..reps {
                if add {
                    a.iter_mut().zip(&b).for_each(|(a, b)| *a += b);
                } else {
                    a.copy_from_slice(&b);
                }
                std::hint::black_box(&mut a);
            }
            best[i] = best[i].min(start.elapsed() / u32::try_from(reps).unwrap_or(1));
        }
    }
    Ok(best.map(|time| time.as_secs_f64()))
}

fn main() {
    println!("{:>12} {:>16} {:>12} {:>12} {:>8}", "bytes", "collective", "time", "bound", "of it");
    for shift in [8, 10, 12, 14, 16, 18, 20, 22, 24] {
        let elements = 1_usize << shift;
        let results = World::new(2).run(move |comm| measure(comm, elements));
        let mut slowest = [0.0_f64; 5];
        for result in results {
            let times = result.expect("two ranks");
            slowest.iter_mut().zip(times).for_each(|(a, b)| *a = a.max(b));
        }
        let [copy, add] = [slowest[3], slowest[4]];
        let bounds = [add + copy, 2.0 * copy, copy + add];
        for ((name, ..), (time, bound)) in KINDS.iter().zip(slowest.iter().zip(bounds)) {
            println!(
                "{:>12} {name:>16} {:>9.2} µs {:>9.2} µs {:>6.0} %",
                4 * elements,
                time * 1e6,
                bound * 1e6,
                100.0 * bound / time
            );
        }
    }
}
