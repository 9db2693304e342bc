"""Puts examples and workloads into the built package; everything else is in pyproject.toml."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent


class BuildWithExamples(build_py):
    """Copies the folders beside src into the package: `trainshed.shipped` finds them there."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        for name in ("examples", "workloads"):
            target = Path(self.build_lib, "trainshed", "_shipped", name)
            shutil.rmtree(target, ignore_errors=True)
            ignored = shutil.ignore_patterns("__pycache__", "digits", ".*")
            shutil.copytree(ROOT / name, target, ignore=ignored)


setup(cmdclass={"build_py": BuildWithExamples})
