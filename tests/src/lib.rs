//! Shared set-up of the cross-crate tests.
