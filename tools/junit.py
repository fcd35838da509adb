"""JUnit XML: what continuous integration shows as tests."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fuseline.engine.files import atomic_write

__all__ = ["Check", "write_junit"]

# What XML 1.0 cannot hold, however it is escaped.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Check:
    """One thing that was checked; `failure` says what is wrong, `skipped` why it was not looked at."""

    group: str
    name: str
    seconds: float = 0.0
    failure: str = ""
    skipped: str = ""


def write_junit(path: Path, suite: str, checks: Sequence[Check]) -> None:
    """One suite with all checks."""
    counts = {
        "tests": len(checks),
        "failures": sum(bool(c.failure) for c in checks),
        "errors": 0,
        "skipped": sum(bool(c.skipped) for c in checks),
        "time": f"{sum(c.seconds for c in checks):.3f}",
    }
    root = ET.Element("testsuites")
    element = ET.SubElement(
        root, "testsuite", {"name": _text(suite), **{k: str(v) for k, v in counts.items()}}
    )
    for check in checks:
        about = {"classname": _text(check.group), "name": _text(check.name), "time": f"{check.seconds:.3f}"}
        case = ET.SubElement(element, "testcase", about)
        if check.failure:
            first = check.failure.splitlines()[0]
            ET.SubElement(case, "failure", {"message": _text(first)}).text = _text(check.failure)
        elif check.skipped:
            ET.SubElement(case, "skipped", {"message": _text(check.skipped)})
    ET.indent(root)
    with atomic_write(path) as temporary:
        ET.ElementTree(root).write(temporary, encoding="utf-8", xml_declaration=True)


def _text(text: str) -> str:
    return _FORBIDDEN.sub("�", text)
