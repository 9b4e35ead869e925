"""The links of a Markdown page, and the anchors that its headings make."""

from __future__ import annotations

import re
from urllib.parse import unquote

# What is between backticks is shown, not followed; a fenced block is removed with its fences.
_FENCED = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
_LINK = re.compile(r"\]\(\s*<?([^)<>\s]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_REFERENCE = re.compile(r"^\[[^\]]+\]:\s+(\S+)", re.MULTILINE)
_HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*\s*$", re.MULTILINE)
_PLACED = re.compile(r"<a (?:id|name)=\"([^\"]+)\">")
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:")


def links(page: str) -> list[str]:
    """Return what a page links to within the repository: a path, an anchor, or both."""
    text = _CODE.sub("", _FENCED.sub("", page))
    found = [*_LINK.findall(text), *_REFERENCE.findall(text)]
    return [unquote(one) for one in found if not _ELSEWHERE.match(one)]


def anchors(page: str) -> set[str]:
    """Return the anchors of its headings, as GitHub makes them, and those placed by hand."""
    text = _FENCED.sub("", page)
    found = set(_PLACED.findall(text))
    for heading in _HEADING.findall(text):
        shown = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        again = 1
        unique = name
        while unique in found:
            unique = f"{name}-{again}"
            again += 1
        found.add(unique)
    return found
