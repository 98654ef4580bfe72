"""The networks with labels: they know their tasks, as the recipe left them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import onnxrewrite as rw
from golden_models.labelled import tasks

FOLDER = Path(tasks.__file__).parent
pytestmark = pytest.mark.skipif(not (FOLDER / "texts.onnx").exists(), reason="a source distribution holds no models")
KNOWN = {"shapes": 0.95, "boxes": 0.85, "texts": 0.8, "tastes": 0.85}


@pytest.mark.parametrize("name", tasks.TASKS)
def test_it_knows_its_task(name: str) -> None:
    inputs, labels = tasks.TASKS[name].drawn(400, 7)
    (found,) = rw.session(FOLDER / f"{name}.onnx").run(None, dict(inputs))
    assert tasks.TASKS[name].score(found, labels) > KNOWN[name]


@pytest.mark.parametrize("name", tasks.TASKS)
def test_samples_are_drawn_from_the_seed(name: str) -> None:
    first, again, other = (tasks.TASKS[name].drawn(3, seed) for seed in (1, 1, 2))
    for key, array in first[0].items():
        np.testing.assert_array_equal(array, again[0][key])
        assert not np.array_equal(array, other[0][key])
    np.testing.assert_array_equal(first[1], again[1])


def test_a_box_covers_itself_and_not_its_neighbour() -> None:
    boxes = np.array([[0.5, 0.5, 0.2], [0.5, 0.5, 0.2]], np.float32)
    others = np.array([[0.5, 0.5, 0.2], [0.5, 0.8, 0.2]], np.float32)
    assert tasks.overlap(boxes, others) == 0.5
