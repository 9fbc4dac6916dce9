"""A method of your own, for ``fedfibos run examples/own_method.toml``: a dataclass with the five verbs of a method."""

from dataclasses import dataclass

from fedfibos import Client, Model, Params, State, Submodel, Sums, Upload, local_training, mask_from_scores


@dataclass(frozen=True)
class Movement:
    """Every client holds what has moved most since the start; in the first round, what is largest.

    Attributes:
        server_lr: Step size of the server.
    """

    server_lr: float = 1.0

    personal = False  # two clients of one capacity hold the same

    def init(self, params: Params) -> State:
        """The server remembers where it began."""
        return State({"start": params.flat.clone()})

    def extract(self, model: Model, state: State, params: Params, client: Client) -> Submodel:
        """The coordinates of the largest scores, as many as the capacity allows."""
        moved = (params.flat - state.tensors["start"]).abs()
        scores = moved if client.round > 0 else params.flat.abs()
        return mask_from_scores(scores[: model.layout.num_maskable], client.capacity, model.layout)

    def train(self, model: Model, params: Params, submodel: Submodel, client: Client) -> Upload:
        """Plain local steps on the submodel."""
        return local_training(model, params, submodel, client)

    def update(self, state: State, client: Client, upload: Upload) -> State:
        """Nothing is kept of a single client."""
        return state

    def aggregate(self, state: State, params: Params, sums: Sums) -> tuple[State, Params]:
        """The holders' average of the updates."""
        return state, sums.server_step(params, "holders", self.server_lr)
