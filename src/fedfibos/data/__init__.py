"""Data sets and how they are dealt to clients."""

from fedfibos.data.forms.form import FORMS
from fedfibos.data.forms.targets import Wanted
from fedfibos.data.images import ImageData, TensorData
from fedfibos.data.sources import DATA_SETS, Found, Source, catalogue, check_options, incomplete, load
from fedfibos.data.split import Split
from fedfibos.data.texts import TextData, TokenData

__all__ = [
    "DATA_SETS",
    "FORMS",
    "Found",
    "ImageData",
    "Source",
    "Split",
    "TensorData",
    "TextData",
    "TokenData",
    "Wanted",
    "catalogue",
    "check_options",
    "incomplete",
    "load",
]
