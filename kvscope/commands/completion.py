"""Print the completion of commands and options for a shell: bash, zsh or fish.

In ~/.bashrc: eval "$(kvscope completion bash)"; in ~/.zshrc: eval "$(kvscope completion zsh)"; for fish:
kvscope completion fish > ~/.config/fish/completions/kvscope.fish
"""

from __future__ import annotations

import argparse
from shlex import quote

GROUP = "set up"
SHELLS = ("bash", "zsh", "fish")
EXAMPLES = ('eval "$(kvscope completion bash)"',)


def configure(parser: argparse.ArgumentParser) -> None:
    """SHELL."""
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help="bash, zsh or fish")


def run(options: argparse.Namespace) -> int:
    """Print the script."""
    known = _known()
    print({"bash": _bash, "zsh": _zsh, "fish": _fish}[options.shell](known))
    return 0


def _known() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Command → its line of help and its options, as each says them itself."""
    from importlib import import_module

    from kvscope import commands
    from kvscope.discovery import module_names

    found = {}
    for name in module_names(commands.__path__):
        module, parser = import_module(f"kvscope.commands.{name}"), argparse.ArgumentParser()
        module.configure(parser)
        words = tuple(word for action in parser._actions for word in action.option_strings if word.startswith("--"))
        found[name] = ((module.__doc__ or "").partition("\n")[0], words)
    return found


def _bash(known: dict[str, tuple[str, tuple[str, ...]]]) -> str:
    cases = "\n".join(f"    {name}) words={quote(' '.join(words))} ;;" for name, (_, words) in known.items())
    return f"""_kvscope() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" words=""
  if [ "$COMP_CWORD" -eq 1 ]; then words={quote(" ".join(known))}; else
    case "${{COMP_WORDS[1]}}" in
{cases}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _kvscope kvscope"""


def _zsh(known: dict[str, tuple[str, tuple[str, ...]]]) -> str:
    names = " ".join(quote(f"{name}:{says.replace(':', ' -')}") for name, (says, _) in known.items())
    cases = "\n".join(
        f"      {name}) _values -w option {' '.join(words)}; _files ;;" for name, (_, words) in known.items()
    )
    return f"""#compdef kvscope
_kvscope() {{
  if (( CURRENT == 2 )); then local -a names=({names}); _describe command names; else
    case $words[2] in
{cases}
    esac
  fi
}}
compdef _kvscope kvscope"""


def _fish(known: dict[str, tuple[str, tuple[str, ...]]]) -> str:
    lines = []
    for name, (says, words) in known.items():
        lines.append(f"complete -c kvscope -n __fish_use_subcommand -a {name} -d {quote(says)}")
        seen = quote(f"__fish_seen_subcommand_from {name}")
        lines += [f"complete -c kvscope -n {seen} -l {word.removeprefix('--')}" for word in words]
    return "\n".join(lines)
