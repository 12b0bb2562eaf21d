# SPDX-License-Identifier: Apache-2.0
"""Reads deploy/prometheus, deploy/grafana and docs/operations.md for the tests of this folder."""

import json
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROMETHEUS = ROOT / "deploy/prometheus"
GRAFANA = ROOT / "deploy/grafana"


def alerts():
    """Returns the names of the alerts in their order."""
    return re.findall(r"^ +- alert: (\w+)$", (PROMETHEUS / "alerts.yml").read_text(), re.M)


def runbooks():
    """Returns the headings below "When an alert fires"."""
    text = (ROOT / "docs/operations.md").read_text()
    section = text.split("\n## When an alert fires\n")[1].split("\n## ")[0]
    return re.findall(r"^### (\w+)$", section, re.M)


def dashboards():
    """Returns the parsed dashboards by file name."""
    return {path.name: json.loads(path.read_text()) for path in sorted(GRAFANA.glob("*.json"))}


def panel_queries():
    """Returns (dashboard / panel, expression) of every target."""
    return [(f"{name} / {panel['title']}", target["expr"])
            for name, dashboard in dashboards().items()
            for panel in dashboard["panels"]
            for target in panel["targets"]]


def selectors(expression):
    """Returns the series that an expression selects, without ranges: ["up{job=...}", ...]."""
    return re.findall(r"\b(?:(?:quire|process|vllm)[:_][\w:]*|up\b|ALERTS\b)(?:\{[^}]*\})?", expression)
