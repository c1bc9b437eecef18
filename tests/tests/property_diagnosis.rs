//! The doctor names the fault of generated wrong gradients, and never calls a right one wrong.

use std::collections::BTreeMap;

use ndarray::{ArrayD, Axis, IxDyn, Slice};
use shardgrad_core::geometry::split;
use shardgrad_core::{DType, Layout, Mesh, TensorType};
use shardgrad_graph::Value;
use shardgrad_testkit::data::{hash, unit};
use shardgrad_testkit::diagnose::{Context, Fault, diagnose, diagnose_ranks};

/// A gradient of a weight by data parallelism: one term for each rank.
struct Gradient {
    ty: TensorType,
    terms: Vec<Vec<f64>>,
}

impl Gradient {
    /// Xᵀ·dY, rows of the batch being split over `ranks`.
    fn new(shape: [usize; 2], ranks: usize, dtype: DType, seed: u64) -> Self {
        let [n, m] = shape;
        let batch = 4 * ranks + 1;
        let x = |b: usize, i: usize| 2.0 * unit(seed, (b * n + i) as u64) - 1.0;
        let dy = |b: usize, o: usize| 2.0 * unit(seed ^ 1, (b * m + o) as u64) - 1.0;
        let terms = (0..ranks)
            .map(|r| {
                (0..n * m)
                    .map(|e| split(batch, ranks, r).map(|b| x(b, e / m) * dy(b, e % m)).sum())
                    .collect()
            })
            .collect();
        Self { ty: TensorType::new(shape, dtype), terms }
    }

    fn sum(&self, i: usize) -> f64 {
        self.terms.iter().map(|t| t[i]).sum()
    }

    fn value(&self) -> Value {
        Value::from_fn(&self.ty, |i| self.sum(i))
    }

    fn array(&self) -> ArrayD<f64> {
        let n = self.ty.elements();
        ArrayD::from_shape_vec(IxDyn(&self.ty.shape), (0..n).map(|i| self.sum(i)).collect())
            .unwrap()
    }

    fn wrap(&self, array: &ArrayD<f64>) -> Value {
        let flat: Vec<f64> = array.iter().copied().collect();
        Value::from_fn(&self.ty, |i| flat[i])
    }
}

/// Rows of a dim in another order.
fn select(array: &ArrayD<f64>, dim: usize, rows: &[usize]) -> ArrayD<f64> {
    array.select(Axis(dim), rows)
}

fn rounded_to_bits(v: f64, bits: u32) -> f64 {
    let drop = 53 - bits;
    let half = 1_u64 << (drop - 1);
    f64::from_bits((v.to_bits() + half) & !((1 << drop) - 1))
}

/// Kinds of faults that are generated.
const KINDS: [&str; 10] = [
    "reduction_repeated",
    "averaged",
    "negated",
    "scaled",
    "reduction_missing",
    "blocks_reordered",
    "transposed",
    "wrong_split",
    "precision",
    "noise",
];

/// A gradient with a fault of this kind; none where the fault would not show.
fn faulty(kind: &str, g: &Gradient, p: usize, seed: u64) -> Option<Value> {
    let pick = |n: usize, salt: u64| (hash(seed, salt) % n as u64) as usize;
    let scaled = |c: f64| Value::from_fn(&g.ty, |i| c * g.sum(i));
    let shape = [g.ty.shape[0], g.ty.shape[1]];
    let dim = pick(2, 1);
    Some(match kind {
        "reduction_repeated" => scaled((p as f64).powi(1 + pick(2, 2) as i32)),
        "averaged" => scaled(1.0 / p as f64),
        "negated" => scaled(-1.0),
        "scaled" => scaled([0.3, 1.7, -0.6][pick(3, 2)]),
        "reduction_missing" => {
            let term = &g.terms[pick(p, 2)];
            Value::from_fn(&g.ty, |i| term[i])
        }
        "blocks_reordered" => {
            if shape[dim] < p {
                return None;
            }
            let mut order: Vec<usize> = (0..p).collect();
            if pick(2, 2) == 0 {
                order.rotate_left(1 + pick(p - 1, 3))
            } else {
                order.swap(0, p - 1)
            }
            let rows: Vec<usize> = order.iter().flat_map(|&b| split(shape[dim], p, b)).collect();
            g.wrap(&select(&g.array(), dim, &rows))
        }
        "transposed" => g.wrap(&g.array().permuted_axes(IxDyn(&[1, 0]))),
        "wrong_split" => {
            let n = shape[dim];
            if n.is_multiple_of(p) || n < p {
                return None;
            }
            // Stored in blocks of ceil(n/p), read as if by the split rule; what is not there is 0.
            let size = n.div_ceil(p);
            let mut out = ArrayD::zeros(IxDyn(&shape));
            for r in 0..p {
                let (here, there) = (split(n, p, r), (r * size).min(n)..((r + 1) * size).min(n));
                let count = here.len().min(there.len());
                let from = Slice::from(there.start..there.start + count);
                let into = Slice::from(here.start..here.start + count);
                let array = g.array();
                out.slice_axis_mut(Axis(dim), into).assign(&array.slice_axis(Axis(dim), from));
            }
            if g.array() == out {
                return None;
            }
            g.wrap(&out)
        }
        "precision" => {
            let bits = [8, 11, 24][if g.ty.dtype == DType::F64 { pick(3, 2) } else { pick(2, 2) }];
            Value::from_fn(&g.ty, |i| {
                g.terms
                    .iter()
                    .fold(0.0, |sum, t| rounded_to_bits(sum + rounded_to_bits(t[i], bits), bits))
            })
        }
        "noise" => {
            let largest = (0..g.ty.elements()).fold(0.0, |m: f64, i| m.max(g.sum(i).abs()));
            let size = [0.02, 0.05, 0.1][pick(3, 2)];
            Value::from_fn(&g.ty, |i| {
                g.sum(i) + size * largest * (2.0 * unit(seed ^ 7, i as u64) - 1.0)
            })
        }
        _ => unreachable!("{kind}"),
    })
}

fn gradient(number: u64, square: bool) -> (Gradient, Mesh, usize) {
    let pick = |n: usize, salt: u64| (hash(number, salt) % n as u64) as usize;
    let shapes = [[6, 10], [8, 8], [5, 7], [16, 10], [9, 11], [7, 7]];
    let square_shapes = [[8, 8], [5, 5], [7, 7]];
    let shape = if square { square_shapes[pick(3, 11)] } else { shapes[pick(shapes.len(), 11)] };
    let meshes = ["tp=2", "tp=3", "tp=4", "dp=2, tp=3", "dp=3, tp=2", "tp=5"];
    let mesh: Mesh = meshes[pick(meshes.len(), 12)].parse().unwrap();
    let axis = pick(mesh.rank(), 13);
    let p = mesh.axis_size(axis);
    let dtype = if pick(2, 14) == 0 { DType::F32 } else { DType::F64 };
    (Gradient::new(shape, p, dtype, number), mesh, p)
}

#[test]
fn the_doctor_names_at_least_95_in_100_of_1000_faults() {
    let mut seen: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let mut wrong: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut all = 0;
    for number in 0.. {
        if all == 1000 {
            break;
        }
        let kind = KINDS[number as usize % KINDS.len()];
        let (g, mesh, p) = gradient(number, kind == "transposed");
        let Some(actual) = faulty(kind, &g, p, number) else { continue };
        all += 1;
        // With the mesh in three cases of four, without it in one.
        let context =
            Context { mesh: Some(&mesh).filter(|_| number % 4 != 0), ..Context::default() };
        let found = diagnose(&g.value(), &actual, &context);
        let row = seen.entry(kind).or_default();
        row.1 += 1;
        if found.fault.name() == kind {
            row.0 += 1;
        } else {
            *wrong.entry((kind, found.fault.name())).or_default() += 1;
        }
        assert!(!found.is_equal(), "a {kind} is called equal: {found}");
        assert!(found.fault.advice().len() > 10 && !found.evidence.is_empty());
    }
    let right: usize = seen.values().map(|r| r.0).sum();
    println!("{right} of {all}: {seen:?}; taken for others: {wrong:?}");
    assert!(right * 100 >= all * 95, "{right} of {all}: {seen:?}; taken for others: {wrong:?}");
}

#[test]
fn a_right_gradient_is_never_called_wrong() {
    for number in 0..2000 {
        let (g, mesh, p) = gradient(number, false);
        let expected = g.value();
        // Added up in another order, in the gradient's own type.
        let actual = Value::from_fn(&g.ty, |i| {
            if g.ty.dtype == DType::F32 {
                f64::from(g.terms.iter().rev().fold(0.0_f32, |s, t| s + t[i] as f32))
            } else {
                g.terms.iter().rev().fold(0.0, |s, t| s + t[i])
            }
        });
        let context = Context { mesh: Some(&mesh), ..Context::default() };
        let found = diagnose(&expected, &actual, &context);
        assert!(found.is_equal(), "{number}, {p} terms: {found}");
    }
}

#[test]
fn with_the_blocks_of_all_ranks_a_missing_reduction_is_certain() {
    for number in 0..200 {
        let (g, mesh, p) = gradient(number, false);
        let axis = (0..mesh.rank()).find(|&a| mesh.axis_size(a) == p).unwrap();
        let layout = Layout::replicated(mesh.rank());
        let blocks: Vec<Value> = (0..mesh.size())
            .map(|rank| {
                let term = &g.terms[mesh.coords(rank)[axis]];
                Value::from_fn(&g.ty, |i| term[i])
            })
            .collect();
        let found = diagnose_ranks(&g.value(), &blocks, &mesh, &layout);
        let name = mesh.axes()[axis].name.clone();
        assert_eq!(found.fault, Fault::ReductionMissing { axis: Some(name) }, "{found}");
        assert!(found.certain);
        // Copies of the right value are equal.
        let copies = vec![g.value(); mesh.size()];
        assert!(diagnose_ranks(&g.value(), &copies, &mesh, &layout).is_equal());
    }
}

#[test]
fn small_faults_by_hand() {
    let ty = TensorType::new([2, 4], DType::F64);
    let expected = Value::from_fn(&ty, |i| i as f64);
    let name = |elements: [f64; 8]| {
        let actual = Value::from_fn(&ty, |i| elements[i]);
        let mesh = Mesh::new([("tp", 2)]).unwrap();
        diagnose(&expected, &actual, &Context { mesh: Some(&mesh), ..Context::default() }).fault
    };
    // An inner dim gathered as if it were rows.
    let rows = name([0.0, 1.0, 4.0, 5.0, 2.0, 3.0, 6.0, 7.0]);
    assert_eq!(rows.name(), "blocks_reordered");
    // The transpose's buffer under the old shape.
    assert_eq!(name([0.0, 4.0, 1.0, 5.0, 2.0, 6.0, 3.0, 7.0]).name(), "transposed");
    // The second block is missing.
    assert_eq!(name([0.0, 1.0, 0.0, 0.0, 4.0, 5.0, 0.0, 0.0]).name(), "reduction_missing");
    assert_eq!(name([f64::NAN, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]).name(), "not_finite");
    assert_eq!(name([9.0, -3.0, 8.0, 1.0, -7.0, 2.0, 0.5, 6.0]).name(), "unknown");
    let other =
        Value::from_fn(&TensorType::new([4, 2], DType::F64), |i| (i / 2 + 4 * (i % 2)) as f64);
    assert_eq!(diagnose(&expected, &other, &Context::default()).fault.name(), "transposed");
}
