"""The page of noise and accuracy under privacy is what its tool writes from the records."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_is_current():
    spec = importlib.util.spec_from_file_location("tools_privacy", ROOT / "tools" / "privacy.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = (ROOT / "docs" / "explanation" / "evidence" / "privacy.md").read_text(encoding="utf-8")
    assert module.page() == page
    fedavg = "89.4 ± 2.3 | 89.4 ± 2.3 | 6.12 | 85.9 ± 3.3 | 85.9 ± 3.3 | 1.97 | 85.0 ± 6.3 | 85.0 ± 6.3"
    assert f"| FedAvg | {fedavg} |" in page
