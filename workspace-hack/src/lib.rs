//! Nothing: what counts is in `Cargo.toml`.
