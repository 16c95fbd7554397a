# SPDX-License-Identifier: Apache-2.0
"""The rooms of src/ and the arrows between them: drawn as they are, and a wrong one fails."""
import json
import pathlib
import re
import shlex
import subprocess

import pytest

root = pathlib.Path(__file__).resolve().parents[2]


def arrows_of_targets(build):
    pairs = [line.split(" <- ") for line in (build / "arrows.txt").read_text().splitlines()]
    return {(known, room) for known, room in pairs}


def include_flags(build, room):
    """What the compiler is told for a source of that room."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if f"/hkt_{room}.dir/" in entry["command"] and entry["file"].endswith(".cpp"):
            return [flag for flag in shlex.split(entry["command"]) if re.match(r"-I", flag)]
    pytest.skip(f"{room} was not configured here")


def test_the_design_draws_what_the_targets_say(build_folder):
    text = (root / "docs/design.md").read_text().split("<!-- arrows -->")[1].split("<!-- end -->")[0]
    drawn = {(known, room) for known, rooms in re.findall(r"^ +(\w+) <- (.+)$", text, re.M) for room in rooms.split(", ")}
    assert drawn == arrows_of_targets(build_folder)


def test_every_folder_is_a_room(build_folder):
    folders = {path.name for path in (root / "src").iterdir() if path.is_dir()}
    assert folders == {room for arrow in arrows_of_targets(build_folder) for room in arrow} | {"reference"}


@pytest.mark.parametrize("room, header, allowed", [
    ("data", "files/quote.h", True), ("data", "nn/config_json.h", False), ("data", "train/learner.h", False),
    ("files", "data/packed.h", False), ("nn", "kernels/attention.h", False), ("ops", "kernels/attention.h", True),
    ("train", "data/batches.h", True), ("train", "experiments/protocol.h", False), ("report", "train/metrics.h", False),
    ("theory", "train/learner.h", False), ("kernels", "ops/layer_norm_cuda.h", False),
])
def test_a_wrong_arrow_does_not_compile(room, header, allowed, build_folder):
    flags = include_flags(build_folder, room)
    found = subprocess.run(["g++", "-E", "-x", "c++", *flags, "-"], input=f'#if !__has_include("{header}")\n#error no\n#endif\n',
                           text=True, capture_output=True)
    assert (found.returncode == 0) == allowed, found.stderr


# Each room owns its config; hkt/config.h, the three together, belongs to train and those above it.
configs_of = {"kernels": [], "ops": [], "reference": [], "files": [], "report": [], "nn": ["model"], "theory": ["model"], "data": ["data"]}


@pytest.mark.parametrize("room", configs_of)
def test_a_room_includes_no_config_but_its_own(room):
    """include/ is common to all rooms, so that only the sources say."""
    sources = [path for path in (root / "src" / room).rglob("*") if path.suffix in {".h", ".cpp", ".cu"}]
    allowed = {f"hkt/{name}_config.h" for name in configs_of[room]}
    included = {(path.name, header) for path in sources
                for header in re.findall(r'#include "(hkt/(?:\w+_)?config\.h)"', path.read_text())}
    assert sources and {pair for pair in included if pair[1] not in allowed} == set()
