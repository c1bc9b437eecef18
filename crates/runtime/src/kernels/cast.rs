//! Cast: the same numbers in another element type.

use crate::number::{Number, with_number};
use crate::tensor::Data;

/// Overwrites `result`: floats are rounded, integers cut towards zero; one that does not fit raises the flag.
pub fn run<T: Number>(operand: &Data, result: &mut [T], overflow: &mut bool) {
    // The same type goes as it is: f64 does not hold all of i64.
    if let Some(same) = T::slice(operand) {
        return result.copy_from_slice(same);
    }
    with_number!(operand.dtype(), S => {
        let from = <S as Number>::slice(operand).unwrap_or_default();
        for (to, from) in result.iter_mut().zip(from) {
            *to = number(from.to_f64(), overflow);
        }
    });
}

fn number<T: Number>(value: f64, overflow: &mut bool) -> T {
    if T::DTYPE.is_float() {
        return T::from_f64(value);
    }
    let (whole, lowest) = (value.trunc(), T::LOWEST.to_f64());
    *overflow |= !(lowest <= whole && whole < -lowest);
    T::from_f64(whole)
}
