"""Lines of rounds and a record's files, for tests."""

EVALUATION = {
    "global": {"full": 0.5, "submodels": {"1.0": 0.5, "mean": 0.5}},
    "local": {"mean": 0.5, "by_capacity": {"1.0": 0.5}},
    "jaccard": {"1.0": 1.0},
    "kept_shares": {},
    "cv_f": None,
    "cv_magnitude": 0.5,
}

LINE = {
    "round": 1,
    "loss": 1.0,
    "bytes": {"down": 10, "up": 3},
    "seconds": 0.5,
    "rejected": {},
    "evaluation": EVALUATION,
}

CURVE = {"last": 0.5, "last20": 0.5, "best": 0.5}

FINAL = {
    "method": "fedfibos",
    "seed": 0,
    "rounds": 1,
    "params_sha256": "00",
    "global_accuracy": {"full": CURVE, "submodels": {"1.0": CURVE, "mean": CURVE}},
    "local_accuracy": {"mean": CURVE, "by_capacity": {"1.0": CURVE}},
    "bytes": {"down": 10, "up": 3},
    "seconds": 0.5,
    "rejected": 0,
}


def line(number, **more):
    return {"round": number, "loss": 1.0, "bytes": {"down": 10, "up": 3}, "seconds": 0.5, "rejected": {}, **more}
