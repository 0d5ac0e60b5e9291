#!/usr/bin/env python3
"""Installs qkv into a folder of its own and uses it from there, as a project that knows nothing of this one does.

usage: install_test.py CMAKE BUILD COMPILER VERSION [unittest arguments, e.g. Installed.test_pkg_config]

BUILD is a build folder in which the library and the tool are made. The folder is moved after the installation: no
file in it may know where it was put first.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCES / "tools"))
sys.dont_write_bytecode = True
import docs_check  # noqa: E402
import public_headers  # noqa: E402

CMAKE = BUILD = COMPILER = VERSION = ""


def run(*command, **options):
    """The standard output of a command that must succeed."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, **options)
    if done.returncode != 0:
        raise AssertionError(f"\n$ {' '.join(map(str, command))}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="qkv_install_")
        cls.root = Path(cls.scratch.name)
        run(CMAKE, "--install", BUILD, "--prefix", cls.root / "first")
        cls.prefix = (cls.root / "first").rename(cls.root / "prefix")
        cls.library = next(cls.prefix.glob("**/libqkv.a")).parent
        cls.examples = next(cls.prefix.glob("share/doc/*/examples"))
        cls.pkg_config = {**os.environ, "PKG_CONFIG_PATH": str(cls.library / "pkgconfig")}

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def flags(self, *options):
        return run("pkg-config", *options, "qkv", env=self.pkg_config).split()

    def test_files(self):
        self.assertEqual(run(self.prefix / "bin/qkv", "--version"), f"qkv {VERSION}\n")
        documents = self.examples.parent
        for path in [documents / "LICENSE", documents / "README.md", self.library / "cmake/qkv/qkvConfigVersion.cmake"]:
            self.assertTrue(path.is_file(), path)
        manual = (self.prefix / "share/man/man1/qkv.1").read_text()
        for command in "train", "generate", "tokenizer encode":
            self.assertIn(f"\n.SS qkv {command}\n", manual)
        self.assertIn("complete ", (self.prefix / "share/bash-completion/completions/qkv").read_text())
        internal = [path for path in self.prefix.glob("include/**/*") if path.name.endswith(("-inl.h", ".cc"))]
        self.assertEqual(internal, [])
        include = self.prefix / "include"
        headers = sorted(path.relative_to(include).as_posix() for path in include.glob("**/*.h"))
        self.assertEqual(headers, public_headers.public_headers(SOURCES))
        for own in "cli", "chat", "report", "bridge":
            self.assertFalse((include / "qkv" / own).exists(), own)
        sources = str(Path(__file__).resolve().parents[2])
        for path in [*self.library.glob("cmake/**/*.cmake"), *self.library.glob("pkgconfig/*")]:
            text = path.read_text()
            self.assertNotIn(sources, text, path)
            self.assertNotIn(str(self.root), text, path)

    def test_headers_are_enough_for_themselves(self):
        page = (self.examples.parent / "docs/library.md").read_text()
        named = re.findall(r"`(qkv/[\w/]+\.h)`", page.split("## What to include")[1].split("\n## ")[0])
        self.assertGreater(len(named), 15)
        program = self.root / "all.cc"
        program.write_text("".join(f'#include "{header}"\n' for header in named) + "int main() {}\n")
        run(COMPILER, "-std=c++20", "-fsyntax-only", program, *self.flags("--cflags"))

    def test_links_of_installed_pages(self):
        pages = sorted(self.examples.parent.glob("**/*.md"))
        self.assertIn(self.examples.parent / "README.md", pages)
        self.assertGreater(len(pages), 10)
        problems = []
        for page in pages:
            document = docs_check.Document(page)
            for number, line in document.prose:
                for target in docs_check.links_of(line):
                    if why := docs_check.link_problem(document, target, docs_check.Document):
                        problems.append(f"{page.relative_to(self.prefix)}:{number}: {why}")
        self.assertEqual(problems, [])

    def test_page_names_the_packages_that_find_package_needs(self):
        if not shutil.which("dpkg"):
            self.skipTest("no dpkg, which tells whose a file is")
        page = (self.examples.parent / "docs/library.md").read_text()
        line = re.search(r"^    apt install (g\+\+ (?:.*\\\n)*.*)$", page, flags=re.M)[1]
        named = set(line.replace("\\\n", " ").split())
        config = (self.library / "cmake/qkv/qkvConfig.cmake").read_text()
        modules = re.findall(r"\b[A-Z0-9]+=([\w.-]+)", config)
        packages = re.findall(r"^find_dependency\((\w+)", config, flags=re.M)
        self.assertGreater(len(modules), 3)
        self.assertIn("dnnl", packages)
        cache = (Path(BUILD) / "CMakeCache.txt").read_text()
        files = {module: run("pkg-config", "--path", module).strip() for module in modules}
        for package in packages:
            if folder := re.search(rf"^{package}_DIR:PATH=(.+)$", cache, flags=re.M):  # else CMake finds it by itself
                files[package] = next(Path(folder[1]).glob("*onfig.cmake"))
        for name, file in files.items():
            owner = run("dpkg", "-S", Path(file).resolve()).split(":")[0]
            self.assertIn(owner, named, f"{name} is in {owner}, which the apt line of docs/library.md lacks")
        suggested = re.search(r'SUGGESTS "([^"]*)"', (SOURCES / "cmake/install.cmake").read_text())[1]
        suggested = {word for word in re.split(r"[\s,|\\]+", suggested) if word}
        self.assertEqual(named - {"pkg-config"}, suggested - {"pkg-config"})

    def test_find_package(self):
        build = self.root / "examples"
        run(CMAKE, "-S", self.examples, "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}",
            f"-DCMAKE_CXX_COMPILER={COMPILER}", "-DCMAKE_CXX_FLAGS=-O0")
        run(CMAKE, "--build", build, "--target", "train_and_sample")
        out = run(build / "train_and_sample", self.root / "model")
        self.assertIn("chuck", out)
        again = run(self.prefix / "bin/qkv", "generate", self.root / "model", "--prompt", "How much ", "--tokens", "40",
                    "--temperature", "0")
        self.assertIn("wood", again)

    def test_find_package_refuses_another_version(self):
        project = self.root / "newer"
        project.mkdir()
        (project / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.22)\nproject(newer LANGUAGES CXX)\n"
                                                "find_package(qkv 99.0 REQUIRED)\n")
        done = subprocess.run([CMAKE, "-S", project, "-B", project / "build", f"-DCMAKE_PREFIX_PATH={self.prefix}"],
                              capture_output=True, text=True, timeout=120)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("99.0", done.stderr)

    def test_pkg_config(self):
        self.assertEqual(run("pkg-config", "--modversion", "qkv", env=self.pkg_config).strip(), VERSION)
        object_file, program = self.root / "new_module.o", self.root / "new_module"
        run(COMPILER, "-std=c++20", "-c", self.examples / "new_module.cc", *self.flags("--cflags"), "-o", object_file)
        for static in [], ["--static"]:
            run(COMPILER, object_file, *self.flags("--libs", *static), "-o", program)
            self.assertIn("gradients and finite differences differ", run(program))

    def test_every_header_compiles(self):
        include = self.prefix / "include"
        headers = sorted(path.relative_to(include) for path in include.glob("**/*.h"))
        self.assertGreater(len(headers), 30)
        source = self.root / "headers.cc"
        # The last first: a header that leans on those before it in the alphabet does not compile.
        source.write_text("".join(f'#include "{header}"\n' for header in reversed(headers)))
        run(COMPILER, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", source, *self.flags("--cflags"))


if __name__ == "__main__":
    CMAKE, BUILD, COMPILER, VERSION = sys.argv[1:5]
    unittest.main(argv=sys.argv[:1] + sys.argv[5:])
