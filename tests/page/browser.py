"""A headless Chromium, driven by the DevTools protocol over two pipes.

The protocol is one JSON object a message, each with a NUL behind it
(https://chromedevtools.github.io/devtools-protocol). The browser has a profile of its own in a
temporary directory and needs no display, no message bus, no /dev/shm and no user but root."""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

from harness import PATIENCE

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
         "--disable-extensions", "--disable-background-networking", "--disable-component-update",
         "--disable-sync", "--no-first-run", "--no-default-browser-check", "--hide-scrollbars",
         "--force-color-profile=srgb", "--remote-debugging-pipe", "about:blank")
KEYS = {"Enter": 13, "Escape": 27, "ArrowRight": 39, "ArrowLeft": 37, "Tab": 9}


class Browser:
    """One browser process; page() opens tabs. Not for several threads."""

    def __init__(self):
        program = next(filter(None, map(shutil.which, PROGRAMS)), None)
        assert program, f"no browser: install one of {', '.join(PROGRAMS)} (scripts/bootstrap test)"
        self.profile = tempfile.TemporaryDirectory(prefix="inferd-browser-",
                                                   ignore_cleanup_errors=True)
        their_in, self.out = os.pipe()
        self.into, their_out = os.pipe()
        # The browser reads descriptor 3 and writes to 4.
        shell = f'exec 13<&{their_in} 14>&{their_out}; exec 3<&13 4>&14 13<&- 14>&-; exec "$@"'
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            ["bash", "-c", shell, "bash", program, *FLAGS, f"--user-data-dir={self.profile.name}"],
            pass_fds=(their_in, their_out), stdin=subprocess.DEVNULL, stdout=self.log,
            stderr=self.log, env={**os.environ, "HOME": self.profile.name})
        os.close(their_in)
        os.close(their_out)
        self.number, self.rest, self.answers, self.pages = 0, b"", {}, {}

    def said(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")[-4000:]

    def receive(self, timeout_s):
        """Takes what the browser has sent; waits for something up to timeout_s."""
        ready, _, _ = select.select([self.into], [], [], timeout_s)
        if not ready:
            return
        piece = os.read(self.into, 1 << 20)
        assert piece, f"the browser has ended: {self.said()}"
        *texts, self.rest = (self.rest + piece).split(b"\0")
        for text in texts:
            message = json.loads(text)
            if "id" in message:
                self.answers[message["id"]] = message
            elif message.get("sessionId") in self.pages:
                self.pages[message["sessionId"]].events.append(message)

    def call(self, method, session=None, **params):
        """Sends a command and returns its result."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 30 * PATIENCE
        while self.number not in self.answers:
            assert time.monotonic() < deadline, f"no answer to {method}: {self.said()}"
            self.receive(1)
        answer = self.answers.pop(self.number)
        assert "error" not in answer, (method, answer["error"])
        return answer["result"]

    def page(self, width=1280, height=800, dark=False, script=""):
        """Opens an empty tab with a session of its own. `script` runs before any page's own."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)
        session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        return Page(self, session["sessionId"], context, width, height, dark, script)

    def close(self):
        with contextlib.suppress(OSError, AssertionError):
            self.call("Browser.close")
        try:
            self.process.wait(10 * PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.out)
        os.close(self.into)
        self.profile.cleanup()


class Page:
    """One tab: what a user does and sees. Selectors are those of CSS."""

    def __init__(self, browser, session, context, width, height, dark, script):
        self.browser, self.session, self.context, self.events = browser, session, context, []
        browser.pages[session] = self
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 500)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        if script:
            self.call("Page.addScriptToEvaluateOnNewDocument", source=script)

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def close(self):
        del self.browser.pages[self.session]
        self.browser.call("Target.disposeBrowserContext", browserContextId=self.context)

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def js(self, expression):
        """The value of an expression; a promise is waited for."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True,
                           awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, condition, timeout_s=20):
        """Waits until an expression is true; returns its value."""
        deadline = time.monotonic() + timeout_s * PATIENCE
        while not (value := self.js(condition)):
            assert time.monotonic() < deadline, f"{condition}: {self.text('body')[:3000]}"
            time.sleep(0.02)
        return value

    def find(self, selector):
        return f"document.querySelector({json.dumps(selector)})"

    def text(self, selector):
        return self.js(f"{self.find(selector)}?.innerText ?? ''")

    def wait_text(self, selector, text):
        """Waits until the text of an element contains `text`; returns all of it."""
        self.wait(f"({self.find(selector)}?.innerText ?? '').includes({json.dumps(text)})")
        return self.text(selector)

    def click(self, selector):
        """Moves the pointer to the middle of an element that can be seen, and presses."""
        x, y = self.hover(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def hover(self, selector):
        self.wait(f"{self.find(selector)}?.checkVisibility()")
        # What the server says arrives meanwhile, and moves what stands below it.
        x, y = self.js(f"""(async () => {{ const node = {self.find(selector)};
            for (let last = [-1, -1];;) {{
              node.scrollIntoView({{block: 'nearest', behavior: 'instant'}});
              const box = node.getClientRects()[0];
              const middle = [box.x + box.width / 2, box.y + box.height / 2];
              if (middle[0] === last[0] && middle[1] === last[1]) return middle;
              last = middle;
              await new Promise((done) => setTimeout(done, 60));
            }} }})()""")
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        return x, y

    def type(self, selector, text):
        self.click(selector)
        self.call("Input.insertText", text=text)

    def press(self, key, shift=False):
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                      windowsVirtualKeyCode=KEYS[key], modifiers=8 if shift else 0,
                      **(text if kind == "keyDown" else {}))

    def requests(self):
        """The addresses of all requests that the page has made or tried."""
        return [event["params"]["request"]["url"] for event in self.events
                if event["method"] == "Network.requestWillBeSent"]

    def complaints(self):
        """Exceptions of scripts, and what the policy of the page forbade."""
        found = [event["params"] for event in self.events
                 if event["method"] == "Runtime.exceptionThrown"]
        entries = [event["params"]["entry"] for event in self.events
                   if event["method"] == "Log.entryAdded"]
        return found + [entry for entry in entries if entry["source"] != "network"]

    def screenshot(self):
        """The visible part as the bytes of a PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
