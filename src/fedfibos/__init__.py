"""Federated learning across clients of unequal capacity.

The names in ``__init__.pyi`` are the public interface; each is imported on first use, so that the command line answers
at once and a device imports only what it runs.
"""

from difflib import get_close_matches
from importlib.metadata import version

import lazy_loader

_public, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    """Import a public name from the module it lives in."""
    if name == "__version__":
        return version("fedfibos")
    if name not in __all__:
        near = get_close_matches(name, __all__, n=1)
        raise AttributeError(f"module 'fedfibos' has no attribute {name!r}" + "".join(f", but {n!r}" for n in near))
    return _public(name)
