//! Plan files, and the checker on whatever parses.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| shardgrad_tests::parsers::plan(input));
