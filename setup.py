"""The compiled core, which is optional: everything else about the build is in pyproject.toml.

The environment variable ``PYKCLIENT_BUILD`` chooses. Unset, the core is built where there is a C
compiler; where that fails, the reason is written beside it, clients log it (INFO), the pure core
does the work, and a wheel fits every platform, as one of ``pure`` does, which builds none.
``compiled`` fails where the core cannot be built.
"""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from logging import INFO
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError

CORE = Path("pykclient", "accel", "compiled")
SOURCES = tuple(CORE.glob("*.pyx"))
FAILURE = CORE / "build_failure.txt"
CHOICES = ("", "pure", "compiled")

DIRECTIVES = {
    "language_level": 3,
    "binding": False,  # a plain method descriptor is what the interpreter calls fastest
    "embedsignature": True,
    "embedsignature.format": "clinic",  # which `inspect.signature` reads
    "wraparound": False,
    "cdivision": True,
    "freethreading_compatible": True,
}

choice = os.environ.get("PYKCLIENT_BUILD", "")
if choice not in CHOICES:
    raise SystemExit(f"PYKCLIENT_BUILD={choice}: the choices are pure and compiled, or leave it")


class BuildCore(build_ext):
    """Builds the extensions, or notes why it could not."""

    is_without_core = choice == "pure"

    def build_extensions(self) -> None:
        """Write the C files into the folder for passing things; one compiles as the next is made.

        Without a compiler that ends with the first one.
        """
        failure = Path("." if self.inplace or self.editable_mode else self.build_lib, FAILURE)
        failure.unlink(missing_ok=True)
        try:
            from Cython.Build import cythonize
            from Cython.Compiler.Errors import CompileError

            builds: list[Future[None]] = []
            try:
                with ThreadPoolExecutor(os.cpu_count()) as pool:
                    for extension in self.extensions:
                        (written,) = cythonize(
                            [extension], build_dir="build/cython", compiler_directives=DIRECTIVES
                        )
                        extension.sources = written.sources
                        builds.append(pool.submit(self._build_all_or_nothing, extension))
                        for build in builds:
                            if build.done():
                                build.result()
                for build in builds:
                    build.result()
            except CompileError as error:
                raise BaseError(f"Cython: {error}") from error
        except (ImportError, OSError, BaseError, CCompilerError) as error:
            if choice == "compiled":
                raise
            self._fall_back(failure, error)

    def _build_all_or_nothing(self, extension: Extension) -> None:
        extension.optional = False  # so that its failure is ours to see
        self.build_extension(extension)
        extension.optional = True

    def _fall_back(self, failure: Path, error: Exception) -> None:
        self.is_without_core = True
        for extension in self.extensions:
            extension.optional = True
            Path(self.get_ext_fullpath(extension.name)).unlink(missing_ok=True)
        reason = f"{type(error).__name__}: {error}"
        failure.parent.mkdir(parents=True, exist_ok=True)
        failure.write_text(reason + "\n", encoding="utf-8")
        self.announce(f"pykclient's compiled core was not built ({reason})", INFO)


class TagWheel(bdist_wheel):
    """Builds the extensions first, since the wheel's tag depends on whether there are any."""

    def run(self) -> None:
        """Build the wheel, for every platform where there is no compiled core in it."""
        self.run_command("build_ext")
        build: BuildCore = self.get_finalized_command("build_ext")
        if build.is_without_core:
            self.distribution.ext_modules = []
            self.root_is_pure = True
        super().run()


def extensions() -> list[Extension]:
    """One extension module for each Cython file."""
    return [
        Extension(".".join(path.with_suffix("").parts), [str(path)], optional=True)
        for path in sorted(SOURCES)
    ]


setup(
    ext_modules=[] if choice == "pure" else extensions(),
    cmdclass={"build_ext": BuildCore, "bdist_wheel": TagWheel},
)
