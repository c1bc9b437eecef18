//! Layouts, meshes and presets as text.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| shardgrad_tests::parsers::layout(input));
