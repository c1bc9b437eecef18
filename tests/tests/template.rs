//! The template of `docs/testing.md`: copy it into your crate, put your program in.

use shardgrad_core::{DType, Mesh};
use shardgrad_graph::{Graph, OutputRole};
use shardgrad_testkit::{Options, assert_collectives, assert_gradients_equivalent};

#[test]
fn my_gradients_do_not_depend_on_the_mesh() -> Result<(), Box<dyn std::error::Error>> {
    let g = Graph::new("mine", DType::F32);
    let (x, w) = (g.input("x", [8, 5])?, g.param("w", [5, 3])?);
    let loss = x.matmul(w)?.tanh()?.sum_all()?;
    g.output("loss", loss, OutputRole::Loss)?;
    g.output("grad(w)", g.grad(loss, &[w])?[0], OutputRole::Gradient { of: w.id() })?;
    let (program, mesh) = (g.finish(), Mesh::new([("dp", 4)])?);
    let found =
        assert_gradients_equivalent(&program, &mesh, &["replicated", "auto"], &Options::default());
    assert_collectives!(found[0].plan, forward: [], backward: []);
    Ok(())
}
