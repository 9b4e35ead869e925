"""The manifest: what a campaign was measured with. Its report takes no other results."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.benchmarks import meili, subjects
from tests.benchmarks.campaign.plan import Entry
from tests.benchmarks.records import git, machine, write_whole
from tests.testbed.programs import built

FILE = "manifest.json"
_PROGRAMS = ("underpass", "satlink")
# A complete volume changes these, and no experiment reads them.
_WRITTEN = ("tests/benchmarks/results", "README.md")
# The Debian packages of the peers and of the load generators.
_PEERS = ("kcptun", "shadowsocks-libev", "haproxy", "iperf3", "postgresql")


class CampaignError(RuntimeError):
    """A campaign cannot begin or go on; the text says why, and what to do."""


@dataclass
class Manifest:
    """One commit, one machine, one list of experiments; and the times of each portion."""

    id: str
    commit: str
    # SHA-256 of the measured programs.
    programs: dict[str, str]
    machine: dict[str, object]
    peers: dict[str, str]
    # By experiment: its settings.
    experiments: dict[str, dict[str, object]]
    seed: int
    # A trial lacks some experiments or runs: it never replaces the results.
    trial: bool
    started: str
    ended: str | None = None
    portions: list[dict[str, str]] = field(default_factory=list)

    def save(self, folder: Path) -> None:
        """Write it into the campaign's folder."""
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / FILE, json.dumps(dataclasses.asdict(self), indent=1) + "\n")

    def differences(self, other: Manifest) -> list[str]:
        """Return the differences to another manifest that forbid to continue with it."""
        names = ("commit", "programs", "machine", "peers", "experiments", "seed", "trial")
        return [
            f"{name} (was {getattr(self, name)}, is {getattr(other, name)})"
            for name in names
            if getattr(self, name) != getattr(other, name)
        ]


def load_manifest(folder: Path) -> Manifest | None:
    """Read a folder's manifest; None if it has none."""
    path = folder / FILE
    return Manifest(**json.loads(path.read_text())) if path.exists() else None


def made_now(entries: Sequence[Entry], *, seed: int, trial: bool) -> Manifest:
    """Make the manifest of a campaign that begins now; refuse a tree with changes."""
    commit = clean_commit()
    if not commit:
        raise CampaignError("a campaign is of one commit, and this is no git repository")
    moment = now()
    return Manifest(
        id=f"{moment[:16].replace(':', '')}-{commit[:7]}",
        commit=commit,
        programs=_programs(),
        machine=machine(),
        peers={name: _version(name) for name in _PEERS} | {"pyvalhalla": meili.version()},
        experiments={entry.name: described(entry) for entry in entries},
        seed=seed,
        trial=trial,
        started=moment,
    )


def check_unchanged(begun: Manifest) -> None:
    """Refuse to continue if the tree or the programs have changed meanwhile."""
    if (commit := clean_commit()) != begun.commit:
        raise CampaignError(f"the campaign is of commit {begun.commit}, and now it is {commit}")
    if (programs := _programs()) != begun.programs:
        raise CampaignError(f"the campaign measures {begun.programs}, and now there is {programs}")


def clean_commit() -> str:
    """Return the tree's commit, "" if it has none; refuse a tree with changes."""
    others = [f":(top,exclude){path}" for path in _WRITTEN]
    if changed := git("status", "--porcelain", "--", ":/", *others):
        raise CampaignError(f"only a commit is measured: commit or stash first:\n{changed}")
    return git("rev-parse", "HEAD")


def _programs() -> dict[str, str]:
    return {name: sha256(Path(built(name))) for name in _PROGRAMS}


def described(entry: Entry) -> dict[str, object]:
    """Return an experiment's settings."""
    return {
        "subjects": [name for name in subjects.NAMES if name in entry.subjects],
        "runs": entry.runs,
        "peer_runs": entry.peer_runs,
        "beside others": entry.share < 1,
        "expected_s": round(entry.expected_s),
    }


def now() -> str:
    """Return the time of day, UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def sha256(path: Path) -> str:
    """Return a file's SHA-256, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _version(package: str) -> str:
    """Return an installed Debian package's version, "" if it is not there."""
    if not shutil.which("dpkg-query"):
        return ""
    query = ["dpkg-query", "-W", "-f=${Version}", package]
    return subprocess.run(query, capture_output=True, text=True, check=False).stdout
