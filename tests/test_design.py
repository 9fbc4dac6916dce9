"""What docs/explanation/design.md says of the modules' dependencies, read from their imports."""

import ast
import re
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import fedfibos

PACKAGE = Path(fedfibos.__file__).parent


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_of(path): path for path in PACKAGE.rglob("*.py") if path.parent.name != "template"}


def imports(module: str, source: str | None = None) -> set[str]:
    """Modules of the package that a module imports, anywhere in it and in whatever form."""
    found = set()
    for node in ast.walk(ast.parse(source or FILES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = module.split(".") if FILES[module].name == "__init__.py" else module.split(".")[:-1]
            above = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            found |= {name if name in FILES else origin for name in (f"{origin}.{alias.name}" for alias in node.names)}
    return {name for name in found if name.split(".")[0] == "fedfibos"} - {module}


@pytest.mark.parametrize(
    "source",
    [
        "import fedfibos.simulation",
        "from fedfibos import simulation",
        "from ..simulation import engine",
        "from .. import simulation",
    ],
)
def test_every_form_of_import_is_seen(source):
    assert [name for name in imports("fedfibos.models.mlp", source) if name.startswith("fedfibos.simulation")]


@cache
def graph_of_modules() -> dict[str, set[str]]:
    return {module: imports(module) for module in FILES}


def below(module: str) -> set[str]:
    """Everything that a module imports, at any remove."""
    seen: set[str] = set()
    left = [module]
    while left:
        new = graph_of_modules()[left.pop()] - seen
        seen |= new
        left += new
    return seen


TESTS = PACKAGE.parents[1] / "tests"
CORE = ("channels", "scores", "backend", "common", "methods", "steps", "wire", "runs", "analysis", "privacy")
"""The rooms of which every module has a test file of its name, beside the top room."""

ELSEWHERE = {
    "fedfibos.analysis.theory": "theory/test_theory_error.py",  # a room of tests: what the paper claims
    "fedfibos.channels.rule": "channels/test_rules.py",  # a protocol, without code
}


def test_every_module_of_the_core_has_a_test_file_of_its_name():
    rooms = [PACKAGE, *(PACKAGE / room for room in CORE)]
    modules = [path for room in rooms for path in room.glob("*.py") if not path.stem.startswith("__")]
    assert len(modules) > 90
    wanted = {
        path: ELSEWHERE.get(module_of(path), f"{path.parent.relative_to(PACKAGE)}/test_{path.stem.lstrip('_')}.py")
        for path in modules
    }
    assert [name for path, name in wanted.items() if not (TESTS / name).is_file()] == []


def test_no_two_modules_import_each_other():
    order = list(TopologicalSorter(graph_of_modules()).static_order())  # raises CycleError with the circle
    assert len(order) == len(FILES) > 100


def test_no_two_rooms_know_each_other():
    """A room is a folder, or a file beside the folders; which is above which can be told of any two."""
    rooms = {module: ".".join(module.split(".")[:2]) for module in FILES if module != "fedfibos"}
    rooms |= {module: module for module in rooms if FILES[module].name == "__main__.py"}
    graph: dict[str, set[str]] = {room: set() for room in rooms.values()}
    for module, room in rooms.items():
        graph[room] |= {rooms[other] for other in graph_of_modules()[module] if other in rooms} - {room}
    assert len(list(TopologicalSorter(graph).static_order())) > 20


def test_the_top_room_has_twelve_files():
    assert len(list(PACKAGE.glob("*.py"))) <= 12


def test_the_faces_of_rooms_hold_no_logic():
    logic = {
        name
        for name, path in FILES.items()
        if path.name == "__init__.py" and name != "fedfibos"  # which imports its names as they are asked for
        if any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in ast.parse(path.read_text()).body)
    }
    assert logic == set()


def test_only_the_command_line_prints():
    """The library returns numbers; tables and bars are the command line's."""
    using = {
        name for name, path in FILES.items() if re.search(r"^\s*(from|import) rich\b", path.read_text(), re.MULTILINE)
    }
    assert "fedfibos.cli.progress" in using
    assert [name for name in using if not name.startswith("fedfibos.cli")] == []


@pytest.mark.parametrize(
    ("room", "unknown"),
    [
        ("channels", "methods config runs simulation flower"),
        ("wire", "methods config runs simulation flower"),
        ("models", "methods round config runs simulation cli"),
        ("data", "methods round config runs simulation cli"),
        ("methods", "models data config runs simulation flower"),
        ("round", "config runs simulation flower cli"),
        ("config", "runs simulation flower cli"),
        ("simulation", "flower report cli"),
        ("runs", "simulation flower report cli"),
        ("flower", "report cli"),
        ("report", "cli"),
    ],
)
def test_rooms_do_not_know_those_above_them(room, unknown):
    def within(module, name):
        return module == f"fedfibos.{name}" or module.startswith(f"fedfibos.{name}.")

    inside = [module for module in FILES if within(module, room)]
    known = set().union(*map(below, inside))
    assert inside
    assert [module for module in known if any(within(module, name) for name in unknown.split())] == []


def test_public_names_are_where_the_type_checker_is_told_they_are():
    stub = ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8"))
    told = {alias.name: node.module for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert sorted(told) == fedfibos.__all__
    assert dir(fedfibos) == fedfibos.__all__
    for name, module in told.items():
        imported: dict[str, object] = {}
        exec(f"from fedfibos import {name}", imported)  # a room of that name would be imported in its place
        assert not isinstance(imported[name], ModuleType)
        assert imported[name] is getattr(import_module(f"fedfibos.{module}"), name)
    assert fedfibos.__version__[0].isdigit()
    with pytest.raises(AttributeError, match=r"^module 'fedfibos' has no attribute 'Clinet', but 'Client'$"):
        _ = fedfibos.Clinet


def section_of_the_page(title: str) -> str:
    page = (PACKAGE.parents[1] / "docs" / "explanation" / "design.md").read_text(encoding="utf-8")
    (section,) = re.findall(rf"^## {title}\n(.*?)^##", page, re.MULTILINE | re.DOTALL)
    return section


def functions_in(source: str) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)}


def test_the_life_of_an_update_is_twenty_files_and_each_function_is_called_where_the_page_says():
    rows = re.findall(
        r"^\| (\d+) \| `([\w/]+\.py)` \| `(\w+)` \|.*\| (\d+|the command) \|$",
        section_of_the_page("The life of an update"),
        re.MULTILINE,
    )
    assert [int(number) for number, *_ in rows] == list(range(1, 21))
    assert len({file for _, file, *_ in rows}) == 20
    sources = {number: (PACKAGE / file).read_text(encoding="utf-8") for number, file, *_ in rows}
    sources["the command"] = "".join(path.read_text(encoding="utf-8") for path in (PACKAGE / "cli").glob("*.py"))
    assert [file for number, file, function, _ in rows if function not in functions_in(sources[number])] == []
    assert [
        (file, function, caller)
        for _, file, function, caller in rows
        if not re.search(rf"\b{function}(_submodel)?\b", sources[caller])  # extract_submodel checks what extract gives
    ] == []


def test_a_room_imports_only_rooms_of_lower_layers():
    layers: dict[str, int] = {}
    layer = 0
    for number, room in re.findall(r"^\| ?(\d*) \| `(\w+)` \|", section_of_the_page("Rooms"), re.MULTILINE):
        layer = int(number) if number else layer
        layers[room] = layer
    rooms = {module: module.split(".")[1] for module in FILES if module.count(".")}
    assert set(layers) == set(rooms.values()) - {"__main__"}
    assert [
        (module, other)
        for module, room in rooms.items()
        for other in graph_of_modules()[module]
        if other in rooms and room != "__main__" and rooms[other] != room and layers[rooms[other]] >= layers[room]
    ] == []
