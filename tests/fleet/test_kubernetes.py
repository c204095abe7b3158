"""The Helm chart: rendered by helm, its objects against the schemas of Kubernetes, arguments and
probes of its pods by a server that is started with them.

kubernetes-validate has the schemas of Kubernetes itself. PodMonitor and ScaledObject are of other
projects: for them the test knows the few fields that the chart uses.
"""

import json
import re
import subprocess

import pytest

from conftest import ROOT
from harness import DEMO

CHART = ROOT / "config/kubernetes/chart"
MANIFESTS = ROOT / "config/kubernetes/inferd.yaml"
PROGRAMS = ROOT / "build/venv-fleet/bin"
HELM = PROGRAMS / "helm"
VERSIONS = ["1.27", "1.34"]
VARIANTS = {
    "default": {},
    "gpu": {"gpu": 1, "maxSurge": 0, "modelVolume.claimName": "models", "model": "/models/llama",
            "servedModelName": "llama", "nodeSelector.gpu": "yes", "podMonitor.enabled": "true",
            "autoscaling.kind": "keda", "apiKeySecret": "keys"},
    "pull": {"pull.enabled": "true", "pull.claimName": "cache", "pull.tokenSecret": "hub",
             "model": "ORG/NAME", "autoscaling.kind": "hpa", "kvEvents.enabled": "true",
             "args[0]": "--max-model-len=4096"},
}
OF_OTHERS = {
    "PodMonitor": {"selector", "podMetricsEndpoints"},
    "ScaledObject": {"scaleTargetRef", "minReplicaCount", "maxReplicaCount", "cooldownPeriod",
                     "triggers"},
}


def helm(*words):
    done = subprocess.run([HELM, *words], text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def render(values):
    options = [word for name, value in values.items() for word in ("--set", f"{name}={value}")]
    return helm("template", "inferd", CHART, "--namespace", "llm", *options)


def objects(values):
    """The objects by kind; the environment of the fleet's tools reads YAML."""
    script = "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(sys.stdin))))"
    done = subprocess.run([PROGRAMS / "python", "-c", script], input=render(values), text=True,
                          check=True, stdout=subprocess.PIPE)
    return {each["kind"]: each for each in json.loads(done.stdout) if each}


def validate(each, version):
    script = ("import json, sys, kubernetes_validate as k\n"
              "k.validate(json.load(sys.stdin), sys.argv[1], strict=True)")
    done = subprocess.run([PROGRAMS / "python", "-c", script, version], input=json.dumps(each),
                          text=True, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_lint():
    for values in VARIANTS.values():
        options = [word for name, value in values.items() for word in ("--set", f"{name}={value}")]
        helm("lint", "--strict", CHART, *options)


def test_the_manifests_are_the_chart_with_its_defaults():
    text = "".join(line for line in render({}).splitlines(True) if not line.startswith("# Source"))
    have = "".join(line for line in MANIFESTS.read_text().splitlines(True)
                   if not line.startswith("# "))
    assert have == "".join(line for line in text.splitlines(True) if not line.startswith("# ")), (
        "helm template inferd config/kubernetes/chart --namespace llm")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_objects_fit_the_schemas(variant, version):
    found = objects(VARIANTS[variant])
    assert {"Deployment", "Service", "PodDisruptionBudget"} <= set(found)
    for kind, each in found.items():
        if kind in OF_OTHERS:
            assert set(each["spec"]) <= OF_OTHERS[kind]
        else:
            validate(each, version)


def test_a_wrong_value_is_refused():
    done = subprocess.run([HELM, "template", "inferd", CHART, "--set", "autoscaling.kind=vpa"],
                          text=True, capture_output=True)
    assert done.returncode != 0 and "none, hpa or keda" in done.stderr


def test_the_times_of_a_rollout_fit():
    pod = objects({})["Deployment"]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    seconds = {name: int(re.search(rf"--{name}=(\d+)s", " ".join(container["args"]))[1])
               for name in ("drain-delay", "drain-timeout")}
    assert sum(seconds.values()) + 2 <= pod["terminationGracePeriodSeconds"]
    probe = container["readinessProbe"]
    assert seconds["drain-delay"] > probe["periodSeconds"] * probe["failureThreshold"]
    assert pod["enableServiceLinks"] is False, "a Service called inferd would set INFERD_PORT"


@pytest.mark.parametrize("variant", VARIANTS)
def test_pods_start_with_their_arguments(start, variant, tmp_path):
    """The arguments of the container, with paths and addresses of this machine."""
    keys = tmp_path / "keys"
    keys.write_text("sk-secret\n")
    keys.chmod(0o440)
    container = objects(VARIANTS[variant])["Deployment"]["spec"]["template"]["spec"][
        "containers"][0]
    arguments = []
    for word in container["args"][2:]:
        word = word.replace("/etc/inferd/keys", str(keys)).replace("$(POD_IP)", "10.0.0.1")
        word = re.sub(r"=tcp://\*:(\d+)", rf"=ipc://{tmp_path}/\1", word)
        if not word.startswith(("--host", "--port")):
            arguments.append(word)
    server = start(DEMO, *arguments, "--drain-delay", "0s", host="0.0.0.0",
                   key="sk-secret" if "apiKeySecret" in VARIANTS[variant] else None)
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert server.get(container[probe]["httpGet"]["path"]).status == 200
    assert server.complete("Once", max_tokens=2)


def test_the_autoscaler_reads_a_metric_that_is_there(start):
    server = start(DEMO)
    page = server.get("/metrics").body.decode()
    query = objects(VARIANTS["gpu"])["ScaledObject"]["spec"]["triggers"][0]["metadata"]["query"]
    hpa = objects(VARIANTS["pull"])["HorizontalPodAutoscaler"]["spec"]["metrics"][0]["pods"]
    assert "vllm:num_requests_waiting{" in query
    assert hpa["metric"]["name"] == "vllm_num_requests_waiting"
    assert re.search(r"^vllm:num_requests_waiting\{", page, re.MULTILINE)
