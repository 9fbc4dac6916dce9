"""Exported submodels compute what the submodel computes, and load without this package."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import onnxruntime
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

import fedfibos.export.formats
from fedfibos.cli import main
from fedfibos.config.experiment import load_experiment
from fedfibos.data.images import TensorData
from fedfibos.export.formats import ExportError, _umask, describe, export_submodel, submodel_module
from fedfibos.export.sparse import read_sparse, write_sparse
from fedfibos.methods._slicing import prefix
from fedfibos.model import model_of
from fedfibos.models import build
from fedfibos.round import sample
from fedfibos.submodel import full, mask_from_scores
from small_experiment import small_experiment

SUFFIXES = (".safetensors", ".sparse.safetensors", ".pt2", ".onnx")
X = torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def model(norm="group", name="cnn"):
    return model_of(build(name, 4, (1, 8, 8), norm=norm, seed=1), example=X[:2])


def submodel_of(model, kind):
    if kind == "slice":
        return prefix(model, 0.25)
    scores = model.initial_params().flat[: model.layout.num_maskable].abs()
    return mask_from_scores(scores, 0.25, model.layout) if kind == "mask" else full(model.layout)


@pytest.mark.slow_where(".onnx-full", ".onnx-slice")
@pytest.mark.parametrize("kind", ["full", "mask", "slice"])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_outputs_agree(tmp_path, suffix, kind):
    made = model()
    submodel = submodel_of(made, kind)
    module = submodel_module(made, made.initial_params(), submodel)
    done = export_submodel(module, submodel, X, tmp_path / f"sub{suffix}", describe(submodel))
    assert done.difference <= 1e-5
    assert done.parameters == submodel.num_held
    whole = kind != "slice" and suffix != ".sparse.safetensors"
    assert done.stored == (made.layout.size if whole else submodel.num_held)
    zeros = int((made.initial_params().flat == 0).sum())  # biases begin with them; a sparse file has none
    assert done.bytes == done.path.stat().st_size >= 4 * (done.stored - zeros)
    assert [path.name for path in tmp_path.iterdir()] == [f"sub{suffix}"]


class Wrapper(nn.Module):
    """Hands on whatever it is given, as wrappers of other libraries' models do, and splits by a list."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(5, 6), nn.Linear(3, 4)

    def forward(self, scale, **batch):
        value, gate = self.first(batch["x"]).split([3, 3], dim=1)
        return self.last(value * gate.sigmoid()) * scale


def test_inputs_of_any_name_are_exported(tmp_path):
    inputs = {"x": torch.randn(4, 5), "scale": torch.rand(4, 1)}
    made = model_of(Wrapper(), example=inputs)
    submodel = prefix(made, 0.5)
    module = submodel_module(made, made.initial_params(), submodel)
    done = export_submodel(module, submodel, inputs, tmp_path / "sub.pt2")
    assert done.difference <= 1e-5
    program = torch.export.load(done.path).module()
    three = {name: tensor[:3] for name, tensor in inputs.items()}
    torch.testing.assert_close(program(**three), module(**three))


def test_a_network_that_draws_in_evaluation_is_named_as_such(tmp_path):
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 4), Always())
    made = model_of(net, example=X[:2])
    module = submodel_module(made, made.initial_params(), full(made.layout))
    with pytest.raises(ExportError, match=r"^a.safetensors cannot be compared with the submodel, which draws random"):
        export_submodel(module, full(made.layout), X, tmp_path / "a.safetensors")


class Always(nn.Module):
    """Dropout that is never off."""

    def forward(self, x):
        return nn.functional.dropout(x)


class Centred(nn.Module):
    """Changes its inputs in place."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(64, 4)

    def forward(self, x):
        x -= 1
        return self.last(x.flatten(1))


def test_inputs_that_forward_changes_are_exported(tmp_path):
    made, inputs = model_of(Centred(), example=X[:2].clone()), X.clone()
    module = submodel_module(made, made.initial_params(), full(made.layout))
    assert export_submodel(module, full(made.layout), inputs, tmp_path / "a.safetensors").difference <= 1e-5
    assert torch.equal(inputs, X)


class Views(nn.Module):
    """Flattens by a number that its code has worked out."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(1, 6, 3), nn.Linear(216, 4)

    def forward(self, x):
        return self.last(self.first(x).relu().view(-1, 216))


def test_a_slice_whose_code_has_the_sizes_of_the_full_model_is_traced(tmp_path):
    made = model_of(Views(), example=X[:2])
    submodel = prefix(made, 0.5)
    module = submodel_module(made, made.initial_params(), submodel)
    done = export_submodel(module, submodel, X, tmp_path / "sub.pt2")
    assert done.difference <= 1e-5
    assert done.stored == submodel.num_held
    again = torch.export.load(tmp_path / "sub.pt2").module()
    torch.testing.assert_close(again(X[:3]), module(X[:3]))


class Padded(nn.Module):
    """torch's encoder over padded texts, which in evaluation gives zeros at the padding; and the mean of all."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.embed, self.layers, self.last = nn.Embedding(9, 8), nn.TransformerEncoder(layer, 1), nn.Linear(8, 4)

    def forward(self, ids):
        return self.last(self.layers(self.embed(ids), src_key_padding_mask=ids == 0).mean(1))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_padded_transformer_is_exported_as_it_is_trained(tmp_path):
    ids = torch.arange(1, 9).repeat(6, 1)
    ids[::2, 5:] = 0
    made = model_of(Padded(), example=ids[:2])
    submodel = prefix(made, 0.6)
    module = submodel_module(made, made.initial_params(), submodel)
    for suffix in (".pt2", ".safetensors"):
        assert export_submodel(module, submodel, ids, tmp_path / f"sub{suffix}").difference <= 1e-5


def test_a_mask_is_zero_off_the_mask_and_equal_on_it(tmp_path):
    made = model()
    params, submodel = made.initial_params(), submodel_of(made, "mask")
    export_submodel(submodel_module(made, params, submodel), submodel, X, tmp_path / "a.safetensors", {"a": "b"})
    tensors = load_file(tmp_path / "a.safetensors")
    flat = torch.cat([tensors[name].reshape(-1) for name in made.layout.names])
    assert torch.equal(flat, torch.where(submodel.held, params.flat, 0.0))
    with safe_open(tmp_path / "a.safetensors", "pt") as file:
        assert file.metadata() == {"a": "b"}


def test_a_sparse_file_stores_no_zeros(tmp_path):
    """A bit a parameter and the held values; loading gives the same tensors as the whole file."""
    made = model(name="resnet8")
    params = made.initial_params()
    submodel = mask_from_scores(params.flat[: made.layout.num_maskable].abs(), 0.0625, made.layout)
    module = submodel_module(made, params, submodel)
    small, whole = (
        export_submodel(module, submodel, X, tmp_path / f"a{ending}", {"a": "b"})
        for ending in (".sparse.safetensors", ".safetensors")
    )
    assert small.stored == submodel.num_held
    assert small.bytes < 4 * submodel.num_held + made.layout.size / 8 + 5_000 < whole.bytes / 8
    read, wanted = read_sparse(small.path), load_file(whole.path)
    assert read.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert torch.equal(read[name], tensor)
        assert read[name].dtype == tensor.dtype


def test_a_sparse_file_by_hand(tmp_path):
    """Bits in row-major order from the least significant on; what would not be smaller stays as it is."""
    one = torch.zeros(3, 4)
    one[0, 1], one[2, 3] = 2.0, -1.0
    tensors = {"one": one, "dense": torch.ones(3), "count": torch.tensor(7), "none": torch.zeros(5)}
    write_sparse(tensors, tmp_path / "a.sparse.safetensors", {"a": "b"})
    stored = load_file(tmp_path / "a.sparse.safetensors")
    assert stored["one.held"].tolist() == [0b00000010, 0b00001000]
    assert stored["one.values"].tolist() == [2.0, -1.0]
    assert stored["none.values"].tolist() == []
    assert set(stored) == {"one.held", "one.values", "none.held", "none.values", "dense", "count"}
    with safe_open(tmp_path / "a.sparse.safetensors", "pt") as file:
        assert json.loads(file.metadata()["sparse"]) == {"one": [3, 4], "none": [5]}
        assert file.metadata()["a"] == "b"
    read = read_sparse(tmp_path / "a.sparse.safetensors")
    assert read.keys() == tensors.keys()
    assert all(torch.equal(read[name], tensor) for name, tensor in tensors.items())


class AskedForItsLength(nn.Module):
    """A network whose Python code looks at the number of examples: it is traced for that number alone."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 4)

    def forward(self, x):
        return self.layer(x.flatten(1)) * (1.0 if len(x) == 1 else 2.0)


@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
def test_a_network_is_traced_for_one_example_where_it_cannot_be_for_any(tmp_path, suffix):
    made = model_of(AskedForItsLength())
    submodel = full(made.layout)
    module = submodel_module(made, made.initial_params(), submodel)
    with pytest.raises(ExportError, match=r"traced for any number of examples .* or a batch size is given"):
        export_submodel(module, submodel, X, tmp_path / f"a{suffix}")
    done = export_submodel(module, submodel, X, tmp_path / f"a{suffix}", batch_size=1)
    assert done.difference <= 1e-5
    if suffix == ".onnx":
        session = onnxruntime.InferenceSession(str(done.path), providers=["CPUExecutionProvider"])
        assert session.get_inputs()[0].shape == [1, 1, 8, 8]
    with pytest.raises(ExportError, match="batch_size must be from 1 to the 6 examples given, got 7"):
        export_submodel(module, submodel, X, tmp_path / f"a{suffix}", batch_size=7)


def test_a_slice_is_the_small_network(tmp_path):
    made = model()
    submodel = submodel_of(made, "slice")
    export_submodel(submodel_module(made, made.initial_params(), submodel), submodel, X, tmp_path / "a.safetensors")
    tensors = load_file(tmp_path / "a.safetensors")
    assert {name: tuple(tensors[name].shape) for name in submodel.layout.names} == dict(
        zip(submodel.layout.names, submodel.layout.shapes, strict=True)
    )
    assert json.loads(describe(submodel, capacity=0.25)["widths"]) == dict(submodel.widths)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_holds_no_example_and_says_what_it_is(tmp_path, suffix):
    made = model()
    submodel = submodel_of(made, "mask")
    path = tmp_path / f"sub{suffix}"
    export_submodel(submodel_module(made, made.initial_params(), submodel), submodel, X, path, {"capacity": "0.25"})
    assert X[0].numpy().tobytes() not in path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()
    if suffix == ".pt2":
        assert torch.export.load(path).example_inputs is None
    if suffix == ".onnx":
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        assert session.get_modelmeta().custom_metadata_map == {"capacity": "0.25"}
        assert [output.name for output in session.get_outputs()] == ["logits"]


class Named(nn.Module):
    """Its input and a parameter are called as outputs may be."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.values = nn.Parameter(torch.ones(2))

    def forward(self, logits: torch.Tensor) -> torch.Tensor:
        return self.layer(logits) * self.values


@pytest.mark.parametrize(("output", "named"), [("logits", "logits_out"), ("values", "values_out"), ("y", "y")])
def test_an_output_has_a_name_of_its_own(tmp_path, output, named):
    made = model_of(Named(), example=torch.zeros(2, 3))
    module, whole = submodel_module(made, made.initial_params(), full(made.layout)), full(made.layout)
    export_submodel(module, whole, torch.ones(2, 3), tmp_path / "a.onnx", output=output)
    session = onnxruntime.InferenceSession(str(tmp_path / "a.onnx"), providers=["CPUExecutionProvider"])
    assert [node.name for node in session.get_outputs()] == [named]


def test_a_regression_s_network_gives_values(experiment_file, tmp_path, capsys):
    rows = "".join(f"{n % 7},{n % 5},{n % 7 - n % 5}\n" for n in range(60))
    (tmp_path / "t.csv").write_text(f"a,b,y\n{rows}")
    path = experiment_file(
        f'data = {{ name = "csv:{tmp_path / "t.csv"}", options = {{ label = "y" }}, partition.scheme = "iid" }}\n'
        'task.name = "regression"\nmethod.name = "heterofl"\n'
    )
    assert main(["run", str(path), "--out", str(tmp_path / "run"), "--workers", "1"]) == 0
    assert main(["export", str(tmp_path / "run"), "--capacity=0.5", f"--out={tmp_path / 'a.onnx'}"]) == 0
    session = onnxruntime.InferenceSession(str(tmp_path / "a.onnx"), providers=["CPUExecutionProvider"])
    assert [node.name for node in session.get_outputs()] == ["values"]
    about = session.get_modelmeta().custom_metadata_map
    assert about["task"] == "regression"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_batch_normalisation_is_recalibrated_and_exported(tmp_path, suffix):
    made = model(norm="batch")
    submodel = submodel_of(made, "slice")
    with pytest.raises(ValueError, match="needs training data to recalibrate on"):
        submodel_module(made, made.initial_params(), submodel)
    data = TensorData(X + 3.0, torch.zeros(6, dtype=torch.int64))
    module = submodel_module(made, made.initial_params(), submodel, data)
    norm = next(m for m in module.modules() if isinstance(m, nn.BatchNorm2d))
    assert float(norm.running_mean.abs().max()) > 0
    assert export_submodel(module, submodel, X, tmp_path / f"a{suffix}").difference <= 1e-4


def test_the_module_shares_nothing_with_the_model():
    made = model()
    before = made.initial_params().flat.clone()
    module = submodel_module(made, made.initial_params(), full(made.layout))
    for parameter in module.parameters():
        parameter.data.zero_()
    other = submodel_module(made, made.initial_params(), full(made.layout))
    assert torch.equal(made.initial_params().flat, before)
    assert float(sum(p.abs().sum() for p in other.parameters())) > 0


def test_outputs_that_differ_are_refused(tmp_path, monkeypatch):
    """The check is a check: a file that computes something else is not left behind."""
    made = model()
    module = submodel_module(made, made.initial_params(), full(made.layout))
    write, reader = fedfibos.export.formats.FORMATS[".pt2"]
    wrong = {".pt2": (lambda *arguments: write(*arguments) + 0.1, reader)}
    monkeypatch.setattr(fedfibos.export.formats, "FORMATS", wrong)
    with pytest.raises(ExportError, match=r"outputs differ by 0\.1"):
        export_submodel(module, full(made.layout), X, tmp_path / "a.pt2")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_disk_that_is_full_is_one_line(tmp_path):
    """A limit on the size of a file stands for the disk; in a process of its own, which must not be ended by it."""
    program = f"""
import resource, torch
from pathlib import Path
from fedfibos.export.formats import ExportError, export_submodel
from fedfibos.model import model_of
from fedfibos.models import build
from fedfibos.submodel import full
module = build("mlp", 4, (1, 8, 8), seed=0, hidden=(256,))
submodel = full(model_of(module).layout)
resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
for suffix in {SUFFIXES!r}:
    try:
        export_submodel(module, submodel, torch.zeros(2, 1, 8, 8), Path("small" + suffix))
    except ExportError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert [line.split(": ")[0] for line in lines] == [f"small{suffix} cannot be written" for suffix in SUFFIXES]
    assert not list(tmp_path.iterdir())


def test_an_unknown_suffix_is_one_line(tmp_path):
    made = model()
    with pytest.raises(
        ExportError, match=r"must end in one of .sparse.safetensors, .safetensors, .pt2, .onnx, .pte, got 'a.pt'"
    ):
        export_submodel(made.module, full(made.layout), X, tmp_path / "a.pt")


LOAD = """
import sys
sys.modules["fedfibos"] = None
import numpy, onnxruntime, torch
from safetensors.torch import load_file
print(len(load_file("small.safetensors")))
print(tuple(torch.export.load("small.pt2").module()(torch.zeros(3, 1, 8, 8)).shape))
session = onnxruntime.InferenceSession("small.onnx")
print(session.run(None, {session.get_inputs()[0].name: numpy.zeros((3, 1, 8, 8), numpy.float32)})[0].shape)
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of one round of FedFIbOS, shared and per client, and of HeteroFL."""
    folder = tmp_path_factory.mktemp("runs")
    changes = 'model.name = "cnn"\nfederation.rounds = 1'
    (folder / "e.toml").write_text(small_experiment(changes, without=("model.options", "federation.capacities")))
    settings = {"shared": (), "client": ("method.sharing=client",), "heterofl": ("method.name=heterofl",)}
    for name, overrides in settings.items():
        out = str(folder / name)
        assert main(["run", str(folder / "e.toml"), *overrides, "--out", out, "--workers", "1"]) == 0
    return folder


@pytest.mark.slow
def test_export_from_a_run_loads_without_the_package(runs, tmp_path, capsys):
    for run, suffix in (("shared", ".safetensors"), ("heterofl", ".pt2"), ("heterofl", ".onnx")):
        out = tmp_path / f"small{suffix}"
        assert main(["export", str(runs / run), "--capacity", "0.25", "--out", str(out)]) == 0
        assert "outputs agree to" in capsys.readouterr().out
    done = subprocess.run([sys.executable, "-c", LOAD], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    tensors, *shapes = done.stdout.splitlines()
    assert tensors in ("8", "11")
    assert shapes == ["(3, 10)", "(3, 10)"]


@pytest.mark.parametrize(
    ("run", "capacity", "suffix", "said"),
    [
        ("shared", "0.25", ".pt2", "no smaller or faster than it; fedfibos-channels and the other methods of slices"),
        ("shared", "0.25", ".sparse.safetensors", "and no faster than it; fedfibos-channels"),
        ("shared", "1", ".safetensors", ""),
        ("heterofl", "0.25", ".safetensors", ""),
    ],
)
def test_a_mask_says_that_its_file_is_no_smaller_and_what_is(runs, tmp_path, capsys, run, capacity, suffix, said):
    assert main(["export", str(runs / run), "--capacity", capacity, "--out", str(tmp_path / f"a{suffix}")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == (2 if said else 1)
    assert said in lines[-1]


def test_a_file_of_8_bits_says_what_it_does_to_the_accuracy(runs, tmp_path, capsys):
    out = tmp_path / "new" / "a.onnx"
    assert main(["export", str(runs / "heterofl"), "--capacity=0.25", f"--out={out}", "--int8=static"]) == 0
    assert re.search(
        r"on 360 test examples accuracy [\d.]+ %, [\d.]+ % before int8, which took", capsys.readouterr().out
    )
    assert (
        main(["export", str(runs / "heterofl"), "--capacity=0.25", f"--out={tmp_path / 'a.pt2'}", "--int8=static"]) == 2
    )
    assert "int8 is for a file that ends in .onnx, got 'a.pt2'" in capsys.readouterr().err


def test_personal_submodels_need_a_client(runs, tmp_path, capsys):
    out = tmp_path / "a.safetensors"
    assert main(["export", str(runs / "client"), "--capacity", "0.25", "--out", str(out)]) == 2
    assert "are personal: pass --client N" in capsys.readouterr().err
    assert main(["export", str(runs / "client"), "--capacity", "0.25", "--client", "9", "--out", str(out)]) == 2
    assert "--client must be from 0 to 4, got 9" in capsys.readouterr().err
    experiment = load_experiment(runs / "client")
    took_part = sample(experiment.federation.clients, experiment.federation.cohort, experiment.seed, 0)
    for client in range(5):
        assert main(["export", str(runs / "client"), "--capacity=0.5", f"--client={client}", f"--out={out}"]) == 0
        assert (f"client {client} has not taken part yet" in capsys.readouterr().err) == (client not in took_part)
    assert main(["export", str(runs / "client"), "--capacity", "0.25", "--client", "3", "--out", str(out)]) == 0
    with safe_open(out, "pt") as file:
        about = file.metadata()
    assert (about["client"], about["capacity"], about["method"], about["kind"]) == ("3", "0.25", "fedfibos", "mask")
    assert main(["export", str(runs / "client"), "--client", "3", "--out", str(out)]) == 0
    with safe_open(out, "pt") as file:
        assert float(file.metadata()["capacity"]) == experiment.capacities().of([3], 0)[0]
    capsys.readouterr()
    assert main(["export", str(runs / "client"), "--out", str(out)]) == 2
    assert "export must have --capacity, or --client N for the capacity of client N" in capsys.readouterr().err
    final = json.loads((runs / "client" / "final.json").read_text())
    assert about["round"] == str(final["rounds"])
    assert json.loads(about["classes"]) == [str(digit) for digit in range(10)]


def test_a_capacity_that_nobody_has_is_exported_with_a_warning(runs, tmp_path, capsys):
    out = tmp_path / "a.sparse.safetensors"
    export = ["export", str(runs / "shared"), "--out", str(out)]
    own = load_experiment(runs / "shared").capacities().of(range(5), 0)
    other = next(client for client in range(5) if own[client] != 0.25)
    warnings = []
    for options in (
        ["--capacity=0.25"],
        ["--capacity=0.25", f"--client={own.index(0.25)}"],
        ["--capacity=0.3"],
        ["--capacity=0.25", f"--client={other}"],
    ):
        assert main([*export, *options]) == 0
        shown, err = capsys.readouterr()
        assert "from fedfibos import read_sparse" in shown
        warnings.append(err)
    assert warnings == [
        "",
        "",
        "warning: no client on record has capacity 0.3: there are 1, 0.5, 0.25, 0.125, 0.0625\n",
        f"warning: client {other} has capacity {own[other]:g}, the file is of 0.25\n",
    ]
    with safe_open(out, "pt") as file:
        assert file.metadata()["capacity"] == "0.25"


def test_the_lines_of_the_page_read_a_sparse_file(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "export.md").read_text()
    (lines,) = re.findall(r"^```python\n(from fedfibos import read_sparse.*?)^```", page, re.MULTILINE | re.DOTALL)
    made = model()
    module = submodel_module(made, made.initial_params(), submodel_of(made, "mask"))
    write_sparse(module.state_dict(), tmp_path / "a.sparse.safetensors")
    again = submodel_module(made, made.initial_params(), full(made.layout))
    exec(lines, {"module": again, "path": tmp_path / "a.sparse.safetensors"})
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in module.state_dict().items())


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--capacity", "1.5"], "capacity must be in (0, 1], got 1.5"),
        (["--capacity", "0.00001"], None),
    ],
)
def test_wrong_capacities_are_one_line(runs, tmp_path, arguments, reason, capsys):
    code = main(["export", str(runs / "heterofl"), *arguments, "--out", str(tmp_path / "a.safetensors")])
    err = capsys.readouterr().err
    assert code == 2
    assert err.count("\n") == 1
    assert reason is None or reason in err


@pytest.mark.parametrize("ending", [".safetensors", ".sparse.safetensors"])
def test_a_file_without_the_statistics_is_refused(tmp_path, monkeypatch, ending):
    """What is read back begins with nothing, buffers included: those of the module written would hide the loss."""
    made = model(norm="batch")
    module = submodel_module(
        made, made.initial_params(), full(made.layout), TensorData(X + 5, torch.zeros(len(X)).long())
    )
    kept = {name: tensor for name, tensor in module.state_dict().items() if "running" not in name}
    monkeypatch.setattr(type(module), "state_dict", lambda self: kept)
    monkeypatch.setattr(fedfibos.export.formats, "save_model", lambda module, path, about: save_file(kept, path, about))
    monkeypatch.setattr(
        fedfibos.export.formats, "load_model", lambda again, path: again.load_state_dict(load_file(path), False)
    )
    with pytest.raises(ExportError, match="outputs differ by"):
        export_submodel(module, full(made.layout), X, tmp_path / f"a{ending}")
