#!/bin/sh
# Builds a kernel of user-mode Linux for virtual time: scripts/uml/build.sh SOURCE OUT. SOURCE is a linux-source-*.tar.xz
# of Debian, OUT the program. Tried with Linux 7.2. It needs gcc, make, flex, bison, bc and xz-utils.
set -eu
[ $# = 2 ] || { sed -n '2,3s/^# //p' "$0" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
for p in gcc make flex bison bc xz; do
	command -v $p >/dev/null || { echo "$0: no $p: apt-get install --no-install-recommends gcc libc6-dev make flex bison bc xz-utils" >&2; exit 1; }
done
work=$(mktemp -d "${TMPDIR:-/tmp}/uml.XXXXXX")
trap 'rm -rf "$work"' EXIT
tar xf "$1" -C "$work" --strip-components=1
cd "$work"
# Random numbers of this machine would make each boot another one.
sed -i '/^ssize_t os_getrandom(/,/^}/s/return getrandom(buf, len, flags);/__builtin_memset(buf, 1, len); return len;/' arch/um/os-Linux/util.c
grep -q '__builtin_memset(buf, 1, len)' arch/um/os-Linux/util.c || { echo "$0: $1: os_getrandom is not as in Linux 7.2" >&2; exit 1; }
make -s ARCH=um defconfig
sh scripts/kconfig/merge_config.sh -m .config "$here/config" >/dev/null
make -s ARCH=um olddefconfig
for line in $(grep '=y$' "$here/config"); do
	grep -qx "$line" .config || echo "$0: this kernel has no ${line%=y}" >&2
done
make -s ARCH=um -j"$(nproc)" linux
mkdir -p "$(dirname "$2")"
cp linux "$2"
echo "testbed run SCENARIO --time virtual --vm-kernel $2"
