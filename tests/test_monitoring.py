"""The dashboard and the alert rules of deploy/, against the metrics that there are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.server.metrics import FAMILIES
from pipelines.settings import loading

pytestmark = pytest.mark.fast

ROOT = Path(__file__).parent.parent
RULES = ROOT / "deploy" / "prometheus" / "headroom-rules.yaml"
DASHBOARD = ROOT / "deploy" / "grafana" / "headroom.json"
COMPONENT = ROOT / "deploy" / "kustomize" / "components" / "metrics"
OWN = {"up": ("job", "instance")}
"""Metrics of Prometheus itself, and the labels that it adds to every other."""
FUNCTIONS = {"absent", "max", "min", "sum", "rate", "increase", "time"}
GROUPING = {"by", "without", "on", "ignoring", "group_left", "group_right"}
OPERATORS = {"and", "or", "unless", "bool", "offset"}
TOKEN = re.compile(
    r"""(?P<string>"(?:[^"\\]|\\.)*")
      | (?P<range>\[(?:\d+[smhdwy]|\$__rate_interval)\])
      | (?P<number>\d+(?:\.\d+)?)
      | (?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)
      | (?P<sign>==|!=|>=|<=|=~|!~|[-+*/%^<>=(){},])
      | (?P<blank>\s+)""",
    re.VERBOSE,
)


def tokens(expression: str) -> list[tuple[str, str]]:
    """Kind and text of each token; what is no token of PromQL fails."""
    found, at = [], 0
    while at < len(expression):
        one = TOKEN.match(expression, at)
        assert one is not None, f"{expression!r}: cannot be read at {expression[at:]!r}"
        if one.lastgroup != "blank":
            found.append((str(one.lastgroup), one.group()))
        at = one.end()
    return found


def used(expression: str) -> tuple[set[str], set[str]]:
    """Metrics and labels of a PromQL expression. Brackets must be balanced, and functions known."""
    metrics: set[str] = set()
    labels: set[str] = set()
    open_brackets: list[str] = []
    """`{` of a selector, `g(` of a list of labels, `(` of anything else."""
    before = ""
    for kind, text in tokens(expression):
        inside = open_brackets[-1] if open_brackets else ""
        if text in ("(", "{"):
            open_brackets.append(f"g{text}" if before in GROUPING else text)
        elif text in (")", "}"):
            assert open_brackets, expression
            assert open_brackets.pop().endswith({")": "(", "}": "{"}[text]), expression
        elif kind == "name" and inside in ("{", "g("):
            labels.add(text)
        elif kind == "name" and text not in GROUPING | OPERATORS | FUNCTIONS:
            metrics.add(text)
        if text == "(" and before and before not in GROUPING | OPERATORS:
            assert before in FUNCTIONS or not re.fullmatch(r"[a-z_]+", before), f"{before} is no function"
        before = text
    assert open_brackets == [], expression
    return metrics, labels


def labels_of(metrics: set[str]) -> set[str]:
    """The labels of any of these metrics, and those that Prometheus adds."""
    own = {label for labels in OWN.values() for label in labels}
    return own | {label for name in metrics if name in FAMILIES for label in FAMILIES[name].labels}


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    assert group["name"] == "headroom"
    return list(group["rules"])


def panels() -> list[dict[str, Any]]:
    return list(json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"])


def expressions() -> Iterator[tuple[str, str, str]]:
    """Of rules and panels: name, expression, and the texts that name labels of its result."""
    for rule in rules():
        yield rule["alert"], rule["expr"], json.dumps(rule["annotations"])
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"], target["legendFormat"]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('max by (kind) (a_b{c=~"x(y",d="}"}) > 3 * e_f', ({"a_b", "e_f"}, {"kind", "c", "d"})),
        ("time() - a > 86400 or rate(b[30m]) < ignoring (kind) group_left () c", ({"a", "b", "c"}, {"kind"})),
        ("rate(a_total[$__rate_interval]) unless on (job) b == 0", ({"a_total", "b"}, {"job"})),
    ],
)
def test_the_metrics_and_labels_of_an_expression_are_found(
    expression: str, expected: tuple[set[str], set[str]]
) -> None:
    assert used(expression) == expected


@pytest.mark.parametrize("expression", ["max(a", "a)", "maximum(a)", "a ? b", "(a}"])
def test_an_expression_that_cannot_be_right_is_noticed(expression: str) -> None:
    with pytest.raises(AssertionError):
        used(expression)


@pytest.mark.parametrize(("name", "expression", "texts"), list(expressions()))
def test_every_metric_and_label_that_is_used_is_exported(name: str, expression: str, texts: str) -> None:
    metrics, labels = used(expression)
    assert metrics
    assert metrics <= FAMILIES.keys() | OWN.keys(), name
    assert labels <= labels_of(metrics), name
    shown = set(re.findall(r"\$labels\.(\w+)|\{\{(\w+)\}\}", texts))
    assert {label for pair in shown for label in pair if label} <= labels_of(metrics), name


def test_every_alert_says_what_it_is_and_what_to_do() -> None:
    found = rules()
    names = [rule["alert"] for rule in found]
    assert len(names) == len(set(names))
    for rule in found:
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"Headroom[A-Za-z]+", rule["alert"])
        assert re.fullmatch(r"[0-9]+[mhd]", rule.get("for", "0m"))
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert rule["annotations"].keys() == {"summary", "description"}


def test_there_is_an_alert_for_what_must_not_go_unnoticed() -> None:
    wanted = "PromiseAtRisk LagBeyondTarget LoopStandsStill ModelProvisional ModelOld Alarm ScrapeMissing"
    assert {f"Headroom{name}" for name in wanted.split()} <= {rule["alert"] for rule in rules()}


def test_the_dashboard_shows_every_metric_in_panels_that_do_not_overlap() -> None:
    shown = {name for panel in panels() for one in panel["targets"] for name in used(one["expr"])[0]}
    assert FAMILIES.keys() == shown
    assert len({panel["id"] for panel in panels()}) == len(panels())
    cells: set[tuple[int, int]] = set()
    for at in (panel["gridPos"] for panel in panels()):
        own = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not own & cells
        assert max(x for x, _ in own) < 24
        cells |= own


def test_the_variables_of_the_dashboard_are_declared() -> None:
    text = DASHBOARD.read_text(encoding="utf-8")
    declared = {one["name"] for one in json.loads(text)["templating"]["list"]}
    assert set(re.findall(r"\$\{?([a-z]+)\b", text)) == declared
    listed = re.findall(r"label_values\((\w+), (\w+)\)", text)
    assert listed
    assert all(label in FAMILIES[name].labels for name, label in listed)


def test_the_page_explains_every_metric_with_its_labels() -> None:
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.+?`) \| (.*?) ?\| .+ \|$", text, re.MULTILINE)
    found = {}
    for names, labels in rows:
        for name in re.findall(r"`([a-z_]+)`", names):
            found[f"headroom_job_{name}"] = tuple(re.findall(r"`([a-z]+)`", labels))
    assert found == {name: family.labels[1:] for name, family in FAMILIES.items()}


def test_the_port_of_the_component_is_the_one_that_is_opened_and_let_through() -> None:
    def read(name: str) -> dict[str, Any]:
        found: dict[str, Any] = yaml.safe_load((COMPONENT / name).read_text(encoding="utf-8"))
        return found

    about = read("kustomization.yaml")
    assert about["kind"] == "Component"
    assert all((COMPONENT / name).exists() for name in about["resources"])
    patched = [read(one["path"]) for one in about["patches"]]
    base = (ROOT / "deploy/kustomize/base/owner.yaml").read_text(encoding="utf-8")
    there = {(one["kind"], one["metadata"]["name"]) for one in yaml.safe_load_all(base)}
    assert {(one["kind"], one["metadata"]["name"]) for one in patched} <= there
    owner, service = patched
    (container,) = owner["spec"]["template"]["spec"]["containers"]
    environment = {one["name"]: one["value"] for one in container["env"]}
    web = loading.parse("[web]\nport = 8473\n", environment=environment).web
    assert web.metrics_token_from == "METRICS_TOKEN"
    assert web.metrics_port == container["ports"][0]["containerPort"] == service["spec"]["ports"][0]["port"]
    policy = read("network.yaml")["spec"]
    assert policy["policyTypes"] == ["Ingress"]
    assert [one["port"] for rule in policy["ingress"] for one in rule["ports"]] == [web.metrics_port]
    assert "9464" in (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
