//! One-hot: a rank marks the labels that fall into its range of global classes.

use crate::number::Number;
use crate::tensor::Data;

/// Overwrites `result`, rows of `classes` local classes of which the first is `first`. Labels of other ranks leave their
/// row at 0; labels out of the global range are refused before the step.
pub fn run<T: Number>(labels: &Data, first: usize, classes: usize, result: &mut [T]) {
    result.fill(T::ZERO);
    let mut mark = |row: usize, label: i64| {
        let local = usize::try_from(label).ok().and_then(|l| l.checked_sub(first));
        if let Some(class) = local.filter(|&class| class < classes) {
            result[row * classes + class] = T::ONE;
        }
    };
    match labels {
        Data::I32(labels) => {
            labels.iter().enumerate().for_each(|(row, &l)| mark(row, i64::from(l)));
        }
        Data::I64(labels) => labels.iter().enumerate().for_each(|(row, &l)| mark(row, l)),
        Data::F32(_) | Data::F64(_) => {}
    }
}
