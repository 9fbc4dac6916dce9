"""The page for whoever's fleet just failed quotes messages that there are."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "fleet_faults.md"


def said(text):
    """A source's words, with N for whatever it fills in."""
    joined = re.sub(r'"\s*\n\s*f?"', "", text)
    return re.sub(r"\{[^{}]*\}|%[dgs]|\d+", "N", joined)


def quoted(page):
    """What the page quotes of a log or a record: phrases of several words in backticks."""
    phrases = re.findall(r"`([a-z][^`\n]* [^`\n]*)`", page)
    return [re.sub(r"\d+|NAME|FILE", "N", phrase) for phrase in phrases if not phrase.startswith("fedfibos ")]


def test_every_message_that_the_page_quotes_is_one_of_the_library():
    words = said("\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src" / "fedfibos").rglob("*.py")))
    phrases = quoted(PAGE.read_text(encoding="utf-8"))
    assert len(phrases) > 15
    pieces = [piece.strip() for phrase in phrases for piece in phrase.split("stopped ")]  # where: from another line
    assert [piece for piece in pieces if piece not in words] == []
