"""The expiry of the service's own certificates: measured, and warned of in time."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from underpass_control.certificates import OwnCertificates, ends_of, shown_ends
from underpass_control.http.tls import ShownCertificate
from underpass_control.metrics import Metrics
from underpass_control.settings import Settings

_DAY_S = 86_400
_SOON = "a certificate of the service ends soon"
_OVER = "a certificate of the service has ended"


def make(certificate: Path, days: int) -> Path:
    """Make a certificate for this many days from now, with its key beside it; return the key."""
    key = certificate.with_suffix(".key")
    command = ["openssl", "req", "-x509", "-nodes", "-newkey", "ec"]
    command += ["-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", "/CN=control.example"]
    command += ["-days", str(days), "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return key


def end_of(certificate: Path) -> float:
    """Return when a file's first certificate ends, according to OpenSSL."""
    command = ["openssl", "x509", "-noout", "-enddate", "-dateopt", "iso_8601"]
    done = subprocess.run(
        [*command, "-in", str(certificate)], check=True, capture_output=True, text=True
    )
    command = ["date", "-u", "-d", done.stdout.strip().removeprefix("notAfter="), "+%s"]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measured(metrics: Metrics) -> dict[str, float]:
    """Return what the metric says, by certificate."""
    [family] = metrics.certificate_expiry.collect()
    return {one.labels["certificate"]: one.value for one in family.samples}


def test_ends_are_those_in_the_file_in_its_order(tmp_path: Path) -> None:
    own, other = tmp_path / "own.crt", tmp_path / "other.crt"
    make(own, 90)
    make(other, 30)
    chain = tmp_path / "tls.crt"
    chain.write_bytes(own.read_bytes() + other.read_bytes())
    assert ends_of(chain.read_bytes()) == [end_of(own), end_of(other)]
    assert shown_ends(chain) == {"https": end_of(own), "https-chain": end_of(other)}
    assert shown_ends(own) == {"https": end_of(own)}


@pytest.mark.parametrize(
    "pem",
    [
        b"",
        b"no certificate",
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ],
)
def test_what_is_no_certificate_is_said_to_be_none(pem: bytes) -> None:
    with pytest.raises(ValueError):
        ends_of(pem)


def test_all_that_the_service_goes_by_is_measured(tmp_path: Path) -> None:
    certificate, authority = tmp_path / "tls.crt", tmp_path / "ca.crt"
    proxys = tmp_path / "proxy.crt"
    key = make(certificate, 30)
    make(authority, 3000)
    make(proxys, 60)
    settings = Settings(authority=tmp_path, enrolment_certificate=proxys)
    metrics = Metrics()
    own = OwnCertificates(metrics, settings, ShownCertificate(certificate, key))
    asyncio.run(own.look())
    assert measured(metrics) == {
        "https": end_of(certificate),
        "authority": end_of(authority),
        "enrolment": end_of(proxys),
    }


def test_a_service_without_certificates_measures_none() -> None:
    metrics = Metrics()
    asyncio.run(OwnCertificates(metrics, Settings()).look())
    assert measured(metrics) == {}


def test_what_is_measured_is_what_is_shown_not_what_the_files_have(tmp_path: Path) -> None:
    certificate = tmp_path / "tls.crt"
    key = make(certificate, 5)
    shown = ShownCertificate(certificate, key)
    metrics = Metrics()
    own = OwnCertificates(metrics, Settings(), shown)
    first = end_of(certificate)
    # Another certificate, which does not match the key.
    kept = key.read_bytes()
    make(certificate, 90)
    right = key.read_bytes()
    key.write_bytes(kept)
    asyncio.run(shown.look())
    asyncio.run(own.look())
    assert measured(metrics) == {"https": first}
    key.write_bytes(right)
    asyncio.run(shown.look())
    asyncio.run(own.look())
    assert measured(metrics) == {"https": end_of(certificate)} != {"https": first}


def test_a_chain_that_is_left_out_has_no_end_any_more(tmp_path: Path) -> None:
    certificate, other = tmp_path / "tls.crt", tmp_path / "other.crt"
    key = make(certificate, 90)
    make(other, 5)
    alone = certificate.read_bytes()
    certificate.write_bytes(alone + other.read_bytes())
    shown = ShownCertificate(certificate, key)
    metrics = Metrics()
    own = OwnCertificates(metrics, Settings(), shown)
    asyncio.run(own.look())
    assert set(measured(metrics)) == {"https", "https-chain"}
    certificate.unlink()
    certificate.write_bytes(alone)
    asyncio.run(shown.look())
    asyncio.run(own.look())
    assert set(measured(metrics)) == {"https"}


def test_an_authority_that_cannot_be_read_keeps_the_end_that_it_had(tmp_path: Path) -> None:
    authority = tmp_path / "ca.crt"
    make(authority, 3000)
    metrics = Metrics()
    own = OwnCertificates(metrics, Settings(authority=tmp_path))
    asyncio.run(own.look())
    known = measured(metrics)
    authority.write_text("half a cert")
    with capture_logs() as logs:
        asyncio.run(own.look())
        asyncio.run(own.look())
    # It is logged once, not each minute.
    assert [one["event"] for one in logs] == ["a certificate cannot be read"]
    assert measured(metrics) == known


@pytest.mark.parametrize(
    ("name", "left_days", "warned"),
    [
        ("https", 22, None),
        ("https", 20, _SOON),
        ("https", -1, _OVER),
        ("authority", 91, None),
        ("authority", 89, _SOON),
        ("authority", -1, _OVER),
    ],
)
def test_the_log_warns_in_time(
    tmp_path: Path, name: str, left_days: int, warned: str | None
) -> None:
    certificate = tmp_path / "ca.crt"
    key = make(certificate, 200)
    now_s = end_of(certificate) - left_days * _DAY_S
    shown, settings = None, Settings(authority=tmp_path)
    if name == "https":
        shown, settings = ShownCertificate(certificate, key), Settings()
    own = OwnCertificates(Metrics(), settings, shown, lambda: now_s)
    with capture_logs() as logs:
        asyncio.run(own.look())
    assert [(one["event"], one["certificate"]) for one in logs] == (
        [] if warned is None else [(warned, name)]
    )


def test_the_log_warns_once_a_day_until_it_is_renewed(tmp_path: Path) -> None:
    authority = tmp_path / "ca.crt"
    make(authority, 20)
    now_s = [end_of(authority) - 10 * _DAY_S]
    own = OwnCertificates(Metrics(), Settings(authority=tmp_path), now_s=lambda: now_s[0])

    def warnings_of_a_day() -> int:
        with capture_logs() as logs:
            for _ in range(24):
                asyncio.run(own.look())
                now_s[0] += _DAY_S / 24
        return len(logs)

    assert [warnings_of_a_day() for _ in range(3)] == [1, 1, 1]
    make(authority, 400)
    assert warnings_of_a_day() == 0
