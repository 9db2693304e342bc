"""What each framework environment is made of: exact pins, extra steps, a check.

Only data. A recipe names what is asked for (`requirements`) and the versions
all that follows from it is held to (`constraints`), so an environment made
next year is the one that was measured.
"""

from __future__ import annotations

import hashlib
import platform
import sys
from dataclasses import dataclass

from trainshed.errors import NotFoundError


@dataclass(frozen=True)
class SourceBuild:
    """A wheel no registry offers, compiled here against what is already installed."""

    package: str
    version: str
    local_version: str
    """Tells apart wheels of one version built against different frameworks."""
    variables: tuple[tuple[str, str], ...]
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
    constraints: tuple[str, ...]
    check: str
    """Python run inside the finished environment: it must work, and what it imports gets compiled."""
    megabytes: int
    """Room needed while it is made, wheels included; measured."""
    prune: tuple[str, ...] = ()
    """Patterns under site-packages that a CPU run does not need."""
    build: SourceBuild | None = None

    def digest(self) -> str:
        """Changes whenever the same recipe would make something else."""
        content = (
            self.requirements,
            self.constraints,
            self.prune,
            self.build,
            sys.version_info[:2],
            platform.machine(),
        )
        return hashlib.sha256(repr(content).encode()).hexdigest()[:16]


_TORCH = ("torch==2.13.0", "numpy==1.26.4")
_TORCH_PINS = (
    "filelock==4.2.10",
    "fsspec==2026.9.0",
    "jinja2==3.1.6",
    "markupsafe==3.0.4",
    "mpmath==1.3.0",
    "networkx==3.6.1",
    "sympy==1.14.0",
    "typing-extensions==4.16.0",
)
# The optimiser's first step imports as much again as torch itself does.
_TORCH_CHECK = """
import torch, torch.distributed.run, torch.nn.parallel, torch.utils.data
model = torch.nn.Linear(2, 2)
optimiser = torch.optim.SGD(model.parameters(), 0.1)
model(torch.ones(1, 2)).sum().backward()
optimiser.step()
assert torch.distributed.is_gloo_available()
"""
_HOROVOD = ("cloudpickle==3.1.2", "psutil==7.2.2", "pyyaml==6.0.3", "packaging==26.3")
_HOROVOD_TOOLS = ("setuptools==79.0.1", "wheel==0.48.0")
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
        requirements=("mindspore==2.10.0", "numpy==1.26.4"),
        constraints=(
            "asttokens==3.0.2",
            "astunparse==1.6.3",
            "dill==0.4.1",
            "packaging==26.3",
            "pillow==13.0.0",
            "protobuf==7.36.2",
            "psutil==7.2.2",
            "safetensors==0.8.0",
            "scipy==1.17.1",
            "six==1.17.0",
            "wheel==0.48.0",
        ),
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
        constraints=(*_TORCH_PINS, "setuptools==84.2.1"),
        check=_TORCH_CHECK,
        megabytes=1500,
    ),
    Recipe(
        name="paddle",
        framework="paddle",
        # Importing it needs setuptools, which it does not declare.
        requirements=("paddlepaddle==3.3.1", "numpy==1.26.4", "setuptools==79.0.1"),
        constraints=(
            "anyio==4.16.0",
            "certifi==2026.10.18",
            "h11==0.16.0",
            "httpcore==1.0.9",
            "httpx==0.28.1",
            "idna==3.20",
            "networkx==3.6.1",
            "opt-einsum==3.3.0",
            "pillow==13.0.0",
            "protobuf==7.36.2",
            "safetensors==0.8.0",
            "typing-extensions==4.16.0",
        ),
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
        constraints=(*_TORCH_PINS, "pycparser==3.12"),
        build=SourceBuild(
            package="horovod",
            version="0.28.1",
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
        megabytes=2500,
    ),
    Recipe(
        name="tensorflow",
        framework="tensorflow",
        requirements=("tensorflow-cpu==2.21.0", "numpy==1.26.4"),
        constraints=(
            "absl-py==2.5.1",
            "astunparse==1.6.3",
            "certifi==2026.10.18",
            "charset-normalizer==3.5.2",
            "flatbuffers==25.12.19",
            "gast==0.7.0",
            "google-pasta==0.2.0",
            "grpcio==1.85.1",
            "h5py==3.14.0",
            "idna==3.20",
            "keras==3.15.1",
            "libclang==18.1.1",
            "markdown-it-py==4.3.0",
            "mdurl==0.1.2",
            "ml-dtypes==0.5.4",
            "namex==0.1.0",
            "opt-einsum==3.4.0",
            "optree==0.20.0",
            "packaging==26.3",
            "protobuf==7.36.2",
            "pygments==2.21.0",
            "requests==2.34.2",
            "rich==15.0.0",
            "setuptools==84.2.1",
            "six==1.17.0",
            "termcolor==3.3.0",
            "typing-extensions==4.16.0",
            "urllib3==2.8.0",
            "wheel==0.48.0",
            "wrapt==2.5.2",
        ),
        check=(
            "import tensorflow as tf\n"
            "tf.distribute.MultiWorkerMirroredStrategy\n"
            "tf.keras.layers.Dense(2)(tf.ones((1, 2)))\n"
        ),
        megabytes=2600,
    ),
    Recipe(
        name="horovod-tensorflow",
        framework="horovod",
        requirements=("tensorflow-cpu==2.15.1", "numpy==1.26.4", *_HOROVOD, *_HOROVOD_TOOLS),
        constraints=(
            "absl-py==2.5.1",
            "astunparse==1.6.3",
            "certifi==2026.10.18",
            "cffi==2.1.1",
            "charset-normalizer==3.5.2",
            "cryptography==50.0.2",
            "flatbuffers==25.12.19",
            "gast==0.7.0",
            "google-auth==2.62.2",
            "google-auth-oauthlib==1.5.0",
            "google-pasta==0.2.0",
            "grpcio==1.85.1",
            "h5py==3.16.0",
            "idna==3.20",
            "keras==2.15.0",
            "libclang==18.1.1",
            "markdown==3.11.3",
            "markupsafe==3.0.4",
            "ml-dtypes==0.3.2",
            "oauthlib==4.0.1",
            "opt-einsum==3.4.0",
            "protobuf==4.25.9",
            "pyasn1==0.6.5",
            "pyasn1-modules==0.4.2",
            "pycparser==3.12",
            "requests==2.34.2",
            "requests-oauthlib==2.0.0",
            "six==1.17.0",
            "tensorboard==2.15.2",
            "tensorboard-data-server==0.7.2",
            "tensorflow-estimator==2.15.0",
            "tensorflow-io-gcs-filesystem==0.37.1",
            "termcolor==3.3.0",
            "typing-extensions==4.16.0",
            "urllib3==2.8.0",
            "werkzeug==3.1.9",
            "wrapt==1.14.2",
        ),
        build=SourceBuild(
            package="horovod",
            version="0.28.1",
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
)

_BY_NAME = {recipe.name: recipe for recipe in _RECIPES}


def framework_names() -> tuple[str, ...]:
    """The environments that can be made, in the order they are listed."""
    return tuple(_BY_NAME)


def recipe_for(name: str) -> Recipe:
    try:
        return _BY_NAME[name]
    except KeyError:
        raise NotFoundError(
            f"environment '{name}' is not known",
            f"known: {', '.join(_BY_NAME)}; or give the path of a virtual environment",
        ) from None
