//! How long planning takes, by depth, mesh and freedom: `cargo run --release -p shardgrad-planner --example speed`.

use std::time::Instant;

use shardgrad_core::Mesh;
use shardgrad_graph::{Activation, LayerSpec, Loss, MlpSpec, Optimizer};
use shardgrad_planner::{LayoutRequest, Options, plan};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{:>6} {:>22} {:>28} {:>10} {:>8}", "layers", "mesh", "layout", "time", "nodes");
    for (mesh, layouts) in [
        ("tp=4", &["tp=megatron", "tp=auto"][..]),
        ("dp=2, tp=4", &["dp=data, tp=megatron", "dp=fsdp, tp=megatron-sp", "dp=auto, tp=auto"]),
        ("a=2, b=2, c=2", &["a=auto, b=auto, c=auto"]),
    ] {
        let mesh: Mesh = mesh.parse()?;
        for layout in layouts {
            for depth in [2, 8, 256, 1000] {
                if mesh.rank() == 3 && depth > 8 {
                    continue;
                }
                let layer =
                    |activation| LayerSpec { inputs: 64, outputs: 64, bias: true, activation };
                let mut layers = vec![layer(Activation::Relu); depth - 1];
                layers.push(layer(Activation::None));
                let spec = MlpSpec {
                    layers,
                    loss: Loss::CrossEntropy,
                    optimizer: Optimizer::named("adam")?,
                    ..MlpSpec::new("deep", 128)
                };
                let program = spec.training_program()?;
                let request: LayoutRequest = layout.parse()?;
                let start = Instant::now();
                let planned = plan(&program, &mesh, &request, &Options::default())?;
                println!(
                    "{depth:>6} {:>22} {layout:>28} {:>8.1}ms {:>8}",
                    mesh.to_string(),
                    start.elapsed().as_secs_f64() * 1e3,
                    planned.plan.nodes.len()
                );
            }
        }
    }
    Ok(())
}
