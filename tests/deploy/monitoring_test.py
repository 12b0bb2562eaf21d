# SPDX-License-Identifier: Apache-2.0
"""Starts a manager, a worker, a gateway, a second manager with a group of simulated ranks, and a Prometheus server with
deploy/prometheus. Sends load, and queries the server for every panel of deploy/grafana and every rule. Each must have a
value. The argument is the folder of our programs."""

import contextlib
import json
import math
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import monitoring_files as files

sys.path.insert(0, str(files.ROOT / "tests"))
from programs import Program, start  # noqa: E402

SKIPPED = 77
MAX_LOAD_SECONDS = 120  # Five are enough on a machine that is not busy.
CLIENTS = 3
# The metrics that inference gateways read.
PICKER_METRICS = ["vllm:num_requests_waiting", "vllm:num_requests_running", "vllm:kv_cache_usage_perc",
                  'vllm:cache_config_info{block_size="16", num_gpu_blocks="64"}']


def self_signed(folder, name):
    """Makes a certificate for `name` that is valid for a month, with its key beside it. Returns its path."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                    "-days", "30", "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}",
                    "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.crt"],
                   check=True, capture_output=True)
    return folder / f"{name}.crt"


def configure(folder, manager_ports, worker_ports, gateway_port):
    """Copies deploy/prometheus to `folder`, with these ports, and with intervals of one second."""
    def targets(ports):
        return ", ".join(f'"127.0.0.1:{port}"' for port in ports)

    shutil.copytree(files.PROMETHEUS, folder)
    config = folder / "prometheus.yml"
    text = config.read_text()
    for old, new in [('"127.0.0.1:9460"', targets(manager_ports)), ('"127.0.0.1:9461"', targets(worker_ports)),
                     ('"127.0.0.1:8000"', targets([gateway_port])), ("scrape_interval: 5s", "scrape_interval: 1s"),
                     ("evaluation_interval: 15s", "evaluation_interval: 1s")]:
        assert text.count(old) == 1, f"prometheus.yml has {text.count(old)} times {old}"
        text = text.replace(old, new)
    config.write_text(text)
    for rules in folder.glob("*.yml"):
        assert "interval: " not in rules.read_text() or rules.name in ("prometheus.yml", "alerts_test.yml"), rules


class Prometheus:
    def __init__(self, stack, folder):
        server = Program(stack, ["prometheus", f"--config.file={folder}/prometheus.yml",
                                 f"--storage.tsdb.path={folder}/data", "--web.listen-address=127.0.0.1:0"],
                         "(Server is ready)")
        port = re.search(r'"Listening on" address=127[.]0[.]0[.]1:([1-9]\d*)', "".join(server.printed)).group(1)
        self.url = f"http://127.0.0.1:{port}/api/v1/"
        self.begin = time.time()

    def ask(self, path, **parameters):
        try:
            url = self.url + path + "?" + urllib.parse.urlencode(parameters)
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            return {"error": json.load(error)["error"]}

    def why_empty(self, expression):
        """Returns an error text if the expression fails or has had no value so far, and None otherwise."""
        data = self.ask("query_range", query=expression, start=self.begin, end=time.time(), step="1")
        if "error" in data:
            return data["error"]
        values = [float(value) for series in data["result"] for _, value in series["values"]]
        return None if any(map(math.isfinite, values)) else f"no value, {len(values)} that are no number"


def load(quirectl, done, failures):
    """Sends requests of all kinds in turns: long shared prompts, samples, beams, and tenants."""
    kinds = [["--output-tokens=60"], ["--output-tokens=40", "--n=3"], ["--output-tokens=24", "--beams=3"],
             ["--output-tokens=40", "--tenant=blue"]]
    i = 0
    while not done.is_set():
        ended = subprocess.run(quirectl + ["bench", "--requests=2", "--rate=50", "--shared-prefix-tokens=60",
                                           "--input-tokens=4..12", f"--seed={i % 5}", *kinds[i % len(kinds)]],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        if ended.returncode != 0:
            failures.append(f"quirectl bench: {ended.stderr}")
        i += 1


def load_gateway(port, done, failures):
    """Asks the gateway for streams."""
    body = json.dumps({"prompt": "Once upon a time", "max_tokens": 8, "stream": True}).encode()
    while not done.is_set():
        try:
            request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", body)
            with urllib.request.urlopen(request, timeout=60) as answer:
                answer.read()
        except OSError as error:
            failures.append(f"the gateway: {error}")
        done.wait(0.1)


def complaints(prometheus):
    for name, expression in files.panel_queries():
        query = expression.replace("$instance", ".*").replace("$__rate_interval", "5s")
        why = prometheus.why_empty(query)
        if why:
            yield f"panel {name}: {query}: {why}"
    for group in prometheus.ask("rules")["groups"]:
        for rule in group["rules"]:
            if rule["health"] != "ok":
                yield f"rule {rule['name']}: {rule['health']} {rule.get('lastError')}"
            is_alert = rule["type"] == "alerting"
            if is_alert and any(alert["state"] == "firing" for alert in rule["alerts"]):
                yield f"alert {rule['name']} fires: {rule['alerts']}"
            # A quiet alert has no value, but the series that it looks at must have one.
            for expression in files.selectors(rule["query"]) if is_alert else [rule["query"], rule["name"]]:
                if expression.startswith("quire_openai_") and "code=" in expression:
                    continue  # There are no such answers; e2e/openai_test.py looks at them.
                why = prometheus.why_empty(expression)
                if why:
                    yield f"rule {rule['name']}: {expression}: {why}"
    for expression in PICKER_METRICS:
        why = prometheus.why_empty(expression)
        if why:
            yield f"{expression}: {why}"


def start_etcd(stack, folder):
    """Starts an etcd of one member, for the metrics of a manager with a standby. Returns its port."""
    any_port = "http://127.0.0.1:0"
    # The line has the address at its end in etcd 3.5, and before these words in 3.4.
    return start(stack, ["etcd", f"--data-dir={folder}/etcd", "--unsafe-no-fsync", f"--listen-client-urls={any_port}",
                         f"--advertise-client-urls={any_port}", f"--listen-peer-urls={any_port}",
                         f"--initial-advertise-peer-urls={any_port}", f"--initial-cluster=default={any_port}"],
                 r"(?=.*strongly discouraged).*127\.0\.0\.1:(\d+)")


def main():
    programs = pathlib.Path(sys.argv[1])
    for program in ("prometheus", "openssl", "etcd"):
        if shutil.which(program) is None:
            print(f"skipped: {program} is not installed")
            return SKIPPED
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        worker_port = start(stack, [programs / "quire-worker", f"--model={files.ROOT}/models/tales",
                                    f"--listen=unix:{folder}/worker", "--metrics-listen=127.0.0.1:0", "--threads=1",
                                    "--num-blocks=64", "--swap-bytes=1MiB"], r"metrics on port (\d+)")
        certificate = self_signed(folder, "manager")
        (folder / "tenants.yaml").write_text('"*": {weight: 1}\n', encoding="utf-8")
        manager_port = start(stack, [programs / "quire-manager", f"--workers=unix:{folder}/worker",
                                     f"--listen=unix:{folder}/manager", "--metrics-listen=127.0.0.1:0",
                                     f"--tls-cert={certificate}", f"--tls-key={folder}/manager.key",
                                     f"--tenants={folder}/tenants.yaml", "--standby=etcd",
                                     f"--etcd=127.0.0.1:{start_etcd(stack, folder)}"],
                             r"metrics on port (\d+)")
        gateway_port = start(stack, [programs / "quire-openai", f"--manager=unix:{folder}/manager",
                                     "--listen=127.0.0.1:0", f"--manager-tls-ca={certificate}",
                                     "--manager-name=manager"], r"listening on 127\.0\.0\.1:(\d+)")
        ranks_port = start(stack, [programs / "quire-worker", f"--model={files.ROOT}/models/tales",
                                   "--device=simulated", "--tp=2", f"--listen=unix:{folder}/ranks",
                                   "--metrics-listen=127.0.0.1:0"],
                           r"metrics on port (\d+)")
        group_port = start(stack, [programs / "quire-manager", f"--workers=unix:{folder}/ranks",
                                   f"--listen=unix:{folder}/group", "--metrics-listen=127.0.0.1:0"],
                           r"metrics on port (\d+)")
        configure(folder / "prometheus", [manager_port, group_port], [worker_port, ranks_port], gateway_port)
        prometheus = Prometheus(stack, folder / "prometheus")
        quirectl = [programs / "quirectl", "--endpoint", f"unix:{folder}/manager", "--tls-ca", certificate,
                    "--tls-name", "manager"]
        done = threading.Event()
        failures = []
        clients = [threading.Thread(target=load, args=(quirectl, done, failures)) for _ in range(CLIENTS)]
        clients.append(threading.Thread(target=load_gateway, args=(gateway_port, done, failures)))
        for client in clients:
            client.start()
        found = ["not asked"]
        while found and time.time() < prometheus.begin + MAX_LOAD_SECONDS:
            time.sleep(2)
            found = list(complaints(prometheus))
        done.set()
        for client in clients:
            client.join()
        found += failures
        num_rules = sum(len(group["rules"]) for group in prometheus.ask("rules")["groups"])
    print("\n".join(found))
    print(f"{len(files.panel_queries())} queries of panels and {num_rules} rules, {len(found)} are dead")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
