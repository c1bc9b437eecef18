//! Tables of embeddings, and the head that turns features back into scores of rows.
//!
//! A table is a linear layer over the vocabulary: looking up is the product with one-hot rows, without that matrix. With the
//! vocabulary split each rank gives the rows that it holds, and the sum is reduced. The head over a split vocabulary gives
//! sharded scores, which stay where they are ([`crate::CrossEntropy`]).

use std::cell::Cell;

use smallvec::SmallVec;

use super::projection::Projection;
use crate::builder::{Graph, Var};
use crate::error::Error;
use crate::layer::{Activation, Form, next_layer};
use crate::program::{Half, Layer};
use crate::start::Start;

/// Standard deviation of tables at the start, as in GPT-2.
const DEVIATION: f64 = 0.02;

/// A table `[rows, width]`, and optionally one of positions that is added.
#[derive(Clone, Debug)]
pub struct Embedding<'g> {
    name: String,
    table: Var<'g>,
    positions: Option<Var<'g>>,
    index: Cell<Option<u32>>,
}

impl<'g> Embedding<'g> {
    /// Parameters `{name}.w` and, where places in a sequence of this length are told apart, `{name}.positions`.
    ///
    /// ```
    /// use shardgrad_core::DType;
    /// use shardgrad_graph::{Graph, nn::Embedding};
    /// let g = Graph::new("embedding", DType::F32);
    /// let embedding = Embedding::new(&g, "tokens", 65, 8, Some(5))?;
    /// let h = embedding.of(g.labels("ids", [3, 5])?)?;
    /// assert_eq!(h.ty().to_string(), "f32[3, 5, 8]");
    /// assert_eq!(embedding.head("scores")?.of(h)?.ty().to_string(), "f32[3, 5, 65]");
    /// # Ok::<(), shardgrad_graph::Error>(())
    /// ```
    ///
    /// # Errors
    /// A name that is taken, an extent of 0.
    #[track_caller]
    pub fn new(
        g: &'g Graph,
        name: &str,
        rows: usize,
        width: usize,
        positions: Option<usize>,
    ) -> Result<Self, Error> {
        let start = Start::Normal(DEVIATION);
        let table = g.param_from(&format!("{name}.w"), [rows, width], start)?;
        let positions = match positions {
            Some(n) => Some(g.param_from(&format!("{name}.positions"), [n, width], start)?),
            None => None,
        };
        Ok(Self { name: name.to_owned(), table, positions, index: Cell::new(None) })
    }

    /// The rows of ids `[batch, sequence]`: `[batch, sequence, width]`.
    ///
    /// # Errors
    /// Ids that are not integer, or a sequence of another length than there are positions.
    #[track_caller]
    pub fn of(&self, ids: Var<'g>) -> Result<Var<'g>, Error> {
        let g = ids.graph();
        let index = self.index.get().unwrap_or_else(|| next_layer(g));
        let outside = g.set_layer(Some(index));
        let rows = self.table.lookup(ids);
        g.set_layer(outside);
        let rows = rows?;
        if self.index.replace(Some(index)).is_none() {
            g.record_layer(self.layer(ids, rows.named(&self.name)?));
        }
        match self.positions {
            Some(positions) => {
                let shape = rows.shape();
                rows.add(positions.broadcast(&[shape.len() - 2, shape.len() - 1], &shape)?)
            }
            None => Ok(rows),
        }
    }

    /// The labels of the layer are those of the look-up.
    fn layer(&self, ids: Var<'g>, rows: Var<'g>) -> Layer {
        let node = rows.graph().node(rows.id());
        let signature = node.op.signature(&[self.table.ty(), ids.ty()], &node.ty);
        let label = |dim: usize| signature.operands[0].get(dim).copied().unwrap_or_default();
        Layer {
            input: ids.id(),
            weight: self.table.id(),
            bias: None,
            output: rows.id(),
            batch: signature.operands[1].clone(),
            in_label: label(0),
            out_label: label(1),
            weight_labels: SmallVec::new(),
            half: Some(Half::Closes),
        }
    }

    /// A head over the same table: h · tableᵀ. Its gradient and the look-up's are one sum.
    ///
    /// # Errors
    /// None in practice: the form is fixed.
    #[track_caller]
    pub fn head(&self, name: &str) -> Result<Head<'g>, Error> {
        let form = Form::new("bsd,vd->bsv", 'd', 'v', Some(Half::Opens))?;
        Ok(Head(Projection::over(name, form, self.table)))
    }
}

/// Scores of every row of a vocabulary.
#[derive(Clone, Debug)]
pub struct Head<'g>(Projection<'g>);

impl<'g> Head<'g> {
    /// A head with a weight of its own, `{name}.w` `[width, rows]`, without bias.
    ///
    /// # Errors
    /// A name that is taken, an extent of 0.
    #[track_caller]
    pub fn new(g: &'g Graph, name: &str, width: usize, rows: usize) -> Result<Self, Error> {
        let form = Form::new("bsd,dv->bsv", 'd', 'v', Some(Half::Opens))?;
        let weight = [width, rows];
        Projection::new(g, name, form, width, &weight, None, Activation::None).map(Self)
    }

    /// Scores `[batch, sequence, rows]` of features `[batch, sequence, width]`.
    ///
    /// # Errors
    /// Shapes do not fit.
    #[track_caller]
    pub fn of(&self, h: Var<'g>) -> Result<Var<'g>, Error> {
        self.0.of(h)
    }
}
