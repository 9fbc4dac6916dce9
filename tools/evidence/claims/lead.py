"""What the records allow to say of a lead over FIARSE, in a sentence."""

from __future__ import annotations

from evidence.compared import PLACES
from evidence.records import MAIN, Cell, Study
from evidence.words import verdict


def lead(study: Study, name: str, title: str, cell: Cell = MAIN) -> str:
    """What the records allow to say of a method's lead over FIARSE in a cell."""
    found = {place: study.difference(cell, name, "fiarse", *keys) for place, keys in PLACES.items()}
    judged = {place: verdict(value) for place, value in found.items()}
    if all(said == "ahead" for said in judged.values()):
        return f"{title} is ahead of FIARSE in the full model, over the submodels and with the smallest."
    clear = [place for place, said in judged.items() if said == "ahead"]
    higher = all(value is not None and value.mean > 0 for value in found.values())
    start = f"{title} has {'the higher mean everywhere' if higher else 'not the higher mean everywhere'}"
    listed = " and ".join(f"the {place}" for place in clear)
    return f"{start}. Its interval excludes 0 for {listed}." if clear else f"{start}. No interval excludes 0 yet."
