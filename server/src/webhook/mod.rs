//! Telling an address of a user that a job has ended (docs/rest.md, rules 93 to 98): which addresses may be told, how what they
//! are told is signed, and the one request that tells them.
//!
//! The addresses come from users, and the requests from within the operator's network: nothing that a user writes may reach
//! what only that network can reach.

pub(crate) mod address;
pub(crate) mod sender;
mod signature;

pub(crate) use signature::secret_text;
