"""What mkdocs does beyond its configuration: pages from the top of the repository, and links.

Code that names something public, such as `cf.solve(…)`, becomes a link to it in the reference: on
every page, and in a strict build a name that is not there is an error.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

TOP = Path(__file__).parents[1]
PAGES = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}

_PUBLIC_NAME = re.compile(r"<code>cf\.(?P<name>\w+)(?P<rest>[^<]*)</code>")


def on_files(files: Files, config: Any) -> Files:
    """The pages of the site, with those that lie at the top of the repository."""
    for page, source in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(TOP / source)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page with its links out of docs/ led to where those files are on the site.

    And with what is typed at a prompt told from what is printed.
    """
    markdown = markdown.replace("```python\n>>> ", "```pycon\n>>> ")
    if page.file.src_uri in PAGES:
        return markdown.replace("](docs/", "](")
    for there, source in PAGES.items():
        markdown = markdown.replace(f"](../{source})", f"]({there})")
    return markdown


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """The page with a link at every public name that is written as code."""
    del page
    return _PUBLIC_NAME.sub(
        r'<autoref identifier="counterflow.\g<name>"><code>cf.\g<name>\g<rest></code></autoref>',
        html,
    )
