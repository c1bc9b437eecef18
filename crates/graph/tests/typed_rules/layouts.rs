//! All layouts over one, two and three mesh axes, as lists of types for macros.

pub(crate) use shardgrad_core::types::{PendingSum as P, Replicated as R};

pub(crate) type S0 = shardgrad_core::types::Shard<0>;
pub(crate) type S1 = shardgrad_core::types::Shard<1>;

/// `layouts!(matrix 2 => table!(arguments))` is `table!(arguments [(R, R), (R, S0), …])`: all layouts of a matrix, or of a
/// vector, over so many axes.
#[rustfmt::skip]
macro_rules! layouts {
    (matrix 1 => $then:ident!($($arg:tt)*)) => {
        $then!($($arg)* [
            R, S0, S1, P
        ])
    };
    (matrix 2 => $then:ident!($($arg:tt)*)) => {
        $then!($($arg)* [
            (R, R), (R, S0), (R, S1), (R, P), (S0, R), (S0, S0), (S0, S1), (S0, P), (S1, R),
            (S1, S0), (S1, S1), (S1, P), (P, R), (P, S0), (P, S1), (P, P)
        ])
    };
    (matrix 3 => $then:ident!($($arg:tt)*)) => {
        $then!($($arg)* [
            (R, R, R), (R, R, S0), (R, R, S1), (R, R, P), (R, S0, R), (R, S0, S0), (R, S0, S1),
            (R, S0, P), (R, S1, R), (R, S1, S0), (R, S1, S1), (R, S1, P), (R, P, R), (R, P, S0),
            (R, P, S1), (R, P, P), (S0, R, R), (S0, R, S0), (S0, R, S1), (S0, R, P), (S0, S0, R),
            (S0, S0, S0), (S0, S0, S1), (S0, S0, P), (S0, S1, R), (S0, S1, S0), (S0, S1, S1),
            (S0, S1, P), (S0, P, R), (S0, P, S0), (S0, P, S1), (S0, P, P), (S1, R, R), (S1, R, S0),
            (S1, R, S1), (S1, R, P), (S1, S0, R), (S1, S0, S0), (S1, S0, S1), (S1, S0, P),
            (S1, S1, R), (S1, S1, S0), (S1, S1, S1), (S1, S1, P), (S1, P, R), (S1, P, S0),
            (S1, P, S1), (S1, P, P), (P, R, R), (P, R, S0), (P, R, S1), (P, R, P), (P, S0, R),
            (P, S0, S0), (P, S0, S1), (P, S0, P), (P, S1, R), (P, S1, S0), (P, S1, S1), (P, S1, P),
            (P, P, R), (P, P, S0), (P, P, S1), (P, P, P)
        ])
    };
    (vector 1 => $then:ident!($($arg:tt)*)) => {
        $then!($($arg)* [
            R, S0, P
        ])
    };
    (vector 2 => $then:ident!($($arg:tt)*)) => {
        $then!($($arg)* [
            (R, R), (R, S0), (R, P), (S0, R), (S0, S0), (S0, P), (P, R), (P, S0), (P, P)
        ])
    };
    (vector 3 => $then:ident!($($arg:tt)*)) => {
        $then!($($arg)* [
            (R, R, R), (R, R, S0), (R, R, P), (R, S0, R), (R, S0, S0), (R, S0, P), (R, P, R),
            (R, P, S0), (R, P, P), (S0, R, R), (S0, R, S0), (S0, R, P), (S0, S0, R), (S0, S0, S0),
            (S0, S0, P), (S0, P, R), (S0, P, S0), (S0, P, P), (P, R, R), (P, R, S0), (P, R, P),
            (P, S0, R), (P, S0, S0), (P, S0, P), (P, P, R), (P, P, S0), (P, P, P)
        ])
    };
}
