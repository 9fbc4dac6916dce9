"""The experiment of the tests, and that there is one."""

import ast
import tomllib
from pathlib import Path

import pytest

from fedfibos.config.experiment import load_experiment
from small_experiment import small_experiment

TESTS = Path(__file__).parent


def test_it_is_an_experiment_and_a_change_takes_the_place_of_a_whole_key(experiment_file):
    small = load_experiment(experiment_file())
    assert (small.data.name, small.model.name, small.method.name) == ("digits", "mlp", "fedfibos")
    changed = load_experiment(experiment_file('model = { name = "cnn", options = { channels = [4] } }\nseed = 3'))
    assert changed.seed == 3
    assert changed.model.options["channels"] == [4]
    assert "hidden" not in changed.model.options
    assert (changed.federation, changed.local) == (small.federation, small.local)


def test_sections_and_keys_are_left_out():
    left = tomllib.loads(small_experiment(without=("local", "federation.capacities")))
    assert sorted(left) == ["data", "federation", "method", "model"]
    assert left["federation"] == {"clients": 5, "cohort": 2, "rounds": 2}
    with pytest.raises(KeyError):
        small_experiment(without=("federation.capacity",))


def is_experiment(text: str) -> bool:
    """Whether a text is a whole experiment: a model, a federation and a method."""
    for written in (text, text.replace("{{", "{").replace("}}", "}")):
        try:
            return tomllib.loads(written).keys() >= {"model", "federation", "method"}
        except tomllib.TOMLDecodeError:
            continue
    return False


def texts_of(source: str) -> list[str]:
    """The literal strings of a module; 1 for what an f-string puts in."""
    nodes = list(ast.walk(ast.parse(source)))
    plain = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    formatted = [node.values for node in nodes if isinstance(node, ast.JoinedStr)]
    return plain + [
        "".join(str(part.value) if isinstance(part, ast.Constant) else "1" for part in parts) for parts in formatted
    ]


def test_no_other_test_writes_an_experiment_of_its_own():
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(TESTS.rglob("*.py"))}
    found = {
        path.relative_to(TESTS).as_posix()
        for path, source in sources.items()
        if any(map(is_experiment, texts_of(source)))
    }
    assert found == {"small_experiment.py"}


def test_an_experiment_is_found_in_every_form_of_text():
    plain = """x = 'model.name = "mlp"\\nmethod.name = "fedavg"\\nfederation = { clients = 3 }'"""
    template = """x = 'model.name = "mlp"\\nmethod.name = "{}"\\nfederation = {{ clients = 3 }}'"""
    formatted = """x = f'model.name = "mlp"\\nmethod.name = "{m}"\\nfederation = {{ clients = {n} }}'"""
    for source in (plain, template, formatted):
        assert any(map(is_experiment, texts_of(source)))
    assert not any(map(is_experiment, texts_of("""x = 'method.name = "fedavg"'""")))
