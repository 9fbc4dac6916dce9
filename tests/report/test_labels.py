"""How methods are named."""

from dataclasses import replace
from pathlib import Path

from made_runs import EXPERIMENT

from fedfibos.config.choices import MethodChoice
from fedfibos.report.labels import method_label


def test_a_setting_that_a_method_chose_itself_is_not_in_its_label():
    method = MethodChoice("fedfibos", None, {"sharing": "client"})
    assert method.settings["fisher"] == "dense"
    assert method_label(replace(EXPERIMENT, method=method)) == "FedFIbOS, sharing = client"
    shared = MethodChoice("fedfibos", None, {"prior": "magnitude"})
    assert method_label(replace(EXPERIMENT, method=shared)) == "FedFIbOS, prior = magnitude"


def test_the_label_of_a_method_of_one_s_own_leaves_its_defaults_out(tmp_path, monkeypatch):
    choice = MethodChoice("own_method:Movement", None, {"server_lr": 1.0})
    with monkeypatch.context() as found:
        found.syspath_prepend(Path(__file__).parents[2] / "examples")
        assert method_label(replace(EXPERIMENT, method=choice)) == "Movement"
        slower = replace(choice, settings={"server_lr": 0.5})
        assert method_label(replace(EXPERIMENT, method=slower)) == "Movement, server_lr = 0.5"
    gone = replace(choice, name="code_that_is_gone:Movement")
    assert method_label(replace(EXPERIMENT, method=gone)) == "Movement, server_lr = 1"
