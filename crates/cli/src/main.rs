//! The `shardgrad` command.
fn main() {}
