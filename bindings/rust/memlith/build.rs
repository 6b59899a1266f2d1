//! Programs and tests find the library where memlith-sys found it.

fn main() {
    if let Ok(folder) = std::env::var("DEP_MEMLITH_LIBDIR") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
    }
}
