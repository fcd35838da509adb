"""A real Chromium for the tests of pages; without one they are skipped, with the reason."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fuseline.engine.errors import FuselineError
from fuseline.tools.campaigns.browser import chromium

__all__ = ["Page", "open_browser"]


class Page:
    """A report in a browser: what is visible, and what a person can do."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, path: Path, fragment: str = "") -> float:
        """Open a page from disk; gives the seconds until it is ready."""
        self.driver.get("about:blank")
        begin = time.perf_counter()
        self.driver.get(path.resolve().as_uri() + fragment)
        self.until(lambda: self.script("return document.body.dataset.ready") == "true")
        return time.perf_counter() - begin

    def script(self, text: str, *arguments: Any) -> Any:
        return self.driver.execute_script(text, *arguments)

    def until(self, condition: Callable[[], Any], seconds: float = 60.0) -> Any:
        end = time.monotonic() + seconds
        while not (found := condition()):
            assert time.monotonic() < end, "the page did not come to it"
            time.sleep(0.02)
        return found

    def visible(self, selector: str) -> list[str]:
        """The texts of the visible elements."""
        elements = self.driver.find_elements("css selector", selector)
        return [e.text for e in elements if e.is_displayed()]

    def boxes(self, side: str = "right") -> list[str]:
        """The labels of the boxes drawn in a pane of the graph."""
        labels: list[str] = self.script(
            "return [...document.querySelectorAll(arguments[0])].map(e => e.getAttribute('aria-label'))",
            f"#{side} .box",
        )
        return labels

    def click(self, selector: str) -> None:
        self.driver.find_element("css selector", selector).click()

    def click_box(self, label: str) -> None:
        """Click the box whose label begins so."""
        self.until(lambda: any(b.startswith(label) for b in self.boxes()))
        self.script(
            "[...document.querySelectorAll('#right .box')].find(e => e.getAttribute('aria-label')"
            ".startsWith(arguments[0])).dispatchEvent(new MouseEvent('click', {bubbles: true}))",
            label,
        )

    def type(self, text: str) -> None:
        self.driver.switch_to.active_element.send_keys(text)

    def errors(self) -> list[str]:
        return [e["message"] for e in self.driver.get_log("browser") if e["level"] == "SEVERE"]


def open_browser(width: int, height: int) -> Iterator[Page]:
    try:
        with chromium(width, height) as driver:
            yield Page(driver)
    except FuselineError as missing:
        pytest.skip(str(missing))
