"""What the keys of an experiment are called elsewhere: in PyTorch, Flower's apps, PFLlib, FedLab, LEAF, papers."""

from __future__ import annotations

from collections.abc import Iterable

ELSEWHERE = {
    "local.lr": "learning_rate lrate eta step_size client_lr local_lr lr_local lr_client local_learning_rate "
    "client_learning_rate init_lr initial_lr base_lr",
    "local.batch_size": "batch batchsize bs batch_sz local_bs local_batch_size train_batch_size train_bs minibatch "
    "mini_batch mini_batch_size client_batch_size",
    "local.epochs": "epoch local_epochs local_epoch num_epochs n_epochs num_local_epochs local_ep client_epochs e",
    "local.steps": "local_steps num_steps n_steps max_steps iterations num_iterations local_iterations local_updates "
    "local_step k tau",
    "local.optimizer": "optimiser opt optim optimizer_name client_optimizer local_optimizer sgd adam adamw",
    "local.momentum": "mom sgd_momentum client_momentum",
    "local.weight_decay": "wd l2 l2_penalty l2_reg weightdecay reg",
    "local.betas": "beta1 beta2 adam_betas",
    "local.clip_norm": "clip grad_clip clip_grad gradient_clip gradient_clipping max_grad_norm max_norm clip_value",
    "local.schedule": "scheduler lr_scheduler lr_schedule learning_rate_schedule learning_rate_scheduler",
    "local.decay": "lr_decay lr_gamma learning_rate_decay learning_rate_decay_gamma decay_factor",
    "local.milestones": "lr_milestones decay_rounds lr_steps",
    "local.precision": "dtype amp mixed_precision fp16 bf16",
    "federation.clients": "num_clients n_clients nclients total_clients clients_total number_of_clients client_num "
    "client_num_in_total num_users n_users users total_users num_nodes num_supernodes num_devices devices n",
    "federation.cohort": "participants num_participants clients_per_round client_num_per_round num_clients_per_round "
    "participation participation_rate fraction fraction_fit fraction_train frac join_ratio num_join_clients "
    "sample_ratio sample_rate sample_clients sampled_clients min_fit_clients min_available_clients min_train_nodes "
    "client_fraction selected_clients cohort_size c",
    "federation.rounds": "num_rounds n_rounds global_rounds comm_round comm_rounds communication_rounds "
    "num_server_rounds server_rounds total_rounds global_epochs num_global_rounds t",
    "federation.capacities": "capacity gamma gammas ratio ratios rate rates model_rate model_rates width_ratio "
    "width_ratios shrink_ratio client_capacities budget budgets submodel_sizes",
    "federation.assignment": "model_split_mode capacity_assignment",
    "federation.weighting": "weights aggregation_weights weighted_average",
    "federation.dropout": "drop_rate dropout_rate client_drop_rate client_dropout straggler_rate stragglers",
    "data.name": "dataset data_set dataset_name data_name corpus",
    "data.partition.scheme": "partition partitioner partition_method partition_type partition_scheme split "
    "split_method niid noniid non_iid iid",
    "data.partition.alpha": "dirichlet_alpha dir_alpha diri_alpha partition_alpha dirichlet concentration "
    "dirichlet_beta",
    "data.partition.classes_per_client": "num_classes_per_client n_classes_per_client class_per_client "
    "shards_per_client shards classes num_shards labels_per_client class_num",
    "model.name": "arch architecture network net backbone model_name model_type",
    "model.norm": "normalization normalisation norm_layer norm_type",
    "model.options.hidden": "hidden hidden_size hidden_sizes hidden_dim hidden_dims hidden_units hidden_layers "
    "width widths",
    "model.options.channels": "num_channels filters num_filters planes",
    "method.name": "algorithm algo strategy fl_method method_name aggregator aggregation fl_algorithm",
    "method.preset": "variant reading version",
    "server.optimizer": "server_optimizer server_optimiser server_opt fedopt fedadam fedyogi fedadagrad "
    "fedavgm global_optimizer",
    "server.momentum": "server_momentum global_momentum",
    "server.merge": "robust robust_aggregation aggregation_rule trimmed_mean median",
    "server.trim": "trim_ratio trim_fraction",
    "server.average": "swa ema model_ema ema_decay weight_averaging model_averaging polyak polyak_averaging",
    "local.proximal": "mu proximal_mu prox_mu fedprox prox fedprox_mu",
    "local.scaffold": "control_variates variance_reduction",
    "evaluation.every": "eval_every evaluate_every eval_gap eval_interval eval_freq eval_frequency test_every "
    "test_interval test_gap frequency_of_the_test evaluation_interval log_interval",
    "evaluation.batch_size": "eval_batch_size test_batch_size test_bs val_batch_size",
    "evaluation.validation": "val val_split val_fraction validation_split val_ratio validation_fraction",
    "run.checkpoint_every": "checkpoint_interval save_every save_gap save_interval save_freq",
    "seed": "random_seed rng_seed random_state manual_seed seed_value",
    "--device of the command line": "device gpu gpus cuda use_cuda use_gpu device_id",
    "--workers of the command line": "workers num_workers n_workers processes num_processes num_gpus num_cpus",
    "--out of the command line": "out output output_dir out_dir save_dir save_folder log_dir logdir "
    "results_dir run_dir",
    "--data-dir of the command line": "data_dir data_path data_root root datadir dataset_path data_folder",
}
"""Key, or option, of ours -> what others call it."""

OURS = {word: key for key, words in ELSEWHERE.items() for word in words.split()}

RUN_TOGETHER = {word.replace("_", ""): key for word, key in reversed(OURS.items())}
"""The same without underscores, as in ``learningRate``."""

WITHIN = {
    "local.gamma": "local.decay",
    "local.beta": "local.betas",
    "local.alpha": "data.partition.alpha",
    "data.beta": "data.partition.alpha",
    "data.partition.beta": "data.partition.alpha",
    "method.gamma": "method.capacity",
    "method.rate": "method.capacity",
    "method.ratio": "method.capacity",
    "evaluation.interval": "evaluation.every",
    "evaluation.frequency": "evaluation.every",
    "run.every": "run.checkpoint_every",
    "run.seed": "seed",
    "server.optimiser": "server.optimizer",
    "server.opt": "server.optimizer",
    "server.lr": "method.server_lr",
    "server.learning_rate": "method.server_lr",
    "server.scaffold": "local.scaffold",
}
"""Words that mean something of their own within a section."""


def synonym(path: str, keys: Iterable[str]) -> str | None:
    """The key or option that a dotted name of another program stands for; None: nobody knows it.

    Args:
        path: What was written; hyphens, underscores and capitals do not matter.
        keys: The keys that there are, dotted; ``model.options.*`` stands for any below it.

    Example:
        >>> synonym("local.learning-rate", ["local.lr"])
        'local.lr'
    """
    known = set(keys)
    written = path.lower().replace("-", "_")
    leaf = written.rpartition(".")[2]
    for key in (WITHIN.get(written), OURS.get(leaf), RUN_TOGETHER.get(leaf.replace("_", ""))):
        if key is not None and (key in known or key.startswith("--") or f"{key.rpartition('.')[0]}.*" in known):
            return key
    return None
