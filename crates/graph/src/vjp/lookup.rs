//! Row lookup and scatter_add: linear in table and terms, and each other's transpose. Ids have no gradient.

use shardgrad_core::Op;
use smallvec::smallvec;

use super::{Contributions, Site};
use crate::error::Error;

/// Each row of the table gets the cotangents of the places that read it.
pub(super) fn lookup<'g>(site: &Site<'_, 'g>, rows: usize) -> Result<Contributions<'g>, Error> {
    let ids = site.operands[1];
    let table =
        site.wanted(0, || site.graph.apply(Op::ScatterAdd { rows }, &[ids, site.cotangent]))?;
    Ok(smallvec![table, None])
}

/// Each term has the cotangent of the row that it is added to.
pub(super) fn scatter_add<'g>(
    site: &Site<'_, 'g>,
    rows: usize,
) -> Result<Contributions<'g>, Error> {
    let ids = site.operands[0];
    let terms = site.wanted(1, || site.graph.apply(Op::Lookup { rows }, &[site.cotangent, ids]))?;
    Ok(smallvec![None, terms])
}
