"""The models that ship with the package, plain ``nn.Module`` classes that know nothing of methods; and a user's own."""

from fedfibos.models.catalogue import MODELS, build, check_options, encode, options_of, parameters_of
from fedfibos.models.check import check_module, check_test_inputs, outputs_of

__all__ = [
    "MODELS",
    "build",
    "check_module",
    "check_options",
    "check_test_inputs",
    "encode",
    "options_of",
    "outputs_of",
    "parameters_of",
]
