//! Runnable examples of shardgrad. Each asserts that what it ran on several devices equals the dense result.
//!
//! | command | shows |
//! |---|---|
//! | `cargo run -p shardgrad-examples --example quickstart` | define, plan, train, and prove the first step |
//! | `cargo run -p shardgrad-examples --example compare_layouts` | one model, many layouts, one gradient |
//! | `cargo run -p shardgrad-examples --example write_a_program` | a program of one's own with pins, and its gradients |
//! | `cargo run -p shardgrad-examples --example typed_tensor_parallel` | a tensor-parallel MLP with its layouts in its types |
//! | `cargo run -p shardgrad-examples --example typed_data_parallel` | data parallelism by hand: the reduction stands in the types |
//! | `cargo run -p shardgrad-examples --example typed_mesh_2d` | both on a mesh of two axes |
//! | `cargo run -p shardgrad-examples --example sonnets` | a character model under three layouts, and what it writes |
//! | `cargo run -p shardgrad-examples --example distributed` | the same program on threads and under `mpirun` |

mod dense;

pub use dense::equals_dense;
