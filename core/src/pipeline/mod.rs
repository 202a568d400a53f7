//! Runs the stages of a reconstruction in a folder, resumably.
