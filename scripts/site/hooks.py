"""What MkDocs does for this site besides its own work.

The documents are written for GitHub. So links to files outside docs/ become links to the repository, and the
navigation has the order of docs/README.md. A2AD_SITE_REF is the tag to which these links lead, main if it is not set.
"""

import glob
import os
import posixpath
import re

from mkdocs.exceptions import PluginError

SECTIONS = {"Tutorials": "tutorials", "How-to guides": "how-to", "Reference": "reference", "Explanation": "explanation"}
# Words of a link may be on two lines. A link with a scheme is not for this site.
LINK = re.compile(r"(?<=\]\()([^)\s:]+?)(#[^)\s]*)?(?=\))")
REF = os.environ.get("A2AD_SITE_REF") or "main"
FENCE = re.compile(r"^( *)(```+|~~~+)[^\n]*\n.*?^\1\2 *$", re.MULTILINE | re.DOTALL)


def on_config(config):
    """Make the navigation: one tab for each section of docs/README.md, with the pages of its directory."""
    with open(os.path.join(config.docs_dir, "README.md"), encoding="utf-8") as file:
        parts = re.split(r"^## (.+)\n", file.read(), flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2]))
    nav = [{"Start": ["README.md", "glossary.md"]}]
    for name, directory in SECTIONS.items():
        if name not in sections:
            raise PluginError(f"docs/README.md has no section {name}")
        listed = [path for path, _ in LINK.findall(sections[name]) if path.startswith(directory + "/")]
        rest = sorted(glob.glob(directory + "/*.md", root_dir=config.docs_dir))
        nav.append({name: list(dict.fromkeys(listed + rest))})
    nav.append({"Decisions": ["adr/README.md"]})
    config.nav = nav
    return config


def on_page_markdown(markdown, page, config, files):
    """Let links to files outside docs/ lead to the repository, and fail if there is no such file."""
    root = os.path.dirname(config.config_file_path)
    here = posixpath.join("docs", posixpath.dirname(page.file.src_uri))

    def target(match):
        path = posixpath.normpath(posixpath.join(here, match.group(1)))
        inside = posixpath.relpath(path, "docs")
        if not inside.startswith("..") and not os.path.isdir(os.path.join(root, path)):
            return match.group(0)
        if not os.path.exists(os.path.join(root, path)):
            raise PluginError(f"{page.file.src_uri} links to {path}, which does not exist")
        kind = "tree" if os.path.isdir(os.path.join(root, path)) else "blob"
        return f"{config.repo_url}/{kind}/{REF}/{path}{match.group(2) or ''}"

    pieces, end = [], 0
    for fence in FENCE.finditer(markdown):
        pieces += [LINK.sub(target, markdown[end : fence.start()]), fence.group(0)]
        end = fence.end()
    return "".join(pieces) + LINK.sub(target, markdown[end:])


def on_page_content(html, page, config, files):
    """Fail if a block of code was not recognized: it would be a paragraph, which nobody can copy."""
    # An indented fence needs care: Markdown for GitHub and for this site differ there.
    if "```" in re.sub(r"<(pre|code)[ >].*?</\1>", "", html, flags=re.DOTALL):
        raise PluginError(f"{page.file.src_uri} has a block of code that the site shows as text")
    return html
