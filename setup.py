"""Which packages there are; all else stands in pyproject.toml, which cannot say both of these at once."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["spinimpute", "spinimpute.*"]), "spinimpute.cli"],
    package_dir={"spinimpute.cli": "cli"},  # the folder is installed where no other package has anything
)
