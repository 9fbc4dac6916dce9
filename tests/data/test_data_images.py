"""Batches of images: normalisation, augmentation and shared subsets."""

from __future__ import annotations

import pytest
import torch

from fedfibos.data import Split
from fedfibos.data.images import PADDING, ImageData, TensorData, random_crop_and_flip


def images(n: int = 6, crop_and_flip: bool = False) -> ImageData:
    pixels = torch.randint(0, 256, (n, 3, 32, 32), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    return ImageData(pixels, torch.arange(n) % 3, (0.5, 0.4, 0.3), (0.2, 0.25, 0.5), 255.0, crop_and_flip)


def test_a_batch_is_normalised_channel_by_channel():
    """(102/255 - .5) / .2 = -.5; (102/255 - .4) / .25 = 0; (102/255 - .3) / .5 = .2."""
    pixels = torch.full((1, 3, 2, 2), 102, dtype=torch.uint8)
    data = ImageData(pixels, torch.tensor([0]), (0.5, 0.4, 0.3), (0.2, 0.25, 0.5))
    batch = data.batch(torch.tensor([0]))
    assert batch.dtype == torch.float32
    torch.testing.assert_close(batch[0, :, 0, 0], torch.tensor([-0.5, 0.0, 0.2]))
    assert torch.equal(data.pixels, torch.full((1, 3, 2, 2), 102, dtype=torch.uint8))


def test_white_is_the_value_that_means_one():
    pixels = torch.tensor([0, 8, 16, 4], dtype=torch.uint8).view(1, 1, 2, 2)
    data = ImageData(pixels, torch.tensor([0]), (0.0,), (1.0,), white=16.0)
    assert data.batch(torch.tensor([0])).flatten().tolist() == [0.0, 0.5, 1.0, 0.25]


def test_a_subset_of_a_subset_has_the_right_examples_and_copies_no_pixel():
    data = images()
    part = data.subset(torch.tensor([5, 3, 1])).subset(torch.tensor([2, 0]))
    assert len(part) == 2
    assert part.labels.tolist() == [1, 2]
    assert torch.equal(part.batch(torch.tensor([1, 0])), data.batch(torch.tensor([5, 1])))
    assert part.pixels.data_ptr() == data.pixels.data_ptr()


def test_crops_are_those_of_a_loop_that_pads_slices_and_mirrors():
    """Draw r in 0..161: mirrored = r mod 2, then rows and columns moved by the base-9 digits of r // 2."""
    pixels = images().pixels
    got = random_crop_and_flip(pixels, torch.Generator().manual_seed(7))
    draws = torch.randint(162, (6, 1), generator=torch.Generator().manual_seed(7)).flatten().tolist()
    for image, out, r in zip(pixels, got, draws, strict=True):
        padded = torch.zeros(3, 40, 40, dtype=torch.uint8)
        padded[:, PADDING:-PADDING, PADDING:-PADDING] = image
        down, right = divmod(r // 2, 9)
        crop = padded[:, down : down + 32, right : right + 32]
        assert torch.equal(out, crop.flip(2) if r % 2 else crop)


def test_every_crop_and_both_mirrorings_occur():
    """One bright pixel in the middle tells the crop: 81 positions, and two more columns when mirrored."""
    pixels = torch.zeros(8000, 1, 16, 16, dtype=torch.uint8)
    pixels[:, 0, 8, 8] = 1
    where = random_crop_and_flip(pixels, torch.Generator().manual_seed(0)).nonzero()[:, 2:]
    rows, columns = where[:, 0], where[:, 1]
    assert rows.unique().tolist() == list(range(4, 13))
    assert columns.unique().tolist() == list(range(3, 13))  # 15 - 12 = 3 to 15 - 4 = 11 when mirrored
    share_at_3 = (columns == 3).float().mean().item()
    assert share_at_3 == pytest.approx(1 / 18, abs=0.012)


def test_augmentation_is_a_function_of_the_stream_and_of_nothing_else():
    data, indices = images(crop_and_flip=True), torch.arange(6)
    first = data.batch(indices, torch.Generator().manual_seed(3))
    torch.manual_seed(99)
    assert torch.equal(first, data.batch(indices, torch.Generator().manual_seed(3)))
    assert not torch.equal(first, data.batch(indices, torch.Generator().manual_seed(4)))
    assert not torch.equal(first, data.batch(indices))


def test_data_without_augmentation_draws_nothing_from_the_stream():
    generator = torch.Generator().manual_seed(3)
    before = generator.get_state()
    data = images(crop_and_flip=False)
    assert torch.equal(data.batch(torch.arange(6), generator), data.batch(torch.arange(6)))
    assert torch.equal(generator.get_state(), before)


def test_padding_is_black_before_normalisation():
    data = ImageData(
        torch.full((50, 1, 8, 8), 255, dtype=torch.uint8), torch.zeros(50).long(), (0.5,), (0.5,), 255.0, True
    )
    values = data.batch(torch.arange(50), torch.Generator().manual_seed(0)).unique()
    assert values.tolist() == [-1.0, 1.0]


def test_tensor_data_gives_the_tensors_as_they_are():
    data = TensorData(torch.tensor([[1.5], [2.5], [3.5]]), torch.tensor([0, 1, 0]))
    part = data.subset(torch.tensor([2, 1]))
    assert len(part) == 2
    assert part.labels.tolist() == [0, 1]
    assert part.batch(torch.tensor([0])).tolist() == [[3.5]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: TensorData(torch.zeros(3, 2), torch.zeros(2).long()),
            r"int64 of shape \(3,\).*got torch.int64 of shape \(2,\)",
        ),
        (
            lambda: Split(
                TensorData(torch.zeros(3, 2), torch.zeros(3)), TensorData(torch.zeros(1, 2), torch.zeros(1)), ("a",)
            ),
            r"labels must be int64.*got torch.float32",
        ),
        (
            lambda: ImageData(torch.zeros(2, 1, 4, 4), torch.zeros(2).long(), (0.0,), (1.0,)),
            r"pixels must be uint8.*got torch.float32",
        ),
        (
            lambda: ImageData(torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.zeros(2).long(), (0.0,), (1.0,)),
            r"each of 3 channels, got 1 and 1",
        ),
    ],
)
def test_wrong_tensors_are_refused(make, message):
    with pytest.raises(ValueError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)
