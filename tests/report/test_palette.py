"""Devices are told apart by their colours, by colour-blind eyes too, and ops by their shortened names."""

import json
import shutil
import subprocess
from importlib.resources import files

import numpy as np
import pytest

from loadmaster.report._palette import device_colours

SIGHTS = {
    "normal": np.eye(3),
    "red-blind": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "green-blind": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
}
"""Machado et al. 2009, in linear RGB."""
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)


def lab(colours, sight):
    rgb = np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in colours]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = np.clip(linear @ np.array(sight).T, 0, 1) @ TO_XYZ.T / np.array([0.95047, 1.0, 1.08883])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], 1)


@pytest.mark.parametrize("sight", SIGHTS)
def test_sixteen_devices_have_colours_that_every_eye_tells_apart(sight):
    seen = lab(device_colours(16), SIGHTS[sight])
    apart = np.linalg.norm(seen[:, None] - seen[None], axis=2)
    np.fill_diagonal(apart, np.inf)
    assert apart.min() > 15


def test_long_names_keep_their_beginning_and_their_end():
    node = shutil.which("node")
    script = (files("loadmaster.report") / "page" / "data.js").read_text()
    code = script[script.index("function shortName") : script.index("// A canvas that is sharp")]
    if node is None:
        pytest.skip("needs node")
    calls = (
        'console.log(JSON.stringify([shortName("encoder/conv_1/WithoutBiases", 15), shortName("relu", 15)]))'
    )
    done = subprocess.run([node, "-e", code + calls], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == ["encoder…tBiases", "relu"]
