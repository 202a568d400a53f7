#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| libreconstruct_fuzz::run("glb", bytes));
