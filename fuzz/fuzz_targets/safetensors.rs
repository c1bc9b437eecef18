//! Tensors by name.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| shardgrad_tests::parsers::safetensors(input));
