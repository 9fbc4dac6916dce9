"""Write the pages of findings and evidence from the records: ``python tools/findings.py`` (``--check``: only compare).

Every number comes from ``results/small``. The prose around the tables is in ``tools/evidence``; what it asserts of
numbers is asserted of the records too (``claim``): no page is written while one of its sentences is false.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from evidence import ag_news, cifar10, cifar100, digits, front, nested, overview, pretrained, protocols, theory
from evidence.forest import forest
from evidence.records import (
    load_ablation,
    load_deep,
    load_devices,
    load_digits_tuning,
    load_pretrained,
    load_pretrained_images,
    load_settings,
)
from evidence.studies import load_studies
from evidence.trend import trend

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"


def pages(results: Path) -> Mapping[str, str]:
    """File below ``docs`` -> its whole text, from the folder of the records."""
    small = results / "small"
    studies = load_studies(small, digits.SPLITS)
    return {
        "trend.svg": trend(studies.digits, {name: digits.NAMES[name] for name in digits.TREND}, "fiarse"),
        "findings.svg": forest(overview.groups(studies)),
        "explanation/findings.md": front.page(studies),
        "explanation/nested.md": nested.page(studies.nested, load_devices(small)),
        "explanation/pretrained.md": pretrained.page(
            load_pretrained(small), load_pretrained_images(small), load_ablation(small)
        ),
        "explanation/evidence/cifar10.md": cifar10.page(studies, load_deep(small), results / "data.json"),
        "explanation/evidence/cifar100.md": cifar100.page(studies.hundred),
        "explanation/evidence/ag_news.md": ag_news.page(studies.text, studies.tuned),
        "explanation/evidence/digits.md": digits.page(
            studies.digits, load_settings(small, digits.SETTINGS), load_digits_tuning(small)
        ),
        "explanation/protocols.md": protocols.page(small),
        "explanation/evidence/theory.md": theory.page(studies.images),
    }


def main() -> int:
    """Write or check."""
    found = pages(ROOT / "results")
    if "--check" not in sys.argv[1:]:
        for name, text in found.items():
            (DOCS / name).parent.mkdir(exist_ok=True)
            (DOCS / name).write_text(text)
        return 0
    stale = [name for name, text in found.items() if not (DOCS / name).exists() or (DOCS / name).read_text() != text]
    for name in stale:
        print(f"docs/{name} differs from what results/ gives; run: python tools/findings.py", file=sys.stderr)
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main())
