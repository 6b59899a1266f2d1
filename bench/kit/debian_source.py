"""Sources of Debian's packages, for benchmarks and tests that build a program of another project."""
import subprocess
import sys

SOURCES = """Types: deb-src
URIs: http://deb.debian.org/debian
Suites: {suite}
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""


def call(arguments, **more):
    """The program's output; if the program fails, this one ends."""
    result = subprocess.run(arguments, capture_output=True, text=True, check=False, **more)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, arguments))} failed:\n{(result.stdout + result.stderr)[-3000:]}")
    return result.stdout


def get_debian_source(work, package, *options, suite="bookworm"):
    """Debian's source of a package, to the folder `work`, whatever the machine's own lists of sources say."""
    (work / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    (work / "source.sources").write_text(SOURCES.format(suite=suite), encoding="utf-8")
    places = ["-o", f"Dir::Etc::sourcelist={work}/source.sources", "-o", "Dir::Etc::sourceparts=/dev/null",
              "-o", f"Dir::State::lists={work}/lists", "-o", "APT::Sandbox::User=root"]
    call(["apt-get", *places, "update"], cwd=work)
    call(["apt-get", *places, *options, "source", package], cwd=work)
