"""The web page at `/` in a browser: what a user does, and what the user then sees."""

import base64
import json
import re
import shlex
import socket
import subprocess

import seeing
from conftest import ARGUMENTS, HTML, THOUGHT
from harness import DEMO, wait_until

# Keeps what the page copies; a headless browser has no clipboard of a user.
CLIPBOARD = "navigator.clipboard.writeText = async (text) => { window.copied = text; };"
# Random weights end a text by chance: so its end is out of reach.
ENDLESS = """window.plain = window.fetch; window.fetch = (path, options) => plain(path,
  options?.body ? {...options, body: JSON.stringify({...JSON.parse(options.body),
  min_tokens: 8000, max_tokens: 8000})} : options);"""
# Keeps the bodies of requests.
BODIES = """window.plain = window.fetch; window.fetch = (path, options) => {
  if (options?.body) window.bodies.push(options.body); return plain(path, options); };"""
WRITES = "document.querySelector('.turn.assistant .text')?.textContent.length > 0"
ENDED = "document.body.dataset.running === 'no' && document.querySelector('.again')?.innerText"


def say(page, text):
    page.type("#chat-input", text)
    page.press("Enter")


def answered(page, count=1):
    """Waits until `count` answers are on the page and the last has ended."""
    page.wait(f"document.querySelectorAll('.turn.assistant').length === {count}")
    return page.wait(ENDED)


def clock_of(page, step_ms):
    """From now on each look at the clock finds it that much later."""
    page.js(f"let now = 0; performance.now = () => now += {step_ms}")


# The page as a file

def test_it_is_one_file_with_a_policy(demo):
    answer = demo.get("/")
    assert answer.status == 200 and len(answer.body) <= 65536
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"]
                  .split("; "))
    hashed = r"'sha256-[A-Za-z0-9+/]{43}='"
    assert re.fullmatch(hashed, policy.pop("script-src"))
    assert re.fullmatch(hashed, policy.pop("style-src"))
    assert policy == {"default-src": "'none'", "connect-src": "'self'", "img-src": "data:",
                      "frame-ancestors": "'none'", "base-uri": "'none'", "form-action": "'none'"}
    page = answer.body.decode()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|\son\w+=",
                         page)
    assert not re.search(r"(src|href)=(?![\"']?data:)", page)


def test_a_browser_that_has_it_gets_304(demo):
    tag = demo.get("/").headers["etag"]
    assert re.fullmatch(r'"[0-9a-f]{32}"', tag)
    for has in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        answer = demo.get("/", headers={"If-None-Match": has})
        assert (answer.status, answer.body) == (304, b""), has
        assert answer.headers["etag"] == tag
    assert demo.get("/", headers={"If-None-Match": '"other"'}).status == 200
    head = demo.request("HEAD", "/")
    assert (head.status, head.body) == (200, b"") and head.headers["etag"] == tag


def test_it_can_be_off(start):
    server = start("--web-page", "off")
    for method in ("GET", "HEAD", "POST"):
        answer = server.request(method, "/")
        assert answer.status == 404, answer
    assert server.get("/").error["code"] == "unknown_url"


def test_the_file_needs_no_key_and_no_known_host(start):
    server = start("--api-key", "right")
    assert server.get("/").status == 200
    assert server.get("/", headers={"Host": "proxy.example"}).status == 200
    assert server.get("/v1/models").status == 401


# Chats

def test_a_chat_with_reasoning(scripted, tab):
    page = tab(scripted)
    clock_of(page, 1000)
    say(page, "Hello")
    assert answered(page) == "Regenerate"
    assert page.text(".turn.assistant .text") == "Good morning."
    assert not page.js("document.querySelector('.reasoning').open"), "reasoning is folded"
    page.click(".reasoning summary")
    page.wait_text(".reasoning div", THOUGHT)
    assert re.search(r"\d+ \+ \d+ tokens · [\d.,]+ tokens/s", page.text(".turn .meta"))


def test_an_answer_in_one_piece_has_no_rate(scripted, tab):
    page = tab(scripted)
    clock_of(page, 1)
    say(page, "Hello")
    assert answered(page) == "Regenerate"
    said = page.text(".turn .meta")
    assert "tokens/s" not in said
    assert re.search(r"\d+ \+ \d+ tokens · first after \d+ ms", said), said


def test_output_stays_text(scripted, tab):
    page = tab(scripted)
    say(page, "HTML, please")
    answered(page)
    assert page.text(".turn.assistant .text") == HTML
    assert page.js("document.querySelectorAll('.turn img, .turn script').length") == 0
    assert page.js("document.title") == "scripted · inferd"
    page.click("#chat-clear")
    say(page, HTML)  # what the user writes, too
    answered(page)
    assert page.text(".turn.user") == HTML and page.js("document.title") == "scripted · inferd"


def test_output_of_completions_stays_text(scripted, tab):
    page = tab(scripted)
    page.click("#tab-completion")
    prompt = HTML + "<|answer_2|>"  # the token that the answer with HTML follows
    page.js("document.getElementById('text-input').value = ''")
    page.type("#text-input", prompt)
    page.click("#text-send")
    page.wait("document.querySelectorAll('#tokens [data-at]').length > 3")
    page.wait("document.body.dataset.running === 'no'")
    assert page.text("#tokens") == prompt + HTML + "<|im_end|>"
    assert page.text("#tokens .end") == "<|im_end|>"
    page.hover("#tokens [data-at='0']")
    page.wait("!document.getElementById('tip').hidden")
    assert page.js("document.querySelectorAll('#tokens img, #tip img, script').length") == 1


def test_a_tool_is_called_and_its_result_is_used(scripted, tab):
    page = tab(scripted)
    page.click("#chips button:nth-child(4)")
    page.wait_text(".call div", "get_weather")
    answered(page)
    assert page.text(".call pre") == ARGUMENTS
    page.type(".call input", "rain")
    page.press("Enter")
    page.wait_text("#log", "The tool was asked, and it rains in Oslo.")


def test_a_chat_streams_and_stop_cancels_it(start, tab, slow_model):
    server = start("--load-format", "dummy", "--threads", 1, model=slow_model)
    for times, press in enumerate((lambda: page.click("#chat-send"), lambda: page.press("Escape"))):
        page = tab(server, script=ENDLESS)
        say(page, "Count")
        page.wait(WRITES)
        begin = page.text(".turn.assistant .text")
        page.wait(f"{WRITES.replace('> 0', '>')} {len(begin)}")  # it streams: the text grows
        assert page.text(".turn.assistant .text").startswith(begin)
        assert page.text("#chat-send") == "Stop"
        assert server.metric("inferd_aborted_total", cause="disconnect") == times
        press()
        page.wait_text(".turn .meta", "stopped")
        wait_until(lambda: server.metric("inferd_aborted_total", cause="disconnect") == times + 1,
                   "the request to be cancelled")
        wait_until(server.idle, "an idle server", context=server.usage)
        assert page.text("#chat-send") == "Send"


def test_regenerate_asks_the_same_again(demo, tab):
    page = tab(demo, script=CLIPBOARD)
    say(page, "What is 2 plus 3?")
    answered(page)
    page.click(".again")
    page.wait(ENDED)
    assert page.js("document.querySelectorAll('.turn').length") == 2
    page.click("#chat-curl")
    body = json.loads(shlex.split(page.wait("window.copied"))[-1])
    assert [message["role"] for message in body["messages"]] == ["user", "assistant"]


def test_a_schema_binds_the_answer(demo, tab):
    page = tab(demo)
    page.click("#chips button:nth-child(3)")
    answered(page)
    person = json.loads(page.text(".turn.assistant .text"))
    assert set(person) == {"name", "age"}
    page.click(".pill")
    assert page.js("document.getElementById('schema').value") == ""


def test_wrong_settings_are_said_before_anything_is_sent(demo, tab):
    page = tab(demo)
    page.wait_text("#status", "ready")
    page.type("#f-temperature", "3")
    page.wait_text("#fields", "0 to 2")
    say(page, "Hello")
    assert page.js("document.activeElement.id") == "f-temperature"
    assert page.js("document.querySelectorAll('.turn').length") == 0
    page.click("#reset")
    page.click("#schema-box summary")
    page.type("#schema", "{")
    page.wait_text("#schema-said", "Not JSON")
    assert not any("completions" in url for url in page.requests())


def test_keys_of_the_keyboard(scripted, tab):
    page = tab(scripted)
    page.type("#chat-input", "one")
    page.press("Enter", shift=True)
    page.call("Input.insertText", text="two")
    assert page.js("document.getElementById('chat-input').value") == "one\ntwo"
    page.press("Enter")
    assert page.wait_text(".turn.user", "one") == "one\ntwo"
    answered(page)
    page.js("document.getElementById('tab-chat').focus()")
    page.press("ArrowRight")
    assert page.js("document.activeElement.id") == "tab-completion"


def test_everything_has_a_name(scripted, tab):
    """Every control that can be reached has a name for those who do not see it."""
    page = tab(scripted)
    page.click("#chips button:nth-child(4)")
    answered(page)
    page.click("#tab-completion")
    page.click("#text-send")
    page.wait("document.querySelectorAll('#tokens [data-at]').length > 0")
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    controls = ("button", "textbox", "combobox", "spinbutton", "tab", "progressbar")
    nameless = [node for node in nodes if node.get("role", {}).get("value") in controls
                and not node.get("ignored") and not node.get("name", {}).get("value")]
    assert nameless == []


# Completions

def test_tokens_show_their_probabilities(demo, tab):
    page = tab(demo)
    page.click("#tab-completion")
    page.click("#text-send")
    page.wait("document.querySelectorAll('#tokens [data-at]').length > 3")
    page.wait("document.body.dataset.running === 'no'")
    shown = page.js("[...document.querySelectorAll('#tokens [data-at]')].map((t) =>"
                    " [t.textContent, Number(t.style.getPropertyValue('--p'))])")
    assert all(0 <= p <= 1 for _, p in shown) and len({p for _, p in shown}) > 1
    page.hover("#tokens [data-at='2']")
    page.wait("!document.getElementById('tip').hidden")
    rows = page.js("[...document.querySelectorAll('#tip progress')].map((bar) => bar.value)")
    assert 5 <= len(rows) <= 6 and rows == sorted(rows, reverse=True) and sum(rows) <= 1.001
    assert page.js("document.querySelectorAll('#tip .chosen').length") == 1
    page.js("document.querySelector('#tokens [data-at]').focus()")
    first = page.text("#tip .chosen")
    page.press("ArrowRight")
    assert page.js("document.activeElement.dataset.at") == "1"
    page.wait(f"document.querySelector('#tip .chosen').innerText !== {json.dumps(first)}")
    page.press("Escape")
    assert page.js("document.getElementById('tip').hidden")


# Keys, errors, and what curl says

def test_a_wrong_key_is_said(start, tab):
    server = start("--api-key", "right", "--served-model-name", "demo")
    server.key = "right"
    page = tab(server)
    page.wait_text("#key-said", "You didn't provide an API key")
    page.type("#key", "wrong")
    page.press("Enter")
    page.wait_text("#key-said", "Incorrect API key provided.")
    page.js("document.getElementById('key').value = ''")
    page.type("#key", "right")
    page.press("Enter")
    page.wait("!document.getElementById('key-dialog').open")
    page.wait("document.title === 'demo · inferd'")
    say(page, "What is 2 plus 3?")
    answered(page)
    assert page.text(".turn.assistant .text") != ""
    assert page.js("Object.keys(localStorage).length") == 0
    page.call("Page.reload")
    page.wait("document.title === 'demo · inferd'")
    assert not page.js("document.getElementById('key-dialog').open"), "the tab knows the key"


def test_an_error_has_the_words_of_the_server(demo, tab):
    page = tab(demo)
    page.wait_text("#model", "demo")
    page.js("document.getElementById('f-max_tokens').value = 1000000")
    say(page, "Hello")
    said = page.wait_text(".error", "context length")
    body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1000000}
    assert said.startswith(demo.post("/v1/chat/completions", body).error["message"])
    assert page.text(".again") == "Try again"
    page.click("#reset")
    page.click(".again")
    answered(page)
    page.wait("!document.querySelector('.error')")


def test_copy_as_curl_is_the_request(scripted, tab):
    page = tab(scripted, script=CLIPBOARD)
    page.type("#chat-input", "It's a 'quoted' word")
    page.js("document.getElementById('f-temperature').value = 0.5")
    page.wait("document.title === 'scripted · inferd'")
    page.click("#chat-curl")
    command = page.wait("window.copied")
    words = shlex.split(command.replace("\\\n", ""))
    body = json.loads(words[words.index("-d") + 1])
    assert body["messages"] == [{"role": "user", "content": "It's a 'quoted' word"}]
    assert (body["model"], body["temperature"]) == ("scripted", 0.5)
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60,
                          check=True)
    assert done.stdout.rstrip().endswith("data: [DONE]"), done


# The state of the server

def test_the_state_of_the_server_is_shown(demo, tab):
    page = tab(demo)
    page.wait_text("#status", "ready")
    page.wait("document.getElementById('s-running').textContent === '0'")
    page.wait_text("#s-more", "tokens of KV cache")
    page.wait("document.getElementById('s-rate').textContent.match(/^[0-9]/)")
    names = page.js("[...document.querySelectorAll('#model option')].map((o) => o.value)")
    assert names == ["demo", "second"]


def test_metrics_may_be_closed(start, tab):
    page = tab(start("--api-key", "k", "--admin-key", "a", "--metrics-auth", "admin",
                     "--served-model-name", "demo"))
    page.type("#key", "k")
    page.press("Enter")
    page.wait("document.title === 'demo · inferd'")
    page.wait_text("#s-more", "This route needs an admin key")
    page.wait_text("#status", "ready")


def test_what_was_used_is_a_table(start, tab, tmp_path):
    """A row a day, model and key, as /v1/usage has it; an admin key sees all."""
    keys = tmp_path / "keys"
    keys.write_text("sk-alice-0123456789 alice\nsk-bob-0123456789 bob\n")
    keys.chmod(0o600)
    server = start("--served-model-name", "demo", "--store", tmp_path / "store.db",
                   "--api-key-file", keys, "--admin-key", "boss")
    for key in ("alice", "bob"):
        server.key = f"sk-{key}-0123456789"
        server.complete("Hello", max_tokens=3, ignore_eos=True)
    told = [result for bucket in server.get("/v1/usage?group_by=model").json["data"]
            for result in bucket["results"]]
    for key, names in (("sk-bob-0123456789", ["demo · bob"]),
                       ("boss", ["demo · alice", "demo · bob"])):
        page = tab(server)
        page.type("#key", key)
        page.press("Enter")
        page.wait("document.title === 'demo · inferd'")
        page.click("#usage-box summary")
        page.wait("document.querySelectorAll('#usage tbody tr').length === %d" % len(names))
        rows = page.js("[...document.querySelectorAll('#usage tbody tr')].map("
                       "(row) => [...row.cells].map((cell) => cell.textContent))")
        assert [row[1] for row in rows] == names
        assert rows[-1][2:] == ["1", str(told[0]["input_tokens"]), "3"]


def test_several_models_with_their_state(start, tab, tmp_path):
    """A line for each, whose button acts for an admin key alone; an alias has none."""
    file = tmp_path / "server.conf"
    file.write_text(f"[model one]\nmodel = {DEMO}\naliases = first\npreload = true\n"
                    f"[model two]\nmodel = {DEMO}\n")
    server = start("--config", file, "--api-key", "plain", "--admin-key", "root", model=None,
                   key="root")
    wait_until(lambda: server.get("/v1/models/one").json["state"] == "ready", "the model")
    rows = ("[...document.querySelectorAll('#models tbody tr')].map("
            "(row) => row.innerText.trim().split(/\\s*\\t\\s*/))")
    state = "document.querySelector('#models tbody tr:nth-child(2)').dataset.state"
    act = "#models tbody tr:nth-child(2) button"
    page = tab(server)
    for key in ("plain", "root"):
        page.wait("document.getElementById('key-dialog').open || "
                  "document.querySelector('#models td') !== null")
        if key == "root":
            page.click("#key-open")
        page.js("document.getElementById('key').value = ''")
        page.type("#key", key)
        page.press("Enter")
        page.wait("document.querySelectorAll('#models tbody tr').length === 2")
        page.wait("!document.getElementById('key-dialog').open")
        if key == "plain":
            page.click(act)
            page.wait_text("#models-said", "admin")
            assert page.js(state) == "unloaded"
            page.js("document.getElementById('key-dialog').close()")
    first, second = page.js(rows)
    assert first[:2] == ["one", "ready"] and second[:2] == ["two", "unloaded"]
    assert re.fullmatch(r"\d+(\.\d)? [MG]iB", first[2]) and first[3:] == ["Unload"]
    assert page.js(f"document.querySelector('{act}').getAttribute('aria-label')") == "Load two"
    page.click(act)
    page.wait(f"{state} === 'ready'")
    assert server.get("/v1/models/two").json["state"] == "ready"
    assert page.js("document.getElementById('models-said').textContent") == ""
    page.click(act)
    page.wait(f"{state} === 'unloaded'")
    page.js("document.getElementById('model').value = 'two'")
    page.js("document.getElementById('model').dispatchEvent(new Event('change'))")
    say(page, "2 plus 3?")
    answered(page)
    page.wait(f"{state} === 'ready'")
    assert page.js("document.getElementById('model').value") == "two", "it stays chosen"


def test_a_server_without_a_store_has_no_usage(demo, tab):
    page = tab(demo)
    page.wait_text("#status", "ready")
    page.click("#usage-box summary")
    page.wait_text("#usage-said", demo.get("/v1/usage").error["message"][:30])
    assert page.js("document.getElementById('usage').hidden")


def test_a_lost_server_is_said_and_found_again(start, tab):
    first = start("--served-model-name", "demo")
    page = tab(first)
    page.wait_text("#status", "ready")
    assert first.stop() == 0
    page.wait_text("#notice", "The server does not answer.")
    page.wait_text("#status", "no answer")
    say(page, "Hello")
    page.wait_text(".error", "The server does not answer.")
    with socket.create_server(("127.0.0.1", first.port)) as listener:
        start("--served-model-name", "other", listener=listener)
    page.wait_text("#status", "ready")
    page.wait("document.getElementById('notice').hidden")
    page.wait("document.title === 'other · inferd'")
    page.click(".again")
    page.wait(ENDED + " === 'Regenerate'")


def test_a_stream_that_is_cut_is_said(start, tab, slow_model):
    server = start("--load-format", "dummy", "--threads", 1, model=slow_model, expected_exit=-9)
    page = tab(server, script=ENDLESS)
    say(page, "Count")
    page.wait(WRITES)
    server.process.kill()
    page.wait_text(".error", "The answer was cut")


def hand_over(page, how, *files):
    """Chooses, drops or pastes files as a user does. A browser without a screen has no dialog."""
    made = json.dumps([{"name": name, "type": kind, "text": base64.b64encode(data).decode()}
                       for name, kind, data in files])
    page.js(f"""(() => {{ const held = new DataTransfer();
        for (const {{name, type, text}} of {made})
          held.items.add(new File([Uint8Array.from(atob(text), (c) => c.charCodeAt(0))], name,
                                  {{type}}));
        const input = document.getElementById('picture-file'), options = {{bubbles: true,
          cancelable: true, dataTransfer: held, clipboardData: held}};
        if ('{how}' === 'choose') {{ input.files = held.files;
                                     input.dispatchEvent(new Event('change')); }}
        if ('{how}' === 'drop')
          document.getElementById('chat-form').dispatchEvent(new DragEvent('drop', options));
        if ('{how}' === 'paste')
          document.getElementById('chat-input').dispatchEvent(new ClipboardEvent('paste', options));
      }})()""")


def pills(page, count):
    page.wait(f"document.querySelectorAll('.pill img').length === {count}")


def test_pictures_are_chosen_dropped_and_pasted(seer, tab):
    page = tab(seer, script="window.bodies = []; " + BODIES)
    for count, how in enumerate(("choose", "drop", "paste"), 1):
        hand_over(page, how, ("a.png", "image/png", seeing.png(20 + count, 16)),
                  ("a.txt", "text/plain", b"no picture"))
        pills(page, count)
    page.click(".pill:nth-child(2)")
    pills(page, 2)
    page.type("#f-max_tokens", "3")
    say(page, "What is this?")
    answered(page)
    pills(page, 0)
    shown = page.js("[...document.querySelectorAll('.turn.user img')].map((i) => i.naturalWidth)")
    assert shown == [21, 23] and page.text(".turn.user") == "What is this?"
    content = page.js("JSON.parse(bodies[0]).messages[0].content")
    assert [part.get("text") or part["image_url"]["url"] for part in content] == [
        seeing.url(seeing.png(21, 16)), seeing.url(seeing.png(23, 16)), "What is this?"]
    assert page.text(".error") == "" and seer.metric("inferd_images_total") == 2
    say(page, "And a word?")
    answered(page, 2)
    hand_over(page, "drop", ("a.png", "image/png", seeing.png(20, 16)))
    pills(page, 1)
    page.click("#chat-send")  # a picture alone is a message
    answered(page, 3)
    assert page.text(".error") == "" and seer.metric("inferd_images_total") == 3


def test_a_model_that_sees_nothing_says_so(scripted, tab):
    page = tab(scripted)
    hand_over(page, "drop", ("a.png", "image/png", seeing.png(20, 16)))
    pills(page, 1)
    say(page, "What is this?")
    page.wait_text(".error", "takes text only")


def test_a_narrow_page_is_one_column(scripted, tab):
    page = tab(scripted, width=390, height=844)
    page.wait_text("#status", "ready")
    assert page.js("document.documentElement.scrollWidth") == 390
    assert not page.js("document.getElementById('server-card').checkVisibility()")
    page.click("#side-open")
    assert page.js("document.getElementById('server-card').checkVisibility()")
    page.click("#side-open")
    say(page, "Hello")
    answered(page)
    assert page.js("document.documentElement.scrollWidth") == 390


def test_dark_where_the_system_is_dark(scripted, tab):
    shades = [tab(scripted, dark=dark).js("getComputedStyle(document.body).backgroundColor")
              for dark in (False, True)]
    light, dark = (sum(map(int, re.findall(r"\d+", shade)[:3])) for shade in shades)
    assert light > 600 and dark < 150, shades
