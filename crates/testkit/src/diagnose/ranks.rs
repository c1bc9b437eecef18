//! The doctor with what every rank holds: copies that differ show which reduction is missing.

use shardgrad_core::{Layout, Mesh, Placement, TensorType, geometry};
use shardgrad_graph::Value;

use super::picture::strides;
use super::{Context, Diagnosis, Fault, diagnose};

/// Names the fault from what every rank holds. A missing reduction is then certain: ranks that should hold copies differ,
/// and their sum over one group is the expected value.
#[must_use]
pub fn diagnose_ranks(
    expected: &Value,
    blocks: &[Value],
    mesh: &Mesh,
    layout: &Layout,
) -> Diagnosis {
    let ty = expected.ty();
    if let Err(error) = layout.validate(mesh, ty.rank()) {
        return Diagnosis::certain(Fault::Shapes, error.to_string());
    }
    if blocks.len() != mesh.size() {
        return Diagnosis::certain(
            Fault::Shapes,
            format!("{} blocks were given for {} ranks", blocks.len(), mesh.size()),
        );
    }
    for (rank, block) in blocks.iter().enumerate() {
        let shape = geometry::block(&ty.shape, layout, mesh, rank).shape();
        if block.ty().shape != shape {
            return Diagnosis::certain(
                Fault::Shapes,
                format!(
                    "rank {rank} holds {}, but the split rule gives it {:?}",
                    block.ty(),
                    shape.as_slice()
                ),
            );
        }
    }
    let context = Context { mesh: Some(mesh), layout: Some(layout), ..Context::default() };
    let whole = |coordinates: &dyn Fn(usize) -> Vec<usize>| {
        assemble(&ty, layout, mesh, blocks, coordinates)
    };
    let free: Vec<usize> = (0..mesh.rank())
        .filter(|&a| mesh.axis_size(a) > 1 && layout.on(a) == Placement::Replicated)
        .collect();
    // Sums over each set of axes that should hold copies, the largest sets last.
    let mut subsets: Vec<Vec<usize>> = (1_usize..1 << free.len())
        .map(|bits| (0..free.len()).filter(|i| bits >> i & 1 == 1).map(|i| free[i]).collect())
        .collect();
    subsets.sort_by_key(Vec::len);
    let actual = whole(&|rank| vec![rank]);
    let differ = (0..mesh.size()).find_map(|rank| {
        let group = mesh.group(rank, free.iter().copied().collect());
        group.into_iter().find(|&other| blocks[other] != blocks[rank]).map(|other| (rank, other))
    });
    if let Some((one, other)) = differ {
        for axes in subsets {
            let set = axes.iter().copied().collect();
            let sum = whole(&|rank| mesh.group(rank, set));
            if diagnose(expected, &sum, &context).is_equal() {
                return Diagnosis::certain(
                    Fault::ReductionMissing { axis: Some(mesh.axis_names(set)) },
                    format!(
                        "ranks {one} and {other} should hold copies and differ; the sum over {} is the expected value",
                        mesh.axis_names(set)
                    ),
                );
            }
        }
    }
    let mut found = diagnose(expected, &actual, &context);
    if let Some((one, other)) = differ {
        if found.is_equal() {
            found = Diagnosis::certain(
                Fault::Unknown,
                "the first copies are right, others are not".to_owned(),
            );
        }
        found.evidence.push(format!("ranks {one} and {other} should hold copies and differ"));
    }
    found
}

/// A global tensor from blocks: each element from the sum over the ranks named for its first holder.
fn assemble(
    ty: &TensorType,
    layout: &Layout,
    mesh: &Mesh,
    blocks: &[Value],
    ranks: &dyn Fn(usize) -> Vec<usize>,
) -> Value {
    let global_strides = strides(&ty.shape);
    let mut whole: Vec<Option<f64>> = vec![None; ty.elements()];
    for rank in 0..mesh.size() {
        let block = geometry::block(&ty.shape, layout, mesh, rank);
        let members: Vec<Vec<f64>> = ranks(rank).into_iter().map(|r| blocks[r].to_f64s()).collect();
        let local = block.shape();
        let local_strides = strides(&local);
        for i in 0..block.len() {
            let at: usize = (0..local.len())
                .map(|d| {
                    (block.ranges[d].start + i / local_strides[d] % local[d]) * global_strides[d]
                })
                .sum();
            whole[at].get_or_insert_with(|| members.iter().map(|m| m[i]).sum());
        }
    }
    Value::from_fn(ty, |i| whole[i].unwrap_or(f64::NAN))
}
