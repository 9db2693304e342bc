"""`trainshed completion bash|zsh|fish`: a script for the shell, with every command and option in it.

The script is made once and starts no Python afterwards, so a completion takes
a few milliseconds. It speaks only for the command `trainshed`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from typer._click.core import Command


class Shell(StrEnum):
    """Shells that a script can be written for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@dataclass(frozen=True)
class CompletionEntry:
    """One command: what may follow it."""

    path: tuple[str, ...]
    about: str
    commands: tuple[str, ...]
    options: tuple[str, ...]

    @property
    def key(self) -> str:
        return "".join(f"/{command}" for command in self.path)


_RUNS = ("show", "logs", "wait", "stop", "rm")


def completion(shell: Annotated[Shell, typer.Argument(help="bash, zsh or fish")]) -> None:
    """Print the completion script of a shell.

    bash: eval "$(trainshed completion bash)" in ~/.bashrc; zsh: the same with zsh in ~/.zshrc, after compinit;
    fish: trainshed completion fish > ~/.config/fish/completions/trainshed.fish
    """
    entries = collect()
    print(_fish(entries) if shell is Shell.FISH else _bash(entries, shell), end="")


def collect() -> list[CompletionEntry]:
    """Every command with its options, the root first."""
    from trainshed.cli.main import COMMANDS

    found = [CompletionEntry((), "", tuple(COMMANDS), ("--help", "--version"))]
    for name, (module, attribute, about) in COMMANDS.items():
        target = getattr(import_module(f"trainshed.cli.{module}"), attribute)
        app = target
        if attribute != "app":
            app = typer.Typer(add_completion=False)
            app.command()(target)
        found += _entries((name,), about, typer.main.get_command(app))
    return found


def _entries(path: tuple[str, ...], about: str, command: Command) -> list[CompletionEntry]:
    children: dict[str, Command] = getattr(command, "commands", {})
    flags = (flag for item in command.params if item.param_type_name == "option" for flag in item.opts)
    options = tuple(dict.fromkeys(flag for flag in (*flags, "--help") if flag.startswith("--")))
    found = [CompletionEntry(path, about, tuple(children), options)]
    for name, child in children.items():
        found += _entries((*path, name), child.get_short_help_str(80), child)
    return found


def _values() -> dict[str, tuple[str, ...]]:
    """Command → possible arguments, where they are known."""
    from trainshed import environments, shipped

    names = environments.framework_names()
    return {
        **{f"/env/{verb}": names for verb in ("create", "add", "show", "rm")},
        "/example/copy": tuple(shipped.examples()),
        "/bench/run": tuple(shipped.workloads()),
        "/completion": tuple(Shell),
    }


def _bash(entries: list[CompletionEntry], shell: Shell) -> str:
    values = _values()
    cases = []
    for entry in entries:
        choices = " ".join((*entry.commands, *values.get(entry.key, ())))
        runs = " runs=1" if entry.path and entry.path[0] in _RUNS and len(entry.path) == 1 else ""
        cases.append(f'        "{entry.key}") words="{choices}" options="{" ".join(entry.options)}"{runs} ;;')
    nodes = " ".join(entry.key for entry in entries if entry.path)
    head = "autoload -U +X bashcompinit && bashcompinit\n" if shell is Shell.ZSH else ""
    return f"""{head}_trainshed() {{
    local cur="${{COMP_WORDS[COMP_CWORD]}}" key="" words="" options="" runs="" i
    local nodes=" {nodes} "
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        [[ "${{COMP_WORDS[i]}}" == "--" ]] && return
        [[ "$nodes" == *" $key/${{COMP_WORDS[i]}} "* ]] && key="$key/${{COMP_WORDS[i]}}"
    done
    case "$key" in
{chr(10).join(cases)}
    esac
    if [[ "$cur" == -* ]]; then
        COMPREPLY=($(compgen -W "$options" -- "$cur"))
        return
    fi
    [[ -n "$runs" ]] && words="last $(command ls "${{TRAINSHED_HOME:-$HOME/.trainshed}}/runs" 2>/dev/null)"
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
}}
complete -o default -o bashdefault -F _trainshed trainshed
"""


def _fish(entries: list[CompletionEntry]) -> str:
    values = _values()
    lines = [
        "function __trainshed_at",
        "    set -l typed (commandline -opc)",
        "    set -e typed[1]",
        '    set -l key ""',
        "    for word in $typed",
        "        contains -- $key/$word $__trainshed_nodes; and set key $key/$word",
        "    end",
        '    test "$key" = "$argv[1]"',
        "end",
        f"set -g __trainshed_nodes {' '.join(entry.key for entry in entries if entry.path)}",
    ]
    about = {entry.path: entry.about for entry in entries}
    for entry in entries:
        where = f"complete -c trainshed -n '__trainshed_at \"{entry.key}\"'"
        for name in entry.commands:
            text = about[(*entry.path, name)].replace("'", "")
            lines.append(f"{where} -f -a {name} -d '{text}'")
        if choices := values.get(entry.key):
            lines.append(f"{where} -a '{' '.join(choices)}'")
        if entry.path and entry.path[0] in _RUNS and len(entry.path) == 1:
            folder = "set -q TRAINSHED_HOME; and ls $TRAINSHED_HOME/runs; or ls ~/.trainshed/runs"
            lines.append(f"{where} -f -a 'last (begin; {folder}; end 2>/dev/null)'")
        lines += [f"{where} -l {option.removeprefix('--')}" for option in entry.options]
    return "\n".join(lines) + "\n"
