"""Write docs/findings.md from the committed records: ``python docs/findings.py`` (``--check``: only compare).

Every number comes from ``results/small``. The prose around the tables is in ``findings_page``; what it asserts of
numbers is asserted of the records too (``claim``): the page is not written while one of its sentences is false.
"""

from __future__ import annotations

import sys
from pathlib import Path

from findings_page import cifar10, elsewhere
from findings_page.records import load_ag_news, load_cifar10, load_cifar100, load_normalised

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "findings.md"


def page(results: Path) -> str:
    """The whole page, from the folder of the records."""
    small = results / "small"
    parts = [
        *cifar10.section(load_cifar10(small)),
        *elsewhere.normalised(load_normalised(small)),
        *elsewhere.cifar100(load_cifar100(small)),
        *elsewhere.ag_news(load_ag_news(small)),
        AGAIN,
    ]
    return "\n\n".join(parts) + "\n"


AGAIN = """## Again

    fedfibos sweep experiments/small/cifar10-tuning.toml
    fedfibos sweep experiments/small/cifar10.toml           # and cifar10-ceiling, cifar10-readings
    fedfibos report results/small/cifar10 results/small/cifar10-ceiling results/small/cifar10-readings
    fedfibos diagnose RUN"""


def main() -> int:
    """Write or check."""
    wanted = page(ROOT / "results")
    if "--check" in sys.argv[1:]:
        if PAGE.read_text() != wanted:
            print("docs/findings.md differs from what results/ gives; run: python docs/findings.py", file=sys.stderr)
        return int(PAGE.read_text() != wanted)
    PAGE.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
