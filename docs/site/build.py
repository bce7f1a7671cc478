"""Build the documentation site: put the pages in place, let the generator build them, and move the result.

The pages are the Markdown files of the repository, which link to each other as files do there. On the site they have
other places (`PLACES`), so their links are rewritten; a link without a target stops the build.
"""

import posixpath
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
SITE = Path(__file__).parent
OUTPUT = ROOT / "src/mauve/openapi/site"  # The service serves it, and a wheel contains it if it was built.
PLACES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "clients/python/README.md": "clients/python.md",
    "clients/typescript/README.md": "clients/typescript.md",
    "clients/spool.md": "clients/spool.md",
}
LINK = re.compile(r"(\]\()([^)#:\s]+)(#[^)\s]*)?(\))")
FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
MARKER = re.compile(r"^ *<!-- not run: .*-->\n", re.MULTILINE)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        shutil.copytree(SITE / "overrides", work / "overrides")
        shutil.copy(SITE / "zensical.toml", work)
        pages = work / "pages"
        write_pages(pages)
        build(work)
        shutil.copytree(pages, work / "site", dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.svg", "site.css"))
        shutil.rmtree(OUTPUT, ignore_errors=True)
        shutil.copytree(work / "site", OUTPUT)
    count = sum(1 for _ in OUTPUT.rglob("*.html"))
    print(f"{count} pages in {OUTPUT.relative_to(ROOT)}: start the service and open /docs/index.html")  # noqa: T201


def write_pages(pages: Path) -> None:
    """Write every page, with links between their places on the site, and the files that pages link to."""
    sources = [ROOT / name for name in PLACES if name != "README.md"] + sorted((ROOT / "docs").rglob("*.md"))
    linked: set[str] = set()
    for source in sources:
        name = source.relative_to(ROOT).as_posix()
        text, files = placed(source.read_text(), name)
        linked |= files
        write(pages / place_of(name), text)
    write(pages / "decisions/index.md", decisions())
    for name in sorted(linked):
        (pages / place_of(name)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, pages / place_of(name))
    write(pages / "llms.txt", (ROOT / "src/mauve/openapi/llms.txt").read_text().replace("](/docs/", "]("))
    shutil.copy(SITE / "site.css", pages)
    shutil.copy(ROOT / "src/mauve/dashboard/static/mark.svg", pages)


def place_of(name: str) -> str:
    """Return where a file of the repository is on the site."""
    if name == "docs/decisions":
        return "decisions/index.md"
    return PLACES.get(name) or (name.removeprefix("docs/") if name.startswith("docs/") else f"files/{name}")


def placed(text: str, name: str) -> tuple[str, set[str]]:
    """Return a page with its links rewritten, and the files other than pages that it links to."""
    here = posixpath.dirname(place_of(name))
    files: set[str] = set()

    def rewritten(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(name), match[2]))
        if not (ROOT / target).exists():
            sys.exit(f"{name}: the link to {match[2]} has no target: correct it, or add the file")
        if not target.endswith(".md") and (ROOT / target).is_file():
            files.add(target)
        return f"{match[1]}{posixpath.relpath(place_of(target), here or '.')}{match[3] or ''}{match[4]}"

    parts, end = [], 0
    for fence in FENCE.finditer(text):
        parts += [LINK.sub(rewritten, text[end : fence.start()]), fence[0]]
        end = fence.end()
    return MARKER.sub("", "".join([*parts, LINK.sub(rewritten, text[end:])])), files


def decisions() -> str:
    """Return the list of decision records, which the repository shows as a folder."""
    lines = []
    for path in sorted((ROOT / "docs/decisions").glob("*.md")):
        title = path.read_text().partition("\n")[0].lstrip("# ")
        lines.append(f"- [{title}]({path.name})")
    return "# Decisions\n\nWhat was decided, why, and the consequences.\n\n" + "\n".join(lines)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def build(work: Path) -> None:
    """Run the generator; a warning, such as one about a missing anchor, is an error."""
    command = [Path(sys.executable).with_name("zensical"), "build", "--strict", "--clean"]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}\ndocs: correct what the generator complains about, then build again")


if __name__ == "__main__":
    main()
