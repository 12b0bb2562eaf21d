#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the Kubernetes objects fit each other and the programs they start. `kubectl apply` does not check this.

  check.py [--programs DIRECTORY] [KUSTOMIZATION ...]
  check.py --print-commands [KUSTOMIZATION ...]

Renders each kustomization (by default every overlay) together with monitoring and autoscaling. Prints a line for each
mistake: the kustomization, the kind of mistake, the object, and what is wrong. The exit code is 1 if there is a
mistake, and 77 if kubectl or PyYAML is missing. The flags of containers are compared with --help of the programs in
DIRECTORY. With --print-commands it checks nothing and prints the command of each container.
"""

import argparse
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

try:
    import yaml
except ImportError:
    yaml = None

HERE = pathlib.Path(__file__).resolve().parent
OVERLAYS = [
    "overlays/cpu-dev", "overlays/single-node", "overlays/multi-gpu", "overlays/two-managers", "overlays/insecure",
    "overlays/by-name", "overlays/ranks", "overlays/ranks-on-nodes"
]
# These are applied beside any of the overlays.
ADDITIONS = ["certificates", "gateway", "monitoring", "autoscaling/hpa", "autoscaling/keda"]
# The autoscalers are for the StatefulSet, which this overlay does not have.
WITHOUT_AUTOSCALING = ("overlays/ranks-on-nodes",)
# Pods that people start and delete by hand. They are only rendered.
TOOLS = ["model-loader"]
SKIPPED = 77

PROGRAMS = ("quire-manager", "quire-openai", "quire-worker")
# What init containers start.
FIRST_PROGRAMS = ("quire-download",)
WORKLOADS = ("Deployment", "StatefulSet", "LeaderWorkerSet")
# The controller of LeaderWorkerSets gives pods these labels.
GROUP_INDEX, WORKER_INDEX = (f"leaderworkerset.sigs.k8s.io/{what}-index" for what in ("group", "worker"))
FILE_FLAGS = {"--model", "--gpu-tuning-cache", "--resume-key-file"} | {
    f"--{whose}tls-{what}" for whose in ("", "manager-", "worker-") for what in ("cert", "key", "ca")
}
# The secrets that no Certificate makes. README.md says how the operator makes them.
OWN_SECRETS = ("quire-resume-key",)
HEALTH_SERVICES = ("", "liveness", "readiness")
# The time that a process needs to exit after its drain timeout.
EXIT_MARGIN_S = 5
# Twice the manager's interval for looking up workers, because a DNS answer may be as old as the interval.
DISCOVERY_S = 10


class Kubernetes:
    """The objects of one deployment, with the queries that the checks need."""

    def __init__(self, objects):
        self.objects = objects
        self.workloads = self.of_kind(*WORKLOADS)

    def of_kind(self, *kinds):
        return [o for o in self.objects if o["kind"] in kinds]

    def named(self, kind, name):
        return next((o for o in self.of_kind(kind) if o["metadata"]["name"] == name), None)

    def certificate_of(self, secret):
        return next((c for c in self.of_kind("Certificate") if c["spec"]["secretName"] == secret), None)

    def selected(self, labels):
        """Returns the workloads whose pods a selector's matchLabels choose."""
        return [w for w in self.workloads if matches(labels, pod_labels(w))]


def name_of(thing):
    return f"{thing['kind']}/{thing['metadata']['name']}"


def matches(selector, labels):
    return all(labels.get(key) == value for key, value in (selector or {}).items())


def template_of(workload):
    if workload["kind"] == "LeaderWorkerSet":
        return workload["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    return workload["spec"]["template"]


def pod_labels(workload):
    """Returns the labels of the pods, and in a LeaderWorkerSet those of the first pod of a group."""
    labels = template_of(workload)["metadata"].get("labels", {})
    return labels | {WORKER_INDEX: "0"} if workload["kind"] == "LeaderWorkerSet" else labels


def pod_spec(workload):
    return template_of(workload)["spec"]


def containers(workload):
    return pod_spec(workload)["containers"]


def first_containers(workload):
    return pod_spec(workload).get("initContainers", [])


def environment_of(container):
    return {variable["name"]: variable.get("value") for variable in container.get("env", [])}


def label_variables_of(container):
    """Returns the labels that variables have as their values."""
    paths = {variable["name"]: variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
             for variable in container.get("env", [])}
    return {name: path[len("metadata.labels['"):-2] for name, path in paths.items() if path.startswith("metadata.lab")}


def ranges_of(workload):
    """Returns the ranges of ports that UCX may take, each as its first and its last port."""
    ranges = [environment_of(container).get("UCX_TCP_PORT_RANGE") for container in containers(workload)]
    return [tuple(int(port) for port in text.split("-")) for text in ranges if text]


def rank_ports(container):
    """Returns the ports of the ranks of a worker, or the one port of a worker without ranks."""
    flags = flags_of(container)
    hosts = [host for host in flags.get("--tp-hosts", "").split(",") if host]
    first = int((flags.get("--listen") or ":0").rpartition(":")[2])
    return [first + rank for rank in range(int(flags.get("--tp", 1)) // max(len(hosts), 1))]


def ports_of(workload):
    """Returns the names and the numbers of all ports."""
    ports = set()
    for container in containers(workload):
        for port in container.get("ports", []):
            ports |= {port["containerPort"], port.get("name")}
    return ports - {None}


def flags_of(container):
    """Returns the flags as a dictionary. A flag without a value has None."""
    flags = {}
    for arg in container.get("args", []):
        name, _, value = arg.partition("=")
        flags[name] = value if "=" in arg else None
    return flags


def seconds(text):
    """Returns the seconds of a duration in the form that absl reads: 1m30s."""
    units = {"h": 3600, "m": 60, "s": 1, "ms": 0.001}
    parts = re.findall(r"([0-9.]+)(ms|h|m|s)", text)
    return sum(float(number) * units[unit] for number, unit in parts)


def flags_in_help(program):
    """Returns the flags of one of our programs and their defaults."""
    text = subprocess.run([program, "--help"], check=True, capture_output=True, text=True, timeout=30).stdout
    return dict(re.findall(r"^  (?:-\w,)?(--[a-z0-9-]+)(?:=(\S*))?", text, re.MULTILINE))


def asked(probe):
    """Returns port and service of a gRPC health probe. Returns None for other probes."""
    if "grpc" not in probe:
        return None
    return probe["grpc"]["port"], probe["grpc"].get("service", "")


# Each check yields (object, what is wrong).


def check_selectors(k8s, _programs):
    for workload in k8s.workloads:
        if workload["kind"] == "LeaderWorkerSet":  # Its controller knows its pods by other labels.
            continue
        selector = workload["spec"]["selector"]["matchLabels"]
        if not matches(selector, pod_labels(workload)):
            yield workload, f"its selector {selector} does not choose its own pods, {pod_labels(workload)}"
        for other in k8s.selected(selector):
            if other is not workload:
                yield workload, f"its selector chooses the pods of {name_of(other)} too"


def check_services(k8s, _programs):
    for service in k8s.of_kind("Service"):
        targets = k8s.selected(service["spec"]["selector"])
        if len(targets) != 1:
            yield service, f"its selector chooses {len(targets)} workloads, it must be 1"
        for port in service["spec"]["ports"]:
            target = port.get("targetPort", port["port"])
            for workload in targets:
                if target not in ports_of(workload):
                    yield service, f"its target port {target} is none of {name_of(workload)}"
    for workload in k8s.of_kind("StatefulSet"):
        service = k8s.named("Service", workload["spec"]["serviceName"])
        if service is None or service["spec"].get("clusterIP") != "None":
            yield workload, f"its serviceName {workload['spec']['serviceName']} is no headless service"


def check_http_probes(workload):
    for container in containers(workload):
        scheme = "HTTPS" if "--tls-cert" in flags_of(container) else "HTTP"
        # A gateway without a manager is not ready, but must not be killed.
        for kind, path in (("startupProbe", "/version"), ("livenessProbe", "/version"), ("readinessProbe", "/health")):
            get = container.get(kind, {}).get("httpGet", {})
            if get.get("path") != path or get.get("scheme", "HTTP") != scheme:
                yield workload, f"{kind} does not get {path} by {scheme}"
            if get.get("port") not in ports_of(workload):
                yield workload, f"{kind} asks port {get.get('port')}, which {container['name']} does not declare"


def check_probes(k8s, _programs):
    for workload in k8s.workloads:
        if component(workload) == "gateway":
            yield from check_http_probes(workload)
            continue
        for container in containers(workload):
            declared = {port["containerPort"] for port in container.get("ports", [])}
            for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
                question = asked(container.get(kind, {}))
                if question is None:
                    yield workload, f"{container['name']} has no {kind} that asks for its health"
                    continue
                port, service = question
                if port not in declared:
                    yield workload, f"{kind} asks port {port}, which {container['name']} does not declare"
                listen = flags_of(container).get("--health-listen") or ""
                if not listen.endswith(f":{port}"):
                    yield workload, f"{kind} asks port {port}, health is served in plain text at '{listen}' alone"
                if service not in HEALTH_SERVICES:
                    yield workload, f"{kind} asks for '{service}', which is none of {HEALTH_SERVICES}"
            # A process that loads, waits, drains or is refused is not ready, but must not be killed.
            for kind in ("startupProbe", "livenessProbe"):
                if (asked(container.get(kind, {})) or (0, ""))[1] != "liveness":
                    yield workload, f"{kind} does not ask for 'liveness'"


def check_grace(k8s, _programs):
    for workload in k8s.workloads:
        grace = pod_spec(workload).get("terminationGracePeriodSeconds", 30)
        for container in containers(workload):
            command = container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["sleep", "0"])
            if command[0] != "sleep":
                yield workload, f"preStop is {command}, it must be sleep"
                continue
            drain = flags_of(container).get("--drain-timeout")
            if drain is None:
                yield workload, f"{container['name']} has no --drain-timeout"
                continue
            need = float(command[1]) + seconds(drain) + EXIT_MARGIN_S
            if grace < need:
                yield workload, f"terminationGracePeriodSeconds is {grace}, preStop, drain and exit need {need:g}"


def check_disruption(k8s, _programs):
    covered = []
    for budget in k8s.of_kind("PodDisruptionBudget"):
        targets = k8s.selected(budget["spec"]["selector"]["matchLabels"])
        covered += targets
        if len(targets) != 1:
            yield budget, f"its selector chooses {len(targets)} workloads, it must be 1"
        replicas = sum(w["spec"].get("replicas", 1) for w in targets)
        if budget["spec"].get("maxUnavailable") == 0 or budget["spec"].get("minAvailable", -1) in ("100%", replicas):
            yield budget, "it allows no disruption: nodes could never be drained"
    for workload in k8s.workloads:
        if workload not in covered:
            yield workload, "no PodDisruptionBudget has it"


def check_network(k8s, _programs):
    closed = []
    for policy in k8s.of_kind("NetworkPolicy"):
        targets = k8s.selected(policy["spec"]["podSelector"].get("matchLabels", {}))
        if not targets:
            yield policy, "its podSelector chooses nothing"
        if "Ingress" in policy["spec"]["policyTypes"]:
            closed += targets
        for rule in policy["spec"].get("ingress") or []:
            yield from check_ingress(k8s, policy, rule, targets)
        for rule in policy["spec"].get("egress") or []:
            for peer in rule.get("to", []):
                if "podSelector" not in peer:
                    continue
                peers = k8s.selected(peer["podSelector"].get("matchLabels", {}))
                for port in rule.get("ports", []):
                    if not any(has_port(w, port) for w in peers):
                        yield policy, f"it lets out to port {port['port']}, which its peers do not have"
    for workload in k8s.workloads:
        if workload not in closed:
            yield workload, "no NetworkPolicy guards it"


def has_port(workload, port):
    """Whether the pods listen at a port of a NetworkPolicy, or at all of a range."""
    if "endPort" in port:
        return (port["port"], port["endPort"]) in ranges_of(workload)
    return port["port"] in ports_of(workload)


def check_ingress(k8s, policy, rule, targets):
    for port in rule.get("ports") or [{"port": None}]:
        for workload in targets:
            if not has_port(workload, port):
                yield policy, f"it lets in to port {port['port']}, which {name_of(workload)} does not have"
            if not is_worker_port(workload, port["port"]):
                continue
            for peer in rule.get("from") or [{}]:
                peers = k8s.selected(peer.get("podSelector", {}).get("matchLabels"))
                is_narrow = set(peer) == {"podSelector"} and peer["podSelector"].get("matchLabels")
                if not is_narrow or not peers or any(component(w) != "manager" for w in peers):
                    yield policy, f"others than managers reach the workers' port {port['port']}: {peer}"


def component(workload):
    return pod_labels(workload).get("app.kubernetes.io/component")


def is_worker_port(workload, port):
    return component(workload) == "worker" and any(port in rank_ports(container) for container in containers(workload))


def check_args(k8s, programs):
    for workload in k8s.workloads:
        for container in containers(workload):
            program = container["command"][0]
            if program not in PROGRAMS:
                yield workload, f"{container['name']} starts {program}, which is none of {PROGRAMS}"
                continue
            flags = flags_of(container)
            for flag in flags:
                if flag not in programs[program]:
                    yield workload, f"{program} has no flag {flag}"
            if program == "quire-worker" and not flags.get("--model"):
                yield workload, "quire-worker needs --model"
            declared = {port["name"]: port["containerPort"] for port in container.get("ports", [])}
            ports = (("--listen", "grpc"), ("--health-listen", "health"), ("--metrics-listen", "metrics"))
            if program == "quire-openai":
                ports = (("--listen", "https"),)
            for flag, name in ports:
                if flags.get(flag) != f"0.0.0.0:{declared.get(name)}":
                    yield workload, f"{flag} is {flags.get(flag)}, the port named {name} is {declared.get(name)}"


def check_download(k8s, programs):
    """A worker serves a model by its name only if an init container has downloaded it to the same place."""
    for workload in k8s.workloads:
        for first in first_containers(workload):
            program = (first.get("command") or [None])[0]
            if program not in FIRST_PROGRAMS:
                yield workload, f"{first['name']} starts {program}, which is none of {FIRST_PROGRAMS}"
                continue
            for flag in flags_of(first):
                if flag.startswith("-") and flag not in programs[program]:
                    yield workload, f"{program} has no flag {flag}"
        for container in containers(workload):
            model = flags_of(container).get("--model") or ""
            if not model.startswith("hf:"):
                continue
            first = next((c for c in first_containers(workload) if model in c.get("args", [])), None)
            if first is None:
                yield workload, f"no init container downloads {model}"
                continue
            cache = environment_of(container).get("HF_HUB_CACHE")
            if not cache or environment_of(first).get("HF_HUB_CACHE") != cache:
                yield workload, f"{container['name']} and {first['name']} have no common HF_HUB_CACHE"
            mounts = [next((m for m in c.get("volumeMounts", []) if f"{cache}/".startswith(f"{m['mountPath']}/")), None)
                      for c in (container, first)]
            if None in mounts or mounts[0]["name"] != mounts[1]["name"]:
                yield workload, (f"HF_HUB_CACHE is {cache}, which {container['name']} and {first['name']} have no "
                                 "volume for")
            elif mounts[1].get("readOnly") or is_read_only(workload, mounts[1]["name"]):
                yield workload, f"{first['name']} may not write to HF_HUB_CACHE"
            elif not mounts[0].get("readOnly"):
                yield workload, f"{container['name']} may write to HF_HUB_CACHE"
            if not {53, 443} <= ports_out(k8s, workload):
                yield workload, f"no NetworkPolicy lets {first['name']} out to DNS and to the hub"


def is_read_only(workload, volume):
    (found,) = [v for v in pod_spec(workload)["volumes"] if v["name"] == volume]
    return found.get("persistentVolumeClaim", {}).get("readOnly", False)


def policy_ports(k8s, workload, way, peer):
    """Returns the ports at which the policies let pods of the component `peer` in, or let the workload out to them."""
    ports = []
    for policy in k8s.of_kind("NetworkPolicy"):
        if workload not in k8s.selected(policy["spec"]["podSelector"]["matchLabels"]):
            continue
        for rule in policy["spec"].get("ingress" if way == "from" else "egress") or []:
            if any(component_chosen_by(other) == peer for other in rule.get(way, [])):
                ports += [(port["port"], port.get("endPort", port["port"])) for port in rule.get("ports", [])]
    return ports


def component_chosen_by(peer):
    return peer.get("podSelector", {}).get("matchLabels", {}).get("app.kubernetes.io/component")


def check_ranks(k8s, _programs):
    """The ranks of a model: the manager reaches each of them, and they reach each other."""
    managers = [w for w in k8s.workloads if component(w) == "manager"]
    for workload in k8s.workloads:
        for container in containers(workload):
            flags, ports = flags_of(container), rank_ports(container)
            if int(flags.get("--tp", 1)) == 1:
                continue
            for rank, port in enumerate(ports):
                where = f"port {port}, where rank {rank} of a pod is"
                if port not in ports_of(workload):
                    yield workload, f"{container['name']} does not declare {where}"
                if (port, port) not in policy_ports(k8s, workload, "from", "manager"):
                    yield workload, f"no NetworkPolicy lets the manager in to {where}"
                for manager in managers:
                    if (port, port) not in policy_ports(k8s, manager, "to", "worker"):
                        yield manager, f"no NetworkPolicy lets it out to {where}"
            for flag in ("--health-listen", "--metrics-listen"):
                if int((flags.get(flag) or ":0").rpartition(":")[2]) in ports:
                    yield workload, f"{flag} is {flags[flag]}, which is the port of a rank"
            if "--tp-hosts" in flags:
                yield from check_rank_hosts(k8s, workload, container)
            else:
                yield from check_shared_memory(workload, container)


def check_shared_memory(workload, container):
    mounts = {mount["mountPath"]: mount["name"] for mount in container.get("volumeMounts", [])}
    volumes = {volume["name"]: volume for volume in pod_spec(workload).get("volumes", [])}
    if volumes.get(mounts.get("/dev/shm"), {}).get("emptyDir", {}).get("medium") != "Memory":
        yield workload, f"{container['name']} has no memory at /dev/shm, through which its ranks exchange sums"


def check_rank_hosts(k8s, workload, container):
    """The ranks of several pods."""
    flags, name = flags_of(container), workload["metadata"]["name"]
    hosts = flags["--tp-hosts"].split(",")
    if workload["kind"] != "LeaderWorkerSet":
        yield workload, "--tp-hosts is set, but only a LeaderWorkerSet has pods that belong together"
        return
    group = workload["spec"]["leaderWorkerTemplate"]
    if group["size"] != len(hosts):
        yield workload, f"its size is {group['size']}, and --tp-hosts names {len(hosts)} hosts"
    if group.get("restartPolicy") != "None":
        yield workload, f"restartPolicy is {group.get('restartPolicy')}: the loss of a pod would end those with weights"
    variables = {label: f"$({variable})" for variable, label in label_variables_of(container).items()}
    if flags.get("--tp-host") != variables.get(WORKER_INDEX, "?"):
        yield workload, f"--tp-host is {flags.get('--tp-host')}, it must be the label {WORKER_INDEX}"
    port = rank_ports(container)[0]
    leader = f"{name}-{variables.get(GROUP_INDEX)}"
    expected = [f"{leader}{f'-{host}' if host > 0 else ''}.{name}:{port}" for host in range(len(hosts))]
    if hosts != expected:
        yield workload, f"--tp-hosts is {','.join(hosts)}, the pods are {','.join(expected)}"
    for ports in ranges_of(workload) or [None]:
        if any(ports not in policy_ports(k8s, workload, way, "worker") for way in ("from", "to")):
            yield workload, f"no NetworkPolicy lets its pods reach each other at the ports of UCX, {ports}"
    for service in k8s.of_kind("Service"):
        selector = service["spec"]["selector"]
        if workload in k8s.selected(selector) and selector.get(WORKER_INDEX) != "0":
            yield service, "it has pods without a rank 0, which the manager would take for workers"


def ports_out(k8s, workload):
    """Returns the ports of other machines that the policies let a workload reach."""
    rules = [rule for policy in k8s.of_kind("NetworkPolicy") for rule in policy["spec"].get("egress") or []
             if workload in k8s.selected(policy["spec"]["podSelector"]["matchLabels"])]
    return {port.get("port") for rule in rules for port in rule.get("ports", [])}


def check_transport(k8s, _programs):
    flags = {component(w): flags_of(container) for w in k8s.workloads for container in containers(w)}
    for workload in k8s.workloads:
        for container in containers(workload):
            mine = flags_of(container)
            with_tls = {"--tls-cert", "--tls-key", "--tls-ca"} <= set(mine)
            if component(workload) == "gateway":  # Its clients show tokens and no certificates.
                tls = {"--tls-cert", "--tls-key", "--require-tokens"} | {
                    f"--manager-tls-{what}" for what in ("cert", "key", "ca")
                }
                with_tls = tls <= set(mine)
            if with_tls == ("--insecure" in mine):
                yield workload, f"{container['name']} has neither all of TLS nor --insecure, or both"
    if ("--worker-tls-ca" in flags.get("manager", {})) != ("--tls-ca" in flags.get("worker", {})):
        yield k8s.workloads[0], "one of manager and workers speaks TLS to the other, which does not"


def check_discovery(k8s, _programs):
    for workload in k8s.workloads:
        for container in containers(workload):
            manager = flags_of(container).get("--manager")
            if manager is not None:
                match = re.fullmatch(r"dns:///([a-z0-9-]+):([0-9]+)", manager)
                service = k8s.named("Service", match[1]) if match else None
                if service is None or int(match[2]) not in [port["port"] for port in service["spec"]["ports"]]:
                    yield workload, f"--manager is {manager}, it must be the dns:/// name and the port of a service"
            target = flags_of(container).get("--workers")
            if target is None:
                continue
            match = re.fullmatch(r"dns:///([a-z0-9-]+):([0-9]+)", target)
            service = k8s.named("Service", match[1]) if match else None
            if service is None or service["spec"].get("clusterIP") != "None":
                yield workload, f"--workers is {target}, it must be the dns:/// name of a headless service"
            elif not service["spec"].get("publishNotReadyAddresses"):
                yield workload, f"{name_of(service)} hides workers that are not ready: one that was refused stays lost"
            elif int(match[2]) not in [port["port"] for port in service["spec"]["ports"]]:
                yield workload, f"--workers has port {match[2]}, {name_of(service)} has another"
    for workload in k8s.of_kind("StatefulSet"):
        if workload["spec"].get("minReadySeconds", 0) < DISCOVERY_S:
            yield workload, f"minReadySeconds is below {DISCOVERY_S}: the next would drain before the manager has this"


def check_managers(k8s, _programs):
    for workload in k8s.workloads:
        if component(workload) != "manager":
            continue
        replicas, strategy = workload["spec"].get("replicas", 1), workload["spec"].get("strategy", {}).get("type")
        if stands_by(workload):
            yield from check_standby(k8s, workload)
        elif replicas != 1 or strategy != "Recreate":
            yield workload, f"{replicas} managers, strategy {strategy}: a second one would take the first one's workers"
        for container in containers(workload):
            flags = flags_of(container)
            if "--resume-key-file" not in flags and (stands_by(workload) or "--insecure" not in flags):
                yield workload, f"{container['name']} has no --resume-key-file, so its requests end with it"


def stands_by(workload):
    return any("--standby" in flags_of(container) for container in containers(workload))


def check_standby(k8s, workload):
    """The managers of which one leads."""
    replicas = workload["spec"].get("replicas", 1)
    if replicas < 2:
        yield workload, f"{replicas} managers, so none stands by"
    # Only the leader is ready, so a rollout must start new managers and stop old ones without waiting.
    rolling = workload["spec"].get("strategy", {}).get("rollingUpdate", {})
    if (rolling.get("maxSurge"), rolling.get("maxUnavailable")) != (replicas, replicas):
        yield workload, f"the rollout {rolling} would wait for a manager that stands by to become ready"
    for budget in k8s.of_kind("PodDisruptionBudget"):
        if workload in k8s.selected(budget["spec"]["selector"]["matchLabels"]):
            if budget["spec"].get("maxUnavailable") != replicas:
                yield budget, "only the leader is ready, so its node could never be drained"
    account = pod_spec(workload).get("serviceAccountName")
    if k8s.named("ServiceAccount", account) is None:
        yield workload, f"there is no ServiceAccount {account}"
    for container in containers(workload):
        flags = flags_of(container)
        lease = flags.get("--lease-name")
        if "preStop" in container.get("lifecycle", {}):
            yield workload, "while a leader waits in preStop, the service leads to no manager"
        if flags["--standby"] != "kubernetes" or k8s.named("Lease", lease) is None:
            yield workload, f"--standby={flags['--standby']} with --lease-name={lease}: there is no such Lease"
        if not any(may_write(k8s, role, account, lease) for role in k8s.of_kind("Role")):
            yield workload, f"no Role lets {account} get and update the Lease {lease}, and nothing else"


def may_write(k8s, role, account, lease):
    """Whether the role lets the service account read and write the lease, and do nothing else."""
    rules = [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": [lease],
              "verbs": ["get", "update"]}]
    return role["rules"] == rules and any(
        binding["roleRef"]["kind"] == "Role"
        and binding["roleRef"]["name"] == role["metadata"]["name"]
        and any(subject["kind"] == "ServiceAccount" and subject["name"] == account
                and subject["namespace"] == role["metadata"]["namespace"] for subject in binding["subjects"])
        for binding in k8s.of_kind("RoleBinding")
    )


def check_security(k8s, _programs):
    for workload in k8s.workloads:
        pod = pod_spec(workload)
        security = pod.get("securityContext", {})
        if not security.get("runAsNonRoot") or not security.get("runAsUser"):
            yield workload, "it may run as root"
        if security.get("seccompProfile", {}).get("type") != "RuntimeDefault":
            yield workload, "it has no seccomp profile"
        if pod.get("automountServiceAccountToken", True) and not stands_by(workload):
            yield workload, "it gets a token of the cluster, which it does not need"
        for container in first_containers(workload) + pod["containers"]:
            security = container.get("securityContext", {})
            if security.get("allowPrivilegeEscalation", True):
                yield workload, f"{container['name']} may escalate privileges"
            if security.get("capabilities", {}).get("drop") != ["ALL"]:
                yield workload, f"{container['name']} keeps capabilities"
            if not security.get("readOnlyRootFilesystem") and not gpus(container):
                yield workload, f"{container['name']} may write to its root file system"


def gpus(container):
    """Returns how many GPUs, or instances of MIG, a container gets."""
    limits = container.get("resources", {}).get("limits", {})
    return sum(int(number) for name, number in limits.items() if re.fullmatch(r"nvidia\.com/(gpu|mig-.+)", name))


def mebibytes(size):
    return int(size[:-2]) * {"Mi": 1, "Gi": 1024}[size[-2:]]


def tolerates_gpu_nodes(workload):
    return any(
        toleration.get("key") == "nvidia.com/gpu"
        and toleration.get("operator") == "Exists"
        and toleration.get("effect") in (None, "NoSchedule")
        for toleration in pod_spec(workload).get("tolerations", [])
    )


def check_gpus(k8s, _programs):
    if not any(gpus(container) for workload in k8s.workloads for container in containers(workload)):
        return
    for workload in k8s.workloads:
        # A cluster may have no other nodes, and nodes with GPUs usually have this taint.
        if not tolerates_gpu_nodes(workload):
            yield workload, "it does not tolerate nvidia.com/gpu:NoSchedule, so a node with GPUs does not take it"
        for container in first_containers(workload) + containers(workload):
            if gpus(container):
                yield from check_cuda_cache(workload, container)
            elif container["image"].rpartition("/")[2].startswith("quire-cuda"):
                yield workload, f"{container['name']} has no GPU, and its image asks for every GPU of its node"


def check_cuda_cache(workload, container):
    """The driver keeps the kernels that it has compiled in a folder, which this user does not have elsewhere."""
    environment = environment_of(container)
    path = environment.get("CUDA_CACHE_PATH") or ""
    volumes = {volume["name"]: volume for volume in pod_spec(workload).get("volumes", [])}
    for mount in container.get("volumeMounts", []):
        if f"{path}/".startswith(f"{mount['mountPath']}/") and not mount.get("readOnly"):
            limit = volumes.get(mount["name"], {}).get("emptyDir", {}).get("sizeLimit")
            cache_bytes = int(environment.get("CUDA_CACHE_MAXSIZE") or 1 << 62)
            if limit and mebibytes(limit) << 20 < 2 * cache_bytes:
                yield workload, f"{mount['name']} holds at most {limit}, less than twice CUDA_CACHE_MAXSIZE"
            return
    yield workload, f"{container['name']} has no CUDA_CACHE_PATH in a volume, so each start compiles kernels again"


def check_resources(k8s, _programs):
    for workload in k8s.workloads:
        for container in first_containers(workload) + containers(workload):
            resources = container.get("resources", {})
            requests, limits = resources.get("requests", {}), resources.get("limits", {})
            if not {"cpu", "memory"} <= set(requests) or "memory" not in limits:
                yield workload, f"{container['name']} lacks requests for cpu and memory or a limit for memory"
            device = flags_of(container).get("--device") or "cpu"
            if gpus(container) != (0 if device == "cpu" else 1):
                yield workload, f"{container['name']} has {gpus(container)} GPUs and computes on {device}"


def bytes_of(quantity):
    """Returns the bytes of a quantity of Kubernetes, such as 3Gi, or of a flag, such as 64MiB."""
    number, unit = re.fullmatch(r"(\d+)(Ki|Mi|Gi|Ti|)B?", quantity).groups()
    return int(number) << 10 * ["", "Ki", "Mi", "Gi", "Ti"].index(unit)


def gateway_memory(flags, defaults):
    """Returns the bound for the memory of quire-openai with these flags, in bytes. docs/openai.md explains it."""
    factors = {
        "--max-connections": 256 << 10,
        "--max-receiving-bytes": 1,
        "--max-body-bytes": 6,
        "--max-waiting-bytes": 2,
        "--max-answer-bytes": 1,
    }
    by_flags = sum(bytes_of(flags.get(flag, defaults[flag])) * n for flag, n in factors.items() if flag in defaults)
    return (300 << 20) + by_flags


def check_memory(k8s, programs):
    for workload in k8s.workloads:
        for container in containers(workload):
            if container["command"] != ["quire-openai"]:
                continue
            limit = container.get("resources", {}).get("limits", {}).get("memory", "0")
            needed = gateway_memory(flags_of(container), programs["quire-openai"])
            if bytes_of(limit) < needed:
                yield workload, f"its limit for memory is {limit}, and its flags allow {needed >> 20}Mi"


def check_volumes(k8s, _programs):
    for workload in k8s.workloads:
        volumes = {volume["name"]: volume for volume in pod_spec(workload).get("volumes", [])}
        for volume in volumes.values():
            secret = volume.get("secret", {}).get("secretName")
            if secret and secret not in OWN_SECRETS and k8s.certificate_of(secret) is None:
                yield workload, f"no Certificate makes the Secret {secret}"
            claim = volume.get("persistentVolumeClaim", {}).get("claimName")
            if claim and k8s.named("PersistentVolumeClaim", claim) is None:
                yield workload, f"there is no PersistentVolumeClaim {claim}"
        for container in first_containers(workload) + containers(workload):
            mounts = container.get("volumeMounts", [])
            for mount in mounts:
                if mount["name"] not in volumes:
                    yield workload, f"{container['name']} mounts {mount['name']}, which is no volume of the pod"
            for flag, path in flags_of(container).items():
                if flag not in FILE_FLAGS or not path or path.startswith("hf:"):
                    continue
                in_volume = any(f"{path}/".startswith(f"{mount['mountPath']}/") for mount in mounts)
                if not in_volume and not path.startswith("/usr/share/quire/"):
                    yield workload, f"{flag} is {path}, which no volume has"


def check_spread(k8s, _programs):
    for workload in k8s.workloads:
        for constraint in pod_spec(workload).get("topologySpreadConstraints", []):
            if not matches(constraint["labelSelector"]["matchLabels"], pod_labels(workload)):
                yield workload, f"its spread over {constraint['topologyKey']} counts other pods"


def check_monitors(k8s, _programs):
    for monitor in k8s.of_kind("ServiceMonitor"):
        labels = monitor["spec"]["selector"]["matchLabels"]
        services = [s for s in k8s.of_kind("Service") if matches(labels, s["metadata"].get("labels", {}))]
        for endpoint in monitor["spec"]["endpoints"]:
            if not any(p["name"] == endpoint["port"] for s in services for p in s["spec"]["ports"]):
                yield monitor, f"no service that it chooses has a port {endpoint['port']}"
    for monitor in k8s.of_kind("PodMonitor"):
        targets = k8s.selected(monitor["spec"]["selector"]["matchLabels"])
        for endpoint in monitor["spec"]["podMetricsEndpoints"]:
            if not any(endpoint["port"] in ports_of(workload) for workload in targets):
                yield monitor, f"no pod that it chooses has a port {endpoint['port']}"


def check_scaling(k8s, _programs):
    for scaler in k8s.of_kind("HorizontalPodAutoscaler", "ScaledObject"):
        spec = scaler["spec"]
        target = spec["scaleTargetRef"]
        workload = k8s.named(target.get("kind", "Deployment"), target["name"])
        if workload is None or component(workload) != "worker":
            yield scaler, f"{target.get('kind')}/{target['name']} is not what can be scaled, the workers"
        least = spec.get("minReplicas", spec.get("minReplicaCount", 0))
        most = spec.get("maxReplicas", spec.get("maxReplicaCount", 0))
        if not 1 <= least <= most:
            yield scaler, f"{least} to {most} replicas"
        if workload is not None and "replicas" in workload["spec"]:
            yield workload, f"it has `replicas`: every `kubectl apply` would undo {name_of(scaler)}"


def check_references(k8s, _programs):
    seen = set()
    for thing in k8s.objects:
        if name_of(thing) in seen:
            yield thing, "it is defined twice"
        seen.add(name_of(thing))
        if thing["kind"] != "Namespace" and k8s.named("Namespace", thing["metadata"].get("namespace")) is None:
            yield thing, f"there is no Namespace {thing['metadata'].get('namespace')}"
    for workload in k8s.workloads:
        for container in first_containers(workload) + containers(workload):
            if ":" not in container["image"] or container["image"].endswith(":latest"):
                yield workload, f"image {container['image']} has no version"


CHECKS = {
    "selector": check_selectors,
    "service": check_services,
    "probe": check_probes,
    "grace": check_grace,
    "disruption": check_disruption,
    "network": check_network,
    "ranks": check_ranks,
    "args": check_args,
    "download": check_download,
    "transport": check_transport,
    "discovery": check_discovery,
    "managers": check_managers,
    "security": check_security,
    "resources": check_resources,
    "memory": check_memory,
    "gpus": check_gpus,
    "volumes": check_volumes,
    "spread": check_spread,
    "monitor": check_monitors,
    "scaling": check_scaling,
    "reference": check_references,
}


def problems(objects, programs):
    """Returns (kind, object, what is wrong) for each mistake. `programs` has the flags of each program."""
    k8s = Kubernetes(objects)
    return [
        (kind, name_of(thing), what) for kind, check in CHECKS.items() for thing, what in check(k8s, programs)
    ]


def render(kustomization):
    result = subprocess.run(
        ["kubectl", "kustomize", str(HERE / kustomization)], capture_output=True, text=True, timeout=60
    )
    if result.returncode != 0:
        raise SystemExit(f"kubectl kustomize {kustomization} failed: {result.stderr}")
    return [thing for thing in yaml.safe_load_all(result.stdout) if thing]


def render_additions(kustomization):
    """Renders what is applied beside an overlay."""
    return [
        thing for addition in ADDITIONS
        if not (addition.startswith("autoscaling/") and str(kustomization) in WITHOUT_AUTOSCALING)
        for thing in render(addition)
    ]


def missing_tool():
    """Returns the tool that has to be installed, or None."""
    if yaml is None:
        return "PyYAML (Debian: python3-yaml)"
    return None if shutil.which("kubectl") else "kubectl (Debian: kubernetes-client)"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", default=HERE.parents[1] / "build/release/bin", type=pathlib.Path)
    parser.add_argument("--print-commands", action="store_true")
    parser.add_argument("kustomizations", nargs="*", default=OVERLAYS)
    arguments = parser.parse_args()
    if missing_tool():
        print(f"skipped: {missing_tool()} is missing")
        return SKIPPED
    if arguments.print_commands:
        for kustomization in arguments.kustomizations:
            for workload in Kubernetes(render(kustomization)).workloads:
                for container in containers(workload):
                    print(shlex.join(container["command"] + container.get("args", [])))
        return 0
    programs = {name: flags_in_help(arguments.programs / name) for name in PROGRAMS + FIRST_PROGRAMS}
    found = 0
    for kustomization in arguments.kustomizations:
        for kind, thing, what in problems(render(kustomization) + render_additions(kustomization), programs):
            print(f"{kustomization}: {kind}: {thing}: {what}")
            found += 1
    print(f"{len(arguments.kustomizations)} kustomizations, {found} mistakes")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
