"""Drives a page in headless Chromium by its DevTools protocol, over pipes.

Chromium is found on the PATH, or named by the environment variable CHROMIUM.
"""

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

_NAMES = "chromium chromium-browser google-chrome google-chrome-stable".split()
# The numbers of keys without a character.
_KEYS = {"Backspace": 8, "Tab": 9, "Enter": 13, "ArrowDown": 40}
# Chromium reads from descriptor 3 and writes to 4.
_EXECUTE = """
import fcntl, os, sys
reader, writer = (
    fcntl.fcntl(int(number), fcntl.F_DUPFD, 64) for number in sys.argv[1:3]
)
os.dup2(reader, 3)
os.dup2(writer, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


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


class Browser:
    """A browser with one page. Leave it as a context.

    Attributes:
        requested: list of str, the addresses that the page asked for.
        messages: list of str, errors and warnings of the page.
    """

    def __init__(self):
        path = find()
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._in_reader, self._in_writer = os.pipe()
        self._out_reader, self._out_writer = os.pipe()
        numbers = self._in_reader, self._out_writer
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-c", _EXECUTE, *map(str, numbers), path),
                *("--headless=new", "--remote-debugging-pipe", "--no-sandbox"),
                *("--disable-gpu", "--no-first-run", "--hide-scrollbars"),
                "--disable-dev-shm-usage",
                "--force-device-scale-factor=1",
                f"--user-data-dir={self._folder.name}",
                "about:blank",
            ],
            pass_fds=numbers,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(self._in_reader)
        os.close(self._out_writer)
        self._buffer, self._number, self._session = b"", 0, None
        self.requested, self.messages = [], []

    def __enter__(self):
        try:
            target = self.call("Target.createTarget", url="about:blank")
            self._session = self.call(
                "Target.attachToTarget",
                targetId=target["targetId"],
                flatten=True,
            )["sessionId"]
            for domain in ("Page", "Runtime", "Network", "Log"):
                self.call(f"{domain}.enable")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        os.close(self._in_writer)
        os.close(self._out_reader)
        self._folder.cleanup()

    def call(self, method, **params):
        """Calls a method of the protocol and returns its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._in_writer, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + 60
        while True:
            answer = self._read(end - time.monotonic())
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _read(self, seconds):
        """Returns the next message, and notes what it says of the page."""
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._out_reader], [], [], seconds)
            data = os.read(self._out_reader, 2**20) if ready else b""
            if not data:
                raise RuntimeError("Chromium does not answer.")
            self._buffer += data
        text, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(text)
        params = message.get("params", {})
        match message.get("method"):
            case "Network.requestWillBeSent":
                self.requested.append(params["request"]["url"])
            case "Runtime.exceptionThrown":
                self.messages.append(str(params["exceptionDetails"]))
            case "Log.entryAdded":
                if params["entry"]["level"] in ("error", "warning"):
                    self.messages.append(str(params["entry"]))
        return message

    def open(self, url, width=1280, height=900):
        """Opens a page in a window of a size."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.call("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete'")

    def run(self, code):
        """Returns the value of an expression in JavaScript."""
        answer = self.call(
            "Runtime.evaluate",
            expression=code,
            returnByValue=True,
            awaitPromise=True,
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{code}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait_for(self, code, seconds=30):
        """Waits until an expression is true; raises if it stays false."""
        end = time.monotonic() + seconds
        while not (value := self.run(f"Boolean({code})")):
            if time.monotonic() > end:
                text = self.run("document.body.innerText")
                raise RuntimeError(f"{code} stays {value} in: {text}")
            time.sleep(0.02)
        return value

    def type(self, text):
        """Types text into what has the focus, a character at a time."""
        for character in text:
            if character == "\n":
                self.press("Enter")
            else:
                self.call("Input.insertText", text=character)

    def press(self, key):
        """Presses a key."""
        event = {"key": key, "code": key, "windowsVirtualKeyCode": _KEYS[key]}
        text = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **event, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def shortcut(self, key, command):
        """Presses Control and a key, for a command as "copy" or "paste"."""
        event = {"key": key, "windowsVirtualKeyCode": ord(key), "modifiers": 2}
        for kind, more in ("keyDown", {"commands": [command]}), ("keyUp", {}):
            self.call("Input.dispatchKeyEvent", type=kind, **event, **more)

    def point(self, selector):
        """Moves the mouse to the middle of an element."""
        box = self.run(
            f"(() => {{ const e = document.querySelector('{selector}');"
            "e.scrollIntoView({block: 'center'});"
            "const b = e.getBoundingClientRect();"
            "return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        self.call(
            "Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1]
        )
