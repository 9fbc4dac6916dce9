"""The experiment that tests start from: small, on the digits, in a second. A test writes only what it changes.

``experiment_file`` in ``conftest.py`` is the fixture that writes it into the test's folder.
"""

import tomllib
from collections.abc import Iterable

import tomli_w

SMALL = """
data.name = "digits"
model = { name = "mlp", options = { hidden = [8] } }
method.name = "fedfibos"
federation = { clients = 5, cohort = 2, rounds = 2, capacities = { 1.0 = 0.5, 0.5 = 0.5 } }
local.steps = 1
"""


def small_experiment(changes: str = "", without: Iterable[str] = ()) -> str:
    """TOML of the small experiment, with ``changes`` (TOML as well) and without some keys.

    A changed key takes the place of the whole old one: ``model.options = { channels = [4] }`` leaves no ``hidden``.

    Args:
        changes: Keys of sections, such as ``local.lr = 0.1``, or ``seed``.
        without: Sections (``"local"``) and keys (``"model.options"``) to leave out.
    """
    settings = tomllib.loads(SMALL)
    for section, value in tomllib.loads(changes).items():
        old = settings.get(section)
        settings[section] = {**old, **value} if isinstance(old, dict) and isinstance(value, dict) else value
    for dotted in without:
        section, _, key = dotted.partition(".")
        if key:
            del settings[section][key]
        else:
            del settings[section]
    return tomli_w.dumps(settings)
