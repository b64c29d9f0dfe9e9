"""Pages in a real browser: headless Chromium, spoken to through its debugging pipe, page opened as a file or from a server of this machine.

No network is needed and none may be touched: every request the browser makes for the page is looked at.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
TIMEOUT_S = 240
HOSTILE = (
    "</script><script>window.hit=1</script>\"'><img src=http://127.0.0.1:9/x onerror=window.hit=1>{{7*7}}<!--"
)

IN_BROWSER = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        CHROMIUM is None, reason="no chromium binary found; install it with: apt-get install chromium"
    ),
]
"""Marks of a module of such tests."""

# Chromium reads commands from file descriptor 3 and writes answers to 4.
LAUNCHER = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
os.dup2(ends[0], 3), os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
OPTIONS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe"),
]  # fmt: skip


class Browser:
    """One tab of a headless Chromium; ``events`` holds what it reported since the last page was opened."""

    def __init__(self, profile: Path) -> None:
        command_end, self._write = os.pipe()
        self._read, answer_end = os.pipe()
        launch = [sys.executable, "-c", LAUNCHER, str(command_end), str(answer_end), str(CHROMIUM)]
        self._chromium = subprocess.Popen(
            [*launch, *OPTIONS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(command_end, answer_end),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(command_end)
        os.close(answer_end)
        self._buffer, self._number, self._session = b"", 0, None
        self.events: list[dict[str, Any]] = []
        tab = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=tab["targetId"], flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            while b"\0" in self._buffer:
                line, self._buffer = self._buffer.split(b"\0", 1)
                answer = json.loads(line)
                if answer.get("id") == self._number:
                    assert "error" not in answer, answer
                    return answer["result"]
                self.events.append(answer)
            if select.select([self._read], [], [], 1)[0]:
                self._buffer += os.read(self._read, 1 << 20)
        raise TimeoutError(f"chromium did not answer {method} within {TIMEOUT_S} s")

    def open(self, page: Path | str, width: int = 1280, dark: bool = False) -> None:
        """Open a file, or an address."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url="about:blank")
        self.wait_for("location.href === 'about:blank'")
        self.events.clear()
        self.call("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
        self.wait_for("location.protocol !== 'about:' && document.readyState === 'complete'")

    def picture(self) -> bytes:
        """Return what the window shows, as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot")["data"])

    def run(self, script: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    @contextmanager
    def in_frame(self) -> Iterator[None]:
        """Run scripts in the only sandboxed frame of the page, which is a process of its own."""
        outer, self._session = self._session, None
        frame = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "iframe")
        self._session = self.call("Target.attachToTarget", targetId=frame["targetId"], flatten=True)[
            "sessionId"
        ]
        try:
            for domain in ("Runtime", "Network", "Log"):
                self.call(f"{domain}.enable")
            yield
        finally:
            self._session = outer

    def wait_for(self, condition: str, seconds: float = TIMEOUT_S) -> None:
        deadline = time.monotonic() + seconds
        while not self.run(f"Boolean({condition})"):
            assert time.monotonic() < deadline, f"still waiting for: {condition}"
            time.sleep(0.05)

    def draw_all(self) -> None:
        """Unfold the page and scroll through it as a reader does, from plot to plot, until every one is there."""
        self.run("for (const fold of document.querySelectorAll('details')) fold.open = true")
        for i in range(self.run("document.querySelectorAll('.plot').length")):
            plot = f"document.querySelectorAll('.plot')[{i}]"
            self.run(f"{plot}.scrollIntoView()")
            self.wait_for(f"{plot}.dataset.drawn === 'yes'")
        self.wait_for(f"({INK}).every(pixels => pixels > 500)")

    def complaints(self) -> list[str]:
        """Console errors and warnings, uncaught exceptions, blocked loads."""
        found = []
        for event in self.events:
            params = event["params"]
            bad_call = event["method"] == "Runtime.consoleAPICalled" and params["type"] in {
                "error",
                "warning",
                "assert",
            }
            if bad_call or event["method"] in {
                "Runtime.exceptionThrown",
                "Log.entryAdded",
                "Network.loadingFailed",
            }:
                found.append(json.dumps(params)[:500])
        return found

    def requests(self) -> list[str]:
        sent = (event for event in self.events if event["method"] == "Network.requestWillBeSent")
        return [event["params"]["request"]["url"] for event in sent]

    def close(self) -> None:
        self._chromium.terminate()
        try:
            self._chromium.wait(10)
        except subprocess.TimeoutExpired:
            self._chromium.kill()
            self._chromium.wait(10)
        os.close(self._read)
        os.close(self._write)


# Painted pixels of every plot: its canvases lie in nested shadow roots.
INK = """[...document.querySelectorAll('.plot')].map(plot => {
  const canvases = [];
  const visit = node => {
    if (node.tagName === 'CANVAS') canvases.push(node);
    for (const child of [...(node.shadowRoot?.children ?? []), ...node.children]) visit(child);
  };
  visit(plot);
  return canvases.reduce((sum, canvas) => {
    if (!canvas.width || !canvas.height) return sum;
    const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', {willReadFrequently: true});
    copy.drawImage(canvas, 0, 0);
    const data = copy.getImageData(0, 0, canvas.width, canvas.height).data;
    let painted = 0;
    for (let i = 3; i < data.length; i += 4) painted += data[i] > 0;
    return sum + painted;
  }, 0);
})"""

# Lowest contrast (WCAG 2.1, section 1.4.3) between text and what lies behind it; bars and swatches hold no text.
CONTRAST = """(() => {
  const parse = colour => { const p = colour.match(/[\\d.]+/g).map(Number); return colour.startsWith('color(') ? [255*p[0],255*p[1],255*p[2],p[3] ?? 1] : [...p.slice(0,3), p[3] ?? 1]; };
  const light = ([r, g, b]) => { const f = c => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; }; return 0.2126*f(r) + 0.7152*f(g) + 0.0722*f(b); };
  const behind = node => { for (let n = node; n; n = n.parentElement) { const c = parse(getComputedStyle(n).backgroundColor); if (c[3] > 0.5) return c; } return [255, 255, 255]; };
  let worst = [99, ''];
  for (const node of document.querySelectorAll('body *')) {
    const own = [...node.childNodes].some(child => child.nodeType === 3 && child.textContent.trim());
    if (!own || !node.offsetParent || node.closest('script, svg, .plot')) continue;
    const pair = [light(parse(getComputedStyle(node).color)), light(behind(node))].sort((a, b) => b - a);
    const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
    if (ratio < worst[0]) worst = [ratio, node.outerHTML.slice(0, 120)];
  }
  return worst;
})()"""


def assert_clean(browser: Browser, path: Path) -> None:
    assert browser.complaints() == []
    assert [url for url in browser.requests() if not url.startswith(("data:", "blob:"))] == [path.as_uri()]
