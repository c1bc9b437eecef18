//! Arrays of NumPy.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| shardgrad_tests::parsers::npy(input));
