//! What crosses crates: the synthetic capture generator, and helpers of the end-to-end tests.
