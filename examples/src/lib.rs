//! Runnable examples of shardgrad. Each asserts that what it ran on several devices equals the dense result.
//!
//! | command | shows |
//! |---|---|
//! | `cargo run -p shardgrad-examples --example quickstart` | define, plan, train, and prove the first step |
//! | `cargo run -p shardgrad-examples --example compare_layouts` | one model, many layouts, one gradient |
//! | `cargo run -p shardgrad-examples --example write_a_program` | a program of one's own with pins, and its gradients |
