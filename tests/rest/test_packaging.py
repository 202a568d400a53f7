"""The files of packaging/: no systemd runs them here, so what they name must fit together, and the script must do what it says."""

import os
import re
import subprocess
import time
from pathlib import PurePosixPath

from .server import BINARY, ROOT

SYSTEMD = ROOT / "packaging/systemd"
SCRIPT = SYSTEMD / "nightly-backup"


def settings(unit: str) -> list[tuple[str, str]]:
    lines = (SYSTEMD / unit).read_text().splitlines()
    return [tuple(line.split("=", 1)) for line in lines if re.match(r"\w+=", line)]


def test_the_nightly_backup_can_link_what_it_backs_up():
    """Each writable path of a unit is a mount of its own, and no file is linked from one mount to another."""
    unit = settings("reconstruct-backup.service")
    [writable] = [value for key, value in unit if key == "ReadWritePaths"]
    assert " " not in writable
    # They are writable mounts too.
    others = {"BindPaths", "CacheDirectory", "LogsDirectory", "RuntimeDirectory", "StateDirectory", "TemporaryFileSystem"}
    assert not others & {key for key, _ in unit}
    [data] = [value.split("=", 1)[1] for key, value in unit if key == "Environment" and value.startswith("LIBRECONSTRUCT_DATA=")]
    [backups] = re.findall(r"^folder=\$\{1:-(.*)\}$", SCRIPT.read_text(), re.MULTILINE)
    for folder in (data, backups):
        assert PurePosixPath(folder).is_relative_to(writable), folder
    # The server makes the folder: it has the same one.
    assert ("StateDirectory", PurePosixPath(data).name) in settings("reconstruct.service")
    assert f"d {backups} " in (SYSTEMD / "reconstruct.tmpfiles").read_text()


def test_a_nightly_backup_keeps_so_many_and_clears_what_a_killed_one_left(tmp_path):
    data, backups, programs = (tmp_path / name for name in ("data", "backups", "bin"))
    backups.mkdir()
    programs.mkdir()
    (programs / "reconstruct").symlink_to(BINARY)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LIBRECONSTRUCT_")}
    environment |= {"LIBRECONSTRUCT_DATA": str(data), "PATH": f"{programs}:{os.environ['PATH']}"}
    subprocess.run([BINARY, "users", "add", "anna"], check=True, capture_output=True, env=environment)
    dead = subprocess.Popen(["true"])
    dead.wait()
    killed, running, mine = (backups / f".{dead.pid}-0.2026-01-01T033000", backups / f".{os.getpid()}-0.2026-01-02T033000", backups / ".mine")
    for folder in (killed, running, mine):
        (folder / "scenes").mkdir(parents=True)
        (folder / "scenes/file").write_text("half")
    made = []
    for _ in range(2):
        done = subprocess.run(["sh", SCRIPT, backups, "1"], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr
        made.append({path.name for path in backups.iterdir() if not path.name.startswith(".")})
        # They are named by the second.
        time.sleep(1.1)
    assert [len(names) for names in made] == [1, 1] and made[0] != made[1]
    assert not killed.exists() and (running / "scenes/file").exists() and (mine / "scenes/file").exists()


def test_the_demo_of_ones_own_video_is_a_preview_without_a_gpu_unless_another_is_asked_for(tmp_path):
    program = tmp_path / "target/release/reconstruct"
    program.parent.mkdir(parents=True)

    def demo(auto: str, flags: str) -> list[str]:
        """The options with which the video is reconstructed on a machine where `auto` is what training takes by itself."""
        devices = f"auto takes: {auto}\\n  the processor, 2 threads\\n  no graphics adapter"
        program.write_text(f"#!/bin/sh\nif [ $1 = devices ]; then printf '{devices}\\n'; else echo \"$@\" > ran; fi\n")
        program.chmod(0o755)
        env = os.environ | {"VIDEO": "my.mp4", "OUT": "out", "RUN_FLAGS": flags}
        done = subprocess.run([ROOT / "scripts/demo.sh"], cwd=tmp_path, env=env, check=True, capture_output=True, text=True)
        ran = (tmp_path / "ran").read_text().split()
        assert ran[:4] == ["run", "my.mp4", "-o", "out"]
        # What was chosen is said, and how to have another.
        assert ("--quality preview" in done.stdout and "RUN_FLAGS='--quality standard'" in done.stdout) == ("preview" in ran)
        return ran[4:]

    processor = "the processor, 2 threads"
    preview = ["--quality", "preview", "--time-budget", "15m"]
    assert demo(processor, "") == preview
    assert demo(processor, "--max-frames 30") == [*preview, "--max-frames", "30"]
    assert demo(processor, "--quality high") == ["--quality", "high"]
    assert demo(processor, "--time-budget=1h") == ["--time-budget=1h"]
    assert demo("a graphics card", "") == []
