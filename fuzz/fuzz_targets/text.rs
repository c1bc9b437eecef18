//! Texts.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| shardgrad_tests::parsers::text(input));
