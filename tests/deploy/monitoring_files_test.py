# SPDX-License-Identifier: Apache-2.0
"""Every alert has a runbook and fires in a test. The dashboards are valid, and promtool accepts the rules."""

import itertools
import re
import shutil
import subprocess
import unittest

import monitoring_files as files


class AlertTest(unittest.TestCase):
    def test_there_are_alerts_and_no_two_bear_one_name(self):
        alerts = files.alerts()
        self.assertGreaterEqual(len(alerts), 12)
        self.assertEqual(len(set(alerts)), len(alerts))

    def test_each_has_a_runbook_and_each_runbook_an_alert(self):
        self.assertEqual(sorted(files.runbooks()), sorted(files.alerts()))

    def test_each_points_to_its_runbook_and_has_a_severity(self):
        text = (files.PROMETHEUS / "alerts.yml").read_text()
        for alert, rule in zip(files.alerts(), text.split("- alert: ")[1:]):
            self.assertIn(f"runbook_url: docs/operations.md#{alert.lower()}\n", rule)
            self.assertRegex(rule, r"severity: (page|ticket)\b", alert)

    def test_each_fires_in_a_test_and_is_quiet_on_healthy_data(self):
        tests = (files.PROMETHEUS / "alerts_test.yml").read_text().split("\n  - name: ")[1:]
        for alert in files.alerts():
            fires = rf"alertname: {alert}\n        exp_alerts:\n          - exp_labels"
            self.assertTrue(any(re.search(fires, test) for test in tests), f"{alert} fires in no test")
            for test in tests[:2]:
                self.assertIn(f"{{eval_time: 45m, alertname: {alert}}}", test)

    def test_promtool_runs_the_rules(self):
        if shutil.which("promtool") is None:
            self.skipTest("promtool is not installed")
        for command in (["check", "config", "prometheus.yml"], ["test", "rules", "alerts_test.yml"]):
            done = subprocess.run(["promtool", *command], cwd=files.PROMETHEUS, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class DashboardTest(unittest.TestCase):
    def test_there_are_five(self):
        names = ["blocks.json", "gateway.json", "reliability.json", "service.json", "workers.json"]
        self.assertEqual(list(files.dashboards()), names)

    def test_panels_have_a_name_a_sentence_and_queries(self):
        for name, dashboard in files.dashboards().items():
            panels = dashboard["panels"]
            self.assertEqual(len({panel["id"] for panel in panels}), len(panels), name)
            for panel in panels:
                self.assertTrue(panel["title"] and panel["description"].endswith("."), f"{name}: {panel['title']}")
                self.assertEqual(panel["datasource"]["uid"], "${datasource}", panel["title"])
                self.assertTrue(panel["targets"], panel["title"])

    def test_panels_lie_beside_each_other(self):
        for name, dashboard in files.dashboards().items():
            taken = {}
            for panel in dashboard["panels"]:
                grid = panel["gridPos"]
                self.assertLessEqual(grid["x"] + grid["w"], 24, panel["title"])
                for cell in itertools.product(range(grid["x"], grid["x"] + grid["w"]),
                                              range(grid["y"], grid["y"] + grid["h"])):
                    self.assertFalse(cell in taken, f"{name}: {panel['title']} lies on {taken.get(cell)}")
                    taken[cell] = panel["title"]

    def test_queries_ask_for_metrics_of_the_reference_or_recorded_ones(self):
        known = set(re.findall(r"^\| `([\w:]+)`", (files.ROOT / "docs/metrics.md").read_text(), re.M))
        known |= set(re.findall(r"^\| `([\w:]+)`", (files.ROOT / "docs/openai.md").read_text(), re.M))
        known |= set(re.findall(r"- record: ([\w:]+)", (files.PROMETHEUS / "recording.yml").read_text()))
        known |= {"up", "ALERTS"}
        rules = (files.PROMETHEUS / "recording.yml").read_text() + (files.PROMETHEUS / "alerts.yml").read_text()
        expressions = re.findall(r"^ +expr: *>?((?:.|\n)*?)(?=\n +(?:- |for:|labels:)|\Z)", rules, re.M)
        for expression in expressions + [query for _, query in files.panel_queries()]:
            self.assertTrue(files.selectors(expression), expression)
            for selector in files.selectors(expression):
                name = re.sub(r"_(bucket|sum|count)$", "", selector.split("{")[0])
                self.assertTrue(name in known, f"{expression}: there is no {name}")


if __name__ == "__main__":
    unittest.main()
