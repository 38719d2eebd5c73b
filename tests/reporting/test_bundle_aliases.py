"""No name of a person, an account, a machine or a place is in a bundle, wherever it stood in the evidence."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from reporting.__main__ import main
from reporting.bundle.aliases import Aliases
from reporting.bundle.identifying import KnownNames
from tests.reporting.bundled_session import COSMOFLOW, MINE, RESNET, RUN_ID, STREAM, contents_of, session

USER, HOST, DOMAIN = "zqwilhelmina", "wombatnode17", "fleet.zebra-centre.ac.uk"
HOME = f"/home/{USER}/Jürgen O'Neil (alte Läufe)"
MAIL = f"wilhelmina.zq@{DOMAIN}"
IPV4, IPV6, MAC = "10.47.11.213", "fd12:3456:789a:1::42", "b8:ca:3a:6f:10:9e"
ACCOUNT, PARTITION, BUCKET, REGISTRY = (
    "zproject0815",
    "zpartition",
    "zbucket-images",
    "registry.zebra-centre.ac.uk:5000",
)
UUID = "GPU-5f2e1c3a-9d21-4b5e-8f6a-0123456789ab"
SECRET = "correct-horse-battery"
PLANTED = (
    USER,
    HOST,
    DOMAIN,
    "zebra",
    "Jürgen",
    "O'Neil",
    "alte L",
    "wilhelmina",
    IPV4,
    IPV6,
    MAC,
    ACCOUNT,
    PARTITION,
    BUCKET,
)
PLANTED += (UUID, SECRET, "wombatnode18", "zstorage", "lustre99")

DIRECTIVES = f"""#!/bin/sh
#SBATCH --account={ACCOUNT}
#SBATCH -p {PARTITION}
#SBATCH --mail-user={MAIL}
#SBATCH --nodelist=wombatnode[17-18]
#SBATCH --qos=normal
#SBATCH --comment="nightly of zebra's Jürgen"
#SBATCH --exclusive
folder='{HOME.replace("'", "'" + chr(34) + "'" + chr(34) + "'")}/runs'
export HF_TOKEN={SECRET}
export HTTPS_PROXY=http://{USER}:{SECRET}@proxy.{DOMAIN}:3128
srun --container-image={REGISTRY}/{ACCOUNT}/torch:25.01 --nodelist={HOST} true
"""
LINES = f"""
Warning: {USER}@{HOST} (IPv4 {IPV4}, [{IPV6}]:29500, {MAC}) mounts {HOME}/data and ~{USER}/set
GET https://{HOST}.{DOMAIN}/v1/{BUCKET}?key=1 s3://{BUCKET}/train {UUID}
wrote /lustre99/{ACCOUNT}/{USER}/out.txt; {quote(HOME)}/x; ask {MAIL.upper()} or {MAIL}
wombatnode18.{DOMAIN}: job of {USER.upper()} on WOMBATNODE17, api_key: "{SECRET}"
"""


def planted_text(text: str) -> str:
    """The evidence of a user with an odd home on a node of the fleet."""
    in_json = json.dumps(HOME)[1:-1]
    changed = text.replace('"n07"', f'"{HOST}"').replace("on n07 needs", f"on {HOST}.{DOMAIN} needs")
    changed = changed.replace("/home/jdoe", in_json if '"' in text else HOME).replace(
        "/scratch/proj42/jdoe", "/lustre99/zstorage"
    )
    if text.startswith("#!/bin/sh"):
        return DIRECTIVES + changed.partition("\n")[2]
    return changed


def planted_run(content: dict[str, Any]) -> None:
    content["events"] = [f"Pulled image {REGISTRY}/{ACCOUNT}/torch:25.01 on {HOST}.{DOMAIN} ({IPV4}, {IPV6})"]
    content["reason"] = f"started by {USER} <{MAIL}> in {HOME}/runs"
    content["asked"]["env"] = {
        "HF_HOME": f"{HOME}/.cache",
        "LOGNAME": USER,
        f"SSH_{USER.upper()}": IPV4,
        "WANDB_API_KEY": "(hidden)",
        "SCRATCH": f"/lustre99/{ACCOUNT}/{USER}",
    }
    content["asked"]["arguments"] += ["--token", SECRET, f"--out={HOME}/out"]
    content["asked"]["image"] = f"{REGISTRY}/{ACCOUNT}/torch:25.01"
    content["asked"]["cluster"] = {"context": f"admin@{DOMAIN}", "namespace": ACCOUNT}
    content["asked"]["reservation"] = f"res_{USER}"
    content["asked"]["avoid_nodes"] = ["wombatnode18", f"{HOST}.{DOMAIN}"]
    content["suite"]["host"] = f"login1.{DOMAIN}"


def planted(tmp_path: Path, *words: str) -> Path:
    made = session(tmp_path, change=planted_text, change_run=planted_run)
    (tmp_path / "site" / "platforms" / "fleet.yaml").write_text(
        yaml.safe_dump(
            {"scheduler": "slurm", "host": f"{USER}@{HOST}", "slurm": {"account": ACCOUNT, "partition": PARTITION}}
        )
    )
    for job in (RESNET, COSMOFLOW, MINE, STREAM):
        log = made.jobs / job / "log"
        log.write_text(LINES + log.read_text() + LINES)
    return made.bundle(*words)


def names_in(bundle: Path) -> dict[str, list[str]]:
    """Which planted names stand in a bundle: in contents, in names of files, in the zip file itself."""
    places = {name: content.decode("utf-8") for name, content in contents_of(bundle).items()}
    with zipfile.ZipFile(bundle) as packed:
        places["names of files"] = "\n".join(packed.namelist())
    places["zip"] = bundle.read_bytes().decode("utf-8", "replace")
    found: dict[str, list[str]] = {}
    for place, text in places.items():
        for name in PLANTED:
            forms = {name, json.dumps(name)[1:-1], quote(name)}
            if any(form.lower() in text.lower() for form in forms):
                found.setdefault(place, []).append(name)
    return found


@pytest.mark.parametrize("words", [(), ("--with-logs",)])
def test_no_planted_name_is_anywhere_in_the_bundle(
    tmp_path: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = planted(tmp_path, *words)
    printed = capsys.readouterr().out
    assert names_in(bundle) == {}
    assert not [name for name in PLANTED if name in printed.replace(str(tmp_path), "")]
    assert main(["verify", str(bundle)]) == 0
    assert "identical: " in capsys.readouterr().out
    assert "free text was searched for known names, addresses, URLs and paths only" in printed
    replaced = contents_of(bundle)["REPLACED.md"].decode()
    for kind in ("node", "user", "path", "account", "secret"):
        assert f"| {kind} | " in replaced


def test_the_same_thing_has_the_same_alias_everywhere(tmp_path: Path) -> None:
    files = contents_of(planted(tmp_path, "--with-logs"))
    record = json.loads(files[f"jobs/{RUN_ID}/{RESNET}/run.json"])
    node = record["nodes"][0]
    assert node.startswith("node-")
    assert record["start"]["host"]["name"] == record["summary"]["slowest"]["host"] == node
    assert f"on {node} needs" in json.loads(files[f"jobs/{RUN_ID}/{COSMOFLOW}/run.json"])["warnings"][0]
    assert f"on {node} needs" in files["tables/tables.txt"].decode()
    assert f'"host": "{node}"' in files[f"jobs/{RUN_ID}/{RESNET}/wire.log"].decode()
    assert node in files["tables/tables.csv"].decode()
    user = record["asked"]["env"]["LOGNAME"]
    log = files[f"jobs/{RUN_ID}/{RESNET}/log"].decode()
    assert f"Warning: {user}@{node} (IPv4 address-" in log
    assert f"job of {user} on {node}" in log
    account = record["asked"]["cluster"]["namespace"]
    assert f"#SBATCH --account={account}\n" in files[f"jobs/{RUN_ID}/{RESNET}/job.sh"].decode()


def test_numbers_versions_and_devices_stay(tmp_path: Path) -> None:
    plain = contents_of(session(tmp_path / "plain").bundle("--identify"))
    aliased = contents_of(session(tmp_path / "aliased").bundle())

    def shape(value: Any) -> Any:
        """A value of JSON without its texts."""
        if isinstance(value, dict):
            return {key: shape(each) for key, each in value.items()}
        if isinstance(value, list):
            return [shape(each) for each in value]
        return "text" if isinstance(value, str) else value

    for job in (RESNET, COSMOFLOW, MINE, STREAM):
        name = f"jobs/{RUN_ID}/{job}/run.json"
        one, other = json.loads(plain[name]), json.loads(aliased[name])
        assert shape(one) == shape(other)
        for key in ("test", "platform", "layout", "metrics", "windows"):
            assert one[key] == other[key]
        for key in ("versions", "device", "request", "world"):
            assert one["start"].get(key) == other["start"].get(key)
    steps = f"jobs/{RUN_ID}/{RESNET}/steps-rank1.csv"
    assert plain[steps] == aliased[steps]


def test_the_namespace_of_the_wire_is_no_name_that_is_replaced(tmp_path: Path) -> None:
    """It is MLPerf's word, and stands in each of its lines."""
    replaced = contents_of(session(tmp_path).bundle())["REPLACED.md"].decode()
    assert "| namespace |" not in replaced


def test_identify_leaves_names_and_hides_secrets(tmp_path: Path) -> None:
    bundle = planted(tmp_path, "--identify", "--with-logs")
    assert all(SECRET not in names for names in names_in(bundle).values())
    files = contents_of(bundle)
    assert json.loads(files[f"jobs/{RUN_ID}/{RESNET}/run.json"])["nodes"] == [HOST]
    assert b"export HF_TOKEN=(hidden)\n" in files[f"jobs/{RUN_ID}/{RESNET}/job.sh"]
    assert b"Names are as they were (`--identify`)." in files["REPLACED.md"]
    assert main(["verify", str(bundle)]) == 0


def test_each_secret_behind_an_option_is_hidden_and_counted() -> None:
    hiding = aliases()
    words = ["train", "--api-token", SECRET, "--token=x", "--size=smoke", "--password", 1234]
    in_run_json = ["train", "--api-token", "(hidden)", "--token=(hidden)", "--size=smoke", "--password", "(hidden)"]
    assert hiding.content(words) == in_run_json
    assert hiding.places["secret"] == 3
    assert hiding.text("srun app --token=x --size=smoke --api-key 'a b'") == (
        "srun app --token=(hidden) --size=smoke --api-key (hidden)"
    )


def aliases(*hosts: str, users: tuple[str, ...] = ()) -> Aliases:
    known = KnownNames()
    for host in hosts:
        known.add("node", host)
    for user in users:
        known.add("user", user)
    return Aliases(known)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("driver 570.124.06, torch 2.13.0+cpu, CUDA 12.8", None),
        ("25.4 samples/s and 3/4 of it, 10:42:11, a/b, and/or", None),
        ("test_mine.py::test_mine[local-1x1cpu-gbs32]", None),
        ("listens on 127.0.0.1:29500, 0.0.0.0 and [::1]", None),
        ("/usr/bin/env python, /dev/null, /proc/pressure", None),
        ("nvcr.io/nvidia/pytorch:25.01-py3 needs nvidia.com/gpu: 4", None),
        ("10.1.2.3 and 10.1.2.3", "address-1 and address-1"),
        ("cn01, cn02.example.org and CN01", "node-01, node-02 and node-01"),
        ("cn[01-02,07] and cn99", "node-03 and node-04"),
        ("cn0100 cn01x", None),
        ("anna@cn01:/home/anna/x and anna's", "user-1@node-01:/path-1 and user-1's"),
        ("annamaria", None),
        ("bob.smith@uni-bonn.de", "user-2@node-05"),
        ("Bearer abcdef0123456789, ghp_abcdefghijklmnop1234", "Bearer (hidden), (hidden)"),
        ("password: hunter2; tokens_per_s: 5", "password: (hidden); tokens_per_s: 5"),
    ],
)
def test_what_a_text_becomes(text: str, expected: str | None) -> None:
    replaced = aliases("cn01", "cn02.example.org", users=("anna",))
    for before in ("cn01", "cn02", "cn[01-02,07]", "cn99", "anna", "bob.smith@uni-bonn.de"):
        replaced.text(before)
    assert replaced.text(text) == (text if expected is None else expected)


def test_a_partition_that_is_called_like_the_device(tmp_path: Path) -> None:
    def change(text: str) -> str:
        changed = text.replace("AMD EPYC", "NVIDIA A100-SXM4-40GB").replace("twin-", "eidf_a100-")
        return changed.replace("#!/bin/sh\n", "#!/bin/sh\n#SBATCH --partition=a100\n#SBATCH --qos=max\n")

    files = contents_of(session(tmp_path, (RESNET,), change=change).bundle())
    folder = f"jobs/{RUN_ID}/test_resnet50-eidf_a100-1x1cpu-gbs32"
    assert b"#SBATCH --partition=partition-1\n#SBATCH --qos=partition-2\n" in files[f"{folder}/job.sh"]
    record = json.loads(files[f"{folder}/run.json"])
    assert record["start"]["device"]["name"] == "NVIDIA A100-SXM4-40GB"
    assert record["test"] == "test_resnet50.py::test_resnet50[eidf_a100-1x1cpu-gbs32]"
    assert record["start"]["host"]["cpu_quota"] == "max"


MANIFEST = """\
kind: Job
metadata:
  name: resnet50-1x4gpu-k3f9a2bc
  namespace: zproject0815ns
  labels: {kueue.x-k8s.io/queue-name: zproject0815ns-queue, centre/user: zqwilhelmina-zproject0815}
spec:
  serviceAccountName: zbot
  imagePullSecrets: [{name: zregcred}]
  nodeSelector: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-40GB, kubernetes.io/hostname: wombatnode17.zebra.ac.uk}
  containers:
  - name: main
    image: registry.zebra.ac.uk:5000/zproject0815/torch:25.01-py3
    command: [sh, -c, "cd /mnt/zceph/wilhelmina && python models-298e77ff0e90.pyz train"]
    env: [{name: HF_TOKEN, value: correct-horse-battery}, {name: NCCL_SOCKET_IFNAME, value: eth0}]
    resources: {limits: {nvidia.com/gpu: 4, memory: 64Gi, cpu: 900m}}
  volumes: [{name: data, persistentVolumeClaim: {claimName: zproject0815-pvc}}]
"""


def test_a_manifest_is_one_afterwards_too() -> None:
    known = KnownNames()
    known.add_manifest(MANIFEST)
    replaced = Aliases(known).script(MANIFEST)
    content = yaml.safe_load(replaced)
    assert not re.search(r"zproject|wilhelmina|wombat|zebra|zbot|zregcred|zceph|battery", replaced)
    assert content["metadata"]["name"] == "resnet50-1x4gpu-k3f9a2bc"
    assert content["spec"]["nodeSelector"]["nvidia.com/gpu.product"] == "NVIDIA-A100-SXM4-40GB"
    (container,) = content["spec"]["containers"]
    assert container["image"] == "image-1:25.01-py3"
    assert container["env"][0] == {"name": "HF_TOKEN", "value": "(hidden)"}
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 4, "memory": "64Gi", "cpu": "900m"}}
    assert "models-298e77ff0e90.pyz train" in container["command"][2]


def test_a_user_who_is_called_like_the_suite() -> None:
    replaced = aliases(users=("bench",))
    assert replaced.content({"user": "bench", "org": "hpc-ml-bench", "env": {"LOGNAME": "bench"}}) == {
        "user": "user-1",
        "org": "hpc-ml-bench",
        "env": {"LOGNAME": "user-1"},
    }


def test_a_name_that_is_a_word_of_ours_is_replaced_in_its_own_place_only() -> None:
    replaced = aliases("gpu", users=("train",))
    assert replaced.content({"nodes": ["gpu"], "arguments": ["train", "gpu"]}) == {
        "nodes": ["node-01"],
        "arguments": ["train", "gpu"],
    }
