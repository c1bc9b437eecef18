//! Collectives of two ranks on two threads, as the executor runs them: latency, and time against what copies and additions
//! of the same bytes take on both threads at once, measured in turn in the same run.
//!
//! `cargo bench -p shardgrad-tests --bench collectives`. With n bytes in the group the bounds are, on each rank: all_reduce,
//! n/2 added and n/2 copied; all_gather, n copied (the rank's own half too); reduce_scatter, n/2 copied and n/2 added. One
//! bound has the rates of a thread's own buffers, the other those of buffers that the other thread has just written, as the
//! operands of a step are: what lies in another core's cache comes more slowly. The fastest samples are compared: what
//! disturbs a sample only makes it slower.

use std::hint::black_box;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use shardgrad_core::{DType, Layout, Mesh, TensorType};
use shardgrad_runtime::{Collective, Communicator, Data, Error, Pool, ThreadComm, World};

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
        let (source, result) = if collective.can_run_in_place() {
            (None, Data::F32(zeros(own)))
        } else {
            let result = Data::F32(zeros(collective.result_len()));
            (Some(Data::F32(zeros(own))), result)
        };
        Ok(Self { collective, source, result, pool: Pool::default() })
    }

    /// Writes the operand, as the step before a collective does.
    fn write(&mut self) {
        if let Data::F32(operand) = self.source.as_mut().unwrap_or(&mut self.result) {
            write(operand);
        }
    }

    fn run(&mut self, comm: &mut ThreadComm) -> Result<(), Error> {
        let Self { collective, source, result, pool } = self;
        collective.run_data(comm, source.as_mut(), result, pool, true).map(|_| ())
    }
}

/// Zeros, in memory of their own: pages that nobody has written are one and the same to the processor.
fn zeros(elements: usize) -> Vec<f32> {
    let mut buffer = vec![0.0; elements];
    write(&mut buffer);
    buffer
}

fn write(buffer: &mut [f32]) {
    buffer.fill(black_box(0.0)); // Zeros stay zeros, however often they are added.
}

/// The fastest samples: of the collectives of one size, and of copies and additions of half its elements, from a buffer of
/// the thread's own and from the other's.
type Times = [f64; 7];

fn measure(
    comm: &mut ThreadComm,
    elements: usize,
    lent: &[RwLock<Vec<f32>>],
) -> Result<Times, Error> {
    let samples = ((1 << 26) / (elements + (1 << 14))).clamp(15, 1000);
    let rank = comm.rank();
    let mut ready = Vec::new();
    for (_, from, to) in KINDS {
        ready.push(Ready::new(rank, elements, from, to)?);
    }
    let mut meet = Ready::new(rank, 2, "P", "R")?;
    // What a copy or an addition makes has a buffer of its own, as the results of collectives have: one that the last sample
    // left behind, not one that is still in the nearest cache.
    let mut made: [Vec<f32>; 4] = std::array::from_fn(|_| zeros(elements / 2));
    let mut best = [Duration::MAX; 7];
    let mut keep = |at: usize, start: Instant| best[at] = best[at].min(start.elapsed());
    for _ in 0..samples {
        for (i, ready) in ready.iter_mut().enumerate() {
            ready.write();
            meet.run(comm)?;
            let start = Instant::now();
            ready.run(comm)?;
            keep(i, start);
        }
        for (i, from, add) in
            [(3, rank, false), (4, rank, true), (5, 1 - rank, false), (6, 1 - rank, true)]
        {
            let own = &mut made[i - 3];
            if add {
                write(own); // It is an operand.
            }
            write(&mut lent[rank].write().expect("nobody panics"));
            meet.run(comm)?;
            let from = lent[from].read().expect("nobody panics");
            let start = Instant::now();
            if add {
                own.iter_mut().zip(&*from).for_each(|(a, b)| *a += b);
            } else {
                own.copy_from_slice(&from);
            }
            black_box(own);
            keep(i, start);
            drop(from);
            meet.run(comm)?;
        }
    }
    Ok(best.map(|time| time.as_secs_f64()))
}

fn main() {
    println!(
        "{:>12} {:>16} {:>12} {:>12} {:>8} {:>12} {:>8}",
        "bytes", "collective", "time", "own bound", "of it", "other's", "of it"
    );
    for shift in [8, 10, 12, 14, 16, 18, 19, 20, 22, 24] {
        let elements = 1_usize << shift;
        let lent: Arc<[_]> = (0..2).map(|_| RwLock::new(zeros(elements / 2))).collect();
        let results = World::new(2).run(move |comm| measure(comm, elements, &lent));
        let mut slowest: Times = [0.0; 7];
        for result in results {
            let times = result.expect("two ranks");
            slowest.iter_mut().zip(times).for_each(|(a, b)| *a = a.max(b));
        }
        let [copy, add, their_copy, their_add] = [3, 4, 5, 6].map(|i| slowest[i]);
        let bounds = [
            (add + copy, their_add + their_copy),
            (2.0 * copy, copy + their_copy),
            (copy + add, copy + their_add),
        ];
        for ((name, ..), (time, (own, theirs))) in KINDS.iter().zip(slowest.iter().zip(bounds)) {
            println!(
                "{:>12} {name:>16} {:>9.2} µs {:>9.2} µs {:>6.0} % {:>9.2} µs {:>6.0} %",
                4 * elements,
                time * 1e6,
                own * 1e6,
                100.0 * own / time,
                theirs * 1e6,
                100.0 * theirs / time,
            );
        }
    }
}
