"""The recipes of examples/cluster for Kubernetes, as far as a machine without it can tell: the MPIJob by a schema of the operator's
resource, its command with mpirun in the operator's place, and the container file by what it copies, installs and builds."""
import copy
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import time
import unittest

import jsonschema
import yaml

from recorded import ROOT, gcomp

CLUSTER = ROOT / "examples/cluster"
STEPS = 1500  # so many that it can be interrupted
SCHEMA = json.loads((pathlib.Path(__file__).parent / "mpijob.schema.json").read_text())


def mpijob():
    return yaml.safe_load((CLUSTER / "mpijob.yaml").read_text())


def pods(job):
    return {role: replica["template"]["spec"] for role, replica in job["spec"]["mpiReplicaSpecs"].items()}


def container(job, role):
    return pods(job)[role]["containers"][0]


class Instructions:
    """Those of a container file: (stage, word, rest), lines that end in a backslash joined."""

    def __init__(self, text):
        text = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
        self.all, self.stages = [], []
        for line in text.replace("\\\n", " ").splitlines():
            word, _, rest = line.strip().partition(" ")
            if word == "FROM":
                self.stages.append(rest.split(" AS ")[1] if " AS " in rest else "")
            if word:
                self.all.append((self.stages[-1], word, " ".join(rest.split())))

    def of(self, stage, word):
        return [rest for of_stage, of_word, rest in self.all if of_stage == stage and of_word == word]

    def packages(self, stage):
        [line] = [rest for rest in self.of(stage, "RUN") if "apt-get install" in rest]
        words = line.split("install -y --no-install-recommends ")[1].split(" && ")[0].split()
        return words

    def copies(self, stage):
        """(stage that it comes from, or ""; sources; destination)"""
        for rest in self.of(stage, "COPY"):
            words = rest.split()
            origin = words.pop(0).removeprefix("--from=") if words[0].startswith("--from=") else ""
            yield origin, words[:-1], words[-1]


def containerfile():
    return Instructions((CLUSTER / "Containerfile").read_text())


def words_of_dev(name):
    return re.search(rf"^{name}=\((.*?)\)", (ROOT / "dev").read_text(), re.S | re.M).group(1).split()


class MpiJob(unittest.TestCase):
    def test_the_operator_would_take_it(self):
        jsonschema.Draft202012Validator.check_schema(SCHEMA)
        jsonschema.Draft202012Validator(SCHEMA).validate(mpijob())

    def test_what_it_would_not_take_is_told(self):
        def launcher(job):
            return job["spec"]["mpiReplicaSpecs"]["Launcher"]

        changes = {
            "an older version": lambda job: job.update(apiVersion="kubeflow.org/v1"),
            "a field that there is not": lambda job: job["spec"].update(backoffLimit=3),
            "a number as text": lambda job: job["spec"].update(slotsPerWorker="4"),
            "a policy of the older operator": lambda job: launcher(job).update(restartPolicy="ExitCode"),
            "two launchers": lambda job: launcher(job).update(replicas=2),
            "no workers": lambda job: job["spec"]["mpiReplicaSpecs"].pop("Worker"),
            "a misspelt role": lambda job: job["spec"]["mpiReplicaSpecs"].update(launcher=launcher(job)),
            "a number among the words": lambda job: container(job, "Launcher")["args"].append(512),
            "no image": lambda job: container(job, "Worker").pop("image"),
            "a volume of two kinds": lambda job: pods(job)["Worker"]["volumes"][0].update(emptyDir={}),
            "no size": lambda job: container(job, "Worker")["resources"]["limits"].update(memory="much"),
        }
        for what, change in changes.items():
            with self.subTest(what):
                job = copy.deepcopy(mpijob())
                change(job)
                with self.assertRaises(jsonschema.ValidationError):
                    jsonschema.Draft202012Validator(SCHEMA).validate(job)

    def test_its_parts_fit(self):
        job, build = mpijob(), containerfile()
        configuration = " ".join(build.of("", "RUN"))
        for role, pod in pods(job).items():
            used, made = ({entry["name"] for entry in entries} for entries in (pod["containers"][0].get("volumeMounts", []), pod.get("volumes", [])))
            self.assertEqual(used, made, role)
            self.assertIn(f"--uid {pod['securityContext']['runAsUser']} ", configuration, role)
            self.assertEqual(pod["containers"][0]["image"], container(job, "Launcher")["image"], role)
        self.assertIn(f"'HostKey {job['spec']['sshAuthMountPath']}/id_rsa'", configuration)
        self.assertIn(f"> {container(job, 'Worker')['args'][-1]}", configuration)
        self.assertEqual(configuration.count("'Port 2222'"), 2, "of the server and of the client")
        limit = int(container(job, "Worker")["resources"]["limits"]["cpu"])
        arguments = container(job, "Launcher")["args"]
        self.assertEqual(limit, job["spec"]["slotsPerWorker"] * int(arguments[arguments.index("--threads") + 1]))
        [work] = [entry for entry in container(job, "Worker")["volumeMounts"] if entry["name"] == "work"]
        for word in arguments:
            self.assertTrue(not word.startswith("/") or word.startswith(work["mountPath"] + "/"), word)

    def test_the_options_of_gcomp_are_there(self):
        arguments = container(mpijob(), "Launcher")["args"]
        known = set(re.findall(r"--[a-z-]+", gcomp("train", "--help").stdout))
        used = {word for word in arguments[arguments.index("gcomp"):] if word.startswith("--")}
        self.assertGreater(len(used), 5)
        self.assertEqual(used - known, set())


@unittest.skipUnless(shutil.which("mpirun"), "there is no mpirun")
class Launcher(unittest.TestCase):
    """What the launcher's pod runs, with ranks on this machine in the place of workers."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.work = pathlib.Path(scratch.name)
        for suffix, name in ((".onnx", "m.onnx"), (".npz", "train.npz")):
            shutil.copy(ROOT / f"tests/fixtures/training/cnn{suffix}", self.work / name)
        self.job = mpijob()

    def start(self, slots):
        """As the operator does: the pod's command, and a file of hosts by an environment variable."""
        (self.work / "hostfile").write_text(f"localhost slots={slots}\n")
        replaced = {"8": "1", "512": "16", "--epochs": "--steps", "20": str(STEPS)}
        launcher = container(self.job, "Launcher")
        words = [replaced.get(word, word.replace("/work/", f"{self.work}/")) for word in launcher["command"] + launcher["args"]]
        environment = os.environ | {"OMPI_MCA_orte_default_hostfile": str(self.work / "hostfile"), "OMPI_MCA_orte_set_default_slots": str(slots),
                                    "OMPI_MCA_mpi_yield_when_idle": "1",  # here ranks share processors
                                    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                                    "PATH": f"{pathlib.Path(os.environ['GCOMP']).parent}:{os.environ['PATH']}"}
        return subprocess.Popen([*words, "--quiet"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def test_goes_on_when_it_is_started_again(self):
        first = self.start(slots=4)
        deadline = time.monotonic() + 300
        while not (self.work / "run/metrics.jsonl").exists() or not (self.work / "run/metrics.jsonl").read_bytes():
            self.assertIsNone(first.poll(), "it has ended before it was asked to")
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        hook = container(self.job, "Launcher")["lifecycle"]["preStop"]["exec"]["command"]
        stop = subprocess.Popen([*hook[:-1], re.sub(r"(kill -\w+) 1\b", rf"\1 {first.pid}", hook[-1])], stderr=subprocess.DEVNULL)
        told = first.communicate(timeout=600)[0]
        stop.wait(timeout=60)
        self.assertEqual(first.returncode, 75, told)
        self.assertIn("interrupted by SIGUSR1", told)
        second = self.start(slots=2)  # whatever the code, restartPolicy and backoffLimit start it again
        told = second.communicate(timeout=600)[0]
        self.assertEqual(second.returncode, 0, told)
        gcomp("train", self.work / "m.onnx", "--data", self.work / "train.npz", "--loss", "cross_entropy", "--batch", 16, "--steps", STEPS,
              "--quiet", "--micro-batches", 8, "--out", self.work / "alone.onnx")
        self.assertEqual((self.work / "run/last.onnx").read_bytes(), (self.work / "alone.onnx").read_bytes())

    def test_is_started_again_where_it_fails(self):
        policy, replica = self.job["spec"]["runPolicy"], self.job["spec"]["mpiReplicaSpecs"]["Launcher"]
        self.assertEqual(replica["restartPolicy"], "OnFailure")
        self.assertGreater(policy["backoffLimit"], 0)
        self.assertIn("--resume", container(self.job, "Launcher")["args"])


class Containerfile(unittest.TestCase):
    def test_installs_what_a_build_wants(self):
        self.assertEqual(containerfile().packages("build"), words_of_dev("build_packages"))

    def test_is_of_known_stages(self):
        self.assertEqual(containerfile().stages, ["build", ""])
        self.assertEqual([rest.split(" AS ")[0] for stage in ("build", "") for rest in containerfile().of(stage, "FROM")], ["debian:12"] * 2)
        self.assertNotRegex(" ".join(rest for _, _, rest in containerfile().all), r"\b(curl|wget|pip|git|ADD)\b|://", "nothing is fetched")

    def test_the_libraries_are_installed_where_it_runs(self):
        if "bookworm" not in pathlib.Path("/etc/os-release").read_text() or not shutil.which("objdump"):
            self.skipTest("the names of packages are those of Debian 12")
        installed = set(containerfile().packages(""))
        binaries = [os.environ["GCOMP"], pathlib.Path(os.environ["GCOMP"]).parent / "libgcomp_mpi.so"]
        for binary in filter(os.path.exists, binaries):
            wanted = re.findall(r"NEEDED +(\S+)", subprocess.run(["objdump", "-p", binary], capture_output=True, text=True, check=True).stdout)
            self.assertGreater(len(wanted), 3)
            owners = subprocess.run(["dpkg", "-S", *(f"*/{library}" for library in wanted)], capture_output=True, text=True).stdout
            for library in wanted:
                names = {line.split(":")[0] for line in owners.splitlines() if line.endswith("/" + library)}
                if not names & {"libc6", "libstdc++6", "libgcc-s1"}:  # of g++
                    self.assertTrue(names & installed, f"{library} of {binary}: in {sorted(names)}, of which none is installed")

    def test_debian_has_the_packages(self):
        if not shutil.which("apt-cache") or subprocess.run(["apt-cache", "show", "g++"], capture_output=True).returncode != 0:
            self.skipTest("there are no lists of packages")
        if "bookworm" not in pathlib.Path("/etc/os-release").read_text():
            self.skipTest("the names of packages are those of Debian 12")
        known = set(subprocess.run(["apt-cache", "pkgnames"], capture_output=True, text=True, check=True).stdout.split())
        self.assertEqual(set(containerfile().packages("build") + containerfile().packages("")) - known, set())

    def test_what_is_copied_suffices(self):
        """The sources that it copies, in a folder of their own: configured with its words, nothing that a build needs is missing."""
        build = containerfile()
        with tempfile.TemporaryDirectory() as scratch:
            for origin, sources, destination in build.copies("build"):
                self.assertEqual(origin, "")
                for source in sources:
                    target = pathlib.Path(scratch + destination)
                    if (ROOT / source).is_dir():
                        shutil.copytree(ROOT / source, target)
                    else:
                        target.mkdir(parents=True, exist_ok=True)
                        shutil.copy(ROOT / source, target)
            configure, make, install = [rest for rest in build.of("build", "RUN") if rest.startswith("cmake")]
            done = subprocess.run([word.replace("/source", f"{scratch}/source").replace("/build", f"{scratch}/build") if word.startswith("/") else word
                                   for word in shlex.split(configure)], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertNotIn("was not found", done.stdout)
            named = subprocess.run(["ninja", "-C", f"{scratch}/build", "-t", "inputs", "gcomp"], capture_output=True, text=True, check=True).stdout
            needed = [path for path in named.splitlines() if path.startswith(f"{scratch}/source/")]
            self.assertGreater(len(needed), 20)
            self.assertEqual([path for path in needed if not os.path.exists(path)], [])
            self.assertEqual(make, "cmake --build /build")
            installed = set(re.findall(r'"\$\{CMAKE_INSTALL_PREFIX\}/([^"]*)"', (pathlib.Path(scratch) / "build/cmake_install.cmake").read_text()))
            self.assertIn('cmake --install "$build" --prefix', (ROOT / "tests/install_example").read_text())
            self.assertEqual(install, "cmake --install /build --prefix /installed")
            for origin, sources, destination in build.copies(""):
                self.assertEqual(origin, "build")
                for source in sources:
                    path = source.removeprefix("/installed/")
                    self.assertNotEqual(path, source)
                    self.assertTrue(any(name.startswith(str(pathlib.Path(path).parent)) for name in installed), f"{path} in {installed}")
