//! Symmetric positive definite systems of many unknowns that come in blocks, where most blocks meet few others.
//!
//! The cameras of a walk see what their neighbours see and nothing else, so all but a band of their normal equations,
//! and a few blocks off it where the walk comes back, is zero. A few shared unknowns (the lens) meet all of them: they
//! are a dense *border*, eliminated last.
//!
//! ```text
//! Graph (who meets whom) → minimum_degree (in which order, and what fills up) → Elimination → Factor
//! ```
//!
//! Where that saves nothing, and where the system is so small that it would hardly matter, it is factored as a dense
//! one. Which way is taken follows from the number of operations, hence from the system alone.

mod elimination;
mod factor;
mod graph;
mod matrix;
mod minimum_degree;
mod pattern;

pub(crate) use factor::Factor;
pub(crate) use graph::Graph;
pub(crate) use matrix::BlockMatrix;
pub(crate) use pattern::Pattern;
