//! The REST face: the operations of docs/rest.md, the blob route to which the addresses that they give out lead,
//! what operators need, the viewer of public scenes, and the web application.
//!
//! A request goes `listener` → `answer` (route, key, limits, log) → a handler, one file for each resource → the service of
//! the core, which blocks and knows no HTTP. Handlers run on the few threads of the runtime; what waits for the disk runs on
//! threads that may wait. Nothing is kept here between requests but counters.

mod activity;
mod answer;
pub(crate) mod api;
mod artifacts;
mod blob;
mod bodies;
pub(crate) mod body;
mod client;
mod cors;
mod digest;
mod download;
mod downloads;
mod drain;
mod ending;
mod error;
mod events;
mod exchange;
mod file_name;
mod frames;
pub(crate) mod job_value;
mod jobs;
mod json;
pub(crate) mod listener;
pub(crate) mod log;
pub(crate) mod metrics;
mod network;
mod openapi;
mod operations;
mod pace;
mod places;
mod range;
pub(crate) mod rate_limit;
mod report;
mod response;
mod route;
mod shares;
mod signature;
mod socket;
mod stall;
mod submit;
pub(crate) mod tls;
mod traffic;
mod transfers;
mod turns;
mod uploads;
mod view;
mod waits;
mod web;
mod webhooks;

pub(crate) use turns::threads as blocking_threads;
pub(crate) use web::INVITATION;
