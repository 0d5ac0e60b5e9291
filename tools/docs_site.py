#!/usr/bin/env python3
"""Builds the documents into pages that open without a network and can be searched.

usage: docs_site.py REPOSITORY OUT       write OUT/index.html and the other pages
       docs_site.py REPOSITORY --search WORDS...    print the pages that WORDS find, best first

A page's rank for a query is the sum over its words of BM25 (Robertson & Zaragoza 2009) on counts that weigh titles and
headings more. The weights are computed here; the pages' script only adds them up. Needs the Debian package
python3-markdown, for pages alone.
"""
import collections
import html
import json
import math
import os
import re
import shutil
import subprocess
import sys

SECTIONS = (("Start", ["README.md", "docs/guides/*.md"]),
            ("Reference", ["docs/commands.md", "docs/reference-settings.md", "docs/reference-commands.md", "docs/formats.md",
                           "docs/variations.md", "docs/library.md", "docs/faq.md"]),
            ("Inside", ["docs/inside.md", "docs/concepts.md", "docs/architecture.md", "docs/notation.md", "docs/adding-a-variation.md", "docs/reference_cases.md",
                        "docs/benchmarks.md", "docs/results.md"]),
            ("Examples", ["examples/README.md", "examples/*/README.md"]),
            ("Project", ["CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"]))
TITLE_WEIGHT, HEADING_WEIGHT = 12, 4
REFERENCE_SHARE = 0.5  # lists of everything find every word: pages that explain come first
SATURATION, LENGTH_WEIGHT = 1.2, 0.6  # BM25's k1 and b
STOP_WORDS = frozenset("a an and are as at be by for from how i in is it my of on or the this to what when which with".split())
STYLE = """
:root { color-scheme: light dark; --line: #8884; --link: #0645ad; }
@media (prefers-color-scheme: dark) { :root { --link: #8ab4f8; } }
body { margin: 0; font: 16px/1.55 system-ui, sans-serif; display: flex; flex-wrap: wrap; }
nav { flex: 1 0 13rem; max-width: 18rem; padding: 1rem; border-right: 1px solid var(--line); font-size: .9rem; }
nav ul { list-style: none; padding: 0 0 .5rem .5rem; margin: 0; }
main { flex: 1 1 24rem; min-width: 0; max-width: 56rem; padding: 1rem 2rem 4rem; overflow-wrap: anywhere; }
a { color: var(--link); }
input { width: 100%; box-sizing: border-box; font: inherit; padding: .3rem .5rem; }
pre { overflow: auto; padding: .7rem; background: #8881; border-radius: 4px; }
code { font-size: .9em; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
td, th { border: 1px solid var(--line); padding: .2rem .5rem; vertical-align: top; }
img { max-width: 100%; background: #fff; }
"""
SCRIPT = """
const stem = STEM;
const box = document.getElementById("search"), list = document.getElementById("found");
box.addEventListener("input", () => {
  const scores = new Map();
  for (const word of box.value.toLowerCase().match(/[a-z0-9_]+/g) || [])
    for (const [page, weight] of Object.entries(INDEX.words[stem(word)] || {}))
      scores.set(page, (scores.get(page) || 0) + weight);
  const best = [...scores].sort((a, b) => b[1] - a[1]).slice(0, 8);
  list.innerHTML = "";
  for (const [page] of best) {
    const a = document.createElement("a"), item = document.createElement("li");
    a.href = ROOT + INDEX.pages[page][0];
    a.textContent = INDEX.pages[page][1];
    item.append(a);
    list.append(item);
  }
});
"""
# The same in both languages: plurals and -ing, -ed, -er fall away.
SUFFIX = r"(?:ing|ed|er|es|s)$"
STEM_SCRIPT = f"word => word.length > 4 ? word.replace(/{SUFFIX}/, '') : word.replace(/s$/, '')"


def stem(word):
    return re.sub(SUFFIX, "", word) if len(word) > 4 else re.sub(r"s$", "", word)


def words_of(text):
    return [stem(word) for word in re.findall(r"[a-z0-9_]+", text.lower()) if word not in STOP_WORDS]


def pages_of(root):
    """[(section, path)] of the documents that git knows, in order."""
    names = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard", "*.md"], capture_output=True,
                           text=True, check=True).stdout.split()
    out = []
    for section, patterns in SECTIONS:
        for pattern in patterns:
            wanted = re.compile(re.escape(pattern).replace(r"\*", "[^/]*"))
            out += [(section, name) for name in sorted(names) if wanted.fullmatch(name)]
    return out


def text_of(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


def title_of(text):
    return re.search(r"^# (.+)$", text, re.M)[1].replace("`", "")


def counts_of(text):
    """How often each word occurs, titles and headings counting more."""
    counts = collections.Counter()
    for line in text.split("\n"):
        weight = TITLE_WEIGHT if line.startswith("# ") else HEADING_WEIGHT if line.startswith("#") else 1
        for word in words_of(line):
            counts[word] += weight
            for part in word.split("_") if "_" in word else []:
                counts[stem(part)] += weight
    return counts


def index_of(root):
    """{"pages": [[address, title], ...], "words": {word: {page: weight}}}"""
    pages = [path for _, path in pages_of(root)]
    counts = [counts_of(text_of(root, path)) for path in pages]
    lengths = [sum(c.values()) for c in counts]
    mean = sum(lengths) / len(lengths)
    having = collections.Counter(word for c in counts for word in c)
    words = {}
    for page, (count, length) in enumerate(zip(counts, lengths)):
        for word, n in count.items():
            rarity = math.log(1 + (len(pages) - having[word] + 0.5) / (having[word] + 0.5))
            norm = SATURATION * (1 - LENGTH_WEIGHT + LENGTH_WEIGHT * length / mean)
            share = REFERENCE_SHARE if pages[page].startswith("docs/reference-") else 1
            words.setdefault(word, {})[page] = round(share * rarity * n * (SATURATION + 1) / (n + norm), 3)
    return {"pages": [[address_of(path), title_of(text_of(root, path))] for path in pages], "words": words}


def found(index, query):
    """Addresses of the pages that the query finds, best first."""
    scores = collections.Counter()
    for word in words_of(query):
        for page, weight in index["words"].get(word, {}).items():
            scores[page] += weight
    return [index["pages"][page][0] for page, _ in scores.most_common()]


def address_of(path):
    return "index.html" if path == "README.md" else path[:-len(".md")] + ".html"


def page_html(root, path, pages, index):
    import markdown
    body = markdown.markdown(text_of(root, path), extensions=["tables", "fenced_code", "toc", "sane_lists"])
    body = re.sub(r'(href=")([^":]+)\.md(#[^"]*)?"', lambda m: f'{m[1]}{m[2]}.html{m[3] or ""}"', body)
    body = re.sub(r'href="((?:\.\./)*)README\.html', r'href="\1index.html', body)
    up = "../" * path.count("/")
    menu, last = "", None
    for section, other in pages:
        if section != last:
            menu += ("</ul>" if last else "") + f"<b>{section}</b><ul>"
            last = section
        menu += f'<li><a href="{up}{address_of(other)}">{html.escape(title_of(text_of(root, other)))}</a></li>'
    return (f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
            f"<title>{html.escape(title_of(text_of(root, path)))} - qkv</title><style>{STYLE}</style>"
            f'<nav><input id="search" type="search" placeholder="Search" aria-label="Search"><ul id="found"></ul>{menu}</ul></nav>'
            f'<main>{body}</main><script>const ROOT = {json.dumps(up)};</script><script src="{up}search.js"></script></html>\n')


def main():
    root = sys.argv[1]
    index = index_of(root)
    if sys.argv[2] == "--search":
        print("\n".join(found(index, " ".join(sys.argv[3:]))[:8]))
        return
    out, pages = sys.argv[2], pages_of(root)
    for _, path in pages:
        to = os.path.join(out, address_of(path))
        os.makedirs(os.path.dirname(to), exist_ok=True)
        with open(to, "w", encoding="utf-8") as file:
            file.write(page_html(root, path, pages, index))
    with open(os.path.join(out, "search.js"), "w", encoding="utf-8") as file:
        file.write(f"const INDEX = {json.dumps(index, separators=(',', ':'))};\n{SCRIPT.replace('STEM', STEM_SCRIPT, 1)}")
    for name in os.listdir(os.path.join(root, "docs")):
        if name.endswith((".svg", ".png")):
            os.makedirs(os.path.join(out, "docs"), exist_ok=True)
            shutil.copy(os.path.join(root, "docs", name), os.path.join(out, "docs", name))


if __name__ == "__main__":
    main()
