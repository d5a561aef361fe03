"""Packaging: one distribution, one top-level name.

The sets live in the top-level folder `hparams/`, where people look for them,
and are installed as `relpos_tf.hparams`, because a distribution should not put
a name as common as `hparams` into site-packages.
"""

import pathlib
import re

from setuptools import find_packages
from setuptools import setup

ROOT = pathlib.Path(__file__).resolve().parent
# TensorFlow and Keras are in extras: translating with an export for
# CTranslate2 or LiteRT needs neither, and an extra cannot take away what every
# installation gets. Nor does an installation replace another build of
# TensorFlow.
EVERYWHERE = [
    "numpy>=1.26,<3",
    "absl-py>=2.1",
]
# What the layers need. `make test-oldest` tests the oldest versions,
# `make test` those in constraints.txt.
LAYERS = [
    "tensorflow>=2.18,<2.22",
    "keras>=3.8,<3.16",
]
# What turns lines into ids and scores translations.
TEXT = [
    "sacrebleu>=2.4,<3",
    "sacremoses>=0.1.1,<0.3",
    # 0.2.1 crashes on a crafted tokenizer, which 0.2.3 refuses.
    "sentencepiece>=0.2.3,<0.3",
]
# What all commands need, and translation with a run or a SavedModel.
TRANSLATE = [
    "tensorflow>=2.21,<2.22",
    # 2.21.0 does not import: undefined symbol icudt77_dat.
    "tensorflow-text>=2.21.1,<2.22",
    "keras>=3.15,<3.16; python_version >= '3.11'",
    # The last line of Keras that runs on Python 3.10.
    "keras>=3.12.4,<3.13; python_version < '3.11'",
    *TEXT,
    # What compares runs: distributions, and the report.
    "jinja2>=3.1,<4",
    "scipy>=1.11,<2",
]
COMMANDS = (
    "trainer",
    "decoder",
    "datagen",
    "average",
    "bleu",
    "translate_all",
    "export",
    "import_t2t",
    "compare",
    "serve",
)


def version():
    """Reads the version without importing the package."""
    text = (ROOT / "relpos_tf" / "__init__.py").read_text(encoding="utf-8")
    return re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)[1]


def readme():
    """Returns the README, where there is one to show."""
    path = ROOT / "README.md"
    return path.read_text(encoding="utf-8") if path.is_file() else ""


setup(
    name="relpos_tf",
    version=version(),
    description=(
        "Machine translation with relative position representations in "
        "TensorFlow, in the style of tensor2tensor"
    ),
    long_description=readme(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    packages=[
        *find_packages(include=["relpos_tf", "relpos_tf.*"]),
        "relpos_tf.hparams",
    ],
    package_dir={"relpos_tf.hparams": "hparams"},
    package_data={
        "relpos_tf": ["py.typed"],
        "relpos_tf.serving": ["page/*"],
    },
    py_modules=[],
    python_requires=">=3.10,<3.14",
    install_requires=EVERYWHERE,
    extras_require={
        "layers": LAYERS,
        "translate": TRANSLATE,
        "gpu": ["tensorflow[and-cuda]>=2.18,<2.22"],
        "zstd": ["zstandard>=0.22,<1"],
        "tensorboard": ["tensorboard>=2.20,<2.22"],
        "plots": ["matplotlib>=3.8"],
        "ctranslate2": [*TEXT, "ctranslate2>=4.5,<5"],
        "litert": [*TEXT, "ai-edge-litert>=2.3,<3"],
        "serve": [
            "starlette>=1,<2",
            "uvicorn>=0.40,<1",
            "prometheus-client>=0.22,<1",
        ],
        "dev": [
            *TRANSLATE,
            "Babel>=2.14",
            "hypothesis>=6.100",
            "mypy>=1.15",
            "num2words>=0.5.13",
            "pytest>=8.2",
            "pytest-xdist>=3.6",
            "ruff>=0.9",
            "zstandard>=0.22,<1",
        ],
    },
    entry_points={
        "console_scripts": [
            f"relpos-{name} = relpos_tf.bin.{name}:run" for name in COMMANDS
        ]
    },
    classifiers=[
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
