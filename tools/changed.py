"""The files that the last commits changed: those that differ from a base, uncommitted changes included.

The base is the first of these that exists: $QKV_BASE; where HEAD left origin/main, if it did; the nearest tag
before HEAD; HEAD~20; HEAD~1. Without any, the files of HEAD are taken.
"""
import os
import subprocess


def git(*words):
    """Standard output of a git command, stripped; None where it fails."""
    done = subprocess.run(["git", *words], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def commit(name):
    return git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")


def base():
    """(commit or None, why it)"""
    if given := os.environ.get("QKV_BASE"):
        if not commit(given):
            raise SystemExit(f"QKV_BASE: there is no commit {given}")
        return commit(given), f"QKV_BASE={given}"
    head = commit("HEAD")
    left = git("merge-base", "HEAD", "origin/main")
    if left and left != head:
        return left, "where HEAD left origin/main"
    if tag := git("describe", "--tags", "--abbrev=0", "HEAD~1"):
        return commit(tag), f"the tag {tag}"
    for name in "HEAD~20", "HEAD~1":
        if found := commit(name):
            return found, name
    return None, "nothing: the files of HEAD"


def changed_files(since):
    """Newest first: uncommitted ones, then by commit."""
    words = [f"{since}..HEAD"] if since else ["-1", "HEAD"]
    names = (git("diff", "--name-only", "HEAD") or "").split("\n")
    names += (git("log", "--name-only", "--format=", "--root", *words) or "").split("\n")
    return [name for name in dict.fromkeys(names) if name and os.path.exists(name)]
