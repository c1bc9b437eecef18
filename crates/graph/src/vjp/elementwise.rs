//! Elementwise ops: the cotangent times the slope.

use shardgrad_core::Op;
use shardgrad_core::ops::{Comparison, Unary};
use smallvec::smallvec;

use super::constant::{of, scaled, times};
use super::{Contributions, Site};
use crate::builder::Var;
use crate::error::Error;

/// a − b: dY and −dY.
pub(super) fn sub<'g>(site: &Site<'_, 'g>) -> Result<Contributions<'g>, Error> {
    let negated = site.wanted(1, || negated(site.cotangent))?;
    Ok(smallvec![Some(site.cotangent), negated])
}

/// a · b: dY · b and dY · a.
pub(super) fn mul<'g>(site: &Site<'_, 'g>) -> Result<Contributions<'g>, Error> {
    let (dy, a, b) = (site.cotangent, site.operands[0], site.operands[1]);
    Ok(smallvec![site.wanted(0, || times(dy, b))?, site.wanted(1, || times(dy, a))?])
}

/// y = a / b: dY / b and −(dY / b) · y.
pub(super) fn div<'g>(site: &Site<'_, 'g>) -> Result<Contributions<'g>, Error> {
    let quotient = site.cotangent.div(site.operands[1])?;
    let denominator = site.wanted(1, || quotient.mul(site.result)?.neg())?;
    Ok(smallvec![Some(quotient), denominator])
}

/// The larger (`Gt`) or smaller (`Lt`) of two: its operand has the cotangent, equals have half of it each.
pub(super) fn extreme<'g>(
    site: &Site<'_, 'g>,
    wins: Comparison,
) -> Result<Contributions<'g>, Error> {
    let (a, b) = (site.operands[0], site.operands[1]);
    let tie = a.compare(Comparison::Eq, b)?.scale(0.5)?;
    let first = || times(site.cotangent, a.compare(wins, b)?.add(tie)?);
    let second = || times(site.cotangent, b.compare(wins, a)?.add(tie)?);
    Ok(smallvec![site.wanted(0, first)?, site.wanted(1, second)?])
}

/// b where a is not 0, else c: the cotangent goes where the value came from. The mask has none.
pub(super) fn choose<'g>(site: &Site<'_, 'g>) -> Result<Contributions<'g>, Error> {
    let part = |comparison: Comparison| {
        times(site.cotangent, site.operands[0].compare_const(comparison, 0.0)?)
    };
    let taken = site.wanted(1, || part(Comparison::Ne))?;
    Ok(smallvec![None, taken, site.wanted(2, || part(Comparison::Eq))?])
}

/// Between floats the cotangent in the operand's type; integers have none.
pub(super) fn cast<'g>(site: &Site<'_, 'g>) -> Result<Option<Var<'g>>, Error> {
    let (from, to) = (site.operands[0].ty().dtype, site.cotangent.ty().dtype);
    if !from.is_float() || !to.is_float() {
        return Ok(None);
    }
    site.graph.apply(Op::Cast(from), &[site.cotangent]).map(Some)
}

fn negated(dy: Var<'_>) -> Result<Var<'_>, Error> {
    if of(dy).is_some() { scaled(dy, -1.0) } else { dy.neg() }
}

/// 1 − a.
fn one_minus(a: Var<'_>) -> Result<Var<'_>, Error> {
    a.neg()?.add_const(1.0)
}

/// Functions of one operand x with result y.
pub(super) fn unary<'g>(site: &Site<'_, 'g>, unary: Unary) -> Result<Var<'g>, Error> {
    let (dy, x, y) = (site.cotangent, site.operands[0], site.result);
    match unary {
        Unary::Neg => negated(dy),
        // y > 0 exactly where x > 0; at 0 the slope is 0.
        Unary::Relu => times(dy, y.compare_const(Comparison::Gt, 0.0)?),
        Unary::Gelu => times(dy, gelu_slope(x)?),
        // 1 − y².
        Unary::Tanh => times(dy, one_minus(y.square()?)?),
        // y (1 − y).
        Unary::Sigmoid => times(dy, one_minus(y)?.mul(y)?),
        Unary::Exp => times(dy, y),
        Unary::Log => dy.div(x),
        Unary::Sqrt => scaled(dy, 0.5)?.div(y),
        // 2x; a constant is folded into the factor.
        Unary::Square => match of(dy) {
            Some(value) => scaled(x, 2.0 * value),
            None => dy.mul(x.scale(2.0)?),
        },
        // The sign; at 0 the slope is 0.
        Unary::Abs => {
            let positive = x.compare_const(Comparison::Gt, 0.0)?;
            times(dy, positive.sub(x.compare_const(Comparison::Lt, 0.0)?)?)
        }
        // −y².
        Unary::Reciprocal => times(dy, y.square()?.neg()?),
    }
}

/// Slope of the tanh form of gelu, c = √(2/π), k = 0.044715. As (1 + tanh u)/2 is the sigmoid s of v = 2u,
/// gelu is x · s(v) with v = 2c x + 2ck x³, and its slope s · (1 + (1 − s) · x · v'), with x · v' = (2c + 6ck x²) x.
fn gelu_slope(x: Var<'_>) -> Result<Var<'_>, Error> {
    let c = (2.0 / std::f64::consts::PI).sqrt();
    let k = 0.044_715;
    let square = x.square()?;
    let s = square.scale(2.0 * c * k)?.add_const(2.0 * c)?.mul(x)?.sigmoid()?;
    let growth = square.scale(6.0 * c * k)?.add_const(2.0 * c)?.mul(x)?;
    one_minus(s)?.mul(growth)?.add_const(1.0)?.mul(s)
}
