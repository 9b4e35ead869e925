"""The service's certificate, and its replacement when the files change."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from pathlib import Path

import pytest
from underpass_control.http.tls import ShownCertificate


def make(folder: Path, name: str) -> tuple[Path, Path]:
    """Make a certificate with its own key; return both files."""
    certificate, key = folder / "tls.crt", folder / "tls.key"
    curve = "ec_paramgen_curve:prime256v1"
    command = ["openssl", "req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", curve]
    command += ["-subj", f"/CN={name}", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


def test_a_certificate_that_is_replaced_is_shown_without_a_restart(tmp_path: Path) -> None:
    asyncio.run(_replaced(tmp_path))


async def _replaced(tmp_path: Path) -> None:
    certificate, key = make(tmp_path, "first")
    shown = ShownCertificate(certificate, key)

    async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(close, "127.0.0.1", 0, ssl=shown.context) as server:
        address = server.sockets[0].getsockname()

        async def seen() -> str:
            await shown.look()
            return (await asyncio.to_thread(ssl.get_server_certificate, address)).strip()

        first = certificate.read_text().strip()
        assert await seen() == first
        make(tmp_path, "second")
        second = certificate.read_text().strip()
        assert second != first
        assert await seen() == second
        # Half replaced: first the key does not match, then there is none.
        kept = key.read_text()
        make(tmp_path, "third")
        key.write_text(kept)
        assert await seen() == second
        key.unlink()
        assert await seen() == second
        make(tmp_path, "fourth")
        assert await seen() == certificate.read_text().strip()


def test_files_that_do_not_belong_together_are_refused_at_the_start(tmp_path: Path) -> None:
    certificate, key = make(tmp_path, "one")
    kept = key.read_text()
    make(tmp_path, "other")
    key.write_text(kept)
    with pytest.raises(OSError):
        ShownCertificate(certificate, key)
