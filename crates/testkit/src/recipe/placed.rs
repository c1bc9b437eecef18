//! Steps that take elements by place or choose between them.

use shardgrad_core::ops::{Comparison, Role};
use shardgrad_core::{DType, TensorType};

use super::Step;
use super::draft::{Draft, MAX_ELEMENTS, Made};

/// First of these kinds.
pub(super) const FIRST: u8 = 16;
/// Number of these kinds.
pub(super) const COUNT: u8 = 11;

impl<'g> Draft<'g> {
    /// The value of a step of one of these kinds.
    pub(super) fn placed(&mut self, kind: u8, step: Step) -> Made<'g> {
        match kind - FIRST {
            0 => self.extreme(step),
            1 => self.lookup(step),
            2 => self.scatter_add(step),
            3 => self.counted(step),
            4 => self.dropout(step),
            5 => self.slice(step),
            6 => self.pad(step),
            7 => self.join(step),
            8 => self.running(step),
            9 => self.choose(step),
            _ => self.there_and_back(step),
        }
    }

    fn extreme(&mut self, step: Step) -> Made<'g> {
        let (a, sa) = self.back(step.a);
        let (b, sb) = self.like(a, step.b);
        let chosen = if step.attr & 1 == 0 { a.maximum(b)? } else { a.minimum(b)? };
        Ok(Some((chosen, sa.max(sb))))
    }

    fn ids(&mut self, shape: &[usize]) -> Result<shardgrad_graph::Var<'g>, shardgrad_graph::Error> {
        let name = format!("y{}", self.graph.len());
        let dtype = if shape.len() == 1 { DType::I32 } else { DType::I64 };
        self.graph.leaf(&name, Role::Input, TensorType::new(shape.iter().copied(), dtype))
    }

    fn lookup(&mut self, step: Step) -> Made<'g> {
        let (table, size) = self.back(step.a);
        let shape = table.shape();
        let places = 1 + usize::from(step.attr) % 5;
        if shape.first().is_none_or(|&rows| rows < 2)
            || places * table.ty().elements() > MAX_ELEMENTS
        {
            return Ok(None);
        }
        let ids = if step.b & 1 == 0 { vec![places] } else { vec![places, 2] };
        let ids = self.ids(&ids)?;
        Ok(Some((table.lookup(ids)?, size)))
    }

    fn scatter_add(&mut self, step: Step) -> Made<'g> {
        let (terms, size) = self.back(step.a);
        let shape = terms.shape();
        if shape.is_empty() {
            return Ok(None);
        }
        let ids = self.ids(&shape[..1 + usize::from(step.b) % shape.len()])?;
        #[allow(clippy::cast_precision_loss)]
        let most = ids.ty().elements() as f64;
        Ok(Some((terms.scatter_add(ids, 2 + usize::from(step.attr) % 4)?, size * most)))
    }

    /// Elements weighed by their index, or kept up to one.
    fn counted(&mut self, step: Step) -> Made<'g> {
        let (x, size) = self.back(step.a);
        let shape = x.shape();
        if shape.is_empty() {
            return Ok(None);
        }
        let dim = usize::from(step.b) % shape.len();
        let index = self.graph.iota_of(dim, x.ty())?;
        #[allow(clippy::cast_precision_loss)]
        let extent = shape[dim] as f64;
        if step.attr & 1 == 0 {
            return Ok(Some((x.mul(index)?, size * extent)));
        }
        let early = index.compare_const(Comparison::Le, extent / 2.0 - 0.5)?;
        Ok(Some((x.mul(early)?, size)))
    }

    fn dropout(&mut self, step: Step) -> Made<'g> {
        let (x, size) = self.back(step.a);
        let key = self.graph.key(&format!("key{}", self.graph.len()))?;
        let rate = if self.exact { 0.5 } else { 0.3 };
        Ok(Some((x.dropout(rate, key)?, 2.0 * size)))
    }

    fn slice(&mut self, step: Step) -> Made<'g> {
        let (x, size) = self.back(step.a);
        let shape = x.shape();
        if shape.is_empty() {
            return Ok(None);
        }
        let dim = usize::from(step.b) % shape.len();
        let start = usize::from(step.attr) % shape[dim];
        let stop = shape[dim] - usize::from(step.attr >> 3) % (shape[dim] - start);
        let by = 1 + usize::from(step.attr >> 6) % 3;
        Ok(Some((x.slice_by(dim, start, stop, by)?, size)))
    }

    fn pad(&mut self, step: Step) -> Made<'g> {
        let (x, size) = self.back(step.a);
        let rank = x.ty().rank();
        if rank == 0 {
            return Ok(None);
        }
        let dim = usize::from(step.b) % rank;
        let (before, after) = (usize::from(step.attr & 3), usize::from(step.attr >> 2 & 1));
        let value = if step.attr & 8 == 0 { 0.0 } else { 2.0 };
        Ok(Some((x.pad(dim, before, after, value)?, size + value)))
    }

    fn join(&mut self, step: Step) -> Made<'g> {
        let (a, sa) = self.back(step.a);
        let (b, sb) = self.like(a, step.b);
        let rank = a.ty().rank();
        if 2 * a.ty().elements() > MAX_ELEMENTS {
            return Ok(None);
        }
        let place = usize::from(step.attr >> 1);
        let joined = if step.attr & 1 == 0 || rank == 0 {
            self.graph.stack(place % (rank + 1), &[a, b])?
        } else {
            self.graph.concat(place % rank, &[a, b])?
        };
        Ok(Some((joined, sa.max(sb))))
    }

    fn running(&mut self, step: Step) -> Made<'g> {
        let (x, size) = self.back(step.a);
        let shape = x.shape();
        if shape.is_empty() {
            return Ok(None);
        }
        let dim = usize::from(step.b) % shape.len();
        #[allow(clippy::cast_precision_loss)]
        let most = shape[dim] as f64 * size;
        let sums = if step.attr & 1 == 0 { x.cumsum(dim)? } else { x.reverse_cumsum(dim)? };
        Ok(Some((sums, most)))
    }

    fn choose(&mut self, step: Step) -> Made<'g> {
        let (a, sa) = self.back(step.a);
        let (b, sb) = self.like(a, step.b);
        let mask = a.compare_const(Comparison::Gt, f64::from(step.attr % 3) - 0.75)?;
        Ok(Some((mask.choose(b, a)?, sa.max(sb))))
    }

    /// Through the other float type and back, f32 being lost on nothing.
    fn there_and_back(&mut self, step: Step) -> Made<'g> {
        let (x, size) = self.back(step.a);
        let own = self.graph.dtype();
        let other = if own == DType::F32 { DType::F64 } else { own };
        Ok(Some((x.cast(other)?.cast(own)?, size)))
    }
}
