"""What torch's operations do with channels: rules on the factors of their operands' dimensions.

A rule takes the reader of factors, the operation's result and its arguments, and returns the dimensions of the result
(of each tensor of it); None where it can't say. What an operation without a rule meets stays whole. No rule has to be
right: every table is proved (:mod:`fedfibos.channels.check`).
"""

from __future__ import annotations

import re
from functools import partial

from fedfibos.channels import index_rules as indices
from fedfibos.channels import layer_rules as layers
from fedfibos.channels import shape_rules as shapes
from fedfibos.channels.rule import Rule


def _named(names: str, rule: Rule) -> dict[str, Rule]:
    return {name: rule for name in names.split()}


RULES: dict[str, Rule] = {
    **_named("view _unsafe_view reshape _reshape_alias _view_copy", shapes.view),
    **_named("as_strided as_strided_", shapes.strided),
    **_named("expand", shapes.expand),
    **_named("repeat", shapes.repeat_rule),
    **_named("permute", shapes.permute),
    **_named("transpose transpose_ swapaxes", shapes.transpose),
    **_named("t", shapes.transpose),
    **_named("squeeze squeeze_", shapes.squeeze),
    **_named("unsqueeze unsqueeze_", shapes.unsqueeze),
    **_named("select", shapes.select),
    **_named("unbind", shapes.unbind),
    **_named("slice", shapes.slice_rule),
    **_named("split split_with_sizes unsafe_split unsafe_split_with_sizes", shapes.split),
    **_named("cat", shapes.cat),
    **_named("stack", shapes.stack),
    **_named(
        "sum mean amax amin var std max min argmax argmin prod any all logsumexp var_mean median nansum count_nonzero",
        shapes.reduce_rule,
    ),
    **_named("linalg_vector_norm norm", shapes.norm_rule),
    **_named("_softmax _log_softmax softmax log_softmax _safe_softmax", shapes.softmax),
    **_named("cumsum cumprod cummax cummin logcumsumexp flip", shapes.ordered(0)),
    **_named("sort argsort", shapes.ordered(0)),
    **_named("roll topk kthvalue", shapes.ordered(1)),
    **_named("mm bmm mv dot vdot", layers.mm),
    **_named("_grouped_mm", layers.grouped_mm),
    **_named("addmm baddbmm addmv addbmm", layers.addmm),
    **_named(
        "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention "
        "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention",
        layers.attention,
    ),
    **_named("convolution _convolution", layers.convolution),
    **_named(
        "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training _batch_norm_with_update "
        "_batch_norm_no_update cudnn_batch_norm",
        layers.batch_norm,
    ),
    **_named("_trilinear", layers.trilinear),
    **_named("native_layer_norm _fused_rms_norm", layers.layer_norm),
    **_named("native_group_norm", layers.group_norm),
    **_named("_weight_norm_interface", layers.weight_norm),
    **_named("embedding", layers.embedding),
    **_named("_embedding_bag _embedding_bag_forward_only", layers.embedding_bag),
    **_named("embedding_renorm_", layers.embedding_renorm),
    **_named("index_select", indices.index_select),
    **_named("index", indices.index_rule),
    **_named("index_put index_put_ _unsafe_index_put _index_put_impl_", indices.index_put),
    **_named("gather", indices.gather),
    **_named("scatter scatter_ scatter_add scatter_add_ scatter_reduce scatter_reduce_", indices.scatter),
    **_named(
        "index_fill index_fill_ index_add index_add_ index_copy index_copy_ index_reduce index_reduce_",
        indices.index_write,
    ),
    **_named("tril triu", shapes.last_two),
    **_named("diagonal diagonal_copy", shapes.diagonal),
    **_named("diag_embed", shapes.diag_embed),
    **_named("pixel_shuffle", layers.pixel_shuffle),
    **_named("pixel_unshuffle", layers.pixel_unshuffle),
    **_named("channel_shuffle native_channel_shuffle", layers.channel_shuffle),
    **_named("im2col", layers.im2col),
    **_named("col2im", layers.col2im),
    **_named("unfold", shapes.unfold),
    **_named("constant_pad_nd", shapes.pad_rule),
    **_named("glu", shapes.glu),
    **_named("_fft_r2c _fft_c2c _fft_c2r", shapes.transformed),
    **_named("view_as_complex", shapes.as_complex),
    **_named("view_as_real", shapes.as_real),
    **_named(
        "hardswish hardswish_ _prelu_kernel prelu rrelu_with_noise floor_divide polar complex masked_fill normal",
        shapes.of_all,
    ),
    **_named(  # gradients that a model computes itself
        "softplus_backward elu_backward leaky_relu_backward hardtanh_backward hardswish_backward hardsigmoid_backward "
        "mish_backward log_sigmoid_backward _prelu_kernel_backward _softmax_backward_data _log_softmax_backward_data",
        shapes.of_all,
    ),
    **_named("_cdist_forward _euclidean_dist", layers.distances),
    **_named("mkldnn_rnn_layer", layers.lstm),
    **_named("_pack_padded_sequence", layers.pack_padded),
    **_named("_pad_packed_sequence", layers.pad_packed),
    **_named("copy_ copy", shapes.copy_rule),
    **_named(
        "detach detach_ alias clone contiguous lift_fresh lift_fresh_copy _to_copy to native_dropout dropout bernoulli "
        "bernoulli_ zero_ fill_ zeros_like ones_like full_like empty_like rand_like randn_like masked_fill_ "
        "_conj resolve_conj normal_ uniform_ log_sigmoid_forward",
        shapes.like_first,
    ),
    **_named(
        "zeros ones full empty new_zeros new_ones new_full new_empty empty_strided scalar_tensor rand randn",
        shapes.uniform,
    ),
}
"""Name of an operation of ``aten`` -> its rule."""

_SPATIAL = re.compile(r"(adaptive|pool|upsample|pad|grid_sampler|interpolate).*?([123])d")


def rule_of(name: str) -> Rule | None:
    """The rule of an operation, by its name in ``aten`` without overload."""
    if name in RULES:
        return RULES[name]
    if match := _SPATIAL.search(name):
        count, windows = int(match[2]), match[1] in ("pool", "grid_sampler") or name.endswith("_backward")
        return partial(layers.spatial, count=count, windows=windows)
    return None
