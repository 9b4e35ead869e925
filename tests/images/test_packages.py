"""The packages: built twice, and installed, upgraded, removed and purged on a fresh Debian."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.free_port import free_port
from tests.images.debian import Debian, NoDebianError
from tests.images.packages import build, copy_sources, deb
from tests.testbed import programs

pytestmark = [
    pytest.mark.skipif(
        "UNDERPASS_TEST_IMAGES" not in os.environ,
        reason="building and installing the packages takes minutes: `make test-images` does it",
    ),
    pytest.mark.timeout(1800),
]

_HUB = """
[node]
number = 1
role = "hub"
state_dir = "@/state"
[api]
socket = "@/run/api.sock"
[tls]
plain = true
[[listener]]
name = "sat"
listen = "127.0.0.1:{hop}"
[[terminal]]
node = 10
send_rate_bps = 16_000_000
rtt_ms = 20
[edge.dial]
allow_networks = ["127.0.0.0/8"]
"""

_TERMINAL = """
[node]
number = 10
role = "terminal"
[tls]
plain = true
[[path]]
name = "sat"
neighbour = 1
remote = "127.0.0.1:{hop}"
send_rate_bps = 16_000_000
receive_rate_bps = 16_000_000
rtt_ms = 20
[[outlet]]
node = 1
[edge]
client_networks = ["127.0.0.0/8"]
[[edge.listener]]
name = "socks"
protocol = "socks5"
address = "127.0.0.1:{socks}"
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("packages"))


@pytest.fixture
def debian(tmp_path: Path) -> Debian:
    try:
        return Debian(tmp_path / "debian")
    except NoDebianError as error:
        pytest.skip(str(error))


def test_the_same_programs_make_the_same_bytes_in_another_folder(
    packages: Path, tmp_path: Path
) -> None:
    again = build(tmp_path / "again", copy_sources(tmp_path / "another"))
    names = sorted(path.name for path in packages.iterdir())
    assert names == sorted(path.name for path in again.iterdir())
    assert sum(name.endswith((".deb", ".whl", ".tar.gz", ".cdx.json")) for name in names) == 6
    for name in names:
        assert (packages / name).read_bytes() == (again / name).read_bytes(), name


def test_the_size_in_a_package_is_that_of_its_files_alone(packages: Path, tmp_path: Path) -> None:
    for name in ("underpass", "underpass-control"):
        tree = tmp_path / name
        subprocess.run(["dpkg-deb", "--extract", deb(packages, name), tree], check=True)
        size_kib = sum(-(-one.stat().st_size // 1024) if one.is_file() else 1 for one in _all(tree))
        told = subprocess.run(
            ["dpkg-deb", "--field", deb(packages, name), "Installed-Size"],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        assert int(told.stdout) == size_kib


def test_a_terminals_stream_lives_through_the_packages_upgrade(
    packages: Path, debian: Debian, tmp_path: Path
) -> None:
    gateway = deb(packages, "underpass")
    told = debian.install(gateway)
    assert "write /etc/underpass/node.toml" in told
    debian.run("sh", "-c", "underpass --version && test -s /usr/share/man/man1/underpass.1.gz")
    hop, socks = free_port(), free_port()
    configuration = debian.folder / "etc/underpass/node.toml"
    configuration.write_text(_TERMINAL.format(hop=hop, socks=socks))
    # systemd would make this folder for the unit (RuntimeDirectory=).
    debian.run(
        "install", "-d", "-o", "underpass", "-g", "underpass", "-m", "0750", "/run/underpass"
    )
    terminal = debian.argv("runuser", "-u", "underpass", "--", "underpass", "run")
    with (
        _echo() as origin,
        _hub(tmp_path, hop),
        _processes_ended(debian),
        _process(terminal, tmp_path / "terminal.log"),
    ):
        client = _through(socks, origin)
        assert _said(client, b"before") == b"before"
        before = debian.processes("underpass")
        told = debian.install(_next_version(gateway, tmp_path))
        assert "goes on with the program of before" not in told, told
        assert debian.processes("underpass") - before
        assert _said(client, b"after") == b"after"
        assert '"node"' in debian.run("underpass", "status", "--json")

        # The new program refuses the configuration, so the old one goes on.
        configuration.write_text(configuration.read_text() + "nonsense = 1\n")
        told = debian.install(_next_version(gateway, tmp_path, "2"))
        assert "goes on with the program of before" in told
        assert _said(client, b"still") == b"still"


def test_the_gateways_purge_leaves_only_what_an_administrator_wrote(
    packages: Path, debian: Debian
) -> None:
    before = debian.files()
    debian.install(deb(packages, "underpass"))
    (debian.folder / "etc/underpass/node.toml").write_text("[node]\n")
    (debian.folder / "var/lib/underpass/custody").write_text("a bundle")
    debian.run("dpkg", "--remove", "underpass")
    # Custody survives a removal.
    assert (debian.folder / "var/lib/underpass/custody").exists()
    debian.run("dpkg", "--purge", "underpass")
    assert debian.files() - before == {"etc/underpass/node.toml"}
    assert before - debian.files() == set()
    assert "underpass" not in (debian.folder / "etc/passwd").read_text()


def test_the_control_service_is_installed_serves_and_is_purged(
    packages: Path, debian: Debian, tmp_path: Path
) -> None:
    before = debian.files()
    package = deb(packages, "underpass-control")
    debian.install(package)
    debian.run("sh", "-c", "test -s /usr/share/man/man1/underpass-control-terminal-set.1.gz")
    port = free_port()
    environment = debian.folder / "etc/underpass-control/environment"
    environment.write_text(environment.read_text() + "UNDERPASS_KEEP_PLANS_DAYS=3\n")
    start = "set -a; . /etc/underpass-control/environment; exec underpass-control serve --port"
    command = ["runuser", "-u", "underpass-control", "--", "sh", "-c", f"{start} {port}"]
    with _process(debian.argv(*command), tmp_path / "control.log"):
        page = _fetched(f"http://127.0.0.1:{port}/")
        assert "<html" in page
        assert _fetched(f"http://127.0.0.1:{port}/ready")
    assert (debian.folder / "var/lib/underpass-control/control.db").exists()
    debian.install(_next_version(package, tmp_path))
    # A changed conffile stays unchanged.
    assert "UNDERPASS_KEEP_PLANS_DAYS=3" in environment.read_text()
    debian.run("dpkg", "--remove", "underpass-control")
    assert (debian.folder / "var/lib/underpass-control/control.db").exists()
    debian.run("dpkg", "--purge", "underpass-control")
    assert debian.files() - before == set()
    assert "underpass" not in (debian.folder / "etc/passwd").read_text()


def test_the_wheel_has_console_and_migrations_and_is_what_the_sdist_makes(
    packages: Path, tmp_path: Path
) -> None:
    (wheel,) = packages.glob("*.whl")
    (sdist,) = packages.glob("*.tar.gz")
    names = _names(wheel)
    assert "underpass_control/console/index.html" in names
    assert any(name.startswith("underpass_control/migrations/versions/") for name in names)
    assert "underpass_control/functions/descriptors/proxy.toml" in names
    subprocess.run(["tar", "-xzf", sdist, "-C", tmp_path], check=True)
    made = tmp_path / "made"
    build = f"from setuptools import build_meta; build_meta.build_wheel({str(made)!r})"
    source = tmp_path / sdist.name.removesuffix(".tar.gz")
    subprocess.run([sys.executable, "-c", build], cwd=source, check=True, capture_output=True)
    assert _names(next(made.glob("*.whl"))) == names


def _next_version(package: Path, folder: Path, number: str = "1") -> Path:
    """Return the same files as a later version."""
    tree = folder / f"tree-{package.name}-{number}"
    subprocess.run(["dpkg-deb", "--raw-extract", package, tree], check=True)
    control = tree / "DEBIAN" / "control"
    lines = control.read_text().splitlines()
    control.write_text(
        "".join(f"{f'{x}.{number}' if x.startswith('Version: ') else x}\n" for x in lines)
    )
    made = folder / f"{package.stem}.{number}.deb"
    command: list[str | Path] = ["dpkg-deb", "--root-owner-group", "-Znone"]
    command += ["--build", tree, made]
    subprocess.run(command, check=True, capture_output=True)
    shutil.rmtree(tree)
    return made


@contextmanager
def _process(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as child:
        try:
            yield child
        finally:
            child.terminate()


@contextmanager
def _processes_ended(debian: Debian) -> Iterator[None]:
    """End the processes that continue for an upgraded node: they are no children of the test."""
    try:
        yield
    finally:
        debian.end("underpass")


@contextmanager
def _hub(folder: Path, hop: int) -> Iterator[None]:
    place = folder / "hub"
    place.mkdir()
    configuration = place / "node.toml"
    configuration.write_text(_HUB.format(hop=hop).replace("@", str(place)))
    command = [programs.built("underpass"), "run", "--config", str(configuration)]
    with _process(command, place / "log"):
        yield


@contextmanager
def _echo() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            # The end of the nodes resets the connection.
            with suppress(ConnectionResetError):
                while got := connection.recv(1000):
                    connection.sendall(got)

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]


def _through(socks: int, origin: int) -> socket.socket:
    """Connect to the origin through the terminal, once it is up (RFC 1928)."""
    request = b"\x05\x01\x00\x01\x7f\x00\x00\x01" + origin.to_bytes(2, "big")
    end = time.monotonic() + 120
    while True:
        try:
            client = socket.create_connection(("127.0.0.1", socks), timeout=60)
            client.sendall(b"\x05\x01\x00")
            assert client.recv(2) == b"\x05\x00"
            client.sendall(request)
            answer = client.recv(10)
            if answer[1:2] == b"\x00":
                return client
        except OSError:
            pass
        assert time.monotonic() < end, "the terminal does not carry a connection"
        time.sleep(0.5)


def _said(client: socket.socket, text: bytes) -> bytes:
    client.sendall(text)
    got = b""
    while len(got) < len(text):
        part = client.recv(100)
        assert part, "the connection was cut"
        got += part
    return got


def _fetched(url: str) -> str:
    end = time.monotonic() + 120
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - the loopback
                return str(answer.read().decode())
        except OSError:
            assert time.monotonic() < end, f"{url} does not answer"
            time.sleep(0.5)


def _all(tree: Path) -> list[Path]:
    """Return the folder and all that is in it."""
    return [tree, *tree.rglob("*")]


def _names(wheel: Path) -> list[str]:
    listed = subprocess.run(
        [sys.executable, "-m", "zipfile", "-l", wheel], check=True, capture_output=True, text=True
    )
    return sorted(line.split()[0] for line in listed.stdout.splitlines()[1:])
