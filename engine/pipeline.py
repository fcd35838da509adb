"""The pipeline: passes in order, written in Python, as text or as YAML; all three round-trip."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml

from fuseline.engine import options, pipeline_text
from fuseline.engine.errors import PipelineError, did_you_mean
from fuseline.engine.files import read_text
from fuseline.engine.pass_ import Pass
from fuseline.engine.pipeline_order import check_order
from fuseline.engine.pipeline_text import Element
from fuseline.engine.registry import registry

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
        text = read_text(source, "pipeline file") if isinstance(source, Path) else source
        try:
            data = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise PipelineError(f"{label} is not valid YAML: {error}") from error
        if not isinstance(data, dict) or not isinstance(data.get("passes"), list):
            raise PipelineError(f"{label} must be a mapping with a list under 'passes'")
        unknown = set(data) - _YAML_KEYS
        if unknown:
            word = sorted(map(str, unknown))[0]
            raise PipelineError(f"{label} has the unknown key {word!r}", hint=did_you_mean(word, _YAML_KEYS))
        elements = [_yaml_element(entry, label) for entry in data["passes"]]
        expected = data.get("expect") or {}
        if not isinstance(expected, dict) or not all(isinstance(n, int) for n in expected.values()):
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
        stages.extend(_resolve(element))
    return tuple(stages)


def _resolve(element: Element) -> tuple[Stage, ...]:
    if element.name == "repeat":
        if not element.children:
            raise PipelineError("'repeat' needs passes in parentheses: repeat{at-most=10}(a,b)")
        return (Repeat(_stages(element.children), **options.bind(_RepeatOptions, "repeat", element.options)),)
    if element.children is not None:
        raise PipelineError(f"{element.name!r} cannot hold other passes; only 'repeat' can")
    if element.name not in registry:
        ready = ready_pipelines()
        if element.name in ready and not element.options:
            return Pipeline.from_yaml(ready[element.name]).stages
    pass_type = registry[element.name]
    return (pass_type(**options.bind(pass_type, element.name, element.options)),)


def _yaml_element(entry: Any, label: str) -> Element:
    if isinstance(entry, str):
        return Element(entry)
    if isinstance(entry, dict) and "repeat" in entry:
        given, inner = entry["repeat"] or {}, entry.get("passes") or []
        if not isinstance(given, dict) or not isinstance(inner, list):
            raise PipelineError(f"{label}: 'repeat' takes options and a list under 'passes', not {entry!r}")
        return Element(
            "repeat", {str(k): v for k, v in given.items()}, [_yaml_element(e, label) for e in inner]
        )
    if isinstance(entry, dict) and len(entry) == 1:
        name, given = next(iter(entry.items()))
        if given is None or isinstance(given, dict):
            return Element(str(name), {str(k): v for k, v in (given or {}).items()})
    raise PipelineError(
        f"{label}: cannot read the entry {entry!r}",
        hint="write `name`, `name: {option: value}`, or repeat + passes",
    )


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
