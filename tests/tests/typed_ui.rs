//! Programs that must not compile, each with its message pinned and with a twin that compiles.
//!
//! `TRYBUILD=overwrite cargo test -p shardgrad-tests --test typed_ui` rewrites the messages; read them before keeping them:
//! each must say what was found, why it is wrong and what to call. They are those of the pinned toolchain.

// The twins are cases, not an interface, and written as a user would write them.
#![allow(elided_lifetimes_in_paths, missing_docs, clippy::needless_lifetimes)]

#[path = "../ui/compiles/all_reduce_of_replicated.rs"]
pub mod all_reduce_of_replicated;
#[path = "../ui/compiles/axis_of_another_mesh.rs"]
pub mod axis_of_another_mesh;
#[path = "../ui/compiles/bias_before_reduction.rs"]
pub mod bias_before_reduction;
#[path = "../ui/compiles/division_by_pending.rs"]
pub mod division_by_pending;
#[path = "../ui/compiles/gather_of_the_outer_axis.rs"]
pub mod gather_of_the_outer_axis;
#[path = "../ui/compiles/incomplete_input_gradient.rs"]
pub mod incomplete_input_gradient;
#[path = "../ui/compiles/layout_of_another_mesh.rs"]
pub mod layout_of_another_mesh;
#[path = "../ui/compiles/loss_over_sharded_classes.rs"]
pub mod loss_over_sharded_classes;
#[path = "../ui/compiles/matmul_of_columns.rs"]
pub mod matmul_of_columns;
#[path = "../ui/compiles/matmul_one_sided.rs"]
pub mod matmul_one_sided;
#[path = "../ui/compiles/operands_of_two_meshes.rs"]
pub mod operands_of_two_meshes;
#[path = "../ui/compiles/pending_parameter.rs"]
pub mod pending_parameter;
#[path = "../ui/compiles/product_of_pending.rs"]
pub mod product_of_pending;
#[path = "../ui/compiles/reduce_scatter_of_shard.rs"]
pub mod reduce_scatter_of_shard;
#[path = "../ui/compiles/reduced_over_one_of_two_axes.rs"]
pub mod reduced_over_one_of_two_axes;
#[path = "../ui/compiles/reduced_twice_over_one_axis.rs"]
pub mod reduced_twice_over_one_axis;
#[path = "../ui/compiles/relu_of_pending.rs"]
pub mod relu_of_pending;
#[path = "../ui/compiles/replicated_plus_pending.rs"]
pub mod replicated_plus_pending;
#[path = "../ui/compiles/third_dim_of_a_matrix.rs"]
pub mod third_dim_of_a_matrix;
#[path = "../ui/compiles/update_with_unreduced_gradient.rs"]
pub mod update_with_unreduced_gradient;

/// The cases. Each is `ui/refused/NAME.rs`, and its twin a module above.
const CASES: [&str; 20] = [
    "relu_of_pending",
    "product_of_pending",
    "replicated_plus_pending",
    "matmul_of_columns",
    "matmul_one_sided",
    "all_reduce_of_replicated",
    "reduce_scatter_of_shard",
    "third_dim_of_a_matrix",
    "update_with_unreduced_gradient",
    "incomplete_input_gradient",
    "bias_before_reduction",
    "layout_of_another_mesh",
    "reduced_over_one_of_two_axes",
    "reduced_twice_over_one_axis",
    "pending_parameter",
    "gather_of_the_outer_axis",
    "loss_over_sharded_classes",
    "operands_of_two_meshes",
    "division_by_pending",
    "axis_of_another_mesh",
];

#[test]
fn refused_programs_say_what_to_do() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("ui/refused/*.rs");
}

#[test]
fn every_case_is_listed_and_has_a_pinned_message() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("ui/refused");
    let mut found: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "rs"))
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    found.sort();
    let mut listed = CASES.map(str::to_owned);
    listed.sort();
    assert_eq!(found, listed);
    for name in listed {
        let message = std::fs::read_to_string(folder.join(format!("{name}.stderr"))).unwrap();
        // One fault, one message, and it tells what to call.
        assert_eq!(message.matches("error[").count(), 1, "{name}");
        assert!(message.contains("= note: "), "{name}");
    }
}
