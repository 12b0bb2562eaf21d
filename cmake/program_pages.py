# SPDX-License-Identifier: Apache-2.0
"""Makes the manual pages of our programs, and scripts that complete their flags in bash, zsh and fish, from what the
programs print for --help.

  program_pages.py OUT PROGRAM...    writes OUT/man1/NAME.1.gz, OUT/bash/NAME, OUT/zsh/_NAME and OUT/fish/NAME.fish

quirectl and quire have commands, whose help is a part of their page. quirectl writes its own scripts."""

import gzip
import pathlib
import re
import subprocess
import sys

# The prefixes of flags that `quire serve` passes on, and the programs that have them.
PASSED_ON = {"worker": "quire-worker", "manager": "quire-manager", "gateway": "quire-openai"}
# Flags with which `quire serve` passes nothing on.
NOT_PASSED_ON = {"help", "version", "check-config", "print-effective-config", "explain-memory"}


def printed(*arguments):
    """Returns what a program prints, for a terminal of 80 columns without colours."""
    environment = {"PATH": "/usr/bin:/bin", "COLUMNS": "80", "NO_COLOR": "1"}
    return subprocess.run(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True, timeout=60,
                          env=environment, text=True).stdout


def flags_of(help_text):
    """Returns [(name, description, whether it has a value)] of the long flags. True and false are no value."""
    flags = []
    for name, default, text in re.findall(r"^  --([a-z0-9-]+)(?:=(.*))?\n((?:      .*\n)+)", help_text, re.MULTILINE):
        description = " ".join(text.split()).removeprefix("Required. ")
        has_value = default not in ("true", "false")
        flags.append((name, re.split(r"(?<=[a-z0-9)])\. ", description)[0].rstrip("."), has_value))
    return flags + [("help", "Print the help and leave", False), ("version", "Print the version and leave", False)]


def flags_of_argparse(help_text):
    """The same of a program in Python."""
    found = re.findall(r"^  (?:-[a-z], )?--([a-z-]+)( [A-Z]+)?((?: {2,}|\n {3,})\S.*(?:\n {3,}\S.*)*)", help_text,
                       re.MULTILINE)
    return [(name, re.split(r"; | \(default ", " ".join(text.split()))[0], bool(value)) for name, value, text in found]


# Manual pages.


def escaped(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text[:1] in (".", "'") else text


def formatted(help_text):
    """Turns the text of --help into the body of a manual page. A line without a space before it that ends with a colon
    is a heading, a flag or a name with an explanation gets a paragraph, and other indented lines stay as they are."""
    page, literal = [], False
    for line in help_text.rstrip("\n").split("\n"):
        text = line.strip()
        explained = re.match(r"^ {2}(\S.*?)(?: {2,}(\S.*))?$", line)
        is_entry = explained and (text.startswith("-") or explained[2])
        if literal and (not line.startswith("  ") or is_entry):
            page.append(".fi\n.RE")
            literal = False
        if not text:
            page.append(".PP")
        elif re.match(r"^\S.*:$", line) and len(line) < 60:
            page.append(f".SS {escaped(text[:-1])}")
        elif is_entry:
            page.append(f".TP\n.B {escaped(explained[1])}")
            page += [escaped(explained[2])] if explained[2] else []
        elif re.match(r"^ {2}\S", line):
            if not literal:
                page.append(".RS 2\n.nf")
                literal = True
            page.append(escaped(line[2:]))
        else:
            page.append(escaped(text))
    if literal:
        page.append(".fi\n.RE")
    # A paragraph before a heading or another one is nothing.
    return re.sub(r"(?:\.PP\n)+(?=\.SS|\.TP|\.PP|\Z)", "", "\n".join(page) + "\n")


def manual_page(name, version, help_text, parts):
    """`parts` has (title, text) of what follows the program's own help."""
    usage = re.search(r"^[Uu]sage: ((?:.|\n)*?)(?=\n\n|\n[A-Z])", help_text, re.MULTILINE)
    synopsis = " ".join(usage[1].split()) if usage else name
    about = help_text.replace(usage[0], "") if usage else help_text
    paragraph = " ".join(about.strip().split("\n\n")[0].split())
    sentence = re.split(r"(?<=[a-z)])[.,] ", paragraph.removeprefix(name).strip())[0].rstrip(".")
    page = f".TH {name.upper()} 1 \"\" \"Quire {version}\" \"User Commands\"\n"
    page += f".SH NAME\n{escaped(name)} \\- {escaped(sentence[:1].lower() + sentence[1:])}\n"
    page += f".SH SYNOPSIS\n.B {escaped(synopsis)}\n.SH DESCRIPTION\n{formatted(about.strip())}"
    for title, text in parts:
        page += f".SH {escaped(title.upper())}\n{formatted(text.strip())}"
    return page + ".SH SEE ALSO\nThe documents are in /usr/share/doc/quire.\n"


# Scripts of shells.


def bash_script(name, commands, flags):
    function = "_" + name.replace("-", "_")
    words = " ".join(commands + ["--" + flag for flag, _, _ in flags])
    return (f"# Completion of {name} for bash.\n"
            f"{function}() {{\n"
            "  local current=${COMP_WORDS[COMP_CWORD]}\n"
            "  COMPREPLY=()\n"
            f"  if [[ $current == -* || $COMP_CWORD -eq 1 ]]; then\n"
            f"    COMPREPLY=($(compgen -W '{words}' -- \"$current\"))\n"
            "  fi\n"
            "}\n"
            f"complete -o default -F {function} {name}\n")


def zsh_script(name, commands, flags):
    def option(flag, description, has_value):
        description = re.sub(r"([\[\]:\\])", r"\\\1", description).replace("'", "'\\''")
        return f"  '--{flag}=[{description}]:value:_files'" if has_value else f"  '--{flag}[{description}]'"

    first = [f"  '1:command:({' '.join(commands)})'"] if commands else []
    lines = first + [option(*flag) for flag in flags] + ["  '*:file:_files'"]
    return f"#compdef {name}\n# Completion of {name} for zsh.\n_arguments -S \\\n" + " \\\n".join(lines) + "\n"


def fish_script(name, commands, flags):
    lines = [f"# Completion of {name} for fish."]
    for command in commands:
        lines.append(f"complete -c {name} -n __fish_use_subcommand -f -a {command}")
    for flag, description, has_value in flags:
        description = description.replace("\\", "\\\\").replace("'", "\\'")
        lines.append(f"complete -c {name} -l {flag} {'-r' if has_value else '-f'} -d '{description}'")
    return "\n".join(lines) + "\n"


# The programs.


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode(), mtime=0))
    else:
        path.write_text(text)


def make(program, others, out):
    name = program.name
    help_text = printed(program, "--help")
    version = printed(program, "--version").split()[-1]
    parts, commands, flags = [], [], flags_of(help_text)
    if name == "quirectl":
        commands = re.findall(r"^  ([a-z]+) {2,}", help_text.split("Subcommands:")[1], re.MULTILINE)
        parts = [(f"quirectl {command}", printed(program, command, "--help")) for command in commands]
    elif name == "quire":
        commands = re.findall(r"^  ([a-z]+) ", help_text, re.MULTILINE)
        serve = printed(program, "serve", "--help")
        parts = [("quire serve", serve)]
        flags = flags_of(serve)
        for prefix, other in PASSED_ON.items():
            flags += [(f"{prefix}.{flag}", *rest) for flag, *rest in flags_of(printed(others[other], "--help"))
                      if flag not in NOT_PASSED_ON]
    elif name == "quire-download":
        flags = flags_of_argparse(help_text)
    write(out / f"man1/{name}.1.gz", manual_page(name, version, help_text, parts))
    if name == "quirectl":
        scripts = {shell: printed(program, "completion", shell) for shell in ("bash", "zsh", "fish")}
    else:
        scripts = {"bash": bash_script(name, commands, flags), "zsh": zsh_script(name, commands, flags),
                   "fish": fish_script(name, commands, flags)}
    write(out / f"bash/{name}", scripts["bash"])
    write(out / f"zsh/_{name}", scripts["zsh"])
    write(out / f"fish/{name}.fish", scripts["fish"])


def main():
    out = pathlib.Path(sys.argv[1])
    programs = [pathlib.Path(path).resolve() for path in sys.argv[2:]]
    for program in programs:
        make(program, {other.name: other for other in programs}, out)


if __name__ == "__main__":
    main()
