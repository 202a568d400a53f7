//! Fits Gaussians to undistorted frames with known poses.
//!
//! In: a PINHOLE [`crate::camera::SparseModel`] and its pictures. Out: [`crate::scene::Splats`].
