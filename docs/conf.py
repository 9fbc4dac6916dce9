"""How Sphinx builds the site: ``make docs`` writes it to docs/_build, and any warning is an error."""

import pydoc
import re
import sys
from importlib.metadata import version as version_of
from pathlib import Path

import fedfibos

project = "fedfibos"
author = "The fedfibos authors"
release = version = version_of("fedfibos")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"fedfibos {release}"
html_show_sphinx = False
html_copy_source = False

myst_heading_anchors = 3
highlight_language = "none"

autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
nitpicky = True

PIPES = re.compile(r"(``.*?``)|(?<!\\)\|")


def escape_pipes(app, what, name, obj, options, lines):
    """|x| is a magnitude in our docstrings, not a substitution of reStructuredText's."""
    lines[:] = PIPES.sub(lambda found: found[1] or r"\|", "\n".join(lines)).split("\n")


def keep_attribute(app, what, name, obj, options, lines):
    """Napoleon takes what is before an attribute's first colon for a type; our docstrings have none there."""
    if what in ("attribute", "data", "property"):
        KEPT[name] = list(lines)


def restore_attribute(app, what, name, obj, options, lines):
    """Undo that."""
    if name in KEPT:
        lines[:] = KEPT.pop(name)


KEPT: dict[str, list[str]] = {}


def resolve(app, env, node, contnode):
    """A name that lives in a room is found under its public name; one that is not public must exist."""
    target = node["reftarget"]
    last = target.rpartition(".")[2]
    if last in fedfibos.__all__ and f"fedfibos.{last}" in env.domains.python_domain.objects:
        found = env.domains.python_domain.resolve_xref(
            env, node["refdoc"], app.builder, node["reftype"], f"fedfibos.{last}", node, contnode
        )
        if found is not None:
            return found
    ours = [module for name, module in sorted(sys.modules.items()) if name.startswith("fedfibos")]
    if pydoc.locate(target) is not None or any(hasattr(module, target) for module in ours):
        return contnode
    return None


def setup(app):
    """Connect the above, and write the page that comes from the commands."""
    here = Path(__file__).resolve().parent
    sys.path.insert(0, str(here.parent / "tools"))
    import command_line

    (here / "reference" / "command_line.md").write_text(command_line.page(), encoding="utf-8")
    app.connect("autodoc-process-docstring", escape_pipes, priority=300)
    app.connect("autodoc-process-docstring", keep_attribute, priority=400)
    app.connect("autodoc-process-docstring", restore_attribute, priority=600)
    app.connect("missing-reference", resolve)
