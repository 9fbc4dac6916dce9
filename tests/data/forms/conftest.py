"""A cache of the test's own, and pictures made here."""

import numpy as np
import pytest
from PIL import Image


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.delenv("FEDFIBOS_DATA", raising=False)


@pytest.fixture
def picture():
    """Writes a picture of one value: ``picture(file, 7, (4, 6), "L")``, height before width."""

    def write(file, value, shape=(4, 4), mode="RGB", **options):
        file.parent.mkdir(parents=True, exist_ok=True)
        array = np.full((*shape, *((len(mode),) if len(mode) > 1 else ())), value, dtype=np.uint8)
        Image.fromarray(array).save(file, **options)
        return file

    return write
