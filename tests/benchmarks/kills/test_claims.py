from __future__ import annotations

import dataclasses

import pytest

from tests.benchmarks.kills.claims import Answered, Course, Deferred
from tests.testbed.origin.receipts import Receipt, Receipts

_CUT = Course("download", size=1000, received=400, ending="reset", in_custody=400)
_WHOLE_RECEIPT = Receipt(announced=10, bytes=10, ending="whole")
_CUT_RECEIPT = Receipt(announced=10, bytes=4, ending="reset")
_KEPT = Deferred(
    repeatable=False,
    accepted=True,
    refused_with=None,
    state="answered",
    response_error=None,
    receipts=[_WHOLE_RECEIPT],
    killed="terminal",
)


def test_a_prefix_with_all_that_was_in_custody_and_a_reset_is_right() -> None:
    assert _CUT.violations() == []
    assert dataclasses.replace(_CUT, received=1000, ending="whole").violations() == []


@pytest.mark.parametrize(
    "fault",
    [
        {"wrong": "byte 7"},
        {"ending": "open"},
        {"ending": "end"},
        {"ending": "whole"},
        {"received": 399},
    ],
)
def test_each_fault_of_a_stream_is_one_violation(fault: dict[str, object]) -> None:
    assert len(dataclasses.replace(_CUT, **fault).violations()) == 1  # type: ignore[arg-type]


def test_an_upload_is_told_whole_only_if_it_is_and_comes_once() -> None:
    upload = Answered("upload", whole=True, ended=True, receipts=[_WHOLE_RECEIPT])
    assert upload.violations() == []
    assert dataclasses.replace(upload, whole=False, receipts=[]).violations() == []
    cut = dataclasses.replace(upload, receipts=[_CUT_RECEIPT])
    doubled = dataclasses.replace(upload, receipts=[_WHOLE_RECEIPT, _WHOLE_RECEIPT])
    endless = dataclasses.replace(upload, ended=False)
    for wrong in (cut, doubled, endless):
        assert len(wrong.violations()) == 1


@pytest.mark.parametrize(
    "allowed",
    [
        {},
        {"state": "unknown", "killed": "hub", "receipts": [_CUT_RECEIPT]},
        {"accepted": False, "state": None, "receipts": []},
        {"repeatable": True, "receipts": [_CUT_RECEIPT, _WHOLE_RECEIPT]},
    ],
)
def test_what_a_crash_may_do_to_a_kept_request_is_none(allowed: dict[str, object]) -> None:
    assert dataclasses.replace(_KEPT, **allowed).violations() == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "fault",
    [
        {"state": "stored"},
        {"state": "failed"},
        {"state": None},
        {"state": "unknown"},
        {"state": "unknown", "killed": "hub", "repeatable": True},
        {"response_error": "ended after 5 bytes"},
        {"receipts": [_CUT_RECEIPT]},
        {"receipts": [_CUT_RECEIPT, _WHOLE_RECEIPT]},
        {"receipts": [dataclasses.replace(_WHOLE_RECEIPT, wrong="byte 3")]},
        {"accepted": False, "refused_with": 507},
        {"accepted": False, "killed": "hub"},
    ],
)
def test_each_fault_of_a_kept_request_is_one_violation(fault: dict[str, object]) -> None:
    assert len(dataclasses.replace(_KEPT, **fault).violations()) == 1  # type: ignore[arg-type]


def test_a_receipt_tells_wrong_bytes_and_the_first_ending() -> None:
    receipts = Receipts()
    receiving = receipts.begin("upload", 1, 100)
    receiving.feed(bytes(100))
    receiving.ends("reset")
    receiving.ends("whole")
    (document,) = receipts.document("upload")
    assert (document["bytes"], document["ending"]) == (100, "reset")
    assert "byte 8 " in str(document["wrong"])
