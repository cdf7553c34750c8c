"""Check that every relative link in the documentation leads to a file that exists and to a heading in it.

A page that moved is noticed by its readers last of all. Run from the root of the checkout, or with its path as the
argument; prints each broken link with its file and line and exits with 1 if there is one.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote

_LINK = re.compile(r"!?\[[^\]]*\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_FENCE = re.compile(r"\s*(```|~~~)")
_HEADING = re.compile(r"#{1,6}\s+(.*?)\s*#*$")


def pages(root: Path) -> list[Path]:
    return sorted([*root.glob("*.md"), *(root / "docs").rglob("*.md")])


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """The numbered lines of a page outside of its code blocks; inline code is blanked, as no link starts in it."""
    is_code = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        if _FENCE.match(line):
            is_code = not is_code
        elif not is_code:
            yield number, re.sub(r"(?<!\[)`[^`]*`(?!\])", "", line)


@cache
def anchors(page: Path) -> frozenset[str]:
    """The names that a page's headings have in its address: lower case, no punctuation, spaces as dashes."""
    found: set[str] = set()
    counts: Counter[str] = Counter()
    lines = page.read_text(encoding="utf-8").splitlines()
    for match in filter(None, map(_HEADING.fullmatch, lines)):
        name = re.sub(r"[^\w\- ]", "", match.group(1).lower()).replace(" ", "-")
        # A second heading of the same name gets a number.
        found.add(f"{name}-{counts[name]}" if counts[name] else name)
        counts[name] += 1
    return frozenset(found)


def faults(root: Path) -> Iterator[str]:
    for page in pages(root):
        for number, line in prose(page):
            for link in _LINK.findall(line):
                if _ELSEWHERE.match(link):
                    continue
                path, _, anchor = unquote(link).partition("#")
                target = page.parent / path if path else page
                where = f"{page.relative_to(root)}:{number}: {link}"
                if not target.exists():
                    yield f"{where}: no such file"
                elif anchor and (target.suffix != ".md" or anchor not in anchors(target)):
                    yield f"{where}: no such heading"


def main(arguments: list[str]) -> int:
    root = Path(arguments[0] if arguments else ".").resolve()
    found = list(faults(root))
    for fault in found:
        sys.stderr.write(f"{fault}\n")
    sys.stdout.write(f"links: {len(pages(root))} pages, {len(found)} broken\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
