"""The alert rules and the dashboard that are shipped, by Prometheus' own programs."""

import json
import re
import urllib.parse
import urllib.request
from pathlib import Path

from conftest import ROOT
from harness import DEMO, Stream, wait_until
from ports import free_port

MONITORING = ROOT / "config/monitoring"
ALERTS_TEST = Path(__file__).parent / "alerts_test.yml"


def test_alerts_fire_and_stay_silent(launch):
    for arguments in (("check", "rules", MONITORING / "alerts.yml"),
                      ("test", "rules", ALERTS_TEST)):
        process = launch("promtool", *arguments)
        assert process.wait(60) == 0, arguments


def test_every_alert_has_both_tests():
    named = re.findall(r"- alert: (\w+)", (MONITORING / "alerts.yml").read_text())
    text = ALERTS_TEST.read_text()
    fires = re.findall(r"alertname: (\w+)\n +exp_alerts:\n", text)
    silent = re.findall(r"alertname: (\w+), exp_alerts: \[\]", text)
    assert sorted(fires) == sorted(named) and set(silent) == set(named)


def expressions():
    """(panel, expression) of the dashboard, with its variables as Grafana fills them in."""
    board = json.loads((MONITORING / "dashboard.json").read_text())
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], re.sub(r"\$(job|instance)", ".*", target["expr"].replace(
                "$__rate_interval", "30s"))


def test_every_panel_shows_data(start, launch, tmp_path):
    """A Prometheus scrapes a busy server; each expression of the dashboard returns data, and no
    alert of a healthy server is pending."""
    keys = tmp_path / "keys"
    keys.write_text("sk-a team-a\n")
    keys.chmod(0o600)
    server = start(DEMO, "--api-key-file", keys, key="sk-a")
    port = free_port()
    (tmp_path / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
        f"rule_files: ['{MONITORING}/alerts.yml']\n"
        "scrape_configs: [{job_name: inferd, static_configs: "
        f"[{{targets: ['127.0.0.1:{server.port}']}}]}}]\n")
    launch("prometheus", f"--config.file={tmp_path}/prometheus.yml",
           f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address=127.0.0.1:{port}")

    def ask(path, **query):
        url = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)["data"]

    def up():
        try:
            return ask("query", query="up")["result"]
        except OSError:
            return False

    wait_until(up, "Prometheus", 60)
    server.complete("Once upon a time, " * 20, max_tokens=3)

    def empty():
        """Panels without data, after some more traffic."""
        server.complete("Once upon a time, " * 20, max_tokens=20, ignore_eos=True)
        server.post("/v1/completions", {})
        Stream(server, {"prompt": "Once", "max_tokens": 5, "ignore_eos": True}).chunks()
        found = []
        for panel, expression in expressions():
            result = ask("query", query=expression)["result"]
            if not [row for row in result if row["value"][1] != "NaN"]:
                found.append((panel, expression))
        return found

    wait_until(lambda: not empty(), "data in every panel", 60, empty)
    assert ask("alerts")["alerts"] == []
