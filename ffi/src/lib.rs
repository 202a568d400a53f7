//! The C face (see `include/reconstruct.h`).
