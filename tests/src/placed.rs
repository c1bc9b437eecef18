//! A program of ops that take elements by place.

use shardgrad_core::DType;
use shardgrad_core::ops::Comparison;
use shardgrad_graph::{Error, Graph, OutputRole, Program};

/// Rows of a table under a causal mask and dropout, joined, cut, padded and summed up; with the table's gradient. Leaves: `x`
/// `[5, 4]`, `table` `[7, 4]`, `ids` `[5]`, `key`; named values `chosen` and `dropped`.
///
/// # Panics
/// The builder refuses an op.
#[must_use]
pub fn placed() -> Program {
    build().expect("the program is valid")
}

fn build() -> Result<Program, Error> {
    let g = Graph::new("placed", DType::F64);
    let (x, table) = (g.input("x", [5, 4])?, g.param("table", [7, 4])?);
    let ids = g.labels("ids", [5])?;
    let rows = table.lookup(ids)?;
    let early = g.iota(1, [5, 4])?.compare(Comparison::Le, g.iota(0, [5, 4])?)?;
    let chosen = early.choose(x, rows)?.named("chosen")?;
    let dropped = chosen.dropout(0.3, g.key("key")?)?.named("dropped")?;
    let joined = g.concat(1, &[dropped, x.maximum(rows)?, x.minimum(rows)?])?;
    let cut = joined.slice_by(1, 1, 12, 2)?.pad(0, 1, 2, 0.5)?;
    g.output("sums", cut.cumsum(1)?.reverse_cumsum(0)?, OutputRole::Value)?;
    g.output("numbers", ids.cast(DType::F64)?, OutputRole::Value)?;
    let loss = cut.square()?.sum_all()?;
    g.output("loss", loss, OutputRole::Loss)?;
    let gradient = g.grad(loss, &[table])?[0];
    g.output("grad(table)", gradient, OutputRole::Gradient { of: table.id() })?;
    Ok(g.finish())
}
