"""An operation's rule is found by its name."""

from fedfibos.channels import layer_rules, shape_rules
from fedfibos.channels.rules import RULES, rule_of


def test_operations_have_the_rule_of_their_kind():
    assert rule_of("view") is shape_rules.view
    assert rule_of("convolution") is layer_rules.convolution
    assert rule_of("baddbmm") is layer_rules.addmm
    assert rule_of("nonsense") is None


def test_pooling_and_resampling_are_known_by_their_form():
    assert "max_pool2d_with_indices" not in RULES
    assert callable(rule_of("max_pool2d_with_indices"))
    assert callable(rule_of("upsample_nearest1d"))
    assert rule_of("pool") is None
