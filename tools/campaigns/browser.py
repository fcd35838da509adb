"""A real Chromium, driven by its own driver; for the campaign and the tests that look at pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fuseline.engine.errors import FuselineError

__all__ = ["chromium"]

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def chromium(width: int, height: int, *, dark: bool = False) -> Iterator[Any]:
    """A selenium driver whose window has this size; below 500 pixels it is a telephone's."""
    binary = next((path for name in _BROWSERS if (path := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        raise FuselineError("chromium and chromedriver are needed", hint="Debian: chromium, chromium-driver")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", f"--window-size={width},{height}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        yield opened
    finally:
        opened.quit()
