//! The linear map M = [[a, b], [0, a]]: a diagonal scale and a shear, and its product with a row split over two ranks.

use serde::Serialize;
use shardgrad::Error;
use shardgrad::core::{DType, Mesh, Op};
use shardgrad::graph::{Graph, OutputRole, Plan, Value};
use shardgrad::planner::{LayoutRequest, Options};

use super::trace::trace;

/// The row that is multiplied.
const X: [f64; 2] = [2.0, 1.0];
/// a and b run over these, in halves.
const HALVES: std::ops::RangeInclusive<i32> = -4..=4;

/// All maps, by a and then b.
#[derive(Debug, Serialize)]
pub(super) struct Maps {
    x: [f64; 2],
    /// Values that a and b take.
    steps: Vec<f64>,
    maps: Vec<Map>,
}

/// One map, and x·M on two ranks.
#[derive(Debug, Serialize)]
struct Map {
    a: f64,
    b: f64,
    det: f64,
    /// Split by columns: each rank's element of the product.
    columns: Vec<Vec<f64>>,
    /// Split by rows: each rank's term.
    rows: Vec<Vec<f64>>,
    /// The terms' sum.
    sum: Vec<f64>,
}

impl Maps {
    pub(super) fn new() -> Result<Self, Error> {
        let (by_columns, by_rows) =
            (plan("tp: R", "tp: S(1)", "tp: S(1)")?, plan("tp: S(1)", "tp: S(0)", "tp: R")?);
        let steps: Vec<f64> = HALVES.map(|h| f64::from(h) / 2.0).collect();
        let mut maps = Vec::new();
        for &a in &steps {
            for &b in &steps {
                let m = [a, b, 0.0, a];
                let columns = product(&by_columns, &m)?;
                let rows = product(&by_rows, &m)?;
                maps.push(Map { a, b, det: a * a, columns: columns.0, rows: rows.0, sum: rows.1 });
            }
        }
        Ok(Self { x: X, steps, maps })
    }
}

fn plan(x: &str, m: &str, y: &str) -> Result<Plan, Error> {
    let g = Graph::new("x·M", DType::F64);
    let product = g.input("x", [1, 2])?.matmul(g.param("m", [2, 2])?)?;
    g.output("y", product, OutputRole::Value)?;
    let request =
        LayoutRequest::default().pin("x", x.parse()?).pin("m", m.parse()?).pin("y", y.parse()?);
    let mesh = Mesh::new([("tp", 2)])?;
    Ok(shardgrad::planner::plan(&g.finish(), &mesh, &request, &Options::default())?.plan)
}

/// What each rank holds of the product, and the last value of the plan on rank 0.
fn product(plan: &Plan, m: &[f64; 4]) -> Result<(Vec<Vec<f64>>, Vec<f64>), Error> {
    let leaf = |name: &str, data: &[f64]| {
        let ty = plan
            .ids()
            .find(|&id| plan.node(id).leaf_name() == Some(name))
            .map(|id| plan.node(id).ty.clone());
        ty.map(|ty| (name.to_owned(), Value::from_fn(&ty, |i| data[i])))
    };
    let leaves = [leaf("x", &X), leaf("m", m)].into_iter().flatten().collect();
    let held = trace(plan, &leaves)?;
    let at = plan.ids().find(|&id| matches!(plan.node(id).op, Op::Einsum(_)));
    let of = |id: usize| held[id].iter().map(Value::to_f64s).collect::<Vec<_>>();
    let last = of(held.len() - 1).swap_remove(0);
    Ok((at.map(|id| of(id.index())).unwrap_or_default(), last))
}
