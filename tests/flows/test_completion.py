"""Completion of commands in a shell."""

import os
import shutil
import subprocess

import pytest

from support.service import MAUVE, PATIENCE_S, clean_environment, mauve, mauve_json

IN_BASH = """
eval "$(mauve completion bash)"
for line in "$@"; do
    COMPREPLY=() COMP_WORDS=($line) && COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _mauve_completion mauve
    echo "${COMPREPLY[@]}"
done
"""


def completed(shell, words, **environment):
    """Return what the program replies to a shell's script."""
    asked = clean_environment(_MAUVE_COMPLETE=f"{shell}_complete", COMP_WORDS=words, **environment)
    done = subprocess.run(
        [str(MAUVE)],
        env=asked,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.embedded
def test_bash_completes_commands_options_and_choices():
    lines = ["mauve se", "mauve app cr", "mauve serve --ingest", "mauve serve --role lo", "mauve completion f"]
    done = subprocess.run(
        [shutil.which("bash"), "--norc", "-c", IN_BASH, "bash", *lines],
        env=clean_environment(PATH=f"{MAUVE.parent}{os.pathsep}{os.environ['PATH']}"),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert done.stdout.splitlines() == ["serve", "create", "--ingest-port", "loader", "fish"], done.stderr


@pytest.mark.embedded
def test_zsh_and_fish_get_commands_with_their_descriptions():
    assert completed("zsh", "mauve doc", COMP_CWORD="1").split("\n")[:2] == ["plain", "doctor"]
    assert completed("fish", "mauve doc", COMP_CWORD="doc").startswith("plain,doctor")


@pytest.mark.embedded
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_script_asks_the_program(tmp_path, shell):
    script = mauve(tmp_path / "unused", "completion", shell).stdout
    assert f"_MAUVE_COMPLETE={shell}_complete" in script
    assert mauve_json(tmp_path / "unused", "completion", shell) == script
    assert not (tmp_path / "unused").exists()


@pytest.mark.embedded
def test_another_shell_is_refused_with_the_names_of_those_that_work(tmp_path):
    refused = mauve(tmp_path / "unused", "completion", "tcsh")
    assert refused.returncode == 2
    assert "'bash', 'zsh', 'fish'" in refused.stderr
    assert refused.stderr.count("\n") == 1
