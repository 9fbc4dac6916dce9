"""A table of axes written as Python is that table when it is run."""

import textwrap

import pytest
import torch
from torch import nn

import fedfibos
from fedfibos.channels.table_text import table_text
from fedfibos.cli import main
from fedfibos.model import model_of
from fedfibos.models import build


def run(text, module):
    """What the pasted method gives."""
    names = {}
    exec(text, names)
    return names["channel_axes"](module)


@pytest.mark.parametrize(
    ("name", "shape", "options"),
    [
        ("mlp", (1, 8, 8), {"hidden": (6, 5)}),
        ("cnn", (3, 16, 16), {"channels": (4, 8)}),
        ("lenet", (1, 28, 28), {"channels": (4, 8), "hidden": 12}),
        ("resnet8", (3, 32, 32), {"channels": (4, 8, 16)}),
    ],
)
def test_a_derived_table_is_the_same_when_it_is_pasted(name, shape, options):
    module = build(name, 10, shape, **options)
    axes = model_of(module, example=torch.zeros(2, *shape)).axes
    again = run(table_text(module, axes), module)
    assert again.sizes == axes.sizes
    assert again.classes == axes.classes
    widths = axes.widths(0.5)
    tensors = [*dict(module.named_parameters()), *dict(module.named_buffers())]
    assert [again.shape(tensor, widths) for tensor in tensors] == [axes.shape(tensor, widths) for tensor in tensors]


def test_parts_are_written_in_full():
    module = nn.Linear(4, 6)
    half = fedfibos.Part("hidden", before=2)
    axes = fedfibos.axes_table(
        module,
        {"hidden": 3, "in": 2},
        {"weight": (half, (fedfibos.Part("in"), fedfibos.Part(None, before=2))), "bias": (half,)},
        classes={"bias": 0},
    )
    assert table_text(module, axes) == textwrap.dedent("""\
        from fedfibos import Part, axes_table


        def channel_axes(self):
            return axes_table(
                self,
                sizes={
                    "hidden": 3,
                    "in": 2,
                },
                dims={
                    "weight": (Part("hidden", before=2), (Part("in"), Part(None, before=2))),  # (6, 4)
                    "bias": (Part("hidden", before=2),),  # (6,)
                },
                classes={
                    "bias": 0,
                },
            )
        """)
    assert run(table_text(module, axes), module) == axes


def test_a_skeleton_has_every_parameter_with_its_shape_and_runs():
    module = nn.LSTM(3, 2)
    text = table_text(module, None)
    assert '"weight_ih_l0": (None, None),  # (8, 3)\n' in text
    assert '"bias_hh_l0": (None,),  # (8,)\n' in text
    assert "sizes={},  # axis -> its number of channels\n" in text
    assert run(text, module).sizes == {}


@pytest.fixture
def experiment(experiment_file):
    return str(experiment_file("model.options = { hidden = [6] }"))


def test_the_command_prints_the_table(experiment, capsys):
    assert main(["axes", experiment]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert '"features.1.weight": (' in out
    assert "# (6, 64)\n" in out


def test_a_skeleton_comes_with_what_the_tracer_says(experiment, monkeypatch, capsys):
    def fails(*arguments):
        raise ValueError("can't derive the channel axes of 'gate': it sorts channels")

    monkeypatch.setattr("fedfibos.model.derive_axes", fails)
    assert main(["axes", experiment]) == 0
    out, err = capsys.readouterr()
    assert err == (
        "warning: can't derive the channel axes of 'gate': it sorts channels; below is the table with nothing sliced, "
        "to be filled in and pasted into the module\n"
    )
    assert '"features.1.weight": (None, None),  # (6, 64)\n' in out


def test_a_model_without_channels_to_cut_gets_a_skeleton_too(experiment, capsys):
    assert main(["axes", experiment, "model.options.hidden=[]"]) == 0
    out, err = capsys.readouterr()
    assert err.startswith("warning: no channels of this model can be left out; below is the table")
    assert '"classifier.weight": (None, None),  # (10, 64)\n' in out
