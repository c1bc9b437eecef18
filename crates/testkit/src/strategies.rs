//! Proptest strategies: meshes, shapes, layouts, programs, MLPs. All shrink towards few devices, replicated layouts and
//! short programs.

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any};
use proptest::sample::select;
use shardgrad_core::{DType, Layout, LayoutSpec, Mesh, Placement};

use crate::data::Style;
use crate::recipe::{Recipe, Step};

/// Names of axes, outermost first.
const AXES: [&str; 3] = ["dp", "tp", "pp"];

/// Meshes of 1 to 3 axes of sizes 1 to 5, at most 8 devices.
pub fn meshes() -> impl Strategy<Value = Mesh> {
    let sizes: Vec<Vec<usize>> = vec![
        vec![2],
        vec![1],
        vec![3],
        vec![4],
        vec![5],
        vec![2, 2],
        vec![2, 3],
        vec![3, 2],
        vec![1, 2],
        vec![2, 1],
        vec![2, 4],
        vec![4, 2],
        vec![1, 1],
        vec![1, 5],
        vec![2, 2, 2],
        vec![2, 1, 3],
        vec![1, 2, 2],
    ];
    select(sizes).prop_filter_map("axes are well formed", |sizes| {
        Mesh::new(AXES.into_iter().zip(sizes)).ok()
    })
}

/// Shapes of 0 to 3 dims: 1, extents smaller than most meshes, uneven ones.
pub fn shapes() -> impl Strategy<Value = Vec<usize>> {
    vec(extents(), 0..=3)
}

/// Extents that blocks split evenly, unevenly, or into empty ones.
pub fn extents() -> impl Strategy<Value = usize> {
    select(vec![4, 2, 1, 3, 5, 6, 7])
}

/// Layouts of a tensor of this rank, pending sums if `pending`.
pub fn layouts(mesh: &Mesh, tensor_rank: usize, pending: bool) -> impl Strategy<Value = Layout> {
    let mut choices = vec![Placement::Replicated];
    choices.extend((0..tensor_rank).map(Placement::Shard));
    if pending {
        choices.push(Placement::PendingSum);
    }
    vec(select(choices), mesh.rank()).prop_map(|p| Layout(p.into_iter().collect()))
}

/// Pins for a tensor of this rank that name some of the mesh's axes.
pub fn pins(mesh: &Mesh, tensor_rank: usize, pending: bool) -> impl Strategy<Value = LayoutSpec> {
    let names: Vec<String> = mesh.axes().iter().map(|a| a.name.clone()).collect();
    (layouts(mesh, tensor_rank, pending), any::<u8>()).prop_map(move |(layout, named)| {
        let named = |i: usize| named >> i & 1 == 0;
        LayoutSpec(
            names
                .iter()
                .cloned()
                .zip(layout.iter())
                .enumerate()
                .filter(|(i, _)| named(*i))
                .map(|(_, pin)| pin)
                .collect(),
        )
    })
}

/// Styles of data.
pub fn styles() -> impl Strategy<Value = Style> {
    select(vec![Style::Integers, Style::Ramp, Style::Noise])
}

/// F32 and F64.
pub fn floats() -> impl Strategy<Value = DType> {
    select(vec![DType::F64, DType::F32])
}

/// One step of a program.
pub fn steps() -> impl Strategy<Value = Step> {
    (any::<u8>(), 0..6_u8, 0..6_u8, any::<u16>()).prop_map(|(kind, a, b, attr)| Step {
        kind,
        a,
        b,
        attr,
    })
}

/// Random programs with 1 to 3 first leaves and up to `most` steps.
pub fn recipes(most: usize) -> impl Strategy<Value = Recipe> {
    (floats(), any::<bool>(), vec(shapes(), 1..=3), vec(steps(), 0..=most), any::<u8>()).prop_map(
        |(dtype, exact, leaves, steps, loss)| Recipe { dtype, exact, leaves, steps, loss },
    )
}

/// Random programs that are exact on whole numbers.
pub fn exact_recipes(most: usize) -> impl Strategy<Value = Recipe> {
    (recipes(most), Just(true)).prop_map(|(recipe, exact)| Recipe { exact, ..recipe })
}
