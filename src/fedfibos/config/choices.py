"""Which model and which method an experiment uses, and their options; your own ones too."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, cast

import tomli_w
from pydantic.dataclasses import dataclass

from fedfibos.common.user_code import describe_error, find, is_own, unguard
from fedfibos.common.validation import ExperimentError, check_name, checked, did_you_mean
from fedfibos.config.limits import CONFIG
from fedfibos.method import OPTIONAL, Method
from fedfibos.methods import METHODS, PRESETS
from fedfibos.models import check_options, options_of, parameters_of

Norm = Literal["group", "batch", "none"]
VERBS = ("personal", "init", "extract", "train", "update", "aggregate")
"""What a method must have: the members of :class:`fedfibos.method.Method`."""


@dataclass(frozen=True, config=CONFIG)
class ModelChoice:
    """The model that is trained.

    Attributes:
        name: A key of :data:`fedfibos.models.MODELS`, or your own: ``module:function``, which is called with
            ``num_classes``, ``input_shape`` and its options and gives an ``nn.Module``.
        norm: Normalisation layer; the model's own default where not given.
        options: The model's other options (``hidden`` of the MLP, ``channels`` of the others), all of them
            after construction.
        channels_last: Compute on images laid out channels last; see :func:`fedfibos.model.model_of`.
        held: Modules or parameters that every client holds whole, as normalisation layers are (a new head, say): they
            are not ranked and not counted against the budget; slices cut them with their channels all the same.
        whole: Modules or parameters whose channels slices never cut; they count against the budget.
        frozen_whole: Slices cut no channel of a parameter that is not trained either. Of a model with low-rank
            adapters (LoRA) the ranks alone are left to cut, and the pretrained weights stay as they are.
    """

    name: str
    norm: Norm | None = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    channels_last: bool = False
    held: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()
    frozen_whole: bool = False

    def __post_init__(self) -> None:
        if is_own(self.name):  # see ``resolved``: a record is read without its user's code
            return
        check_options(self.name, self.options)
        known = options_of(self.name)
        resolved = {name: self.options.get(name, parameter.default) for name, parameter in known.items()}
        for name, value in resolved.items():
            resolved[name] = checked(known[name].annotation, value, f"model.options.{name}")
        object.__setattr__(self, "options", resolved)
        if self.norm is None:
            object.__setattr__(self, "norm", parameters_of(self.name)["norm"].default)

    def resolved(self) -> ModelChoice:
        """The same; a user's own model with its defaults written out, where TOML has them.

        Raises:
            ExperimentError: It is not there, or not to be called with these options.
        """
        if not is_own(self.name):
            return self
        parameters = parameters_of(self.name)
        needed = {"num_classes": "name", "input_shape": "name", **({"norm": "norm"} if self.norm is not None else {})}
        needed |= {option: f"options.{option}" for option in self.options}
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
            for name, key in needed.items():
                if name not in parameters:
                    near = did_you_mean(name, options_of(self.name))
                    raise ExperimentError(
                        f"{self.name} must take {name}, it has no such parameter{near}", f"model.{key}"
                    )
        options = dict(self.options)
        for name, parameter in options_of(self.name).items():
            if name not in options and parameter.default is parameter.empty:
                raise ExperimentError(f"model.options.{name} is missing: {self.name} has no default for it", "model")
            if isinstance(parameter.default, bool | int | float | str | list | tuple):
                options.setdefault(name, parameter.default)
        return dataclasses.replace(self, options=options)


@dataclass(frozen=True, config=CONFIG)
class MethodChoice:
    """The method and its hyperparameters.

    Attributes:
        name: A key of :data:`fedfibos.methods.METHODS`, or your own: ``module:Class``, a frozen dataclass with
            the verbs of :class:`fedfibos.method.Method`, whose fields are its settings.
        preset: A key of :data:`fedfibos.methods.PRESETS` of that method, or None for its defaults.
        settings: Fields that differ from the preset; all fields of the method after construction.
    """

    name: str
    preset: str | None = None
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if is_own(self.name):  # see ``resolved``: a record is read without its user's code
            if self.preset is not None:
                raise ExperimentError(f"a method of your own has no presets, got {self.preset!r}", "method.preset")
            return
        check_name("method.name", self.name, METHODS)
        preset: Mapping[str, Any] = {}
        if self.preset is not None:
            check_name(f"method.preset of {self.name}", self.preset, PRESETS.get(self.name, {}))
            preset = PRESETS.get(self.name, {})[self.preset]
        method = METHODS[self.name]
        for key in self.settings:
            check_name(f"a setting of {self.name}", key, field_names(method))
        built = checked(method, {**preset, **self.settings}, "method")
        object.__setattr__(self, "settings", dataclasses.asdict(built))

    def resolved(self) -> MethodChoice:
        """The same; a user's own method with its defaults written out.

        Raises:
            ExperimentError: It is not there, is no method, or does not take these settings.
        """
        if not is_own(self.name):
            return self
        cls: Any = unguard(find("method.name", self.name, METHODS))
        lacks = [verb for verb in VERBS if not hasattr(cls, verb)]
        if not isinstance(cls, type) or not dataclasses.is_dataclass(cls) or lacks:
            lack = f"it lacks {', '.join(lacks)}" if lacks else "it is none"
            raise ExperimentError(f"{self.name} must be a dataclass with the verbs of a method, {lack}", "method.name")
        if asked := [key for key in field_names(cls) if key in OPTIONAL]:
            raise ExperimentError(
                f"{self.name} has a setting {asked[0]!r}, which methods are asked for as a verb: give it another name",
                f"method.{asked[0]}",
            )
        for key in self.settings:
            check_name(f"a setting of {self.name}", key, field_names(cls))
        try:
            settings = dataclasses.asdict(checked(cls, dict(self.settings), "method"))
            tomli_w.dumps({key: value for key, value in settings.items() if value is not None})
        except ExperimentError:
            raise
        except Exception as error:  # field types that no file can hold
            raise ExperimentError(
                f"{self.name} has settings that no file can hold: {describe_error(error)}", "method"
            ) from error
        return dataclasses.replace(self, settings=settings)

    def build(self) -> Method:
        """The method with these settings."""
        return cast(Method, find("method.name", self.name, METHODS)(**self.settings))

    def left_out(self) -> dict[str, Any]:
        """What every setting would be if it alone were left out: a method may choose one by the others.

        Of a user's own method the settings as they are, as its record may be read without its code.
        """
        if is_own(self.name):
            return dict(self.settings)
        return {key: self._without(key).settings[key] for key in self.settings}

    def _without(self, key: str) -> MethodChoice:
        return MethodChoice(self.name, self.preset, {k: v for k, v in self.settings.items() if k != key})


def field_names(cls: type[Any]) -> list[str]:
    """Names of a dataclass's fields."""
    return [field.name for field in dataclasses.fields(cls)]
