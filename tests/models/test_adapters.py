"""Low-rank adapters (LoRA): the pretrained weights are frozen, and a capacity is a rank."""

import pytest
import torch
from torch import nn

from fedfibos import TensorData
from fedfibos.analysis.cautions import cautions
from fedfibos.methods import METHODS
from fedfibos.model import model_of
from fedfibos.round import federated_round
from fedfibos.training import LocalTraining
from fedfibos.types import Client

RANK, WIDE = 8, 16


class Adapted(nn.Module):
    """W x + B A x with W frozen."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.base = nn.Linear(inputs, outputs).requires_grad_(False)
        self.down = nn.Linear(inputs, RANK, bias=False)
        self.up = nn.Linear(RANK, outputs, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


def adapted():
    torch.manual_seed(0)
    return nn.Sequential(Adapted(5, WIDE), nn.ReLU(), Adapted(WIDE, WIDE), nn.ReLU(), nn.Linear(WIDE, 3))


def a_model(**more):
    return model_of(adapted(), example=torch.randn(4, 5, generator=torch.Generator().manual_seed(1)), **more)


def some_data():
    generator = torch.Generator().manual_seed(2)
    inputs = torch.randn(24, 5, generator=generator)
    return TensorData(inputs, inputs[:, :3].argmax(1))


def test_the_frozen_weights_are_neither_counted_nor_sent():
    model = a_model()
    assert model.layout.names == ("0.down.weight", "0.up.weight", "2.down.weight", "2.up.weight", "4.weight", "4.bias")
    assert model.layout.size == 8 * 5 + 16 * 8 + 8 * 16 + 16 * 8 + 3 * 16 + 3


def test_what_is_trained_and_what_is_frozen_are_told_apart():
    assert a_model().sizes == "475 parameters and 368 frozen ones"
    assert model_of(nn.Linear(4, 3)).sizes == "15 parameters"


def test_with_frozen_whole_the_ranks_alone_are_cut():
    assert a_model().axes.sizes == {"0.base": 16, "0.down": 8, "2.base": 16, "2.down": 8}
    model = a_model(frozen_whole=True)
    assert model.axes.sizes == {"0.down": 8, "2.down": 8}
    assert model.axes.whole["0.base"] == "it is frozen"
    assert model.axes.shape("0.up.weight", {"0.down": 2}) == (16, 2)
    assert model.axes.shape("0.base.weight", {"0.down": 2}) == (16, 5)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_trains_the_adapters_and_leaves_the_rest(name):
    model = a_model(frozen_whole=True, held=("4",))
    method = METHODS[name](**({"scaler": False} if name in ("heterofl", "fedrolex", "fedbrb") else {}))
    frozen = [p.clone() for p in model.module.parameters() if not p.requires_grad]
    params = model.initial_params()
    state = method.init(params)
    capacities = (1.0,) if name == "fedavg" else (1.0, 0.25)
    losses = []
    for t in range(6):
        local = LocalTraining(steps=4, batch_size=8, lr=0.2)
        cohort = [Client(n, c, t, 0, local, some_data()) for n, c in enumerate(capacities)]
        state, params, report = federated_round(method, model, state, params, cohort)
        losses.append(report.loss)
    assert losses[-1] < losses[0]
    assert all(map(torch.equal, frozen, [p for p in model.module.parameters() if not p.requires_grad]))


def test_a_quarter_of_the_ranks_is_a_quarter_of_the_upload():
    model = a_model(frozen_whole=True, held=("4",))
    method = METHODS["heterofl"](scaler=False)
    params = model.initial_params()
    client = Client(0, 0.25, 0, 0, LocalTraining(), some_data())
    held = method.extract(model, method.init(params), params, client)
    assert dict(held.widths) == {"0.down": 2, "2.down": 2}
    module = model.workspace(held).load(held.gather(params.flat))
    assert module.get_parameter("0.down.weight").tolist() == params.tensors()["0.down.weight"][:2].tolist()
    assert module.get_parameter("0.base.weight").shape == (16, 5)


def test_what_is_frozen_is_no_reason_for_a_warning():
    model = a_model(frozen_whole=True, held=("4",))
    method = METHODS["heterofl"](scaler=False)
    params = model.initial_params()
    fleet = [Client(n, capacity, 0, 0, LocalTraining()) for n, capacity in enumerate((1.0, 0.25))]
    assert not [line for line in cautions(method, model, method.init(params), params, fleet) if "whole" in line]


def test_what_a_wrapped_module_says_of_itself_is_not_the_wrappers_word():
    """PEFT passes unknown names on to what it wraps, where layers have other names."""

    class Inner(nn.Linear):
        def channel_units(self):
            return {"nowhere": 2}

    class Passing(nn.Module):
        def __init__(self, net):
            super().__init__()
            self.net = net
            self.head = nn.Linear(6, 3)

        def forward(self, x):
            return self.head(self.net(x).relu())

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(super().__getattr__("net"), name)

    wrapped = Passing(Inner(5, 6))
    assert wrapped.channel_units() == {"nowhere": 2}
    assert model_of(wrapped, example=torch.randn(2, 5)).axes.sizes == {"net": 6}


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")  # peft asks transformers for it
def test_peft_models_train_as_they_are():
    """A BERT with LoRA on queries and values, whose new classifier is trained whole."""
    import peft  # both take seconds, which other tests need not wait for
    import transformers

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.BertConfig(vocab_size=50, max_position_embeddings=16, num_labels=3, **sizes)
    lora = peft.LoraConfig(task_type="SEQ_CLS", r=4, target_modules=["query", "value"])

    class Logits(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = peft.get_peft_model(transformers.BertForSequenceClassification(config), lora)

        def forward(self, input_ids):
            return self.net(input_ids=input_ids).logits

    model = model_of(Logits(), example={"input_ids": torch.arange(16).view(2, 8)}, frozen_whole=True)
    assert sorted(model.axes.sizes.values()) == [4, 4]
    assert all("lora_A" in axis for axis in model.axes.sizes)
    assert model.layout.size == 4 * (4 * 16) + 3 * 16 + 3
