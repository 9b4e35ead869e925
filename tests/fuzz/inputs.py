"""Write the inputs that each fuzz target starts from.

From `docs/vectors`, from what other implementations were recorded to send (the folder
`UNDERPASS_VECTORS`, where it is at hand) and from the protocols' own examples, as the targets
take them: most have octets in front that choose a role or how the rest is cut. Beside these, what
fuzzing has found before: `kept/TARGET.txt` has an input in each line, in base64.

    python tests/fuzz/inputs.py FOLDER           writes FOLDER/TARGET/DIGEST
    python tests/fuzz/inputs.py FOLDER --keep    writes kept/TARGET.txt from FOLDER/TARGET
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import struct
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

_VECTORS = Path(__file__).parents[2] / "docs" / "vectors"
_KEPT = Path(__file__).with_name("kept")
# A longer input makes a fuzzer slow and finds no more.
_LONGEST_BYTES = 8192


def _json(name: str) -> Any:
    return json.loads((_VECTORS / name).read_text())


def _recorded(prefix: str) -> Iterator[bytes]:
    """Yield the recordings whose file name begins so, the comments left out."""
    folder = os.environ.get("UNDERPASS_VECTORS")
    for path in sorted(Path(folder).glob(f"*/{prefix}*.hex")) if folder else ():
        lines = path.read_text().splitlines()
        yield bytes.fromhex("".join(line for line in lines if not line.startswith("#")))


def _tcpcl() -> Iterator[bytes]:
    # The first octet: role, session up before or not, size of the pieces less one.
    for recorded in _recorded("tcpclv4"):
        role = b"\x02", b"\xff"
        yield from (choice + recorded for choice in role)
    init = struct.pack("!BHQQH", 7, 30, 1 << 20, 1 << 20, 7) + b"ipn:9.0" + bytes(4)
    contact = b"dtn!\x04\0"
    length = struct.pack("!BHHQ", 0, 1, 8, 4)
    transfer = struct.pack("!BBQI", 1, 3, 0, len(length)) + length + struct.pack("!Q", 4) + b"data"
    first = struct.pack("!BBQIQ", 1, 2, 1, 0, 2) + b"da"
    last = struct.pack("!BBQQ", 1, 1, 1, 2) + b"ta"
    messages = {
        "keepalive": b"\x04",
        "acknowledgement": struct.pack("!BBQQ", 2, 1, 0, 5000),
        "refusal": struct.pack("!BBQ", 3, 2, 0),
        "end": b"\x05\0\0",
        "reply": b"\x05\x01\x03",
        "reject": b"\x06\x01\x07",
        "transfer": transfer,
        "segments": first + last,
    }
    for up in (b"\x00", b"\x01", b"\xfc"):
        yield from (up + message for message in messages.values())
        yield up + b"".join(messages.values())
    for new in (b"\x02", b"\x03", b"\xfe"):
        yield new + contact + init
        yield from (new + contact + init + message for message in messages.values())


def _bpsec() -> Iterator[bytes]:
    # RFC 9173, appendix A.1, A.2 and A.4: the contents of security blocks.
    bib = bytes.fromhex(
        "810101018202820201828201078203008181820158403bdc69b3a34a2b5d3a8554368bd1e808"
        "f606219d2a10a846eae3886ae4ecc83c4ee550fdfb1cc636b904e2f1a73e303dcd4b6ccece00"
        "3e95e8164dcc89a156e1"
    )
    bcb = bytes.fromhex(
        "8101020182028202018482014c5477656c76653132313231328202018203581869c411276fec"
        "ddc4780df42c8a2af89296fabf34d7fae7008204008181820150efa4b5ac0108e3816c560647"
        "9801bc04"
    )
    two = bytes.fromhex(
        "820301020182028202018382014c5477656c7665313231323132820203820407828182015022"
        "0ffc45c8a901999ecc60991dd78b2981820150d2c51cb2481792dae8b21d848cede99b"
    )
    payload = b"\x85\x01\x01\0\0\x47payload\xff"
    for content in (bib, bcb, two):
        yield b"\x00" + content
    for kind, content in ((b"\x0b", bib), (b"\x0c", bcb), (b"\x0c", two)):
        block = b"\x85" + kind + b"\x03\0\0\x58" + bytes([len(content)]) + content
        yield b"\x01" + block + payload
        yield b"\x01" + block + block.replace(b"\x03", b"\x04", 1) + payload


def _quic() -> Iterator[bytes]:
    hello = struct.pack("!BBBBQQB", 1, 1, 3, 3, 7, 1 << 20, 7) + b"ipn:9.0"
    messages = [
        hello,
        struct.pack("!BQQ", 2, 7, 65536),
        struct.pack("!BQ", 3, 7),
        struct.pack("!BQB", 4, 7, 2),
        b"\x05",
        b"\x06",
        *_coded_messages(),
    ]
    yield from messages
    yield b"".join(messages)


def _cdni() -> Iterator[bytes]:
    # The first octet: 255ths that are the index; the rest is the documents that it links to.
    size = {
        "generic-metadata-type": "underpass.ObjectSize",
        "generic-metadata-value": {"bytes": 1_000_000},
    }
    pattern = {"pattern": "/a/*.mp?", "ignore-query-string": True}
    linked = {"path-pattern": pattern, "path-metadata": {"href": "/b"}}
    here = {"path-pattern": {"pattern": "$**"}, "path-metadata": {"metadata": [size]}}
    rules = json.dumps({"metadata": [size], "paths": [linked, here]}).encode()
    for metadata in ({"href": "http://a.example/x"}, {"paths": [linked, here]}):
        index = json.dumps({"hosts": [{"host": "a.example", "host-metadata": metadata}]}).encode()
        unit = max(-(-len(index) // 85), -(-len(rules) // 170))
        yield b"\x55" + index.ljust(85 * unit) + rules.ljust(170 * unit)


def _coded_messages() -> list[bytes]:
    return [
        struct.pack("!BBQ", 7, 1, 1 << 20),
        struct.pack("!BQQH", 8, 0, 16, 16),
        struct.pack("!BQQHBH", 9, 0, 16, 1, 2, 0x4000),
        struct.pack("!BQ", 10, 0),
        struct.pack("!BQB", 11, 0, 2),
        struct.pack("!BQQQ", 12, 10, 2, 1),
    ]


def _coded() -> Iterator[bytes]:
    # A piece is behind its length; the length's first bit tells messages from datagrams.
    body = b"\0\0" + b"\0\0\x28" + b"\0\0\0" + b"d" * 40
    source = struct.pack("!B3sHH", 1, b"\0\0\0", 0, 0) + body
    repair = struct.pack("!B3sHHH", 2, b"\0\0\x01", 0, 0, 1) + body
    datagrams = [bytes([len(datagram)]) + datagram for datagram in (source, repair)]
    messages = [bytes([0x80 | len(message)]) + message for message in _coded_messages()]
    yield from datagrams
    yield from messages
    yield b"".join(datagrams + messages)


def _bundle() -> Iterator[bytes]:
    for bundle in _recorded("bundle"):
        # Whole, and the blocks alone behind the target's own primary block.
        yield b"\x00" + bundle
        yield b"\x01" + bundle[bundle.find(b"\x86", 1) :]
        # A payload that is an administrative record.
        at = bundle.rfind(b"\x82")
        yield b"\x02" + bundle[at:-1]
    age, hops, payload = (
        b"\x85\x07\x02\0\0\x42\x18\x2a",
        b"\x85\x0a\x03\0\0\x44\x82\x18\x1e\x02",
        b"",
    )
    previous = b"\x85\x06\x04\0\0\x45\x82\x02\x82\x02\0"
    payload = b"\x85\x01\x01\0\0\x47payload"
    for blocks in (b"", age, hops, previous, age + hops + previous):
        yield b"\x01" + blocks + payload + b"\xff"


def _beacon() -> Iterator[bytes]:
    for beacon in _json("beacons.json")["beacons"]:
        yield bytes.fromhex(beacon["datagram"])
        yield bytes.fromhex(beacon["given_back"])
        yield bytes.fromhex(beacon["given_back"] + beacon["datagram"])


def _streams() -> Iterator[bytes]:
    vectors = _json("stream-payloads.json")
    every = [bytes.fromhex(each["hex"]) for of in ("payloads", "malformed") for each in vectors[of]]
    yield from (b"\0" + payload for payload in every)
    yield from (b"\x01" + one + other for one, other in pairwise(every))


def _deferred() -> Iterator[bytes]:
    vectors = _json("deferred-messages.json")
    for kind in ("messages", "refused"):
        yield from (bytes.fromhex(each["hex"]) for each in vectors[kind])


def _ltp() -> Iterator[bytes]:
    # Each step: what is done and with what type of segment, the session's number, a length.
    def step(choice: int, number: int, said: bytes) -> bytes:
        return bytes([choice, number, len(said)]) + said

    for recorded in _recorded("ltp"):
        yield step(0, 0, recorded[:255])
    # RFC 5326 section 3.2: a block in two segments of red data, and what the peer says next.
    first, last = b"\x01\x00\x03abc", b"\x01\x03\x03\x09\x00def"
    block = step(0x01, 4, first) + step(0x31, 4, last)
    yield block + step(0x91, 4, b"\x01")
    yield step(0x31, 4, last) + step(3, 40, b"") + step(0x01, 4, first)
    for number, length in ((0, b"\x0a"), (1, b"\xa7\x08")):
        report = b"\x05\x01" + length + b"\x00\x01\x00" + length
        yield step(3, 1, b"") + step(0x82, number, report)
        yield step(3, 1, b"") + step(0x82, number, report[:-3] + b"\x01\x00\x05") + step(3, 99, b"")
    # Cancelled by either side, and acknowledged.
    yield block + step(0xC1, 4, b"\x00") + step(0xF1, 4, b"")
    yield step(0xE2, 0, b"\x01") + step(0xD2, 0, b"") + step(0x83, 99, b"") + step(3, 255, b"")
    yield step(0x71, 6, b"\x01\x00\x03abc") + step(0x41, 7, b"\x01\x05\x03abc")


def _plans() -> Iterator[bytes]:
    for name in ("plan-valid.json", "plan-invalid.json"):
        for plan in _json(f"control/{name}")["plans"]:
            yield plan["text"].encode()
            message = '{"version":1,"control_ms":1795230059990,"plan":' + plan["text"] + "}"
            yield message.encode()


def _provision() -> Iterator[bytes]:
    for each in _json("control/provision.json").values():
        yield from (json.dumps(message).encode() for message in each)


def _positions() -> Iterator[bytes]:
    for case in _json("nmea.json")["cases"]:
        lines = "".join(case["lines"])
        yield lines.encode("latin-1", "replace")
        # Without `$` and checksum, which the target adds.
        bodies = [line.strip().lstrip("$").split("*")[0] for line in case["lines"]]
        yield "\n".join(bodies).encode("latin-1", "replace")
    version = {"class": "VERSION", "release": "3.22", "proto_major": 3, "proto_minor": 14}
    device = {"class": "DEVICE", "path": "/dev/pts/3", "activated": "2026-06-01T12:00:00.000Z"}
    fix = {
        "class": "TPV",
        "mode": 3,
        "time": "2026-06-01T12:00:00.000Z",
        "lat": 46.3,
        "lon": 6.9,
        "altMSL": 372.0,
        "track": 90.0,
        "speed": 27.5,
    }
    objects = [version, {"class": "DEVICES", "devices": [device]}, device, fix]
    yield "".join(json.dumps(each) + "\r\n" for each in objects).encode()
    yield from ((json.dumps(version) + "\r\n" + json.dumps(each)).encode() for each in objects)


def _socks5() -> Iterator[bytes]:
    greetings = {0: b"\x05\x01\0", 1: b"\x05\x01\x02\x01\x04user\x04word"}
    addresses = (
        b"\x01\xc0\0\x02\x01",
        b"\x03\x0eorigin.example",
        b"\x04" + bytes.fromhex("20010db8000000000000000000000001"),
    )
    for first in (0, 1, 254, 255):
        for command in (1, 2, 3):
            for address in addresses:
                request = b"\x05" + bytes([command, 0]) + address + b"\0\x50"
                yield bytes([first]) + greetings[first & 1] + request
    yield b"\0\x04\x01\0\x50\xc0\0\x02\x01\0"


def _flows() -> Iterator[bytes]:
    plain = b"HTTP/1.1 200 OK\r\nContent-Type: text/css\r\nContent-Length: 3\r\n\r\nabc"
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    request = b"POST / HTTP/1.1\r\nHost: a.example:80\r\nContent-Length: 1\r\n\r\nx"
    for cut in (b"\x01", b"\x28", b"\xff"):
        yield from (cut + each for each in (plain + plain, chunked + plain, request + request))
        yield cut + b"HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775808\r\n\r\n" + plain
        yield cut + b"\x16\x03\x01\x02\x00" + plain
        yield from (cut + _client_hello(record) for record in (20, 4000))


def _client_hello(record: int) -> bytes:
    # RFC 8446 section 4.1.2, with the name of RFC 6066 section 3, in TLS records
    # of so many bytes.
    def long(content: bytes) -> bytes:
        return len(content).to_bytes(2) + content

    name = b"\0\0" + long(long(b"\0" + long(b"www.example.org")))
    signatures = b"\0\x0d" + long(long(b"\x04\x03\x08\x04"))
    groups = b"\0\x0a" + long(long(b"\0\x1d"))
    suites = long(b"\xc0\x2b") + b"\x01\0"
    body = b"\x03\x03" + bytes(32) + b"\0" + suites + long(name + signatures + groups)
    message = b"\x01\0" + long(body)
    parts = [message[at : at + record] for at in range(0, len(message), record)]
    return b"".join(b"\x16\x03\x01" + long(part) for part in parts)


def _http() -> Iterator[bytes]:
    yield b"host: origin.example\nconnection: keep-alive, x-own\nx-own: 1\nte: trailers"
    yield b"transfer-encoding: gzip, chunked\ncontent-length: 5\ntrailer: expires"
    yield b"max-forwards: 0\nvia: 1.1 underpass\nexpect: 100-continue"
    yield b"proxy-authorization: Basic dTpw\nproxy-connection: close\nupgrade: websocket"
    yield b"keep-alive: timeout=5\nconnection: close\nconnection: upgrade"


TARGETS = {
    "beacon": _beacon,
    "bpsec": _bpsec,
    "bundle": _bundle,
    "cdni": _cdni,
    "coded": _coded,
    "deferred": _deferred,
    "flows": _flows,
    "http": _http,
    "ltp": _ltp,
    "plans": _plans,
    "positions": _positions,
    "provision": _provision,
    "quic": _quic,
    "socks5": _socks5,
    "streams": _streams,
    "tcpcl": _tcpcl,
}


def made(target: str) -> set[bytes]:
    """Return the inputs that this program makes for a target."""
    return {data[:_LONGEST_BYTES] for data in TARGETS[target]()}


def kept(target: str) -> set[bytes]:
    """Return the inputs that fuzzing has found for a target."""
    path = _KEPT / f"{target}.txt"
    lines = path.read_text().split() if path.exists() else []
    return {base64.b64decode(line, validate=True) for line in lines}


def write(folder: Path) -> None:
    """Write every input under the name of its digest, as libFuzzer names its own."""
    targets = {path.stem for path in (Path(__file__).parent / "fuzz_targets").glob("*.rs")}
    if targets != TARGETS.keys():
        raise SystemExit(f"targets and their inputs differ: {targets ^ TARGETS.keys()}")
    for target in TARGETS:
        place = folder / target
        place.mkdir(parents=True, exist_ok=True)
        for data in made(target) | kept(target):
            (place / hashlib.sha1(data, usedforsecurity=False).hexdigest()).write_bytes(data)


def keep(folder: Path) -> None:
    """Keep a corpus: what of it is not made here, the shortest first."""
    _KEPT.mkdir(exist_ok=True)
    for target in TARGETS:
        found = {path.read_bytes() for path in (folder / target).iterdir()} - made(target)
        lines = [
            base64.b64encode(data).decode() for data in sorted(found, key=lambda d: (len(d), d))
        ]
        (_KEPT / f"{target}.txt").write_text("".join(f"{line}\n" for line in lines if line))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--keep", action="store_true")
    arguments = parser.parse_args()
    (keep if arguments.keep else write)(arguments.folder)
