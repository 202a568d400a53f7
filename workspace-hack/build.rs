//! Without a build script Cargo does not look at build dependencies.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
}
