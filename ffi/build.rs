//! Gives the shared library its name for the loader: programs ask for the ABI version that they were linked with.

/// That of `RC_ABI_VERSION`; a test compares.
const ABI: u32 = 1;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    match target.as_str() {
        "linux" | "android" | "freebsd" | "netbsd" | "openbsd" => {
            println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libreconstruct.so.{ABI}");
        }
        "macos" => {
            println!("cargo::rustc-cdylib-link-arg=-Wl,-install_name,@rpath/libreconstruct.{ABI}.dylib");
        }
        _ => {}
    }
    if target == "linux" {
        // Libraries below us have C interfaces of their own (the checksums of the object stores): they are not ours to show. GNU's
        // linker leaves them out though the compiler lists them; LLVM's, which the compiler would take, does not.
        println!("cargo::rustc-cdylib-link-arg=-fuse-ld=bfd");
        println!("cargo::rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
    }
}
