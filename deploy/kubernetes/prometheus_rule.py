#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the rules of deploy/prometheus as one object of the Prometheus operator. The result is in the repository:

  deploy/kubernetes/prometheus_rule.py >deploy/kubernetes/monitoring/rules.yaml
"""

import pathlib
import sys

import yaml

SOURCE = pathlib.Path(__file__).resolve().parents[1] / "prometheus"
FILES = ["recording.yml", "alerts.yml"]


def prometheus_rule():
    groups = []
    for name in FILES:
        groups += yaml.safe_load((SOURCE / name).read_text())["groups"]
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "quire", "labels": {"app.kubernetes.io/name": "quire"}},
        "spec": {"groups": groups},
    }


if __name__ == "__main__":
    print("# SPDX-License-Identifier: Apache-2.0")
    print("# Made by deploy/kubernetes/prometheus_rule.py from deploy/prometheus.")
    yaml.safe_dump(prometheus_rule(), sys.stdout, sort_keys=False, width=110)
