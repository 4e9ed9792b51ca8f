"""The demo's model: its hand-written gradient, its packing, its optimiser."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steptax.app.demo.handicap import RepeatedModel
from steptax.app.demo.model import Array, NumpyModel, Shape, Tokens
from steptax.app.demo.optimiser import Adam

SMALL = Shape(context=9, vocab=7, hidden=6, heads=2, ffn=5)


def example(lengths: list[int], seed: int) -> tuple[Array, Tokens, Tokens]:
    """Parameters in float64 and random tokens for ``lengths``."""
    rng = np.random.default_rng(seed)
    flat = SMALL.initial(seed).astype(np.float64)
    inputs, targets = rng.integers(0, SMALL.vocab, (2, sum(lengths))).astype(np.intp)
    return flat, inputs, targets


def central_differences(
    model: NumpyModel, flat: Array, inputs: Tokens, targets: Tokens, lengths: list[int]
) -> Array:
    """The gradient from the loss alone."""
    step = 1e-6
    out = np.empty_like(flat)
    for i in range(len(flat)):
        shift = np.zeros_like(flat)
        shift[i] = step
        up, _ = model.loss_and_gradient(flat + shift, inputs, targets, lengths)
        down, _ = model.loss_and_gradient(flat - shift, inputs, targets, lengths)
        out[i] = (up - down) / (2 * step)
    return out


# The same examples each time: one whose rectifier has its kink within the step would not count.
@settings(max_examples=8, derandomize=True)
@given(
    lengths=st.lists(st.integers(1, SMALL.context), min_size=1, max_size=4),
    seed=st.integers(0, 99),
)
def test_gradient_is_that_of_the_loss(lengths: list[int], seed: int) -> None:
    model = NumpyModel(SMALL)
    flat, inputs, targets = example(lengths, seed)
    _, gradient = model.loss_and_gradient(flat, inputs, targets, lengths)
    expected = central_differences(model, flat, inputs, targets, lengths)
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-6)


def test_gradient_reaches_every_tensor() -> None:
    flat, inputs, targets = example([9, 4], seed=1)
    _, gradient = NumpyModel(SMALL).loss_and_gradient(flat, inputs, targets, [9, 4])
    for name, tensor in SMALL.views(gradient).items():
        assert np.abs(tensor).max() > 1e-6, name


def test_packed_sequences_do_not_see_each_other() -> None:
    model = NumpyModel(SMALL)
    flat, inputs, targets = example([4, 6], seed=2)
    together, gradient = model.loss_and_gradient(flat, inputs, targets, [4, 6])
    first, first_gradient = model.loss_and_gradient(flat, inputs[:4], targets[:4], [4])
    second, second_gradient = model.loss_and_gradient(flat, inputs[4:], targets[4:], [6])
    assert together == pytest.approx((4 * first + 6 * second) / 10)
    np.testing.assert_allclose(
        gradient, (4 * first_gradient + 6 * second_gradient) / 10, atol=1e-12
    )


def test_a_token_does_not_see_later_ones() -> None:
    model = NumpyModel(SMALL)
    flat, inputs, targets = example([5], seed=3)
    prefix, _ = model.loss_and_gradient(flat, inputs[:4], targets[:4], [4])
    for last_input in range(SMALL.vocab):
        inputs[-1] = last_input
        total = 0.0
        for last_target in range(SMALL.vocab):
            targets[-1] = last_target
            whole, _ = model.loss_and_gradient(flat, inputs, targets, [5])
            total += np.exp(4 * prefix - 5 * whole)
        # The last token's probabilities add up to one only if the first four kept their loss.
        assert total == pytest.approx(1)


def test_start_is_the_uniform_guess_within_a_nat() -> None:
    shape = Shape(context=64)
    rng = np.random.default_rng(0)
    inputs, targets = rng.integers(0, shape.vocab, (2, 64)).astype(np.intp)
    loss, gradient = NumpyModel(shape).loss_and_gradient(shape.initial(0), inputs, targets, [64])
    assert abs(loss - np.log(shape.vocab)) < 1
    assert gradient.dtype == np.float32
    assert shape.size == len(gradient)


def test_repeated_model_gives_the_same_numbers() -> None:
    model = NumpyModel(SMALL)
    flat, inputs, targets = example([5, 2], seed=4)
    loss, gradient = model.loss_and_gradient(flat, inputs, targets, [5, 2])
    again, same = RepeatedModel(model, 3).loss_and_gradient(flat, inputs, targets, [5, 2])
    assert again == loss
    np.testing.assert_array_equal(same, gradient)


def test_adam_follows_its_definition() -> None:
    rng = np.random.default_rng(0)
    gradients = rng.standard_normal((5, 3)).astype(np.float32)
    flat = np.zeros(3, dtype=np.float32)
    adam = Adam(3, rate=0.1, warmup_steps=2)
    expected, first, second = np.zeros(3), np.zeros(3), np.zeros(3)
    for t, gradient in enumerate(gradients, start=1):
        adam.update(flat, gradient)
        first = 0.9 * first + 0.1 * gradient
        second = 0.99 * second + 0.01 * gradient.astype(np.float64) ** 2
        corrected = first / (1 - 0.9**t) / (np.sqrt(second / (1 - 0.99**t)) + 1e-8)
        expected -= 0.1 * min(1, t / 2) * corrected
    np.testing.assert_allclose(flat, expected, rtol=1e-4)


def test_torch_computes_the_same_loss_and_gradient() -> None:
    pytest.importorskip("torch")
    from steptax.app.demo.torch_backend import TorchModel

    lengths = [9, 1, 5]
    flat, inputs, targets = example(lengths, seed=5)
    loss, gradient = NumpyModel(SMALL).loss_and_gradient(flat, inputs, targets, lengths)
    torch_loss, torch_gradient = TorchModel(SMALL).loss_and_gradient(flat, inputs, targets, lengths)
    assert torch_loss == pytest.approx(loss, rel=1e-9)
    np.testing.assert_allclose(torch_gradient, gradient, atol=1e-10)
