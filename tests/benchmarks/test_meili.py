from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks import meili


def test_a_manifest_names_the_version_of_valhalla_that_is_unpacked_or_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(meili, "_PACKAGE", tmp_path / "valhalla")
    assert meili.version() == ""
    assert meili.missing() is not None
    (tmp_path / "pyvalhalla-3.9.1.dist-info").mkdir()
    assert meili.version() == "3.9.1"
