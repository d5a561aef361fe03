"""The packages of the distribution; pyproject.toml has everything else.

The sets live in the top-level folder `hparams/`, where people look for them,
and are installed as `relpos_tf.hparams`, because a distribution should not put
a name as common as `hparams` into site-packages.
"""

from setuptools import find_packages
from setuptools import setup

setup(
    packages=[
        *find_packages(include=["relpos_tf", "relpos_tf.*"]),
        "relpos_tf.hparams",
    ],
    package_dir={"relpos_tf.hparams": "hparams"},
)
