"""What [privacy] takes, and what it says of what it does not."""

import pytest

from fedfibos.common.validation import ExperimentError
from fedfibos.config.experiment import load_experiment, to_toml
from fedfibos.privacy.settings import Privacy

TABLE = {"clip": 1.0, "noise": 2.0}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"clip": 0.0}, "clip must be a positive number, got 0.0"),
        ({"noise": -1.0}, "noise must be a positive number, got -1.0"),
        ({"statistic_clip": 1.0}, "statistic_clip and statistic_noise go together, got 1.0 and None"),
        (
            {"statistic_clip": 0.0, "statistic_noise": 1.0},
            "statistic_clip must be a positive number, got 0.0",
        ),
        ({"delta": 1.0}, "delta must be a probability above 0 and below 1, got 1"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"sampling": "secret"}, "sampling must be one of 'fixed', 'poisson', 'known', got 'secret'"),
    ],
)
def test_a_value_that_cannot_be_is_said_in_one_line(changed, message):
    with pytest.raises(ValueError, match="^" + message.replace("(", r"\(")):
        Privacy(**{**TABLE, **changed})


def test_without_the_section_there_is_no_privacy_and_no_word_of_it_on_record(experiment_file):
    loaded = load_experiment(experiment_file())
    assert loaded.privacy is None
    assert "privacy" not in to_toml(loaded)


def test_the_section_is_written_out_and_read_back(experiment_file, tmp_path):
    loaded = load_experiment(experiment_file(), ["privacy.clip=0.5", "privacy.noise=1.5", "privacy.delta=1e-3"])
    assert loaded.privacy == Privacy(0.5, 1.5, delta=1e-3)
    (tmp_path / "again.toml").write_text(to_toml(loaded))
    assert load_experiment(tmp_path / "again.toml") == loaded


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["privacy.clip=1.0"], "privacy.noise is missing"),
        (["privacy.clip=1.0", "privacy.nosie=1.0"], "unknown key 'privacy.nosie'; did you mean 'privacy.noise'?"),
        (["privacy.clip=-1.0", "privacy.noise=1.0"], "clip must be a positive number, got -1.0"),
    ],
)
def test_a_wrong_section_is_one_line(experiment_file, overrides, message):
    with pytest.raises(ExperimentError) as error:
        load_experiment(experiment_file(), overrides)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
