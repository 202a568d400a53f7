//! Imports point downward only: what ARCHITECTURE.md says of the order of the folders holds in the code, and no files import
//! each other in a circle.
//!
//! Reads every `use` and every path in the code (`crate::camera::Pose`, `super::views::project`, also inside macros) and finds
//! the file that defines what is named; a `pub use` that hands on what a child defines is looked through. Tests may import
//! what they like: what is behind `#[cfg(test)]` is not read.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by it")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::Visit;

/// A module's path inside its crate; empty for the crate's root.
type Module = Vec<String>;

/// One source file as the test needs it.
#[derive(Default)]
struct Source {
    /// What the names of this file's `use` lines stand for.
    imports: BTreeMap<String, Module>,
    /// What it hands on from its own children: name to path.
    reexports: BTreeMap<String, Module>,
    /// All paths that it names, absolute.
    named: BTreeSet<Module>,
    /// Modules that exist for tests only.
    test_modules: BTreeSet<String>,
}

/// All files of a crate, by module.
struct Crate {
    sources: BTreeMap<Module, Source>,
}

impl Crate {
    fn read(root: &Path) -> Self {
        let mut paths = Vec::new();
        rust_files(root, &mut paths);
        assert!(paths.len() > 3, "{} holds no crate", root.display());
        let mut modules: BTreeMap<Module, syn::File> = BTreeMap::new();
        for path in paths {
            let mut module: Module = path
                .strip_prefix(root)
                .unwrap()
                .with_extension("")
                .iter()
                .map(|part| part.to_str().unwrap().to_owned())
                .collect();
            if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
                module.pop();
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let file = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            modules.insert(module, file);
        }
        let mut sources: BTreeMap<Module, Source> = BTreeMap::new();
        for (module, file) in &modules {
            let mut reader = Reader { module: module.clone(), modules: &modules, source: Source::default() };
            // First what the names stand for, wherever in the file they are imported; then what is named.
            reader.read_imports(&file.items);
            reader.visit_file(file);
            sources.insert(module.clone(), reader.source);
        }
        // What only tests compile is no part of the house.
        let only_for_tests = |module: &Module| {
            (1..=module.len()).any(|k| {
                sources.get(&module[..k - 1]).is_some_and(|above| above.test_modules.contains(&module[k - 1]))
            })
        };
        let keep: BTreeSet<Module> = sources.keys().filter(|m| !only_for_tests(m)).cloned().collect();
        sources.retain(|module, _| keep.contains(module));
        Self { sources }
    }

    /// The file that defines what `path` names: the deepest module on the path, or where a `pub use` there leads.
    fn definition(&self, path: &[String]) -> Option<Module> {
        let mut path = path.to_vec();
        for _ in 0..8 {
            let depth = (0..=path.len()).rev().find(|&k| self.sources.contains_key(&path[..k]))?;
            // A module that is only named as a whole ("use crate::raster;") is used where its items are.
            let item = path.get(depth)?;
            let module = &path[..depth];
            match self.sources[module].reexports.get(item) {
                Some(target) => path = target.clone(),
                None => return Some(module.to_vec()),
            }
        }
        None
    }

    /// Which file imports which.
    fn edges(&self) -> BTreeMap<Module, BTreeSet<Module>> {
        let defined = |path: &Module| self.definition(path);
        self.sources
            .iter()
            .map(|(module, source)| {
                let mut to: BTreeSet<Module> = source.named.iter().filter_map(defined).collect();
                to.remove(module);
                (module.clone(), to)
            })
            .collect()
    }
}

/// Reads what one file imports and names.
struct Reader<'a> {
    module: Module,
    modules: &'a BTreeMap<Module, syn::File>,
    source: Source,
}

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|a| {
        a.path().is_ident("test")
            || a.path().is_ident("cfg")
                && a.parse_args::<syn::Ident>().is_ok_and(|condition| condition == "test")
    })
}

impl Reader<'_> {
    /// The path from the crate's root, if it leads into this crate.
    fn absolute(&self, path: &[String]) -> Option<Module> {
        let mut rest = path;
        let mut absolute = match rest.first()?.as_str() {
            "crate" => Vec::new(),
            "self" | "super" => self.module.clone(),
            first => {
                let mut absolute = match self.source.imports.get(first) {
                    Some(meaning) => meaning.clone(),
                    None => {
                        let child: Module = self.module.iter().cloned().chain([first.to_owned()]).collect();
                        self.modules.contains_key(&child).then_some(child)?
                    }
                };
                absolute.extend_from_slice(&rest[1..]);
                return Some(absolute);
            }
        };
        if rest[0] != "super" {
            rest = &rest[1..];
        }
        while rest.first().is_some_and(|s| s == "super") {
            absolute.pop()?;
            rest = &rest[1..];
        }
        absolute.extend_from_slice(rest);
        Some(absolute)
    }

    fn read_imports(&mut self, items: &[syn::Item]) {
        for item in items {
            match item {
                syn::Item::Use(item) if !is_for_tests(&item.attrs) => {
                    let public = !matches!(item.vis, syn::Visibility::Inherited);
                    let mut leaves = Vec::new();
                    flatten(&item.tree, &mut Vec::new(), &mut leaves);
                    for (path, name) in leaves {
                        let Some(absolute) = self.absolute(&path) else { continue };
                        let own = absolute.len() > self.module.len() && absolute.starts_with(&self.module);
                        if public && own {
                            self.source.reexports.insert(name, absolute);
                        } else {
                            self.source.named.insert(absolute.clone());
                            self.source.imports.insert(name, absolute);
                        }
                    }
                }
                syn::Item::Mod(item) if is_for_tests(&item.attrs) => {
                    self.source.test_modules.insert(item.ident.to_string());
                }
                _ => {}
            }
        }
    }

    fn name(&mut self, path: &[String]) {
        if path.len() > 1
            && let Some(absolute) = self.absolute(path)
        {
            self.source.named.insert(absolute);
        }
    }

    /// Paths inside a macro's arguments, which are not parsed: names joined by `::`.
    fn name_tokens(&mut self, tokens: TokenStream) {
        let (mut path, mut colons) = (Vec::new(), 0);
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.name(&path);
                        path.clear();
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                other => {
                    self.name(&path);
                    path.clear();
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.name_tokens(group.stream());
                    }
                }
            }
        }
        self.name(&path);
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes: &[syn::Attribute] = match item {
            syn::Item::Mod(i) => &i.attrs,
            syn::Item::Fn(i) => &i.attrs,
            syn::Item::Impl(i) => &i.attrs,
            syn::Item::Use(_) => return, // read before
            syn::Item::Const(i) => &i.attrs,
            syn::Item::Struct(i) => &i.attrs,
            _ => &[],
        };
        if !is_for_tests(attributes) {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_for_tests(&item.attrs) {
            syn::visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        self.name(&segments);
        syn::visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        self.name_tokens(item.tokens.clone());
    }

    // `pub(super)` and `pub(in path)` are no imports.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
}

/// The single imports of a `use` with the names they give.
fn flatten(tree: &syn::UseTree, prefix: &mut Vec<String>, leaves: &mut Vec<(Vec<String>, String)>) {
    match tree {
        syn::UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            flatten(&path.tree, prefix, leaves);
            prefix.pop();
        }
        syn::UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, prefix, leaves)),
        syn::UseTree::Name(name) if name.ident == "self" => {
            leaves.push((prefix.clone(), prefix.last().unwrap().clone()));
        }
        syn::UseTree::Name(name) => {
            let path = prefix.iter().cloned().chain([name.ident.to_string()]).collect();
            leaves.push((path, name.ident.to_string()));
        }
        syn::UseTree::Rename(rename) => {
            let mut path = prefix.clone();
            if rename.ident != "self" {
                path.push(rename.ident.to_string());
            }
            leaves.push((path, rename.rename.to_string()));
        }
        syn::UseTree::Glob(_) => {
            leaves.push((prefix.iter().cloned().chain(["*".into()]).collect(), "*".into()))
        }
    }
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// Finds functions that open a file to read it and flush one.
#[derive(Default)]
struct Flushes {
    opens: bool,
    flushes: bool,
    found: Vec<String>,
}

impl Flushes {
    fn of(text: &str) -> Vec<String> {
        let mut flushes = Self::default();
        flushes.visit_file(&syn::parse_file(text).unwrap());
        flushes.found
    }

    fn look_into(&mut self, function: &syn::Ident, visit: impl FnOnce(&mut Self)) {
        let around = (std::mem::take(&mut self.opens), std::mem::take(&mut self.flushes));
        visit(self);
        if self.opens && self.flushes {
            self.found.push(function.to_string());
        }
        (self.opens, self.flushes) = around;
    }
}

impl<'ast> Visit<'ast> for Flushes {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.look_into(&item.sig.ident, |inner| syn::visit::visit_item_fn(inner, item));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.look_into(&item.sig.ident, |inner| syn::visit::visit_impl_item_fn(inner, item));
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        self.opens |= names.ends_with(&["File", "open"].map(str::to_owned));
        self.flushes |= names.ends_with(&["File", "sync_all"].map(str::to_owned));
        syn::visit::visit_path(self, path);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        self.flushes |= call.method == "sync_all" || call.method == "sync_data";
        syn::visit::visit_expr_method_call(self, call);
    }
}

/// Files that import each other, directly or round others: the circles of the graph (Tarjan's strongly connected components,
/// by their definition, as there are few files).
fn circles(edges: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<Vec<String>> {
    let reachable = |from: &Module| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(next) = open.pop() {
            for to in edges.get(next).into_iter().flatten() {
                if seen.insert(to) {
                    open.push(to);
                }
            }
        }
        seen
    };
    let reach: BTreeMap<&Module, BTreeSet<&Module>> = edges.keys().map(|m| (m, reachable(m))).collect();
    let mut found: BTreeSet<Vec<String>> = BTreeSet::new();
    for (module, reached) in &reach {
        let circle: Vec<String> = std::iter::once(*module)
            .chain(reached.iter().copied().filter(|other| other != module && reach[*other].contains(*module)))
            .map(|m| m.join("::"))
            .collect();
        if reached.contains(*module) && circle.len() > 1 {
            let mut circle = circle;
            circle.sort();
            found.insert(circle);
        }
    }
    found.into_iter().collect()
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The storeys of `core/src` in ARCHITECTURE.md: the names on the lines of the block after "## Storeys", the lowest line last.
fn storeys() -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(workspace().join("ARCHITECTURE.md")).unwrap();
    let section = text.split("\n## Storeys\n").nth(1).expect("ARCHITECTURE.md has a section on the storeys");
    let block = section.split("```").nth(1).expect("the section has a block");
    let names = |line: &str| line.split('#').next().unwrap().split_whitespace().map(str::to_owned).collect();
    let highest_first: Vec<Vec<String>> = block.lines().skip(1).map(names).collect();
    highest_first.into_iter().rev().filter(|names| !names.is_empty()).collect()
}

/// Imports of `edges` that do not lead to a lower storey.
fn upward(edges: &BTreeMap<Module, BTreeSet<Module>>, storeys: &[Vec<String>]) -> Vec<String> {
    let storey = |module: &Module| {
        module.first().map(|room| {
            let at = storeys.iter().position(|names| names.contains(room));
            at.unwrap_or_else(|| panic!("ARCHITECTURE.md does not say on which storey {room} is"))
        })
    };
    let mut found = Vec::new();
    for (from, targets) in edges {
        let Some(above) = storey(from) else { continue };
        for to in targets.iter().filter(|to| to.first() != from.first()) {
            // The crate's root holds the version and the names it hands on.
            let below = storey(to);
            if below.is_some_and(|below| below >= above) {
                found.push(format!("{} imports {}", from.join("::"), to.join("::")));
            }
        }
    }
    found
}

#[test]
fn the_core_imports_downward_only() {
    let edges = Crate::read(&workspace().join("core/src")).edges();
    let storeys = storeys();
    let names: Vec<&String> = storeys.iter().flatten().collect();
    for room in edges.keys().filter_map(|m| m.first()) {
        assert!(names.contains(&room), "ARCHITECTURE.md does not say on which storey {room} is");
    }
    for name in &names {
        assert!(edges.keys().any(|m| m.first() == Some(name)), "there is no {name} in core/src");
        assert_eq!(names.iter().filter(|n| n == &name).count(), 1, "{name} stands twice");
    }
    let found = upward(&edges, &storeys);
    assert!(found.is_empty(), "imports that do not point downward:\n{}", found.join("\n"));
}

#[test]
fn no_files_import_each_other() {
    let mut found = Vec::new();
    for name in ["core/src", "server/src", "python/src"] {
        let edges = Crate::read(&workspace().join(name)).edges();
        let all = circles(&edges).into_iter().map(|circle| format!("{name}: {}", circle.join(", ")));
        found.extend(all);
    }
    assert!(found.is_empty(), "files that import each other:\n{}", found.join("\n"));
}

/// Windows flushes nothing that was opened to be read. Who flushes what another wrote calls `files::sync_file`, and for names in a
/// folder `files::sync_folder`.
#[test]
fn nothing_is_flushed_that_was_opened_to_be_read() {
    for text in [
        "fn a() { File::open(p).and_then(|f| f.sync_all()) }",
        "impl A { fn a() { let f = std::fs::File::open(p)?; f.sync_data()?; } }",
        "fn a() { std::fs::File::open(p).and_then(|f| File::sync_all(&f)) }",
    ] {
        assert_eq!(Flushes::of(text), ["a"], "{text}");
    }
    let apart = "fn a() { File::open(p)?; fn b() { f.sync_all() } } fn c() { File::create(p)?.sync_all() }";
    assert_eq!(Flushes::of(apart), [] as [&str; 0]);
    let mut found = Vec::new();
    for name in ["core/src", "server/src", "ffi/src", "python/src"] {
        let mut paths = Vec::new();
        rust_files(&workspace().join(name), &mut paths);
        for path in paths.iter().filter(|path| !path.ends_with("core/src/files.rs")) {
            let functions = Flushes::of(&std::fs::read_to_string(path).unwrap());
            found.extend(functions.iter().map(|function| format!("{}: {function}", path.display())));
        }
    }
    assert!(found.is_empty(), "what was opened to be read is flushed:\n{}", found.join("\n"));
}

/// The tests above would see nothing if the reader saw nothing: it finds what these files import, one kind of import each.
#[test]
fn every_kind_of_import_is_seen() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    file("lib.rs", "mod low; mod high; mod middle;");
    file("low/mod.rs", "mod inner; pub use inner::Thing; pub fn item() {}");
    file("low/inner.rs", "pub struct Thing; #[cfg(test)] mod tests { use crate::high::a::X; }");
    file("middle.rs", "use crate::low; pub fn f() { let _ = low::item(); }");
    file("high/mod.rs", "mod a; mod b; mod c; mod d; #[cfg(test)] mod tests;");
    file("high/a.rs", "pub struct X; use crate::low::Thing;");
    file("high/b.rs", "pub fn f() -> super::a::X { super::a::X }");
    file("high/c.rs", "fn f() { assert!(matches!(1, crate::middle::f)); }");
    file("high/d.rs", "use super::{a::{self, X}, d2}; mod e { }");
    file("high/d2.rs", "pub fn g() { super::d::f() }");
    file("high/tests.rs", "use crate::high::b::f;");
    let edges = Crate::read(folder.path()).edges();
    let of = |module: &str| -> Vec<String> {
        let module: Module = module.split("::").map(str::to_owned).collect();
        edges[&module].iter().map(|m| m.join("::")).collect()
    };
    assert_eq!(of("middle"), ["low"]);
    assert_eq!(of("high::a"), ["low::inner"]);
    assert_eq!(of("high::b"), ["high::a"]);
    assert_eq!(of("high::c"), ["middle"]);
    assert_eq!(of("high::d"), ["high::a"]);
    assert_eq!(of("high::d2"), ["high::d"]);
    assert_eq!(of("low::inner"), [] as [&str; 0]);
    assert!(!edges.contains_key(["high", "tests"].map(str::to_owned).as_slice()));
    let order = |names: [&str; 3]| names.map(|n| vec![n.to_owned()]).to_vec();
    assert_eq!(upward(&edges, &order(["low", "middle", "high"])), [] as [&str; 0]);
    assert_eq!(
        upward(&edges, &order(["middle", "low", "high"])),
        ["middle imports low"],
        "an import that points up is found"
    );
    assert_eq!(circles(&edges), [] as [Vec<String>; 0]);
    file("high/a.rs", "pub struct X; use super::b;  fn f() { b::f(); }");
    assert_eq!(circles(&Crate::read(folder.path()).edges()), [["high::a", "high::b"]]);
}
