//! Compiles the BPF program with clang, and its arithmetic for user space.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCES: &str = "src/bpf";

fn main() {
    println!("cargo:rerun-if-changed={SOURCES}");
    println!("cargo:rerun-if-env-changed=CLANG");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let headers = env::var("DEP_BPF_INCLUDE").expect("libbpf-sys says where its headers are");
    let here = env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    compile_program(&out.join("hybla.bpf.o"), &headers, &here);
    cc::Build::new()
        .file(format!("{SOURCES}/arithmetic.c"))
        .flag(in_place_of(&here, "."))
        .warnings(true)
        .compile("hybla_arithmetic");
}

/// The compilers' option that writes another name for a folder into what they make. The program
/// contains the BPF object, whose bytes must not depend on where it was compiled.
fn in_place_of(folder: &str, name: &str) -> String {
    format!("-ffile-prefix-map={folder}={name}")
}

fn compile_program(object: &Path, headers: &str, here: &str) {
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    // -g: the loader takes the types (BTF) that CO-RE relocates by from debug information.
    // -mcpu=v3: 32-bit registers and jumps, which every kernel that has struct_ops links knows.
    let status = Command::new(&clang)
        .args([
            "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror",
        ])
        .args([in_place_of(here, "."), in_place_of(headers, "include")])
        .args(["-I", headers, "-c", "-o"])
        .arg(object)
        .arg(format!("{SOURCES}/hybla.bpf.c"))
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{clang} could not compile {SOURCES}/hybla.bpf.c ({status})"),
        Err(error) => panic!("cannot run {clang} ({error}): install the package `clang`"),
    }
}
