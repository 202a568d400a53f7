//! Where tests find real captures. They are not part of the project: a test must pass without them.

use std::path::PathBuf;

/// The folder `name` of the real captures, if it is there: under `LIBRECONSTRUCT_DATA`, else in `../shared/data` next to
/// the workspace.
pub(crate) fn capture(name: &str) -> Option<PathBuf> {
    let root = match std::env::var_os("LIBRECONSTRUCT_DATA") {
        Some(root) => PathBuf::from(root),
        None => PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/data"),
    };
    let folder = root.join(name);
    if folder.is_dir() {
        return Some(folder);
    }
    println!("real capture {name} is not here: only the synthetic part of this test runs");
    None
}

#[cfg(feature = "background")]
/// The weights of the network that finds the object, beside the real captures.
pub(crate) fn mask_model() -> Option<PathBuf> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/models/u2netp/u2netp.onnx");
    path.is_file().then_some(path)
}
