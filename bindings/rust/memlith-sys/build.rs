//! Makes the bindings of the installed headers: constants, structs and functions, none of which is copied by hand.
//!
//! The headers are found in MEMLITH_INCLUDE_DIR, and the library in MEMLITH_LIB_DIR; without these two, by pkg-config;
//! and else in the tree that this crate lies in (include and build/release/lib).
//!
//! The library of the system is linked as a shared one. A library in any other folder becomes part of the program,
//! because programs would not find it there: the build script of a dependency cannot set the run path of a program.
//!
//! The headers of memlith are plain C: enums of constants, typedefs of structs, functions marked MEMLITH_API. A
//! declaration that is of another form fails the build, so that nothing is left out unnoticed.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const HEADERS: [&str; 9] =
    ["status.h", "store.h", "region.h", "transaction.h", "kv.h", "applog.h", "heap.h", "copy.h", "archive.h"];

fn main() {
    println!("cargo:rerun-if-env-changed=MEMLITH_INCLUDE_DIR");
    println!("cargo:rerun-if-env-changed=MEMLITH_LIB_DIR");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    let Places { include, library, shared } = places();
    println!("cargo:rustc-link-search=native={}", library.display());
    if shared {
        println!("cargo:rustc-link-lib=dylib=memlith");
    } else {
        link_into_program(&library);
    }
    let mut output = String::new();
    for header in HEADERS {
        let path = include.join("memlith").join(header);
        println!("cargo:rerun-if-changed={}", path.display());
        let text = fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}; set MEMLITH_INCLUDE_DIR and MEMLITH_LIB_DIR", path.display()));
        bindings_of(&text, &path, &mut output);
    }
    let target = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("bindings.rs");
    fs::write(target, output).expect("the bindings can be written");
}

struct Places {
    include: PathBuf,
    library: PathBuf,
    shared: bool, // programs find the shared library there
}

fn places() -> Places {
    let named = (env::var_os("MEMLITH_INCLUDE_DIR"), env::var_os("MEMLITH_LIB_DIR"));
    if let (Some(include), Some(library)) = named {
        return Places { include: include.into(), library: library.into(), shared: false };
    }
    let installed = |what| pkg_config(&[what, "memlith"], &[]);
    if let (Some(include), Some(library), Some(flags)) =
        (installed("--variable=includedir"), installed("--variable=libdir"), installed("--libs"))
    {
        // memlith.pc names a run path where programs need one.
        return Places { include: include.into(), library: library.into(), shared: !flags.contains("-rpath") };
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    Places { include: root.join("include"), library: root.join("build/release/lib"), shared: false }
}

/// Links libmemlith.a, and the libraries that memlith.pc lists for it.
fn link_into_program(folder: &Path) {
    let archive = folder.join("libmemlith.a");
    let hint = "build memlith (./dev build), or name another one with MEMLITH_INCLUDE_DIR and MEMLITH_LIB_DIR";
    assert!(archive.exists(), "{} is missing: {hint}", archive.display());
    let beside = [folder.join("pkgconfig"), folder.join("../package")]; // installed, and built
    let libraries = pkg_config(&["--static", "--libs-only-l", "memlith"], &beside).unwrap_or_else(|| {
        panic!("no pkg-config, or no memlith.pc in {} or {}", beside[0].display(), beside[1].display())
    });
    println!("cargo:rerun-if-changed={}", archive.display());
    println!("cargo:rustc-link-lib=static=memlith");
    for library in libraries.split_whitespace().filter_map(|word| word.strip_prefix("-l")) {
        if library != "memlith" {
            println!("cargo:rustc-link-lib=dylib={library}");
        }
    }
}

/// The answer of pkg-config, which looks into these folders first.
fn pkg_config(arguments: &[&str], folders: &[PathBuf]) -> Option<String> {
    let named = env::var_os("PKG_CONFIG_PATH").unwrap_or_default();
    let path = env::join_paths(folders.iter().cloned().chain(env::split_paths(&named))).ok()?;
    let asked = Command::new("pkg-config").env("PKG_CONFIG_PATH", path).args(arguments).output().ok()?;
    let text = String::from_utf8(asked.stdout).ok()?;
    (asked.status.success() && !text.trim().is_empty()).then(|| text.trim().into())
}

// ---- the headers ---------------------------------------------------------------------------------------------------

fn bindings_of(text: &str, path: &Path, output: &mut String) {
    let mut constants = Vec::new();
    for declaration in declarations(text, &mut constants) {
        let words = declaration.split_whitespace().collect::<Vec<_>>().join(" ");
        let done = enumeration(&words, output) || structure(&words, output) || function(&words, output);
        assert!(done, "{}: a declaration that the bindings do not know: {words}", path.display());
    }
    for (name, value) in constants {
        let value = if value == "UINT64_MAX" { "u64::MAX" } else { value.trim_end_matches('u') };
        writeln!(output, "pub const {name}: u64 = {value};").unwrap();
    }
}

/// The declarations between the semicolons of the file, without comments and what is inline; and the constants that
/// `#define` names.
fn declarations(text: &str, constants: &mut Vec<(String, String)>) -> Vec<String> {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(begin) = rest.find("/*") {
        plain.push_str(&rest[..begin]);
        rest = rest[begin..].find("*/").map_or("", |end| &rest[begin + end + 2..]);
    }
    plain.push_str(rest);

    let mut code = String::new();
    let mut skipped = 0; // within #ifdef __cplusplus or #if defined(__GNUC__)
    for line in plain.lines() {
        let line = line.split("//").next().unwrap_or("").trim();
        if line.starts_with("#if") && !line.starts_with("#ifndef") {
            skipped += 1;
        } else if line.starts_with("#endif") && skipped > 0 {
            skipped -= 1;
        } else if skipped == 0 {
            match line.strip_prefix("#define ").and_then(|define| define.split_once(' ')) {
                Some((name, value)) => constants.push((name.into(), value.trim().into())),
                None if line.starts_with('#') => {}
                None => {
                    code.push_str(line);
                    code.push(' ');
                }
            }
        }
    }

    let mut found = Vec::new();
    let (mut depth, mut one) = (0, String::new());
    for letter in code.chars() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ';' if depth == 0 => {
                found.push(std::mem::take(&mut one));
                continue;
            }
            _ => {}
        }
        one.push(letter);
        if depth == 0 && letter == '}' && one.trim_start().starts_with("static inline") {
            one.clear(); // memlith_category() and the like, which the crate has in Rust
        }
    }
    found.retain(|each| !each.trim().is_empty());
    found
}

/// `enum { A = 1, B = 2 }`: constants, which C's functions take as int32_t or uint32_t.
fn enumeration(words: &str, output: &mut String) -> bool {
    let Some(body) = words.strip_prefix("enum {").and_then(|rest| rest.strip_suffix('}')) else { return false };
    for each in body.split(',').map(str::trim).filter(|each| !each.is_empty()) {
        let (name, value) = each.split_once('=').unwrap_or_else(|| panic!("a constant without a value: {each}"));
        writeln!(output, "pub const {}: u32 = {};", name.trim(), value.trim()).unwrap();
    }
    true
}

/// `typedef struct A A`, `typedef struct A { ... } A`, `typedef uint32_t A`.
fn structure(words: &str, output: &mut String) -> bool {
    let Some(rest) = words.strip_prefix("typedef ") else { return false };
    let Some(body) = rest.strip_prefix("struct ") else {
        let (known, name) = rest.rsplit_once(' ').expect("a typedef has a name");
        writeln!(output, "pub type {name} = {};", type_of(known)).unwrap();
        return true;
    };
    let Some((name, fields)) = body.split_once('{') else {
        let name = body.split(' ').next().unwrap_or(body);
        let lines = "_memory: [u8; 0], _pinned: core::marker::PhantomData<(*mut u8, core::marker::PhantomPinned)>";
        writeln!(output, "#[repr(C)]\npub struct {name} {{ {lines} }}").unwrap();
        return true;
    };
    writeln!(output, "#[repr(C)]\n#[derive(Clone, Copy, Debug)]\npub struct {} {{", name.trim()).unwrap();
    let fields = &fields[..fields.rfind('}').expect("a struct ends")];
    for field in fields.split(';').map(str::trim).filter(|field| !field.is_empty()) {
        let (name, kind) = variable(field);
        writeln!(output, "    pub {name}: {kind},").unwrap();
    }
    writeln!(output, "}}").unwrap();
    true
}

fn function(words: &str, output: &mut String) -> bool {
    let Some(rest) = words.strip_prefix("MEMLITH_API ") else { return false };
    let (head, parameters) = rest.split_once('(').expect("a function has parameters");
    let (returned, name) = split_name(head);
    let parameters = parameter_list(parameters.trim_end().strip_suffix(')').expect("a function ends with )"));
    let result = if returned == "void" { String::new() } else { format!(" -> {}", type_of(&returned)) };
    writeln!(output, "extern \"C\" {{ pub fn {name}({}){result}; }}", parameters.join(", ")).unwrap();
    true
}

fn parameter_list(text: &str) -> Vec<String> {
    let (mut depth, mut one, mut all) = (0, String::new(), Vec::new());
    for letter in text.chars() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                all.push(std::mem::take(&mut one));
                continue;
            }
            _ => {}
        }
        one.push(letter);
    }
    all.push(one);
    all.iter()
        .map(|each| each.trim())
        .filter(|each| !each.is_empty() && *each != "void")
        .map(|each| {
            let (name, kind) = variable(each);
            format!("{name}: {kind}")
        })
        .collect()
}

/// A field or a parameter: `const char* name`, `char name[200]`, `void (*name)(void* context, uint64_t bytes)`.
fn variable(text: &str) -> (String, String) {
    if let Some((result, rest)) = text.split_once("(*") {
        let (name, parameters) = rest.split_once(")(").expect("a pointer to a function has parameters");
        let parameters = parameter_list(parameters.strip_suffix(')').expect("the parameters end"));
        let result = if result.trim() == "void" { String::new() } else { format!(" -> {}", type_of(result.trim())) };
        return (name.into(), format!("Option<unsafe extern \"C\" fn({}){result}>", parameters.join(", ")));
    }
    if let Some((declared, count)) = text.split_once('[') {
        let (kind, name) = split_name(declared);
        return (name, format!("[{}; {}]", type_of(&kind), count.trim_end_matches(']')));
    }
    let (kind, name) = split_name(text);
    (name, type_of(&kind))
}

/// "const char* name" is "const char*" and "name".
fn split_name(text: &str) -> (String, String) {
    let text = text.trim();
    let at = text.rfind([' ', '*']).unwrap_or_else(|| panic!("a type and a name: {text}"));
    let name = match &text[at + 1..] {
        "type" => "type_".to_string(), // a word of Rust
        name => name.to_string(),
    };
    (text[..=at].trim().to_string(), name)
}

fn type_of(c: &str) -> String {
    let c = c.trim();
    if let Some(pointee) = c.strip_suffix('*') {
        let pointee = pointee.trim();
        // `T* const*` is a pointer to constant pointers.
        if let Some(inner) = pointee.strip_suffix(" const").filter(|inner| inner.ends_with('*')) {
            return format!("*const {}", type_of(inner));
        }
        return match pointee.strip_prefix("const ").filter(|inner| !inner.contains('*')) {
            Some(inner) => format!("*const {}", type_of(inner)),
            None => format!("*mut {}", type_of(pointee)),
        };
    }
    match c {
        "void" => "core::ffi::c_void".into(),
        "char" => "core::ffi::c_char".into(),
        "int" => "core::ffi::c_int".into(),
        "size_t" => "usize".into(),
        "int32_t" => "i32".into(),
        "uint32_t" => "u32".into(),
        "uint64_t" => "u64".into(),
        name if name.starts_with("memlith_") => name.into(),
        _ => panic!("a type that the bindings do not know: {c}"),
    }
}
