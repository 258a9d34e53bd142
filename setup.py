"""List the packages to install. Everything else is in pyproject.toml.

pyproject.toml can find the packages of a folder, or list packages and their folders, but not both. We find
the packages of `spinimpute/`, and those of `cli/`, which become `spinimpute.cli`.
"""

from setuptools import find_packages, setup

setup(
    packages=[
        *find_packages(include=["spinimpute", "spinimpute.*"]),
        *(f"spinimpute.{package}" for package in find_packages(include=["cli", "cli.*"])),
    ],
    package_dir={"spinimpute.cli": "cli"},  # the folder is installed where no other package has anything
)
