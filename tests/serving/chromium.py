"""Headless Chromium of the distribution, driven by Playwright.

Chromium is found on the PATH, or named by the environment variable CHROMIUM.
"""

import contextlib
import os
import shutil
import subprocess
import unittest

from playwright import sync_api

_NAMES = "chromium chromium-browser google-chrome google-chrome-stable".split()


def find():
    """Returns Chromium's path.

    Raises:
        SkipTest: there is none that starts.
    """
    found = os.environ.get("CHROMIUM")
    for name in _NAMES:
        found = found or shutil.which(name)
    if not found:
        raise unittest.SkipTest(
            "Expected Chromium on the PATH, or its path in CHROMIUM."
        )
    # Ubuntu's package is a program that asks for another package.
    done = subprocess.run([found, "--version"], capture_output=True)
    if done.returncode:
        raise unittest.SkipTest(f"{found} --version fails.")
    return found


@contextlib.contextmanager
def page():
    """Gives a page, with what it asked for and what went wrong in it.

    Yields:
        (page of Playwright, list of requested addresses, list of str: its
        errors and warnings).
    """
    path = find()
    requested, messages = [], []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, chromium_sandbox=False
        )
        context = browser.new_context(
            permissions=["clipboard-read", "clipboard-write"]
        )
        page = context.new_page()
        page.on("request", lambda request: requested.append(request.url))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on(
            "console",
            lambda message: (
                message.type in ("error", "warning")
                and messages.append(message.text)
            ),
        )
        yield page, requested, messages
        browser.close()
