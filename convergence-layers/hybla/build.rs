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
    compile_program(&out.join("hybla.bpf.o"), &headers);
    cc::Build::new()
        .file(format!("{SOURCES}/arithmetic.c"))
        .warnings(true)
        .compile("hybla_arithmetic");
}

fn compile_program(object: &Path, headers: &str) {
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    // -g: the loader takes the types (BTF) that CO-RE relocates by from debug information.
    // -mcpu=v3: 32-bit registers and jumps, which every kernel that has struct_ops links knows.
    let status = Command::new(&clang)
        .args([
            "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror",
        ])
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
