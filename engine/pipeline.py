"""The pipeline: passes in order, written in Python, as text or as YAML; all three round-trip."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml

from fuseline.engine import options, pipeline_text
from fuseline.engine.authoring import raised_at
from fuseline.engine.errors import FuselineError, PipelineError, did_you_mean
from fuseline.engine.pass_ import Pass
from fuseline.engine.pipeline_order import check_order
from fuseline.engine.pipeline_text import Element
from fuseline.engine.registry import registry
from fuseline.engine.settings import Entries, parse_yaml, read_yaml

if TYPE_CHECKING:
    from fuseline.engine.manager import Result
    from fuseline.engine.model import Model
    from fuseline.engine.observer import Observer

__all__ = ["Pipeline", "Repeat", "Stage"]

_YAML_KEYS = {"description", "passes", "expect"}


@dataclass(frozen=True)
class Repeat:
    """Run the stages until a whole round changes nothing, or `at_most` times."""

    stages: tuple[Stage, ...]
    until: Literal["unchanged", "count"] = "unchanged"
    at_most: int = 10

    def __post_init__(self) -> None:
        if self.at_most < 1:
            raise PipelineError(f"'repeat' with at-most={self.at_most} would run nothing")

    def __str__(self) -> str:
        given = {"until": self.until, "at-most": self.at_most}
        inner = ",".join(f"{k}={options.render(v)}" for k, v in given.items())
        return f"repeat{{{inner}}}({','.join(map(str, self.stages))})"


Stage = Pass | Repeat


class _RepeatOptions(Pass):
    """Options of a repeat group."""

    until: Literal["unchanged", "count"] = "unchanged"
    at_most: int = 10


@dataclass(frozen=True)
class Pipeline:
    """A sequence of passes and repeat groups, with an optional description and expectations."""

    stages: tuple[Stage, ...]
    description: str = ""
    expect: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_order(_flatten(self.stages))

    # -- reading

    @classmethod
    def of(cls, *stages: Stage) -> Pipeline:
        return cls(tuple(stages))

    @classmethod
    def parse(cls, text: str) -> Pipeline:
        """Read the text form; the name of a ready pipeline stands for its passes."""
        return cls(_stages(pipeline_text.parse(text)))

    @classmethod
    def from_yaml(cls, source: str | Path) -> Pipeline:
        """Read YAML: a path, or the text itself."""
        label = str(source) if isinstance(source, Path) else "pipeline"
        data = read_yaml(source, "pipeline file") if isinstance(source, Path) else parse_yaml(source, label)
        if not isinstance(data, dict) or not isinstance(data.get("passes"), list):
            raise PipelineError(f"{label} must be a mapping with a list under 'passes'")
        unknown = set(data) - _YAML_KEYS
        if unknown:
            word = sorted(map(str, unknown))[0]
            raise PipelineError(f"{label} has the unknown key {word!r}", hint=did_you_mean(word, _YAML_KEYS))
        if not data["passes"]:
            raise PipelineError(f"{label} has no passes")
        elements = _yaml_elements(data["passes"], label)
        expected = data.get("expect") or {}
        if not isinstance(expected, dict) or not all(_is_count(n) for n in expected.values()):
            raise PipelineError(f"{label}: 'expect' must map operators to counts")
        return cls(
            _stages(elements),
            str(data.get("description", "")).strip(),
            {str(op): count for op, count in expected.items()},
        )

    @classmethod
    def resolve(cls, text: str) -> Pipeline:
        """What the command line takes: the name of a ready pipeline, a YAML file, or pipeline text."""
        ready = ready_pipelines()
        if text in ready:
            return cls.from_yaml(ready[text])
        if text.endswith((".yaml", ".yml")):
            return cls.from_yaml(Path(text))
        return cls.parse(text)

    # -- writing

    def __str__(self) -> str:
        return ",".join(map(str, self.stages))

    def to_yaml(self) -> str:
        data: dict[str, Any] = {"description": self.description} if self.description else {}
        data["passes"] = [_to_yaml(stage) for stage in self.stages]
        if self.expect:
            data["expect"] = dict(self.expect)
        return yaml.safe_dump(data, sort_keys=False, allow_unicode=True)

    # -- using

    def passes(self) -> Iterator[Pass]:
        """Every pass once, in order, groups flattened."""
        yield from _flatten(self.stages)

    def run(
        self,
        model: Model,
        observers: Sequence[Observer] = (),
        *,
        disable: Sequence[str] = (),
        stop_after: str | None = None,
        revert_failing: bool = False,
        limits: dict[int, int] | None = None,
        in_place: bool = False,
    ) -> Result:
        """Apply the passes to a copy of `model`, or to `model` itself; see `fuseline.engine.manager`."""
        from fuseline.engine.manager import PassManager

        manager = PassManager(
            self,
            observers,
            disable=disable,
            stop_after=stop_after,
            revert_failing=revert_failing,
            limits=limits or {},
            in_place=in_place,
        )
        return manager.run(model)


def ready_pipelines() -> dict[str, Path]:
    """Name → YAML file of the pipelines that pass packages bring along."""
    registry.discover()
    return {f.stem: f for folder in registry.pipeline_folders for f in sorted(folder.glob("*.yaml"))}


def _stages(elements: Sequence[Element]) -> tuple[Stage, ...]:
    stages: list[Stage] = []
    for element in elements:
        inner = None if element.children is None else _stages(element.children)
        with _at(element.place):
            stages.extend(_resolve(element, inner))
    return tuple(stages)


@contextmanager
def _at(place: str) -> Iterator[None]:
    try:
        yield
    except FuselineError as error:
        if not place:
            raise
        raise PipelineError(f"{place}: {error.message}", hint=error.hint) from error


def _resolve(element: Element, inner: tuple[Stage, ...] | None) -> tuple[Stage, ...]:
    name = element.name
    if name == "repeat":
        if not inner:
            raise PipelineError("'repeat' needs passes in parentheses: repeat{at-most=10}(a,b)")
        return (Repeat(inner, **options.bind(_RepeatOptions, name, element.options)),)
    if inner is not None:
        raise PipelineError(f"{name!r} cannot hold other passes; only 'repeat' can")
    if name not in registry:
        ready = ready_pipelines()
        if name in ready and element.options:
            raise PipelineError(f"{name!r} is a ready pipeline, and takes no options")
        if name in ready:
            return Pipeline.from_yaml(ready[name]).stages
    pass_type = registry[name]
    given = options.bind(pass_type, name, element.options)
    try:
        return (pass_type(**given),)
    except FuselineError:
        raise
    except (Exception, SystemExit) as error:  # a pass may check its options itself
        place = raised_at(error)
        where = f", at {place}" if place else ""
        raise PipelineError(
            f"{name!r} refuses its options{where}: {type(error).__name__}: {error}"
        ) from error


def _yaml_elements(entries: Sequence[Any], label: str) -> list[Element]:
    lines = entries.lines if isinstance(entries, Entries) else ()
    places = [f"{label}:{line}" for line in lines]
    return [_yaml_element(entry, place, label) for entry, place in zip(entries, places, strict=True)]


def _yaml_element(entry: Any, place: str, label: str) -> Element:
    if isinstance(entry, str):
        if re.search(r"[\s,{}()]", entry):
            raise PipelineError(
                f"{place}: {entry!r} is no name of a pass",
                hint="one name an entry; options are written `name: {option: value}`",
            )
        return Element(entry, place=place)
    if isinstance(entry, dict) and "repeat" in entry and set(entry) <= {"repeat", "passes"}:
        given, inner = entry["repeat"] or {}, entry.get("passes") or []
        if not isinstance(given, dict) or not isinstance(inner, list) or not inner:
            raise PipelineError(
                f"{place}: 'repeat' takes options, and beside it a list under 'passes', not {entry!r}",
                hint="- repeat: {at-most: 10}\n    passes: [a, b]",
            )
        made = {str(k): v for k, v in given.items()}
        return Element("repeat", made, _yaml_elements(inner, label), place)
    if isinstance(entry, dict) and len(entry) == 1:
        name, given = next(iter(entry.items()))
        if given is None or isinstance(given, dict):
            return Element(str(name), {str(k): v for k, v in (given or {}).items()}, place=place)
    raise PipelineError(
        f"{place}: cannot read the entry {entry!r}",
        hint="write `name`, `name: {option: value}`, or repeat + passes",
    )


def _is_count(given: Any) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and given >= 0


def _to_yaml(stage: Stage) -> Any:
    if isinstance(stage, Repeat):
        return {
            "repeat": {"until": stage.until, "at-most": stage.at_most},
            "passes": [_to_yaml(s) for s in stage.stages],
        }
    given = {k: list(v) if isinstance(v, tuple) else v for k, v in options.changed(stage).items()}
    return {stage.name: given} if given else stage.name


def _flatten(stages: Sequence[Stage]) -> Iterator[Pass]:
    for stage in stages:
        if isinstance(stage, Repeat):
            yield from _flatten(stage.stages)
        else:
            yield stage
