"""The catalogue of passes: found by name, contributed by packages and by users' files."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from fuseline.engine.authoring import raised_at, written_at
from fuseline.engine.declarations import check_declaration
from fuseline.engine.errors import FuselineError, PipelineError, did_you_mean
from fuseline.engine.operators import Operator, records
from fuseline.engine.operators.registry import forget
from fuseline.engine.parameter_steps import Step
from fuseline.engine.pass_ import Pass

__all__ = ["Registry", "registry"]

ENTRY_POINT_GROUP = "fuseline.passes"


class Registry:
    """Passes by name, each with the place that provides it."""

    def __init__(self) -> None:
        self._passes: dict[str, type[Pass]] = {}
        self._providers: dict[str, str] = {}
        self._operators: dict[Path, set[Operator]] = {}
        self._discovered = False
        self.pipeline_folders: list[Path] = []

    def register(self, pass_: type[Pass], provider: str | None = None) -> type[Pass]:
        """Add a pass; a name that is taken is refused, naming both providers."""
        provider = provider or f"{pass_.__module__}.{pass_.__qualname__}"
        check_declaration(pass_, provider)
        name = pass_.name
        if any((folder / f"{name}.yaml").is_file() for folder in self.pipeline_folders):
            raise FuselineError(
                f"the pass {name!r} of {provider} is called like a ready pipeline", hint="rename it"
            )
        if name in self._passes and self._providers[name] != provider:
            raise FuselineError(
                f"the pass name {name!r} is provided twice: by {self._providers[name]} and by {provider}",
                hint="rename one of them",
            )
        self._passes[name] = pass_
        self._providers[name] = provider
        return pass_

    def register_module(self, module: ModuleType, provider: str | None = None) -> list[type[Pass]]:
        """Add every pass that the module itself defines."""
        found = [c for c in _passes_of(module) if c.name]
        for c in found:
            self.register(c, f"{provider}:{c.__qualname__}" if provider else None)
        return found

    def register_package(self, package: str) -> None:
        """Add the passes of every module of a package, and the ready pipelines in its `pipelines` folder."""
        root = importlib.import_module(package)
        folders = [Path(p) / "pipelines" for p in root.__path__]
        self.pipeline_folders.extend(f for f in folders if f.is_dir())
        for info in pkgutil.walk_packages(root.__path__, f"{package}."):
            self.register_module(importlib.import_module(info.name))

    def load_plugin(self, path: str | Path) -> list[type[Pass]]:
        """Add the passes of a user's file, and what it registers; loaded again it replaces itself."""
        self.discover()  # a name that is taken is refused here, not when the other one comes to be known
        path = Path(path)
        if not path.is_file():
            raise FuselineError(f"there is no plugin file {path}")
        forget(*self._operators.pop(path.resolve(), ()))
        before, kinds = set(records()), len(Step.known())
        try:
            module = _execute(path)
            found = self.register_module(module, provider=str(path))
        except BaseException:
            forget(*(set(records()) - before))
            raise
        self._operators[path.resolve()] = set(records()) - before
        for pass_ in found:
            if pass_.counterpart is not None and pass_.counterpart not in self:
                raise FuselineError(
                    f"plugin {path}: {pass_.name!r} from {written_at(pass_)} has the counterpart "
                    f"{pass_.counterpart!r}, no pass",
                    hint=did_you_mean(pass_.counterpart, self._passes),
                )
        if not found and not self._operators[path.resolve()] and len(Step.known()) == kinds:
            unnamed = next(iter(_passes_of(module)), None)
            detail = f": {unnamed.__qualname__} at {written_at(unnamed)} has no name" if unnamed else ""
            raise FuselineError(
                f"plugin {path} defines no pass{detail}",
                hint="set the class attribute `name`"
                if unnamed
                else "subclass fuseline.Pass or fuseline.Fusion, or register an operator",
            )
        return found

    def discover(self) -> None:
        """Load the passes of installed packages (entry point group `fuseline.passes`), once."""
        if self._discovered:
            return
        self._discovered = True
        for entry in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP):
            target: Any = entry.load()
            if isinstance(target, type) and issubclass(target, Pass):
                self.register(target)
            elif isinstance(target, ModuleType) and hasattr(target, "__path__"):
                self.register_package(target.__name__)
            elif isinstance(target, ModuleType):
                self.register_module(target)
            else:
                raise FuselineError(
                    f"entry point {entry.name!r} ({entry.value}) is neither a pass nor a module"
                )

    def __getitem__(self, name: str) -> type[Pass]:
        self.discover()
        if name not in self._passes:
            hint = did_you_mean(name, self._passes) or "`fuseline passes list` shows them all"
            raise PipelineError(f"there is no pass named {name!r}", hint=hint)
        return self._passes[name]

    def __contains__(self, name: str) -> bool:
        self.discover()
        return name in self._passes

    def __iter__(self) -> Iterator[type[Pass]]:
        self.discover()
        return iter(sorted(self._passes.values(), key=lambda p: p.name))

    def provider(self, name: str) -> str:
        return self._providers[self[name].name]


def _execute(path: Path) -> ModuleType:
    name = f"fuseline_plugin_{path.stem}_{abs(hash(path.resolve()))}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise FuselineError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        place = raised_at(error)
        where = f", at {place}" if place else ""
        if isinstance(error, FuselineError):
            raise FuselineError(f"plugin {path}{where}: {error.message}", hint=error.hint) from error
        raise FuselineError(
            f"plugin {path} failed to load{where}: {type(error).__name__}: {error}"
        ) from error
    return module


def _passes_of(module: ModuleType) -> list[type[Pass]]:
    """The passes that a module itself defines; one without a name is a base of others."""
    defined = [c for c in vars(module).values() if isinstance(c, type) and c.__module__ == module.__name__]
    return [c for c in defined if issubclass(c, Pass)]


registry = Registry()
