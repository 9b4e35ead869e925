"""The build of the packages' program, with a stand-in for cargo."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_CARGO = """#!/bin/sh
echo "$@" >"$TOLD/arguments"
printf %s "$CARGO_ENCODED_RUSTFLAGS" >"$TOLD/rust"
printf %s "$CFLAGS" >"$TOLD/c"
printf %s "$CARGO_PROFILE_RELEASE_DEBUG" >"$TOLD/debug"
printf %s "$CARGO_TARGET_DIR" >"$TOLD/target"
"""


def test_no_compiler_writes_the_name_of_a_folder_of_this_machine(tmp_path: Path) -> None:
    cargo = tmp_path / "cargo"
    cargo.write_text(_CARGO)
    cargo.chmod(0o755)
    given = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "HOME": "/home/somebody",
        "CARGO_TARGET_DIR": "/var/built",
        "CFLAGS": "-O3",
        "RUSTFLAGS": "-C target-cpu=native  -Dwarnings",
        "TOLD": str(tmp_path),
    }
    subprocess.run([_ROOT / "packaging" / "program"], env=given, check=True)
    told = {name: (tmp_path / name).read_text() for name in ("rust", "c", "debug", "target")}
    named = [
        f"{_ROOT.resolve()}=/underpass",
        "/home/somebody/.cargo=/cargo",
        "/var/built/packaged=/target",
    ]
    own = ["-C", "target-cpu=native", "-Dwarnings"]
    assert told["rust"].split("\x1f") == [*own, *(f"--remap-path-prefix={one}" for one in named)]
    assert told["c"].split() == ["-O3", *(f"-ffile-prefix-map={one}" for one in named)]
    assert told["debug"] == "false"
    assert told["target"] == "/var/built/packaged"
    assert "--locked --release" in (tmp_path / "arguments").read_text()
