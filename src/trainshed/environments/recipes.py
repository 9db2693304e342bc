"""What each framework environment is made of: what is asked for, extra steps, a check.

Only data. A recipe names what is asked for (`requirements`); its lock file lists
all that follows from it, version by version and hash by hash, so an environment
made next year is the one that was measured.
"""

from __future__ import annotations

import hashlib
import platform
import sys
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from trainshed.environments.lockfile import LOCKS
from trainshed.errors import NotFoundError


@dataclass(frozen=True)
class SourceBuild:
    """A wheel no registry offers, compiled here against what is already installed."""

    package: str
    version: str
    local_version: str
    """Distinguishes wheels of one version built against different frameworks."""
    variables: tuple[tuple[str, str], ...]
    sha256: str
    """Of the source package; the wheel that is built from it differs from machine to machine."""
    edits: tuple[tuple[str, str, str], ...] = ()
    """(file, text, replacement): the text must be there exactly once."""
    tools: tuple[str, ...] = ("cmake", "g++", "make")

    @property
    def wheel_prefix(self) -> str:
        return f"{self.package}-{self.version}+{self.local_version}-"


@dataclass(frozen=True)
class Recipe:
    name: str
    framework: str
    requirements: tuple[str, ...]
    check: str
    """Python run inside the finished environment: it must work, and what it imports gets compiled."""
    megabytes: int
    """Room needed while it is made, wheels included; measured."""
    alone: tuple[str, ...] = ()
    """Packages taken without those they ask for, which the environment has under another name."""
    prune: tuple[str, ...] = ()
    """Patterns under site-packages that a CPU run does not need."""
    build: SourceBuild | None = None
    cuda: bool = False
    """Whether a framework is taken from `cuda.txt` where the registry has no +cpu build of it."""
    lock_path: Path | None = None

    @property
    def lock(self) -> Path:
        """The lock file: by default the one shipped under the recipe's name."""
        return self.lock_path or LOCKS / f"{self.name}.txt"

    def digest(self) -> str:
        """Changes whenever the same recipe would make something else."""
        content = (
            self.lock.read_text(encoding="utf-8"),
            self.prune,
            self.build,
            sys.version_info[:2],
            platform.machine(),
        )
        return hashlib.sha256(repr(content).encode()).hexdigest()[:16]


# What nearly every published training script imports beside its framework, and pip itself.
_COMMON = ("pyyaml==6.0.3", "easydict==1.13", "tqdm", "pip", "numpy==1.26.4")
# What many import too. Public model zoos and the platforms' images were looked through for both lists.
FULL = (
    "numpy==1.26.4",
    "opencv-python-headless<4.12",  # later ones need numpy 2
    "pandas<3",
    "scikit-learn",
    "matplotlib",
    "tensorboard",
    "pillow==13.0.0",
    "scipy==1.17.1",
    "h5py",
    "pycocotools",
    "requests",
    "prettytable",
    "shapely",
    "ujson",
)
FULL_CHECK = (
    "import cv2, h5py, matplotlib.pyplot, pandas, PIL.Image, prettytable, pycocotools.mask, requests\n"
    "import scipy.stats, shapely, sklearn.metrics, tensorboard.summary, ujson\n"
)
_COMMON_CHECK = "import easydict, numpy, pip, tqdm, yaml\n"
_TORCH = ("torch==2.13.0", *_COMMON)
# The optimiser's first step imports as much again as torch itself does.
_TORCH_CHECK = """
import torch, torch.distributed.run, torch.nn.parallel, torch.utils.data
model = torch.nn.Linear(2, 2)
optimiser = torch.optim.SGD(model.parameters(), 0.1)
model(torch.ones(1, 2)).sum().backward()
optimiser.step()
assert torch.distributed.is_gloo_available()
"""
_HOROVOD = ("cloudpickle==3.1.2", "psutil==7.2.2", "packaging==26.3")
_HOROVOD_TOOLS = ("setuptools==79.0.1", "wheel==0.48.0")
_HOROVOD_SHA256 = "92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0"
_HOROVOD_VARIABLES = (
    ("HOROVOD_WITHOUT_MXNET", "1"),
    ("HOROVOD_WITHOUT_MPI", "1"),
    ("HOROVOD_WITH_GLOO", "1"),
)
# C++17 is what the frameworks' headers need. The build type asks for debug
# information, which nobody reads here and which doubles the work.
_HOROVOD_CXX17 = (
    "CMakeLists.txt",
    "set(CMAKE_CXX_STANDARD 14)",
    'set(CMAKE_CXX_STANDARD 17)\nset(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -DNDEBUG")',
)
_HOROVOD_CHECK = """
import horovod.{0} as hvd, horovod.runner.launch
hvd.init()
assert hvd.size() == 1 and hvd.gloo_built()
hvd.shutdown()
"""

_RECIPES = (
    Recipe(
        name="mindspore",
        framework="mindspore",
        requirements=("mindspore==2.10.0", *_COMMON),
        prune=(
            "mindspore/include",
            "mindspore/lib/plugin/ascend*",
            "mindspore/lib/plugin/gpu*",
            "mindspore/lib/plugin/libmindspore_ascend.*",
            "mindspore/lib/plugin/libmindspore_gpu.*",
            "mindspore/lib/plugin/libmindspore_ops_ascend.*",
        ),
        check=(
            "import mindspore, mindspore.nn, mindspore.dataset, mindspore.communication\n"
            "import mindspore.parallel.cluster.run\n"
            "assert mindspore.ops.add(mindspore.Tensor([1.0]), 1).asnumpy()[0] == 2\n"
        ),
        megabytes=4500,
    ),
    Recipe(
        name="pytorch",
        framework="pytorch",
        requirements=_TORCH,
        check=_TORCH_CHECK,
        cuda=True,
        megabytes=1500,
    ),
    Recipe(
        name="paddle",
        framework="paddle",
        # Importing it needs setuptools, which it does not declare.
        requirements=("paddlepaddle==3.3.1", "setuptools==79.0.1", *_COMMON),
        check=(
            "import paddle, paddle.distributed.launch\n"
            "assert paddle.add(paddle.ones([1]), paddle.ones([1])).item() == 2\n"
        ),
        megabytes=1600,
    ),
    Recipe(
        name="horovod",
        framework="horovod",
        requirements=(*_TORCH, *_HOROVOD, *_HOROVOD_TOOLS, "cffi==2.1.1"),
        build=SourceBuild(
            package="horovod",
            version="0.28.1",
            sha256=_HOROVOD_SHA256,
            local_version="torch2.13.0",
            variables=(
                *_HOROVOD_VARIABLES,
                ("HOROVOD_WITH_PYTORCH", "1"),
                ("HOROVOD_WITHOUT_TENSORFLOW", "1"),
            ),
            edits=(
                _HOROVOD_CXX17,
                ("horovod/torch/CMakeLists.txt", "set(CMAKE_CXX_STANDARD 14)", "set(CMAKE_CXX_STANDARD 20)"),
            ),
        ),
        check=_TORCH_CHECK + _HOROVOD_CHECK.format("torch"),
        cuda=True,
        megabytes=2500,
    ),
    Recipe(
        name="tensorflow",
        framework="tensorflow",
        requirements=("tensorflow-cpu==2.21.0", *_COMMON),
        # Keras 3 cannot `fit` on several workers: guides and scripts of that kind run with TF_USE_LEGACY_KERAS=1.
        alone=("tf-keras==2.21.0",),
        check=(
            "import tensorflow as tf, tf_keras\n"
            "tf.distribute.MultiWorkerMirroredStrategy\n"
            "tf.keras.layers.Dense(2)(tf.ones((1, 2)))\n"
        ),
        megabytes=2600,
    ),
    Recipe(
        name="horovod-tensorflow",
        framework="horovod",
        requirements=("tensorflow-cpu==2.15.1", *_COMMON, *_HOROVOD, *_HOROVOD_TOOLS),
        build=SourceBuild(
            package="horovod",
            version="0.28.1",
            sha256=_HOROVOD_SHA256,
            local_version="tensorflow2.15.1",
            variables=(
                *_HOROVOD_VARIABLES,
                ("HOROVOD_WITH_TENSORFLOW", "1"),
                ("HOROVOD_WITHOUT_PYTORCH", "1"),
            ),
            edits=(_HOROVOD_CXX17,),
        ),
        check="import tensorflow as tf\ntf.ones((1, 2))\n" + _HOROVOD_CHECK.format("tensorflow"),
        megabytes=3000,
    ),
    Recipe(
        name="plain",
        framework="",
        requirements=_COMMON,
        check=_COMMON_CHECK,
        megabytes=200,
    ),
)

_BY_NAME = {recipe.name: recipe for recipe in _RECIPES}


def framework_names() -> tuple[str, ...]:
    """The environments that can be made, in the order they are listed."""
    return tuple(_BY_NAME)


def recipe_for(name: str) -> Recipe:
    if found := _BY_NAME.get(name):
        return found
    near = get_close_matches(name, _BY_NAME, n=1)
    meant = f"did you mean {near[0]}? " if near else ""
    raise NotFoundError(
        f"environment '{name}' is not known",
        f"{meant}known: {', '.join(_BY_NAME)}; or give the path of a virtual environment",
    )
