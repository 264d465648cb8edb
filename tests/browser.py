"""A real browser for tests: Chromium without a window, driven over a pipe by its own protocol."""

import base64
import fcntl
import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
PATH = next(filter(None, map(shutil.which, NAMES)), None)
needs_browser = pytest.mark.skipif(PATH is None, reason="there is no Chromium or Chrome")
KEYS = {"Tab": 9, "Enter": 13, " ": 32}
KEYS |= {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
TIMEOUT = 60  # seconds for an answer


class Browser:
    """One tab of Chromium; ``messages`` has what the page logged or could not do."""

    def __init__(self, profile: Path):
        to_browser, self.outgoing = os.pipe()
        self.incoming, from_browser = os.pipe()
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        options += [f"--user-data-dir={profile}", "--remote-debugging-pipe", "--hide-scrollbars"]

        def place_pipe():
            # copies first, with numbers above 4: 3 and 4 may be in use
            read = fcntl.fcntl(to_browser, fcntl.F_DUPFD, 5)
            write = fcntl.fcntl(from_browser, fcntl.F_DUPFD, 5)
            os.dup2(read, 3)
            os.dup2(write, 4)

        self.process = subprocess.Popen(
            [PATH, *options, "about:blank"],
            close_fds=False,
            preexec_fn=place_pipe,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        os.set_blocking(self.incoming, False)
        self.buffer = b""
        self.number = 0
        self.session = None
        self.events = []
        targets = self.call("Target.getTargets")["targetInfos"]
        tab = next(target for target in targets if target["type"] == "page")
        arguments = {"targetId": tab["targetId"], "flatten": True}
        self.session = self.call("Target.attachToTarget", **arguments)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method, **params):
        """Call a method of the protocol and return its result."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.outgoing, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def read(self):
        """Return the next message of the browser."""
        end = time.monotonic() + TIMEOUT
        while b"\0" not in self.buffer:
            try:
                self.buffer += os.read(self.incoming, 2**20)
            except BlockingIOError:
                assert time.monotonic() < end, "the browser does not answer"
                time.sleep(0.005)
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def open(self, path, fragment="", width=1000, height=900):
        """Open a file at a window size, and wait until it is loaded."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.call("Page.navigate", url="about:blank")
        self.events = []
        self.call("Page.navigate", url=path.as_uri() + fragment)
        while self.run("document.readyState") != "complete" or self.run("location.href") == (
            "about:blank"
        ):
            time.sleep(0.01)

    def run(self, expression):
        """Return the value of a JavaScript expression."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key, shift=False):
        """Press and release a key."""
        event = {"key": key, "code": "Space" if key == " " else key, "modifiers": 8 * shift}
        event["windowsVirtualKeyCode"] = KEYS.get(key) or ord(key.upper())
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **event, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def emulate(self, scheme="light", media="screen"):
        """Show the page in a colour scheme, or as printed."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)

    def picture(self, path, whole=True):
        """Write a picture of the page."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(data["data"]))

    def problems(self):
        """Return what the page logged, exceptions, and requests other than of the page itself."""
        self.run("0")  # reads what has arrived
        found = []
        for event in self.events:
            method = event.get("method")
            if method in ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled"):
                found.append(event["params"])
            elif method == "Network.requestWillBeSent":
                url = event["params"]["request"]["url"]
                if not url.startswith(("file:", "data:", "about:")):
                    found.append(url)
        return found

    def close(self):
        """End the browser."""
        self.process.terminate()
        self.process.wait(timeout=20)
        os.close(self.outgoing)
        os.close(self.incoming)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """A browser for the tests of a module."""
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()
