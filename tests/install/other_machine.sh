#!/usr/bin/env bash
# The packages on a Debian 12 that has nothing but its base system, in a chroot. Not a part of `make test`: it takes
# root, debootstrap, Debian's mirror, and some minutes.
# usage: other_machine.sh BUILD [CHROOT]    after `make package`; CHROOT is made where it does not exist
set -euo pipefail
build=$(realpath "$1")
scratch=$(mktemp -d)
base=${2:-$scratch/base}
root=$scratch/root
clear_machine() {
  ! mountpoint -q "$root/proc" || umount "$root/proc"
  rm -rf "$root"
}
trap 'clear_machine; rm -rf "$scratch"' EXIT
[ -d "$base" ] || debootstrap --variant=minbase bookworm "$base" http://deb.debian.org/debian

# A fresh copy of the base system in which the tool trains a model and continues a text.
fresh_machine() {
  clear_machine
  cp -a "$base" "$root"
  cp /etc/resolv.conf "$root/etc/"
  mount -t proc proc "$root/proc"  # the loader reads there in which folder a program lies
  for _ in $(seq 200); do echo "the quick brown fox jumps over the lazy dog"; done > "$root/tmp/text.txt"
}
use_tool() {
  chroot "$root" env -i PATH=/usr/bin:/bin HOME=/tmp bash -euc '
    cd /tmp
    "$0" --version
    printf "data.train = \"text.txt\"\ntrain.out = \"run\"\ntokenizer.type = \"char\"\n" > tiny.toml
    "$0" train tiny.toml --threads 1 --set train.steps=60 --set model.context=32 --set model.width=32 \
      --set model.layers=1 --set model.heads=2 --set train.batch=4
    "$0" generate run --prompt "the quick" --tokens 30 --threads 1' "$1"
}

echo "== the archive, without any package"
fresh_machine
tar -xzf "$build"/qkv-*.tar.gz -C "$root/opt"
use_tool "/$(cd "$root" && ls opt/qkv-*/bin/qkv)"

echo "== the Debian package, with its dependencies"
fresh_machine
cp "$build"/qkv_*.deb "$root/tmp/"
chroot "$root" bash -euc 'apt-get update -q; DEBIAN_FRONTEND=noninteractive apt-get install -o Dpkg::Use-Pty=0 -qy /tmp/qkv_*.deb'
use_tool qkv

echo "== a program that links the library, with the packages that are suggested for it"
chroot "$root" bash -euc '
  dpkg-query --show --showformat="\${Suggests}" qkv | tr -d "," | sed "s/ | [^ ]*//g" |
    DEBIAN_FRONTEND=noninteractive xargs apt-get install -qy --no-install-recommends -o Dpkg::Use-Pty=0 make pkg-config
  cd /tmp
  cmake -S /usr/share/doc/qkv/examples -B examples
  cmake --build examples --target new_module
  examples/new_module
  g++ -std=c++20 /usr/share/doc/qkv/examples/run_model.cc $(pkg-config --cflags --libs qkv) -o run_model
  ./run_model run/best "the quick"'
chroot "$root" bash -euc 'apt-get remove -qy qkv; [ ! -e /usr/bin/qkv ]; [ ! -e /usr/lib/libqkv.a ]'
echo "== passed"
