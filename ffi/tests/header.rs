//! Makes `include/reconstruct.h` from the source and compares it with the committed one.
//!
//! `UPDATE_HEADER=1 cargo test -p libreconstruct-ffi --test header` writes it. Every file of the source is a chapter: its
//! first comment, then its types and functions as cbindgen writes them.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The chapters, in an order in which every type is declared before it is used.
const CHAPTERS: [&str; 19] = [
    "version",
    "error",
    "text",
    "engine",
    "keys",
    "upload",
    "submit",
    "job",
    "list",
    "artifact",
    "worker",
    "event",
    "cancel",
    "reconstruct",
    "model",
    "sfm",
    "scene",
    "renderer",
    "log",
];

/// What a structure starts from. C++17 knows no names in initialisers, so every field has its place.
const INITIALISERS: [(&str, &str); 12] = [
    ("rc_engine_options", "NULL, RC_TIER_DEFAULT, 0, NULL, NULL, NULL, NULL"),
    ("rc_request", "NULL, false, false, RC_METHOD_DEFAULT, RC_CAMERA_DEFAULT, 0, 0, 0.0, NULL"),
    (
        "rc_job_info",
        "RC_JOB_UNKNOWN, 0, -1, RC_STAGE_NONE, 0.0f, 0, false, false, false, 0, 0, 0, 0, \\\n    \
         { { 0.0, 0.0, 0.0 }, { 0.0, 0.0, 0.0 }, { 0.0, 0.0, 0.0 }, RC_CAMERA_DEFAULT }",
    ),
    ("rc_job_changes", "NULL, RC_ANY, false, NULL"),
    ("rc_list_query", "-1, NULL, NULL, RC_ANY"),
    ("rc_worker_options", "NULL, 0, 10"),
    (
        "rc_reconstruction",
        "RC_QUALITY_DEFAULT, RC_METHOD_DEFAULT, RC_CAMERA_DEFAULT, 0, 0, 0, 0, 0, -1, 0, 0, 0, 0.0, \\\n    \
         false, false, NULL, NULL, false, NULL, NULL, false, -1.0, NULL, 0.0, 0, RC_PROJECTION_AUTO, false, 0.0",
    ),
    (
        "rc_model_arrays",
        "0, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL, \\\n    NULL",
    ),
    ("rc_frame_options", "0, 0, 0, RC_PROJECTION_AUTO"),
    (
        "rc_sfm_options",
        "RC_METHOD_DEFAULT, 0, 0, 0, 0, 0.0, 0.0, -1.0, false, false, false, false, NULL, \\\n    NULL, NULL, 0.0, RC_PROJECTION_AUTO, NULL, NULL",
    ),
    ("rc_splats", "0, 0, 0, false, NULL, NULL, NULL, NULL, NULL"),
    (
        "rc_view",
        "{ 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0 }, { 0.0, 0.0, 0.0 }, 0.0, 0.0, 0.0, 0.0, \\\n    0, 0, \
         { 0.0f, 0.0f, 0.0f }",
    ),
];

#[test]
fn the_header_is_that_of_the_source() {
    let path = root().join("../include/reconstruct.h");
    let made = header();
    if std::env::var_os("UPDATE_HEADER").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    let differing = made.lines().zip(committed.lines()).position(|(a, b)| a != b);
    assert!(
        made == committed,
        "include/reconstruct.h differs from the source, first in line {}: UPDATE_HEADER=1 cargo test -p \
         libreconstruct-ffi --test header writes it",
        differing.map_or(made.lines().count().min(committed.lines().count()), |line| line) + 1
    );
}

#[test]
fn every_exported_function_and_type_is_in_the_header() {
    let made = header();
    for entry in std::fs::read_dir(root().join("src")).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for part in
            text.split("pub unsafe extern \"C\" fn ").chain(text.split("pub extern \"C\" fn ")).skip(1)
        {
            let name = part.split('(').next().unwrap();
            assert!(!name.starts_with("rc_") || made.contains(&format!("{name}(")), "{name}");
        }
    }
}

/// The ABI version is written where the linker hears it, too.
#[test]
fn the_shared_library_is_named_by_its_abi_version() {
    let build = std::fs::read_to_string(root().join("build.rs")).unwrap();
    assert!(build.contains(&format!("const ABI: u32 = {};", reconstruct::RC_ABI_VERSION)));
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn header() -> String {
    let mut handles = String::new();
    let mut chapters = String::new();
    for name in CHAPTERS {
        let path = root().join("src").join(name).with_extension("rs");
        let text = std::fs::read_to_string(&path).unwrap();
        let (own_handles, rest) = without_handles(&declarations(&path));
        handles += &own_handles;
        write!(chapters, "\n{}\n{rest}", chapter(&text)).unwrap();
    }
    for (structure, fields) in INITIALISERS {
        let end = format!("}} {structure};\n");
        let name = structure.to_uppercase();
        let fields = format!("#define {name}_INIT {{ sizeof({structure}), {fields} }}");
        assert!(chapters.contains(&end), "{structure} is no structure of the header");
        chapters = chapters.replace(&end, &format!("{end}\n{}\n", broken(&fields)));
    }
    let front = comment(include_str!("../front.txt"));
    let handles = format!("{}\n{handles}", comment("Handles\n\nOpaque: made, used and freed by functions."));
    let mut header = format!(
        "{front}\n\
         #ifndef RECONSTRUCT_H\n#define RECONSTRUCT_H\n\n\
         // Made from ffi/src by ffi/tests/header.rs. Changes belong there.\n\n\
         #include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n\n\
         #ifdef __cplusplus\nextern \"C\" {{\n#endif\n\n\
         {}{chapters}\n\
         #ifdef __cplusplus\n}} // extern \"C\"\n#endif\n\n\
         #endif // RECONSTRUCT_H\n",
        handles.trim_end().to_owned() + "\n",
    );
    while header.contains("\n\n\n") {
        header = header.replace("\n\n\n", "\n\n");
    }
    header
}

/// The types and functions of a file, as C.
fn declarations(path: &Path) -> String {
    let source = std::fs::read_to_string(path).unwrap();
    // A type that no function of its chapter takes is a part of the interface all the same.
    let names = source.lines().filter_map(|line| {
        let named =
            ["pub struct ", "pub enum ", "pub type "].iter().find_map(|head| line.strip_prefix(head))?;
        named.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().map(str::to_owned)
    });
    let export = cbindgen::ExportConfig { include: names.collect(), ..cbindgen::ExportConfig::default() };
    let config = cbindgen::Config {
        export,
        language: cbindgen::Language::C,
        style: cbindgen::Style::Both,
        documentation_style: cbindgen::DocumentationStyle::C99,
        no_includes: true,
        usize_is_size_t: true,
        line_length: 120,
        tab_width: 4,
        ..cbindgen::Config::default()
    };
    let bindings = cbindgen::Builder::new().with_config(config).with_src(path).generate().unwrap();
    let mut bytes = Vec::new();
    bindings.write(&mut bytes);
    let text = String::from_utf8(bytes).unwrap();
    // Every type has its plain name as well; cbindgen uses it for the types of other files only.
    let plain = |line: &str| match line.strip_prefix("typedef ") {
        Some(rest) if !line.contains("(*") => format!("typedef {rest}"),
        _ => line.replace("struct rc_", "rc_").replace("enum rc_", "rc_"),
    };
    text.lines().map(|line| plain(line) + "\n").collect()
}

/// Takes out the opaque types, which are declared together at the top.
fn without_handles(text: &str) -> (String, String) {
    let (mut handles, mut rest) = (String::new(), String::new());
    for block in text.split("\n\n") {
        let last = block.trim_end().lines().last().unwrap_or_default();
        let is_handle = last.starts_with("typedef struct") && last.ends_with(';');
        let target = if is_handle { &mut handles } else { &mut rest };
        if !block.trim().is_empty() {
            write!(target, "{}\n\n", block.trim_matches('\n')).unwrap();
        }
    }
    (handles.trim_end().to_owned() + "\n\n", rest.trim_end().to_owned() + "\n")
}

/// The first comment of a file, as a chapter.
fn chapter(source: &str) -> String {
    let lines = source.lines().map_while(|line| line.strip_prefix("//!"));
    comment(&lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect::<Vec<_>>().join("\n"))
}

/// Text with its first line as a title.
fn comment(text: &str) -> String {
    let (title, rest) = text.trim().split_once('\n').unwrap_or((text.trim(), ""));
    let mut out = format!("// {title}\n// {}\n", "-".repeat(title.chars().count()));
    for line in rest.lines() {
        writeln!(out, "{}", format!("// {line}").trim_end()).unwrap();
    }
    out
}

/// A macro, in lines of at most 120 letters.
fn broken(text: &str) -> String {
    match text.find(" \\\n") {
        Some(_) => text.replacen("{ sizeof", "\\\n  { sizeof", 1),
        None => text.to_owned(),
    }
}
