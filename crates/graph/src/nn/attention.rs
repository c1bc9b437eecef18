//! Multi-head attention with its projections.
//!
//! Weights keep their heads apart: queries `[width, heads, features]`, output `[heads, features, width]`. Splitting the
//! heads is what splits the work, and no value is reshaped. With fewer heads of keys and values, groups of query heads are
//! split; with a single one, the heads of its group are. On more ranks than there are heads to split, some ranks have none.

use super::projection::Projection;
use crate::builder::{Graph, Var};
use crate::error::Error;
use crate::layer::{Activation, Form};
use crate::program::Half;

/// Sizes of a [`MultiHeadAttention`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionSpec {
    /// Features of the input and of the output.
    pub width: usize,
    /// Heads of queries; they divide the width.
    pub heads: usize,
    /// Heads of keys and values; they divide the heads of queries.
    pub kv_heads: usize,
    /// Whether the projections have biases.
    pub bias: bool,
    /// Whether a place sees itself and the places before it only.
    pub causal: bool,
}

impl AttentionSpec {
    /// Checks that heads divide what they must.
    fn validate(self, name: &str) -> Result<(), Error> {
        let bad = |key: &str, found: usize, problem: String| {
            let (key, found) = (format!("{name}.{key}"), found.to_string());
            Err(Error::BadModel { key, found, problem })
        };
        if self.heads == 0 || !self.width.is_multiple_of(self.heads) {
            return bad("heads", self.heads, format!("it must divide the width of {}", self.width));
        }
        if self.kv_heads == 0 || !self.heads.is_multiple_of(self.kv_heads) {
            return bad(
                "kv_heads",
                self.kv_heads,
                format!("it must divide the {} heads", self.heads),
            );
        }
        Ok(())
    }
}

/// Attention of a sequence on itself: layers `{name}.q`, `{name}.k`, `{name}.v` and `{name}.out`.
#[derive(Clone, Debug)]
pub struct MultiHeadAttention<'g> {
    q: Projection<'g>,
    k: Projection<'g>,
    v: Projection<'g>,
    out: Projection<'g>,
    causal: bool,
}

impl<'g> MultiHeadAttention<'g> {
    /// The projections.
    ///
    /// # Errors
    /// Heads that do not divide, a name that is taken.
    #[track_caller]
    pub fn new(g: &'g Graph, name: &str, spec: AttentionSpec) -> Result<Self, Error> {
        spec.validate(name)?;
        let AttentionSpec { width, heads, kv_heads, bias, causal } = spec;
        let (features, of_group) = (width / heads, heads / kv_heads);
        let make = |part: &str,
                    form: (&str, char, char, Half),
                    inputs,
                    weight: &[usize],
                    output: &[usize]| {
            let form = Form::new(form.0, form.1, form.2, Some(form.3))?;
            let bias = bias.then_some(output);
            Projection::new(
                g,
                &format!("{name}.{part}"),
                form,
                inputs,
                weight,
                bias,
                Activation::None,
            )
        };
        let kv = |part: &str, spec: &str, label| {
            let shape = [width, kv_heads, features];
            make(part, (spec, 'd', label, Half::Opens), width, &shape, &shape[1..])
        };
        let (q, k, v, out) = if of_group == 1 {
            let shape = [width, heads, features];
            (
                make("q", ("bsd,dhk->bshk", 'd', 'h', Half::Opens), width, &shape, &shape[1..])?,
                kv("k", "bsd,dhk->bshk", 'h')?,
                kv("v", "bsd,dhk->bshk", 'h')?,
                make(
                    "out",
                    ("bshk,hkd->bsd", 'h', 'd', Half::Closes),
                    width,
                    &[heads, features, width],
                    &[width],
                )?,
            )
        } else {
            let split = if kv_heads == 1 { 'r' } else { 'g' };
            let shape = [width, kv_heads, of_group, features];
            (
                make(
                    "q",
                    ("bsd,dgrk->bsgrk", 'd', split, Half::Opens),
                    width,
                    &shape,
                    &shape[1..],
                )?,
                kv("k", "bsd,dgk->bsgk", 'g')?,
                kv("v", "bsd,dgk->bsgk", 'g')?,
                make(
                    "out",
                    ("bsgrk,grkd->bsd", split, 'd', Half::Closes),
                    width,
                    &[kv_heads, of_group, features, width],
                    &[width],
                )?,
            )
        };
        Ok(Self { q, k, v, out, causal })
    }

    /// The output, of the input's shape `[batch, sequence, width]`.
    ///
    /// # Errors
    /// Shapes do not fit.
    #[track_caller]
    pub fn of(&self, x: Var<'g>) -> Result<Var<'g>, Error> {
        let (q, k, v) = (self.q.of(x)?, self.k.of(x)?, self.v.of(x)?);
        let keep = if self.causal { Some(x.graph().causal(x.shape()[1])?) } else { None };
        self.out.of(q.attention(k, v, keep)?)
    }
}
