#!/bin/sh
# Runs the tests of all packages, as root: scripts/test.sh short|all. make test and make check
# call it, with the packages that move packets in ON_PACKETS and the Go command in GO.
#
# short leaves out long tests (go test -short) and the race detector, and needs neither gcc nor
# iproute2. all needs gcc, for the race detector.
set -u
cd "$(dirname "$0")/.."
mode=${1:-}
GO=${GO:-go}
case $mode in
short) name="make test" flags=-short
	# As the program is built: without C, and from the packages that its build compiled.
	export CGO_ENABLED=0 GOFLAGS="$($GO env GOFLAGS) -trimpath" ;;
all) name="make check" flags=-race
	command -v gcc >/dev/null || { echo "$name: the race detector needs gcc: apt-get install gcc libc6-dev" >&2; exit 1; }
	# By default each program under the race detector waits for a second after its main function.
	export GORACE="${GORACE:-atexit_sleep_ms=10}" ;;
*) echo "usage: $0 short|all" >&2; exit 2 ;;
esac

: "${ON_PACKETS:?packages that move packets: call it through make}"

sudo=
if [ "$(id -u)" != 0 ]; then
	if ! sudo -n true 2>/dev/null && ! [ -t 0 ]; then
		echo "$name: the privileged tests need root: run it as root, or where sudo works" >&2
		exit 1
	fi
	sudo="sudo -E env PATH=$PATH"
fi
export TESTBED_PRIVILEGED=1

missing=
for p in tc:iproute2 tshark tcptrace tcpdump iperf3 chromium; do
	PATH=$PATH:/usr/sbin:/sbin command -v "${p%:*}" >/dev/null || missing="$missing ${p#*:}"
done
[ -z "$missing" ] || echo "$name: tests that need other programs are skipped; not installed:$missing (apt-get install --no-install-recommends$missing)"
[ $mode = all ] || echo "$name: without the race detector and without long tests: make check runs all"

mkdir -p bin
rm -f bin/tests.json bin/packet-tests.json bin/timing-*.json
$GO build -modfile=tools/go.mod -o bin/gotestsum gotest.tools/gotestsum || exit 1
packets=$($GO list $ON_PACKETS) && rest=$($GO list ./...) || exit 1
rest=$(echo "$rest" | grep -vxF "$packets")
# The storage of a shared machine can stall for a second. Tests on packets write to memory where there
# is room, so that they judge the program and not the storage.
free=$(df -k --output=avail /dev/shm 2>/dev/null | tail -n 1)
if [ "${free:-0}" -gt 4194304 ]; then
	memory=$(mktemp -d /dev/shm/testbed-tests.XXXXXX)
	trap '$sudo rm -rf "$memory"' EXIT
	trap 'exit 130' INT TERM
else
	memory=${TMPDIR:-/tmp}
fi
failed=0
begin=$(date +%s)
# Tests that move packets share the processors with them, so their packages are tested one at
# a time; the others side by side, and first: compiling loads all processors.
run() { # run FILE FLAGS...
	file=$1
	shift
	$sudo bin/gotestsum --format pkgname --format-icons text --format-hide-empty-pkg --hide-summary=skipped --jsonfile "$file" -- $flags -shuffle=on -timeout 20m "$@" || failed=1
}
compile() { # on all processors, as go test -p 1 does not
	$sudo $GO list -test -export $(echo $flags | sed 's/-short//') $ON_PACKETS >/dev/null
}
$GO build -o bin/testsum ./scripts/testsum || exit 1
run bin/tests.json $rest
compile
export TMPDIR="$memory" GOTMPDIR="$memory" # t.TempDir prefers the latter
run bin/packet-tests.json -p 1 $ON_PACKETS
if [ $mode = all ]; then
	export CGO_ENABLED=0
	flags=
	compile
	bin/testsum -timing bin/tests.json bin/packet-tests.json >bin/timing-tests || failed=1
	echo "$packets" >bin/packets
	awk 'NR == FNR { moves[$0]; next } !($1 in moves)' bin/packets bin/timing-tests >bin/timing-rest
	if [ -s bin/timing-rest ]; then # no packets: all packages at the same time
		run bin/timing-rest.json -run "$(cut -d ' ' -f 2 bin/timing-rest | paste -s -d '|')" $(cut -d ' ' -f 1 bin/timing-rest)
	fi
	n=0
	awk 'NR == FNR { moves[$0]; next } $1 in moves' bin/packets bin/timing-tests >bin/timing-packets
	while read -r package tests; do
		n=$((n + 1))
		run bin/timing-$n.json -run "$tests" "$package" </dev/null
	done <bin/timing-packets
fi
bin/testsum bin/tests.json bin/packet-tests.json $(ls bin/timing-*.json 2>/dev/null) || failed=1
took=$(($(date +%s) - begin))
[ $failed = 0 ] && result=OK || result=FAILED
echo "$name: $result after $((took / 60)) min $((took % 60)) s"
exit $failed
