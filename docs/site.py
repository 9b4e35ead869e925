"""The site's hooks: links to files outside of docs/ lead to copies in the site."""

from __future__ import annotations

import functools
import posixpath
import re
import subprocess
from pathlib import Path
from urllib.parse import quote, unquote

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
# The site's folder for files of other folders.
_ELSEWHERE = "repository"
_LINK = re.compile(r"(\]\(\s*<?)([^)<>\s#]+)((?:#[^)<>\s]*)?>?(?:\s+\"[^\"]*\")?\s*\))")
_ABSOLUTE = re.compile(r"[a-z][a-z0-9+.-]*:")
_FENCED = re.compile(r"(^```.*?^```\s*$)", re.MULTILINE | re.DOTALL)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the files that the pages link to, and those that these link to in turn."""
    waiting = [file.src_uri for file in files.documentation_pages()]
    while waiting:
        here = _repository_path(waiting.pop())
        for path in _linked(here, _text(here)):
            uri = _site_uri(path)
            if files.get_file_from_path(uri):
                continue
            if uri.endswith(".md"):
                waiting.append(uri)
                file = File.generated(config, uri, content=_text(path))
            else:
                file = File.generated(config, uri, abs_src_path=str(ROOT / path))
            # Readers reach such pages by links, not by the menu.
            file.inclusion = InclusionLevel.NOT_IN_NAV
            files.append(file)
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """Rewrite links to their targets' places in the site."""
    here = _repository_path(page.file.src_uri)

    def moved(match: re.Match[str]) -> str:
        before, link, behind = match.groups()
        if _ABSOLUTE.match(link):
            return match[0]
        uri = _site_uri(_target(here, link))
        beside = posixpath.dirname(page.file.src_uri) or "."
        return f"{before}{quote(posixpath.relpath(uri, beside))}{behind}"

    parts = _FENCED.split(markdown)
    return "".join(part if part.startswith("```") else _LINK.sub(moved, part) for part in parts)


def _linked(here: str, text: str) -> list[str]:
    links = [match[2] for match in _LINK.finditer(_FENCED.sub("", text))]
    return [_target(here, link) for link in links if not _ABSOLUTE.match(link)]


def _target(here: str, link: str) -> str:
    """Return the path in the repository that a link from one of its pages leads to."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(here), unquote(link)))
    return f"{path}/README.md" if (ROOT / path).is_dir() else path


def _text(path: str) -> str:
    """Return a page's text; for a folder without a README, a list of its files."""
    if (ROOT / path).exists():
        return (ROOT / path).read_text()
    folder = posixpath.dirname(path)
    names = [name for name in _tracked() if posixpath.dirname(name) == folder]
    rows = [f"- [{Path(name).name}]({Path(name).name})" for name in sorted(names)]
    return "\n".join([f"# {folder}", "", *rows, ""])


def _site_uri(path: str) -> str:
    """Return where a file of the repository is in the site."""
    return path.removeprefix("docs/") if path.startswith("docs/") else f"{_ELSEWHERE}/{path}"


def _repository_path(source: str) -> str:
    outside = source.removeprefix(f"{_ELSEWHERE}/")
    return outside if outside != source else f"docs/{source}"


@functools.cache
def _tracked() -> frozenset[str]:
    argv = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True)
    return frozenset(listed.stdout.splitlines())
