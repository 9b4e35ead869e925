"""`make mutants` can be interrupted, and goes on where it was."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

_SCRIPT = Path(__file__).parents[1] / ".ci" / "mutants"
# In place of cargo-mutants: says what its tree has, changes that, and misses a change in shard 1.
_STUB = """#!/bin/bash
[[ "$*" =~ --dir\\ ([^ ]+)\\ --shard\\ ([0-9]+)/3\\ --output\\ ([^ ]+) ]] || exit 1
echo "shard ${BASH_REMATCH[2]} of $(<"${BASH_REMATCH[1]}/code")"
echo changed >"${BASH_REMATCH[1]}/code"
mkdir -p "${BASH_REMATCH[3]}/mutants.out"
if [ "${BASH_REMATCH[2]}" = 1 ]; then
    echo 'a.rs:1: replace + with -' >"${BASH_REMATCH[3]}/mutants.out/missed.txt"
    [ -z "${INTERRUPTED:-}" ] || exit 70
    exit 2
fi
"""
_MISSED = "a.rs:1: replace + with -\n"


def git(folder: Path, *arguments: str) -> None:
    names = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", "-C", str(folder), *names, *arguments], check=True)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a repository with the script, of three shards, and the stub."""
    tree = tmp_path / "repository"
    for folder in (".ci", ".tools/bin"):
        (tree / folder).mkdir(parents=True)
    script = _SCRIPT.read_text()
    assert "\nSHARDS=200\n" in script
    (tree / ".ci" / "mutants").write_text(script.replace("SHARDS=200", "SHARDS=3"))
    shutil.copymode(_SCRIPT, tree / ".ci" / "mutants")
    (tree / ".tools" / "bin" / "cargo-mutants").write_text(_STUB)
    (tree / ".tools" / "bin" / "cargo-mutants").chmod(0o755)
    (tree / ".gitignore").write_text("target\n.tools\n")
    (tree / "code").write_text("first\n")
    git(tree, "init", "--quiet")
    git(tree, "add", "--all")
    git(tree, "commit", "--quiet", "--message", "first")
    return tree


def call(tree: Path, *arguments: str, **environment: str) -> tuple[int, list[str]]:
    """Call the script; return its exit status and the shards that it tried."""
    done = subprocess.run(
        [".ci/mutants", *arguments],
        cwd=tree,
        env={name: value for name, value in os.environ.items() if name != "CARGO_TARGET_DIR"}
        | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, [line for line in done.stdout.splitlines() if line.startswith("shard")]


def missed(tree: Path) -> str:
    return (tree / "target" / "mutants" / "missed.txt").read_text()


def test_an_interrupted_shard_is_repeated_on_the_commit_that_was_begun(tree: Path) -> None:
    code, tried = call(tree, INTERRUPTED="yes")
    assert (code, tried) == (70, ["shard 0 of first", "shard 1 of first"])
    assert missed(tree) == _MISSED
    (tree / "code").write_text("second\n")
    git(tree, "commit", "--quiet", "--all", "--message", "second")
    # What was missed fails only once all shards are done.
    assert call(tree, MINUTES="0") == (0, [])
    assert call(tree) == (1, ["shard 1 of first", "shard 2 of first"])
    assert missed(tree) == _MISSED
    assert call(tree) == (1, [])


def test_it_begins_anew_with_the_present_commit(tree: Path) -> None:
    call(tree)
    (tree / "code").write_text("second\n")
    git(tree, "commit", "--quiet", "--all", "--message", "second")
    assert call(tree, "--anew") == (1, [f"shard {shard} of second" for shard in range(3)])


def test_the_tree_itself_is_not_changed(tree: Path) -> None:
    call(tree)
    assert (tree / "code").read_text() == "first\n"
