"""The ranges of an experiment's numbers that several sections share."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

Seed = Annotated[int, Field(ge=0, lt=2**63)]
LARGEST = 10**9
"""Of counts: beyond it nothing here can be meant, and tables of that many entries do not fit a memory."""

Positive = Annotated[int, Field(ge=1, le=LARGEST)]

Count = Annotated[int, Field(ge=0, le=LARGEST)]

CONFIG = ConfigDict(extra="forbid")
