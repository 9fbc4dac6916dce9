"""Whether a module normalises over a batch, or by statistics that it keeps."""

from torch import nn


def has_batch_norm(module: nn.Module) -> bool:
    """True where a training step normalises over the batch."""
    return any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in module.modules())


def keeps_statistics(module: nn.Module) -> bool:
    """True where evaluation normalises by statistics kept from training: batch norm, and instance norm that tracks."""
    norms = (m for m in module.modules() if isinstance(m, nn.modules.batchnorm._NormBase))
    return has_batch_norm(module) or any(norm.track_running_stats for norm in norms)
