"""Two layers with an operation between them: what is derived shows what the operation does with channels."""

from torch import nn


class Between(nn.Module):
    """A linear layer of 6 outputs, a function, a linear layer."""

    def __init__(self, function, inputs: int = 6) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 6), nn.Linear(inputs, 3)
        self.function = function

    def forward(self, x):
        return self.last(self.function(self.first(x)))


class BetweenImages(nn.Module):
    """A convolution of 8 outputs, a layer, a mean over positions and a linear layer."""

    def __init__(self, layer, inputs: int = 8) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(1, 8, 3, padding=1), nn.Linear(inputs, 3)
        self.layer = layer

    def forward(self, x):
        return self.last(self.layer(self.first(x)).mean((2, 3)))
