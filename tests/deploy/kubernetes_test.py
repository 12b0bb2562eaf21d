# SPDX-License-Identifier: Apache-2.0
"""Renders every overlay. check.py must find no mistake in it, and must find every mistake that a test plants."""

import base64
import copy
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "deploy/kubernetes"))
import check  # pylint: disable=wrong-import-position
import docker_test  # pylint: disable=wrong-import-position

MANAGER, WORKERS = ("Deployment", "quire-manager"), ("StatefulSet", "quire-workers")
GATEWAY = ("Deployment", "quire-gateway")


def pod(thing):
    return thing["spec"]["template"]["spec"]


def container(thing):
    return pod(thing)["containers"][0]


def volume(thing, name):
    return next(volume for volume in pod(thing)["volumes"] if volume["name"] == name)


def replace_arg(thing, old, new):
    args = container(thing)["args"]
    assert old in args, (old, args)
    args[args.index(old)] = new


def set_at(thing, path, value):
    """Sets the value at a path of keys and indices. None removes it."""
    for key in path[:-1]:
        thing = thing[key]
    assert not isinstance(thing, dict) or path[-1] in thing, path
    if value is None:
        del thing[path[-1]]
    else:
        thing[path[-1]] = value


def at(*path, value):
    return lambda thing: set_at(thing, path, value)


TEMPLATE = ("spec", "template", "spec")
CONTAINER = TEMPLATE + ("containers", 0)
LIVENESS = CONTAINER + ("livenessProbe", "grpc")

RESUME_KEY = "--resume-key-file=/etc/quire/resume/key"

# The kind of each mistake, where it is planted, how, and a part of the expected message.
MISTAKES = [
    ("selector", WORKERS, at("spec", "selector", "matchLabels", "app.kubernetes.io/component", value="workers"),
     "does not choose its own pods"),
    ("selector", MANAGER, at("spec", "selector", "matchLabels", value={"app.kubernetes.io/name": "quire"}),
     "chooses the pods of StatefulSet/quire-workers too"),
    ("service", ("Service", "quire-manager"), at("spec", "ports", 0, "targetPort", value="http"), "target port http"),
    ("service", ("Service", "quire-manager"), at("spec", "selector", "app.kubernetes.io/component", value="front"),
     "chooses 0 workloads"),
    ("service", ("Service", "quire-workers"), at("spec", "clusterIP", value="10.0.0.7"), "no headless service"),
    ("probe", MANAGER, at(*CONTAINER, "readinessProbe", value={"grpc": {"port": 50053}}), "does not declare"),
    ("probe", MANAGER, at(*CONTAINER, "livenessProbe", value={"grpc": {"port": 50051}}),
     "served in plain text at '0.0.0.0:50052' alone"),
    ("probe", WORKERS, at(*CONTAINER, "startupProbe", value=None), "no startupProbe"),
    ("probe", WORKERS, at(*CONTAINER, "startupProbe", value={"exec": {"command": ["true"]}}), "no startupProbe"),
    ("probe", WORKERS, at(*LIVENESS, "service", value="readiness"), "livenessProbe does not ask for 'liveness'"),
    ("probe", WORKERS, at(*CONTAINER, "startupProbe", "grpc", "service", value="readiness"),
     "startupProbe does not ask for 'liveness'"),
    ("probe", WORKERS, at(*LIVENESS, "service", value="ready"), "none of"),
    ("probe", WORKERS, lambda w: container(w)["args"].remove("--health-listen=0.0.0.0:50062"), "at '' alone"),
    ("probe", GATEWAY, at(*CONTAINER, "livenessProbe", "httpGet", "path", value="/health"), "does not get /version"),
    ("probe", GATEWAY, at(*CONTAINER, "readinessProbe", "httpGet", "scheme", value="HTTP"), "/health by HTTPS"),
    ("probe", GATEWAY, at(*CONTAINER, "startupProbe", "httpGet", "port", value=8001), "does not declare"),
    ("transport", GATEWAY, lambda g: container(g)["args"].remove("--require-tokens"),
     "neither all of TLS nor --insecure"),
    ("args", GATEWAY, lambda g: replace_arg(g, "--listen=0.0.0.0:8000", "--listen=0.0.0.0:80"),
     "the port named https is 8000"),
    ("discovery", GATEWAY, lambda g: replace_arg(g, "--manager=dns:///quire-manager:50051",
                                                 "--manager=dns:///quire-manager:50061"), "--manager is"),
    ("network", ("NetworkPolicy", "quire-gateway"), at("spec", "egress", 0, "ports", 0, "port", value=50053),
     "lets out to port 50053"),
    ("transport", WORKERS, lambda w: container(w)["args"].remove("--tls-ca=/etc/quire/tls/ca.crt"),
     "neither all of TLS nor --insecure"),
    ("transport", MANAGER, lambda m: container(m)["args"].append("--insecure"), "or both"),
    ("transport", MANAGER, lambda m: container(m)["args"].remove("--worker-tls-ca=/etc/quire/tls/ca.crt"),
     "speaks TLS to the other, which does not"),
    ("grace", MANAGER, at(*TEMPLATE, "terminationGracePeriodSeconds", value=65), "need 75"),
    ("grace", WORKERS, at(*TEMPLATE, "terminationGracePeriodSeconds", value=None), "is 30"),
    ("grace", WORKERS, lambda w: replace_arg(w, "--drain-timeout=60s", "--drain-timeout=2m"), "need 125"),
    ("grace", MANAGER, at(*CONTAINER, "lifecycle", "preStop", "exec", "command", value=["sleep", "60"]), "need 125"),
    ("disruption", ("PodDisruptionBudget", "quire-workers"),
     at("spec", "selector", "matchLabels", "app.kubernetes.io/component", value="manager"), "no PodDisruptionBudget"),
    ("disruption", ("PodDisruptionBudget", "quire-manager"), at("spec", "maxUnavailable", value=0), "no disruption"),
    ("network", ("NetworkPolicy", "quire-workers"), at("spec", "ingress", 0, "ports", 0, "port", value=50051),
     "lets in to port 50051"),
    ("network", ("NetworkPolicy", "quire-workers"), at("spec", "ingress", 0, "from", 0, "podSelector", value={}),
     "others than managers"),
    ("network", ("NetworkPolicy", "quire-workers"), at("spec", "ingress", 0, "from", value=None),
     "others than managers"),
    ("network", ("NetworkPolicy", "quire-manager"), at("spec", "egress", 0, "ports", 0, "port", value=50063),
     "lets out to port 50063"),
    ("network", ("NetworkPolicy", "quire-workers"), at("spec", "policyTypes", value=["Egress"]), "no NetworkPolicy"),
    ("args", WORKERS, lambda w: replace_arg(w, "--drain-timeout=60s", "--drain-timeot=60s"), "no flag --drain-timeot"),
    ("args", MANAGER, lambda m: replace_arg(m, "--listen=0.0.0.0:50051", "--listen=127.0.0.1:50051"),
     "the port named grpc is 50051"),
    ("args", MANAGER, at(*CONTAINER, "command", value=["quire-server"]), "none of"),
    ("discovery", MANAGER, lambda m: replace_arg(m, "--workers=dns:///quire-workers:50061",
                                                 "--workers=dns:///quire-worker:50061"), "headless service"),
    ("discovery", MANAGER, lambda m: replace_arg(m, "--workers=dns:///quire-workers:50061",
                                                 "--workers=dns:///quire-workers:50051"), "port 50051"),
    ("discovery", WORKERS, at("spec", "minReadySeconds", value=1), "minReadySeconds"),
    ("discovery", ("Service", "quire-workers"), at("spec", "publishNotReadyAddresses", value=None), "hides workers"),
    ("managers", MANAGER, at("spec", "replicas", value=2), "2 managers"),
    ("managers", MANAGER, at("spec", "strategy", "type", value="RollingUpdate"), "strategy RollingUpdate"),
    ("managers", MANAGER, lambda m: container(m)["args"].remove(RESUME_KEY), "no --resume-key-file"),
    ("security", MANAGER, at(*TEMPLATE, "securityContext", "runAsNonRoot", value=False), "root"),
    ("security", MANAGER, at(*CONTAINER, "securityContext", "readOnlyRootFilesystem", value=False), "root file system"),
    ("security", WORKERS, at(*CONTAINER, "securityContext", "capabilities", value=None), "capabilities"),
    ("security", WORKERS, at(*TEMPLATE, "securityContext", "seccompProfile", value=None), "seccomp"),
    ("security", WORKERS, at(*CONTAINER, "securityContext", "allowPrivilegeEscalation", value=None), "escalate"),
    ("security", WORKERS, at(*TEMPLATE, "automountServiceAccountToken", value=None), "token"),
    ("resources", MANAGER, at(*CONTAINER, "resources", "limits", value=None), "limit for memory"),
    ("resources", WORKERS, at(*CONTAINER, "resources", "limits", "nvidia.com/gpu", value=None), "0 GPUs"),
    ("resources", WORKERS, lambda w: container(w)["resources"]["limits"].update({"nvidia.com/mig-1g.10gb": "1"}),
     "2 GPUs"),
    ("memory", GATEWAY, at(*CONTAINER, "resources", "limits", "memory", value="1Gi"), "is 1Gi, and its flags allow"),
    ("memory", GATEWAY, lambda g: container(g)["args"].append("--max-receiving-bytes=4294967296"), "is 3Gi"),
    ("gpus", MANAGER, at(*TEMPLATE, "tolerations", value=None), "does not tolerate nvidia.com/gpu"),
    ("gpus", GATEWAY, at(*TEMPLATE, "tolerations", 0, "effect", value="NoExecute"), "does not tolerate nvidia.com/gpu"),
    ("gpus", WORKERS, at(*TEMPLATE, "tolerations", 0, "operator", value="Equal"), "does not tolerate nvidia.com/gpu"),
    ("gpus", MANAGER, at(*CONTAINER, "image", value="registry.example/quire-cuda:7"), "asks for every GPU of its node"),
    ("gpus", WORKERS, lambda w: container(w).pop("env"), "no CUDA_CACHE_PATH in a volume"),
    ("gpus", WORKERS, lambda w: container(w)["env"][0].update(value="/var/cache"), "no CUDA_CACHE_PATH in a volume"),
    ("gpus", WORKERS, lambda w: volume(w, "cache")["emptyDir"].update(sizeLimit="64Mi"), "holds at most 64Mi"),
    ("volumes", WORKERS, lambda w: volume(w, "model")["persistentVolumeClaim"].update(claimName="weights"),
     "no PersistentVolumeClaim weights"),
    ("volumes", WORKERS, at(*CONTAINER, "volumeMounts", 0, "name", value="weights"), "no volume of the pod"),
    ("volumes", MANAGER, lambda m: volume(m, "tls")["secret"].update(secretName="quire-tls"),
     "no Certificate makes the Secret quire-tls"),
    ("volumes", WORKERS, lambda w: replace_arg(w, "--model=/models/model", "--model=/model"), "no volume has"),
    ("volumes", MANAGER, lambda m: replace_arg(m, RESUME_KEY, "--resume-key-file=/etc/quire/resume2/key"),
     "no volume has"),
    ("spread", WORKERS, at(*TEMPLATE, "topologySpreadConstraints", 0, "labelSelector", "matchLabels",
                           value={"app": "quire"}), "counts other pods"),
    ("monitor", ("ServiceMonitor", "quire-manager"), at("spec", "endpoints", 0, "port", value="http"), "port http"),
    ("monitor", ("PodMonitor", "quire-workers"), at("spec", "podMetricsEndpoints", 0, "port", value="http"),
     "port http"),
    ("scaling", ("HorizontalPodAutoscaler", "quire-workers"), at("spec", "scaleTargetRef", "name", value="workers"),
     "not what can be scaled"),
    ("scaling", ("ScaledObject", "quire-workers"), at("spec", "minReplicaCount", value=0), "0 to 8"),
    ("scaling", WORKERS, lambda w: w["spec"].update(replicas=8), "would undo HorizontalPodAutoscaler/quire-workers"),
    ("reference", MANAGER, at(*CONTAINER, "image", value="quire-cuda:latest"), "no version"),
    ("reference", ("Service", "quire-manager"), at("metadata", "namespace", value="default"), "no Namespace default"),
]


def images():
    """Returns the paths that each Dockerfile copies into its image, by the image's name in the Dockerfile's comment."""
    found = {}
    for path in sorted((SOURCE / "deploy/docker").glob("*.Dockerfile")):
        paths = set()
        for instruction, rest in docker_test.stages(path)[-1]:
            if instruction == "COPY":
                *sources, target = [word for word in rest.split() if not word.startswith("--")]
                paths |= {target + pathlib.Path(s).name for s in sources} if target.endswith("/") else {target}
        found[re.search(r"docker build .* -t (\S+)", path.read_text())[1]] = paths
    return found

ROLE = ("Role", "quire-manager")
# The same for the overlay with two managers.
MISTAKES_OF_TWO_MANAGERS = [
    (MANAGER, at("spec", "replicas", value=1), "1 managers, so none stands by"),
    (MANAGER, at("spec", "strategy", "rollingUpdate", "maxUnavailable", value=1), "would wait"),
    (MANAGER, lambda m: container(m).update(lifecycle={"preStop": {"exec": {"command": ["sleep", "10"]}}}),
     "leads to no manager"),
    (("PodDisruptionBudget", "quire-manager"), at("spec", "maxUnavailable", value=1), "could never be drained"),
    (MANAGER, at(*TEMPLATE, "serviceAccountName", value="default"), "no ServiceAccount default"),
    (MANAGER, lambda thing: replace_arg(thing, "--lease-name=quire-manager", "--lease-name=other"), "no such Lease"),
    (ROLE, at("rules", 0, "verbs", value=["get"]), "no Role lets quire-manager"),
    (ROLE, at("rules", 0, "resourceNames", value=None), "and nothing else"),
    (("RoleBinding", "quire-manager"), at("subjects", 0, "name", value="default"), "no Role lets quire-manager"),
]

FIRST = TEMPLATE + ("initContainers", 0)
MODEL = "hf:Qwen/Qwen3-0.6B"
# The same for the overlay that downloads its model, with the kind of the mistake.
MISTAKES_OF_DOWNLOADS = [
    ("download", WORKERS, at(*FIRST, "args", value=["hf:Qwen/Qwen3-8B"]), f"no init container downloads {MODEL}"),
    ("download", WORKERS, at(*FIRST, "args", value=[MODEL, "--retrys=3"]), "no flag --retrys"),
    ("download", WORKERS, at(*FIRST, "command", value=["sh"]), "starts sh"),
    ("download", WORKERS, lambda w: pod(w)["initContainers"].append(
        pod(w)["initContainers"][0] | {"name": "copy", "command": ["sh"], "args": ["-c", "true"]}), "copy starts sh"),
    ("download", WORKERS, at(*FIRST, "command", value=None), "starts None"),
    ("download", WORKERS, at(*FIRST, "args", value=None), f"no init container downloads {MODEL}"),
    ("download", WORKERS, at(*FIRST, "volumeMounts", value=None), "have no volume for"),
    ("download", ("NetworkPolicy", "quire-workers"), lambda p: [rule.pop("ports") for rule in p["spec"]["egress"]],
     "out to DNS and to the hub"),
    ("download", WORKERS, at(*FIRST, "env", 0, "value", value="/models"), "no common HF_HUB_CACHE"),
    ("download", WORKERS, at(*CONTAINER, "env", value=[]), "no common HF_HUB_CACHE"),
    ("download", WORKERS, at(*FIRST, "volumeMounts", 0, "mountPath", value="/models/other"), "have no volume for"),
    ("download", WORKERS, lambda w: volume(w, "model")["persistentVolumeClaim"].update(readOnly=True), "may not write"),
    ("download", WORKERS, lambda w: [mount.pop("readOnly", None) for mount in container(w)["volumeMounts"]],
     "worker may write to HF_HUB_CACHE"),
    ("download", ("NetworkPolicy", "quire-workers"), at("spec", "egress", value=[]), "out to DNS and to the hub"),
    ("volumes", WORKERS, at(*FIRST, "volumeMounts", 0, "name", value="models"), "no volume of the pod"),
    ("security", WORKERS, at(*FIRST, "securityContext", "readOnlyRootFilesystem", value=False), "download may write"),
    ("resources", WORKERS, at(*FIRST, "resources", "limits", value=None), "download lacks"),
    ("reference", WORKERS, at(*FIRST, "image", value="quire-download"), "no version"),
]

RANKS = ("LeaderWorkerSet", "quire-ranks")
GROUP = ("spec", "leaderWorkerTemplate")
RANK_POD = GROUP + ("workerTemplate", "spec")
POLICY = ("NetworkPolicy", "quire-workers")
HOSTS = "--tp-hosts=quire-ranks-$(GROUP).quire-ranks:50061,quire-ranks-$(GROUP)-1.quire-ranks:50061"


def set_arg(name, value):
    """Sets a flag of the only container."""
    def plant(thing):
        args = check.containers(thing)[0]["args"]
        args[:] = [arg for arg in args if not arg.startswith(name + "=")] + [f"{name}={value}"]
    return plant


# The same for the overlays with ranks: the overlay, the object, how the mistake is planted, and the message.
MISTAKES_OF_RANKS = [
    ("ranks", WORKERS, lambda w: container(w)["ports"].pop(3), "worker does not declare port 50064"),
    ("ranks", WORKERS, set_arg("--health-listen", "0.0.0.0:50062"), "--health-listen is 0.0.0.0:50062"),
    ("ranks", WORKERS, set_arg("--metrics-listen", "0.0.0.0:50064"), "--metrics-listen is 0.0.0.0:50064"),
    ("ranks", WORKERS, lambda w: volume(w, "shared-memory").update(emptyDir={}), "no memory at /dev/shm"),
    ("ranks", WORKERS, set_arg("--tp", 8), "port 50065, where rank 4"),
    ("ranks", WORKERS, set_arg("--tp-hosts", "a:50061,b:50061"), "only a LeaderWorkerSet"),
    ("ranks", POLICY, lambda p: p["spec"]["ingress"][0]["ports"].pop(1), "lets the manager in to port 50062"),
    ("ranks", ("NetworkPolicy", "quire-manager"), lambda p: p["spec"]["egress"][0]["ports"].pop(),
     "lets it out to port 50064"),
    ("ranks-on-nodes", RANKS, at(*GROUP, "size", value=4), "its size is 4, and --tp-hosts names 2"),
    ("ranks-on-nodes", RANKS, at(*GROUP, "restartPolicy", value=None), "restartPolicy is None:"),
    ("ranks-on-nodes", RANKS, set_arg("--tp-host", "0"), "--tp-host is 0"),
    ("ranks-on-nodes", RANKS, set_arg("--tp-hosts", HOSTS[11:].replace("-1", "-2")), "the pods are"),
    ("ranks-on-nodes", RANKS, at(*RANK_POD, "containers", 0, "env", 0, "name", value="OTHER"), "the pods are"),
    ("ranks-on-nodes", RANKS, at(*RANK_POD, "containers", 0, "env", 2, "value", value="50200-50300"),
     "(50200, 50300)"),
    ("ranks-on-nodes", RANKS, lambda r: check.containers(r)[0]["env"].pop(), "the ports of UCX, None"),
    ("ranks-on-nodes", POLICY, lambda p: p["spec"]["ingress"].pop(1), "reach each other at the ports of UCX"),
    ("ranks-on-nodes", POLICY, at("spec", "egress", value=[]), "reach each other at the ports of UCX"),
    ("ranks-on-nodes", ("Service", "quire-workers"), lambda s: s["spec"]["selector"].pop(check.WORKER_INDEX),
     "without a rank 0"),
    ("ranks-on-nodes", ("NetworkPolicy", "quire-manager"), lambda p: p["spec"]["egress"][0]["ports"].pop(),
     "lets it out to port 50062"),
]


class KubernetesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.programs = {name: check.flags_in_help(BINARIES / name) for name in check.PROGRAMS + check.FIRST_PROGRAMS}
        cls.additions = [thing for addition in check.ADDITIONS for thing in check.render(addition)]
        cls.overlays = {overlay: check.render(overlay) + check.render_additions(overlay) for overlay in check.OVERLAYS}

    def test_no_overlay_has_a_mistake(self):
        for overlay, objects in self.overlays.items():
            with self.subTest(overlay):
                self.assertEqual(check.problems(objects, self.programs), [])

    def test_only_the_overlay_named_insecure_is_insecure(self):
        insecure = [overlay for overlay, objects in self.overlays.items()
                    if any("--insecure" in check.flags_of(c) for w in check.Kubernetes(objects).workloads
                           for c in check.containers(w))]
        self.assertEqual(insecure, ["overlays/insecure"])

    def test_the_script_makes_the_same_secrets_as_cert_manager(self):
        wanted = {c["spec"]["secretName"]: set(c["spec"]["dnsNames"])
                  for c in check.Kubernetes(self.additions).of_kind("Certificate") if not c["spec"].get("isCA")}
        with tempfile.TemporaryDirectory() as folder:
            script = [str(check.HERE / "certificates/make_secrets"), folder]
            made = subprocess.run(script, check=True, stdout=subprocess.PIPE).stdout
            found = {}
            for secret in filter(None, check.yaml.safe_load_all(made)):
                for name, value in secret["data"].items():
                    (pathlib.Path(folder) / name).write_bytes(base64.b64decode(value))
                subprocess.run(["openssl", "verify", "-CAfile", "ca.crt", "tls.crt"], cwd=folder, check=True,
                               stdout=subprocess.DEVNULL)
                text = subprocess.run(["openssl", "x509", "-in", "tls.crt", "-noout", "-ext", "subjectAltName"],
                                      cwd=folder, check=True, stdout=subprocess.PIPE).stdout.decode()
                found[secret["metadata"]["name"]] = set(re.findall(r"DNS:([^,\s]+)", text))
            self.assertEqual(found, wanted)
            subprocess.run(script, check=True, stdout=subprocess.DEVNULL)
            self.assertEqual((pathlib.Path(folder) / "ca.crt").read_bytes(),
                             base64.b64decode(secret["data"]["ca.crt"]), "the authority stays")

    def test_the_script_prints_no_secret_when_it_cannot_make_all(self):
        for what, content, complaint in (("no certificate", None, "ca.key without ca.crt"),
                                         ("a broken one", b"broken", "Unable to load CA certificate")):
            with self.subTest(what), tempfile.TemporaryDirectory() as folder:
                script = [str(check.HERE / "certificates/make_secrets"), folder]
                subprocess.run(script, check=True, stdout=subprocess.DEVNULL)
                authority = pathlib.Path(folder) / "ca.crt"
                authority.unlink() if content is None else authority.write_bytes(content)
                done = subprocess.run(script, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                self.assertEqual((done.returncode, done.stdout), (1, b""))
                self.assertIn(complaint, done.stderr.decode())

    def test_the_model_goes_where_the_workers_look_for_it(self):
        worker = pod(check.Kubernetes(self.overlays["overlays/single-node"]).named(*WORKERS))
        (loader,) = [thing["spec"] for tool in check.TOOLS for thing in check.render(tool)]
        claims = [v["persistentVolumeClaim"]["claimName"] for spec in (worker, loader) for v in spec["volumes"]
                  if v["name"] == "model"]
        self.assertEqual(claims, ["quire-model"] * 2)
        paths = [spec["containers"][0]["volumeMounts"][0]["mountPath"] for spec in (worker, loader)]
        self.assertEqual(paths[0], paths[1])

    def test_every_image_is_one_of_deploy_docker_and_has_what_its_container_starts(self):
        started = [(name, c) for name, objects in self.overlays.items()
                   for w in check.Kubernetes(objects).workloads
                   for c in check.first_containers(w) + check.containers(w)]
        started += [(tool, c) for tool in check.TOOLS for tool_pod in check.render(tool)
                    for c in tool_pod["spec"]["containers"]]
        for name, c in started:
            with self.subTest(name, container=c["name"]):
                self.assertIn(c["image"], images())
                paths, flags = images()[c["image"]], check.flags_of(c)
                if c["command"][0] != "sleep":  # This comes with Debian's essential packages.
                    self.assertIn("/opt/quire/bin/" + c["command"][0], paths)
                if flags.get("--device") == "cuda":
                    self.assertIn("/opt/quire/bin/libquire_cuda.so", paths)
                if flags.get("--model", "").startswith("/usr/share/"):
                    self.assertIn(flags["--model"], paths)

    def test_an_overlay_renames_the_images_of_all_pods(self):
        mapping = "images:\n" + "".join(f"  - {{name: {name}, newName: registry.example/{name}, newTag: '7'}}\n"
                                        for name in ("quire-cpu", "quire-cuda"))
        with tempfile.TemporaryDirectory() as folder:
            copied = pathlib.Path(shutil.copytree(check.HERE, f"{folder}/kubernetes"))
            (copied / "mine").mkdir()
            for base, where, name in (("overlays/single-node", WORKERS, "quire-cuda"),
                                      ("overlays/single-node", MANAGER, "quire-cpu"),
                                      ("gateway", GATEWAY, "quire-cpu"),
                                      ("model-loader", ("Pod", "quire-model-loader"), "quire-cpu")):
                (copied / "mine/kustomization.yaml").write_text(f"bases: [../{base}]\n{mapping}")
                thing = check.Kubernetes(check.render(copied / "mine")).named(*where)
                spec = thing["spec"] if thing["kind"] == "Pod" else pod(thing)
                self.assertEqual(spec["containers"][0]["image"], f"registry.example/{name}:7", base)

    def test_the_model_loader_runs_where_the_workers_run(self):
        worker = pod(check.Kubernetes(self.overlays["overlays/single-node"]).named(*WORKERS))
        (loader,) = [thing["spec"] for tool in check.TOOLS for thing in check.render(tool)]
        self.assertEqual(loader["tolerations"], worker["tolerations"])
        self.assertEqual(loader["containers"][0]["image"], "quire-cpu:0.1", "its image asks for no GPU")

    def test_a_worker_may_have_an_instance_of_mig(self):
        for overlay in ("overlays/single-node", "overlays/by-name"):
            objects = copy.deepcopy(self.overlays[overlay])
            limits = container(check.Kubernetes(objects).named(*WORKERS))["resources"]["limits"]
            del limits["nvidia.com/gpu"]
            limits["nvidia.com/mig-3g.40gb"] = "1"
            self.assertEqual(check.problems(objects, self.programs), [])

    def test_every_planted_mistake_is_found(self):
        original = self.overlays["overlays/multi-gpu"]
        for kind, where, plant, words in MISTAKES:
            with self.subTest(kind, words=words):
                objects = copy.deepcopy(original)
                plant(check.Kubernetes(objects).named(*where))
                found = [what for found_kind, _, what in check.problems(objects, self.programs) if found_kind == kind]
                self.assertTrue(any(words in what for what in found), found)

    def test_every_planted_mistake_of_two_managers_is_found(self):
        original = self.overlays["overlays/two-managers"]
        for where, plant, words in MISTAKES_OF_TWO_MANAGERS:
            with self.subTest(words):
                objects = copy.deepcopy(original)
                plant(check.Kubernetes(objects).named(*where))
                found = [what for kind, _, what in check.problems(objects, self.programs) if kind == "managers"]
                self.assertTrue(any(words in what for what in found), found)

    def test_every_planted_mistake_of_downloads_is_found(self):
        original = self.overlays["overlays/by-name"]
        for kind, where, plant, words in MISTAKES_OF_DOWNLOADS:
            with self.subTest(words):
                objects = copy.deepcopy(original)
                plant(check.Kubernetes(objects).named(*where))
                found = [what for found_kind, _, what in check.problems(objects, self.programs) if found_kind == kind]
                self.assertTrue(any(words in what for what in found), found)

    def test_every_planted_mistake_of_ranks_is_found(self):
        for overlay, where, plant, words in MISTAKES_OF_RANKS:
            with self.subTest(overlay, words=words):
                objects = copy.deepcopy(self.overlays["overlays/" + overlay])
                plant(check.Kubernetes(objects).named(*where))
                found = [what for kind, _, what in check.problems(objects, self.programs) if kind == "ranks"]
                self.assertTrue(any(words in what for what in found), found)

    def test_the_rules_are_those_of_deploy_prometheus(self):
        (rule,) = check.Kubernetes(self.additions).of_kind("PrometheusRule")
        groups = [check.yaml.safe_load((SOURCE / "deploy/prometheus" / name).read_text())["groups"]
                  for name in ("recording.yml", "alerts.yml")]
        self.assertEqual(rule["spec"]["groups"], groups[0] + groups[1],
                         "run deploy/kubernetes/prometheus_rule.py >deploy/kubernetes/monitoring/rules.yaml")

    def test_every_kind_of_mistake_is_planted(self):
        kinds = {kind for kind, *_ in MISTAKES + MISTAKES_OF_DOWNLOADS} | {"ranks"}
        self.assertEqual(kinds, set(check.CHECKS))

    def test_a_worker_on_the_cpu_that_holds_a_gpu_is_found(self):
        objects = copy.deepcopy(self.overlays["overlays/cpu-dev"])
        worker = container(check.Kubernetes(objects).named(*WORKERS))
        worker["resources"]["limits"]["nvidia.com/gpu"] = "1"
        found = check.problems(objects, self.programs)
        self.assertEqual([what for kind, _, what in found if kind == "resources"],
                         ["worker has 1 GPUs and computes on cpu"])

    def test_durations_are_read_as_the_programs_do(self):
        self.assertEqual(check.seconds("1m30s"), 90)
        self.assertEqual(check.seconds("500ms"), 0.5)
        self.assertEqual(check.seconds("1h"), 3600)


if __name__ == "__main__":
    BINARIES = pathlib.Path(sys.argv.pop(1))
    if check.missing_tool():
        print(f"skipped: {check.missing_tool()} is missing")
        sys.exit(check.SKIPPED)
    unittest.main()
