# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium that opens the pages hkt writes, and what every such page must keep to: nothing on the console, a plot for
each figure, nothing wider than the window, nothing covered, texts that can be read and heard."""
import base64
import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

import pytest

chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(not chromium, reason="there is no browser here")
# Every page is looked at on a phone and on a desk, by day and by night.
views = pytest.mark.parametrize("width, dark", [(390, False), (390, True), (1280, False), (1280, True)])
AUDIT = (pathlib.Path(__file__).parent / "audit.js").read_text()


class Browser:
    """Chromium's DevTools protocol over a pair of pipes: one message after the other, each ended by a zero."""

    def __init__(self, profile):
        from_us, to_browser = os.pipe()
        from_browser, to_us = os.pipe()

        def connect():  # as descriptors 3 and 4, where Chromium looks for them
            first, second = fcntl.fcntl(from_us, fcntl.F_DUPFD, 10), fcntl.fcntl(to_us, fcntl.F_DUPFD, 10)
            os.dup2(first, 3)
            os.dup2(second, 4)

        self.process = subprocess.Popen(
            [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe",
             f"--user-data-dir={profile}", "about:blank"], preexec_fn=connect, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(from_us)
        os.close(to_us)
        self.out, self.into, self.number, self.waiting = to_browser, os.fdopen(from_browser, "rb"), 0, b""
        self.events = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = None
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")

    def message(self):
        while b"\0" not in self.waiting:
            part = os.read(self.into.fileno(), 1 << 20)
            assert part, "the browser has ended"
            self.waiting += part
        text, _, self.waiting = self.waiting.partition(b"\0")
        return json.loads(text)

    def call(self, method, **parameters):
        self.number += 1
        request = {"id": self.number, "method": method, "params": parameters}
        if getattr(self, "session", None):
            request["sessionId"] = self.session
        os.write(self.out, json.dumps(request).encode() + b"\0")
        while True:
            answer = self.message()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self.events.append(answer)

    def evaluate(self, script):
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def open(self, page, width=1280, dark=False, height=900):
        """Opens the page and waits until it says that it is ready."""
        self.events = []
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.navigate", url=page.as_uri())
        end = time.monotonic() + 60
        while self.evaluate("location.href") != page.as_uri() or not self.evaluate("document.documentElement.dataset.ready === 'yes'"):
            assert time.monotonic() < end, f"{page.name} is not ready; its console: {self.console()}"
            time.sleep(0.02)

    def console(self):
        """What the page has said since it was opened: errors, warnings and everything else."""
        said = []
        for event in self.events:
            if event["method"] == "Runtime.consoleAPICalled":
                said.append(" ".join(str(a.get("value", a.get("description"))) for a in event["params"]["args"]))
            elif event["method"] == "Runtime.exceptionThrown":
                details = event["params"]["exceptionDetails"]
                said.append(details.get("exception", {}).get("description", details["text"]))
            elif event["method"] == "Log.entryAdded":
                said.append(event["params"]["entry"]["text"])
        return said

    def audit(self):
        """What is wrong with the open page, in sentences; unfolds everything that is folded away."""
        troubles = self.evaluate(f"({AUDIT})()")
        return self.console() + troubles

    def picture(self, path):
        """The whole page as a PNG file."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 16000), "scale": 1}
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))

    def close(self):
        with contextlib.suppress(OSError, AssertionError):
            self.session = None
            self.call("Browser.close")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        self.process.kill()
        self.process.wait()
        os.close(self.out)
        self.into.close()


@contextlib.contextmanager
def opened_browser():
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(profile)
        try:
            yield browser
        finally:
            browser.close()


@pytest.fixture(scope="module")
def browser():
    """One for all tests of a file, because it takes a second to start."""
    with opened_browser() as made:
        yield made
