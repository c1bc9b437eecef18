//! Counted memory against a tracking allocator, so that the counts are not true by construction.

mod common;

use std::alloc::{GlobalAlloc, Layout as Allocation, System};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{Dice, leaf_values, random_plan};
use ndarray::Array2;
use shardgrad_core::{DType, Mesh};
use shardgrad_graph::{
    Activation, Graph, LayerSpec, Loss, MlpSpec, Optimizer, OutputRole, Plan, Program, Value,
    memory,
};
use shardgrad_runtime::kernels::gemm::Gemm;
use shardgrad_runtime::{Buffers, Executor, ThreadComm, Trainer, TrainerOptions, WorldOptions};

/// Allocations below this many bytes are bookkeeping, not tensors; the tests' tensors are larger.
const SMALL: usize = 1024;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static COUNT: AtomicUsize = AtomicUsize::new(0);
static ALONE: Mutex<()> = Mutex::new(());

struct Tracking;

// A global allocator cannot be written without `unsafe`; it passes everything on to the system's.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Tracking {
    unsafe fn alloc(&self, layout: Allocation) -> *mut u8 {
        if layout.size() >= SMALL {
            let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
            PEAK.fetch_max(live, Ordering::Relaxed);
            COUNT.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Allocation) {
        if layout.size() >= SMALL {
            LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        }
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Tracking = Tracking;

/// Live bytes at most while `work` runs, and the number of allocations.
fn watch<T>(work: impl FnOnce() -> T) -> (T, usize, usize) {
    let count = COUNT.load(Ordering::SeqCst);
    PEAK.store(LIVE.load(Ordering::SeqCst), Ordering::SeqCst);
    let result = work();
    (result, PEAK.load(Ordering::SeqCst), COUNT.load(Ordering::SeqCst) - count)
}

/// Forward and gradients of a program without matrix products: nothing but slots is ever alive.
fn elementwise() -> Program {
    let g = Graph::new("elementwise", DType::F64);
    let (x, w) = (g.input("x", [40, 50]).unwrap(), g.param("w", [40, 50]).unwrap());
    let b = g.param("b", [50]).unwrap();
    let wide = b.broadcast(&[1], &[40, 50]).unwrap();
    let h = x.mul(w).unwrap().add(wide).unwrap().tanh().unwrap().square().unwrap();
    let loss = h.mul(x).unwrap().sum_all().unwrap();
    g.output("loss", loss, OutputRole::Loss).unwrap();
    for (leaf, gradient) in [w, b].into_iter().zip(g.grad(loss, &[w, b]).unwrap()) {
        let new = leaf.sub(gradient.scale(0.1).unwrap()).unwrap();
        let name = g.node(leaf.id()).leaf_name().unwrap().to_owned();
        g.output(&name, new, OutputRole::Update { of: leaf.id() }).unwrap();
    }
    g.finish()
}

fn mlp(optimizer: &str) -> Program {
    mlp_of(Optimizer::named(optimizer).unwrap(), 200)
}

fn mlp_of(optimizer: Optimizer, batch: usize) -> Program {
    let layer = |inputs, outputs, activation| LayerSpec { inputs, outputs, bias: true, activation };
    let spec = MlpSpec {
        dtype: DType::F64,
        loss: Loss::Mse,
        optimizer,
        layers: vec![layer(130, 150, Activation::Tanh), layer(150, 140, Activation::None)],
        ..MlpSpec::new("mlp", batch)
    };
    spec.training_program().unwrap()
}

/// Scratch of the library's matrix products of the MLP's sizes, which is not counted.
fn gemm_scratch() -> usize {
    [(200, 130, 150), (130, 200, 150), (200, 150, 140), (150, 200, 140), (200, 140, 150)]
        .map(|(m, k, n)| {
            let (a, b) = (Array2::<f64>::ones((m, k)), Array2::<f64>::ones((k, n)));
            let mut c = Array2::<f64>::zeros((m, n));
            let before = LIVE.load(Ordering::SeqCst);
            let mut overflow = false;
            let ((), most, _) =
                watch(|| f64::gemm(c.view_mut(), a.view(), b.view(), &mut overflow));
            most - before
        })
        .into_iter()
        .max()
        .unwrap_or(0)
}

/// An executor of one rank.
fn alone(program: &Program, buffers: Buffers) -> (Executor, ThreadComm, Plan) {
    let plan = random_plan(program, &"a=1".parse().unwrap(), &mut Dice(9));
    let comm = ThreadComm::world(1, WorldOptions::default()).remove(0);
    (Executor::new(&plan, 0, buffers).unwrap(), comm, plan)
}

/// One rank, buffers freed when the plan says so: what a step adds is the plan's peak less what it stores, to the byte;
/// scalars and vectors below 1 KB apart.
#[test]
fn one_rank_needs_the_counted_bytes() {
    let _alone = ALONE.lock().unwrap();
    let scratch = gemm_scratch();
    let programs = ["none", "sgd", "momentum", "adam"].map(|o| (mlp(o), scratch));
    for (program, scratch) in programs.into_iter().chain([(elementwise(), 0)]) {
        let (mut executor, mut comm, plan) = alone(&program, Buffers::Free);
        let peak = memory::peak(&plan);
        let (stored, small) = (peak.stored[0].total() as usize, small_bytes(&plan));
        for _ in 0..3 {
            // Outputs of the step before are alive until the next one begins; they are no part of the base.
            executor.release_outputs();
            let base = LIVE.load(Ordering::SeqCst);
            let (counted, most, _) = watch(|| executor.step(&mut comm).unwrap());
            assert_eq!(counted.peak_bytes, peak.bytes);
            let (added, predicted) = (most - base, peak.bytes as usize - stored);
            assert!(
                added + small >= predicted && added <= predicted + scratch,
                "{added} bytes, predicted {predicted}, {scratch} of scratch, {small} in small tensors"
            );
        }
    }
}

/// Bytes of the plan's tensors that the allocator's watch leaves out.
fn small_bytes(plan: &Plan) -> usize {
    plan.nodes.iter().map(|n| n.ty.bytes()).filter(|&bytes| bytes < SMALL).sum()
}

/// Several ranks: all of them together stay within the sum of their peaks and a fixed allowance for threads, mailboxes and
/// the packing of matrix products.
#[test]
fn ranks_stay_within_the_sum_of_their_peaks() {
    let _alone = ALONE.lock().unwrap();
    let program = mlp("adam");
    for (mesh, seed) in [("a=2", 3), ("a=3", 1), ("a=2,b=2", 5)] {
        let mesh: Mesh = mesh.parse().unwrap();
        let plan = random_plan(&program, &mesh, &mut Dice(seed));
        let peak = memory::peak(&plan);
        let inputs: BTreeMap<String, Value> = leaf_values(&program)
            .into_iter()
            .filter(|(name, _)| ["x", "y", "lr", "bias1", "bias2"].contains(&name.as_str()))
            .collect();
        let before = LIVE.load(Ordering::SeqCst);
        let options = TrainerOptions { buffers: Buffers::Free, ..TrainerOptions::default() };
        let mut trainer = Trainer::with_options(&plan, options).unwrap();
        let (_, most, _) = watch(|| (0..3).for_each(|_| drop(trainer.train(&inputs).unwrap())));
        // The trainer holds the next step's inputs beside those that are in use.
        let spare: u64 = peak.stored.iter().map(|s| s.inputs).sum();
        let sum = peak.per_rank.iter().sum::<u64>() + spare;
        let allowance = mesh.size() * (1 << 20);
        assert!(most - before <= sum as usize + allowance, "{} of {sum}", most - before);
        assert!(most - before >= peak.stored.iter().map(|s| s.total()).sum::<u64>() as usize);
    }
}

/// Buffers that are kept: after the first step, no step allocates a tensor.
#[test]
fn steps_allocate_nothing_when_buffers_are_kept() {
    let _alone = ALONE.lock().unwrap();
    let (mut executor, mut comm, _) = alone(&elementwise(), Buffers::Keep);
    executor.step(&mut comm).unwrap();
    for _ in 0..3 {
        let (_, _, count) = watch(|| executor.step(&mut comm).unwrap());
        assert_eq!(count, 0);
    }
}

/// Plain gradient descent whose gradients nobody else reads: updated in the parameter's place, without a buffer for them,
/// and the same within rounding as with every op by itself.
#[test]
fn gradients_that_only_updates_read_have_no_buffer() {
    let _alone = ALONE.lock().unwrap();
    // Few rows: the products' operands are smaller than the gradients.
    let program = mlp_of(Optimizer::named("sgd").unwrap(), 20);
    let trained = |program: &Program, buffers: Buffers| {
        let (mut executor, mut comm, _) = alone(program, buffers);
        for (name, value) in &leaf_values(program) {
            let block = executor.leaves()[name].block.clone();
            *executor.leaf_mut(name).unwrap() =
                shardgrad_runtime::Data::of_block(value, &block).unwrap();
        }
        let before = LIVE.load(Ordering::SeqCst);
        let counted = executor.step(&mut comm).unwrap();
        let added = LIVE.load(Ordering::SeqCst) - before;
        let params = ["w0", "b0", "w1", "b1"].map(|n| executor.leaf(n).unwrap().clone());
        (params, counted, added)
    };
    let (kept, counted, added) = trained(&program, Buffers::Keep);
    let (freed, same, _) = trained(&program, Buffers::Free);
    assert_eq!(counted, same);
    for (a, b) in kept.iter().zip(&freed) {
        let (a, b) =
            (a.to_value(&[a.len()]).unwrap().to_f64s(), b.to_value(&[b.len()]).unwrap().to_f64s());
        // Both add the same products; what differs is one rounding of the parameter and one of its change.
        let largest = a.iter().chain(&b).fold(5.0_f64, |most, v| most.max(v.abs()));
        for (a, b) in a.into_iter().zip(b) {
            assert!((a - b).abs() <= 4.0 * f64::EPSILON * largest, "{a}, not {b}");
        }
    }
    // With decay the gradients are read by more than the update, and have buffers.
    let (.., decayed) =
        trained(&mlp_of(Optimizer::Sgd { lr: 0.1, weight_decay: 0.5 }, 20), Buffers::Keep);
    // (That of w1 is made: tanh's derivative takes the place of an operand before w1 may change.)
    let gradient = 130 * 150 * 8;
    assert!(added + gradient <= decayed, "{added} and {decayed} bytes");
}
