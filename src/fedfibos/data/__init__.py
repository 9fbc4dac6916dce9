"""Data sets and how they are dealt to clients; each name of ``__init__.pyi`` is imported on first use."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
