# SPDX-License-Identifier: Apache-2.0
"""Checks deploy/compose as far as this is possible without Docker: every flag is one of its program, and the services
name each other, their ports and their files correctly. The argument is the folder of our programs."""

import pathlib
import re
import subprocess
import sys
import unittest

import docker_test

try:
    import yaml
except ImportError:
    yaml = None

SKIPPED = 77
FOLDER = docker_test.SOURCE / "deploy/compose"
OURS = ("worker", "manager", "gateway")


def flag(service, name):
    """Returns the value of a flag of a service."""
    return next((arg.split("=", 1)[1] for arg in service["command"] if arg.startswith(f"{name}=")), None)


def port_of(address):
    return int(address.rpartition(":")[2])


class ComposeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.file, cls.gpu = (
            yaml.safe_load(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", (FOLDER / name).read_text()))  # With no variable set.
            for name in ("compose.yaml", "gpu.yaml"))
        cls.services = cls.file["services"]
        cls.prometheus = yaml.safe_load((FOLDER / "prometheus.yml").read_text())

    def listening(self, service):
        """Returns the ports at which other containers reach a service."""
        addresses = [flag(service, name) for name in ("--listen", "--metrics-listen")]
        return {port_of(address) for address in addresses if address and address.startswith("0.0.0.0:")}

    def test_every_program_accepts_its_command(self):
        for name in OURS:
            program, *flags = self.services[name]["command"]
            self.assertIn(program, docker_test.PROGRAMS)
            done = subprocess.run([BINARIES / program, *flags, "--check-config"], capture_output=True, text=True,
                                  check=False, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_worker_on_a_gpu_is_the_same_but_for_its_device(self):
        self.assertEqual(set(self.gpu["services"]), {"worker", "manager"})
        worker, on_cpu = self.gpu["services"]["worker"], self.services["worker"]
        self.assertEqual(worker["command"][:len(on_cpu["command"])], on_cpu["command"])
        added = worker["command"][len(on_cpu["command"]):]
        self.assertEqual(added, ["--device=cuda", "--gpu-tuning-cache=/var/cache/quire/gpu-tuning"])
        done = subprocess.run([BINARIES / "quire-worker", *worker["command"][1:], "--check-config"],
                              capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        (device,) = worker["deploy"]["resources"]["reservations"]["devices"]
        self.assertEqual(device, {"driver": "nvidia", "device_ids": ["0"], "capabilities": ["gpu"]})

    def test_the_worker_on_a_gpu_has_its_own_image_and_may_write_to_its_cache(self):
        worker = self.gpu["services"]["worker"]
        text = (docker_test.SOURCE / worker["build"]["dockerfile"]).read_text()
        self.assertIn(f"-t {worker['image']} ", text)
        (cache,) = worker["volumes"]
        name, path = cache.split(":")
        self.assertIn(name, self.gpu["volumes"])
        self.assertIn(f"install -d -o 10001 -g 10001 {path}\n", text)
        self.assertIn(f"CUDA_CACHE_PATH={path}/", text)
        # The worker of compose.yaml builds the image of the manager, too. This one does not.
        manager = self.gpu["services"]["manager"]["build"]
        self.assertEqual((FOLDER / manager["context"]).resolve(), docker_test.SOURCE)
        self.assertEqual(manager["dockerfile"], self.services["worker"]["build"]["dockerfile"])

    def test_a_download_goes_where_the_worker_looks(self):
        worker, download = self.services["worker"], self.services["download"]
        self.assertEqual(worker["environment"]["HF_HUB_CACHE"], download["environment"]["HF_HUB_CACHE"])
        self.assertEqual((worker["volumes"], download["volumes"]), (["models:/models:ro"], ["models:/models"]))
        self.assertIn("models", self.file["volumes"])
        self.assertEqual(set(download["networks"]) & set(worker["networks"]), set())
        (program,) = download["entrypoint"]
        self.assertTrue((BINARIES / program).exists())
        text = (docker_test.SOURCE / download["build"]["dockerfile"]).read_text()
        self.assertIn(f"-t {download['image']} ", text)
        self.assertRegex(text, r"install -d -o 10001 -g 10001 /models\n", "the user of the image may write there")

    def test_services_find_each_other_on_a_common_network(self):
        for client, name, server in (("manager", "--workers", "worker"), ("gateway", "--manager", "manager")):
            found = re.fullmatch(r"dns:///(\w+):(\d+)", flag(self.services[client], name))
            self.assertEqual(found[1], server)
            self.assertIn(int(found[2]), self.listening(self.services[server]))
            self.assertTrue(set(self.services[client]["networks"]) & set(self.services[server]["networks"]))
        for service in self.services.values():
            self.assertLessEqual(set(service["networks"]), set(self.file["networks"]))
            for other in service.get("depends_on", {}):
                self.assertIn("healthcheck", self.services[other])

    def test_health_is_asked_where_the_service_listens(self):
        for service in self.services.values():
            if "healthcheck" in service:
                kind, program, option, endpoint, command, asked = service["healthcheck"]["test"]
                self.assertEqual((kind, program, option, command), ("CMD", "quirectl", "--endpoint", "health"))
                self.assertIn(port_of(endpoint), self.listening(service))
                self.assertIn(asked, ("liveness", "readiness"))

    def test_ports_are_published_to_this_machine_alone(self):
        for name, service in self.services.items():
            for published in service.get("ports", []):
                host, _, inside = published.split(":")
                self.assertEqual(host, "127.0.0.1", published)
                if name in OURS:
                    self.assertIn(int(inside), self.listening(service))

    def test_workers_are_reached_by_managers_alone(self):
        with_workers = {name for name, s in self.services.items() if "workers" in s["networks"]}
        self.assertEqual(with_workers, {"worker", "manager"})
        self.assertNotIn("ports", self.services["worker"])

    def test_the_image_is_one_of_deploy_docker_and_containers_may_do_little(self):
        dockerfile = self.services["worker"]["build"]["dockerfile"]
        context = (FOLDER / self.services["worker"]["build"]["context"]).resolve()
        self.assertEqual(context, docker_test.SOURCE)
        text = (context / dockerfile).read_text()
        for name in OURS:
            service = self.services[name]
            self.assertIn(f"-t {service['image']} ", text)
            self.assertTrue(service["read_only"])
            self.assertEqual(service["cap_drop"], ["ALL"])
            self.assertGreater(int(service["stop_grace_period"].rstrip("s")), 30)
        model = flag(self.services["worker"], "--model")
        self.assertIn(f"COPY models/tales {model}\n", text)

    def test_prometheus_scrapes_every_service_and_has_its_files(self):
        service = self.services["prometheus"]
        mounted = {}
        for volume in service["volumes"]:
            source, target, mode = volume.split(":")
            self.assertTrue((FOLDER / source).exists(), source)
            self.assertEqual(mode, "ro")
            mounted[target] = source
        self.assertEqual(service["command"], ["--config.file=/etc/prometheus/compose.yml"])
        self.assertEqual(mounted["/etc/prometheus/compose.yml"], "./prometheus.yml")
        for rules in self.prometheus["rule_files"]:
            self.assertIn(f"/etc/prometheus/{rules}", mounted)
        jobs = {job["job_name"]: job for job in self.prometheus["scrape_configs"]}
        (target,) = jobs["quire-manager"]["static_configs"][0]["targets"]
        self.assertEqual(target, f"manager:{port_of(flag(self.services['manager'], '--metrics-listen'))}")
        (workers,) = jobs["quire-worker"]["dns_sd_configs"]
        self.assertEqual((workers["names"], workers["port"]),
                         (["worker"], port_of(flag(self.services["worker"], "--metrics-listen"))))
        (target,) = jobs["quire-gateway"]["static_configs"][0]["targets"]
        self.assertEqual(target, f"gateway:{port_of(flag(self.services['gateway'], '--listen'))}")
        for name in OURS:
            self.assertIn("metrics", self.services[name]["networks"])


if __name__ == "__main__":
    if yaml is None:
        print("skipped: PyYAML is missing (Debian: python3-yaml)")
        sys.exit(SKIPPED)
    BINARIES = pathlib.Path(sys.argv.pop(1))
    unittest.main()
