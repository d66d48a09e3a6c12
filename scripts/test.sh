#!/bin/sh
# Runs the tests of all packages, as root: scripts/test.sh short|all|nightly. make test, make check and
# make nightly call it, with the packages that move packets in ON_PACKETS and the Go command in GO.
#
#   short    without long tests (go test -short); needs neither gcc nor iproute2
#   all      short tests of packages with goroutines under the race detector, which needs gcc, then
#            all tests without it
#   nightly  all tests, and long series, with the race detector and without it
set -u
cd "$(dirname "$0")/.."
mode=${1:-}
GO=${GO:-go}
case $mode in
short) name="make test" privileged=namespaces ;;
all) name="make check" privileged=1 ;;
nightly) name="make nightly" ;;
*) echo "usage: $0 short|all|nightly" >&2; exit 2 ;;
esac
if [ $mode != short ]; then
	command -v gcc >/dev/null || { echo "$name: the race detector needs gcc: apt-get install gcc libc6-dev" >&2; exit 1; }
fi

: "${ON_PACKETS:?packages that move packets: call it through make}"

sudo=
if [ "$(id -u)" != 0 ]; then
	if ! sudo -n true 2>/dev/null && ! [ -t 0 ]; then
		echo "$name: the privileged tests need root: run it as root, or where sudo works" >&2
		exit 1
	fi
	sudo="sudo -E env PATH=$PATH"
fi
export TESTBED_PRIVILEGED=$privileged # which skips are failures: package netnstest

missing=
for p in tc:iproute2 tshark tcptrace tcpdump iperf3 chromium iptables-legacy:iptables nft:nftables parallel; do
	PATH=$PATH:/usr/sbin:/sbin command -v "${p%:*}" >/dev/null || missing="$missing ${p#*:}"
done
[ -z "$missing" ] || echo "$name: tests that need other programs are skipped; not installed:$missing (apt-get install --no-install-recommends$missing)"
[ $mode != short ] || echo "$name: without the race detector and without long tests: make check runs all"

mkdir -p bin
rm -f bin/tests-*.json
$GO build -modfile=tools/go.mod -o bin/gotestsum gotest.tools/gotestsum || exit 1
packets=$($GO list $ON_PACKETS) && rest=$($GO list ./...) || exit 1
rest=$(echo "$rest" | grep -vxF "$packets")
concurrent=$($GO list -f '{{.ImportPath}} {{.Imports}}' $rest |
	sed -nE 's,^([^ ]*) .*[[ ](sync|sync/atomic|golang.org/x/sync/[a-z]+|testbed/emu/parallel)[] ].*,\1,p')
# The storage of a shared machine can stall for a second. Tests on packets write to memory where there
# is room, so that they judge the program and not the storage.
memory=${TMPDIR:-/tmp}
free=$(df -k --output=avail /dev/shm 2>/dev/null | tail -n 1)
if [ "${free:-0}" -gt 4194304 ]; then
	memory=$(mktemp -d /dev/shm/testbed-tests.XXXXXX)
	chmod 755 "$memory" # some tests act as another user
	trap '$sudo rm -rf "$memory"' EXIT
	trap 'exit 130' INT TERM
fi
failed=0
begin=$(date +%s)

gotestsum() { # gotestsum NAME FLAGS...: the results are in bin/tests-NAME.json; make lint vets
	file=bin/tests-$1.json
	shift
	$sudo bin/gotestsum --format pkgname --format-icons text --format-hide-empty-pkg --hide-summary=skipped \
		--jsonfile "$file" -- -shuffle=on -vet=off "$@" || failed=1
}

# pass race|plain PACKAGES TEST-FLAGS... runs the tests of PACKAGES and ON_PACKETS. Tests that move
# packets share the processors with them, so their packages are tested one at a time; the others side
# by side, and first: compiling loads all processors. ON_PACKETS are compiled before their tests,
# because go test -p 1 compiles on one processor.
pass() {
	pass=$1
	list=$2
	shift 2
	export CGO_ENABLED=0
	race=
	[ "$pass" = plain ] || { race=-race CGO_ENABLED=1; } # which needs C
	gotestsum "$pass" $race "$@" $list
	$sudo $GO list -test -export $race $ON_PACKETS >/dev/null
	TMPDIR="$memory" GOTMPDIR="$memory" gotestsum "$pass-packets" -p 1 $race "$@" $ON_PACKETS # t.TempDir prefers the latter
}

# By default each program under the race detector waits for a second after its main function.
export GORACE="${GORACE:-atexit_sleep_ms=10}"
case $mode in
all) pass race "$concurrent" -short -timeout 20m ;;
nightly)
	export TESTBED_NIGHTLY=1
	pass race "$rest" -timeout 1h
	;;
esac
case $mode in
short) pass plain "$rest" -short -timeout 20m ;;
*) pass plain "$rest" -timeout 1h ;;
esac

# The reasons of skips, with their number, and the tests that left a duration unjudged. A test logs the
# reason before it is skipped. The race detector's own are those of the other pass.
cat bin/tests-plain*.json | awk '
	match($0, /"Package":"[^"]*","Test":"[^"]*"/) { test = substr($0, RSTART, RLENGTH) }
	/"Action":"output"/ && sub(/.*_test\.go:[0-9]+: /, "") {
		sub(/\\n"}$/, "")
		said[test] = $0
		if (/^timing not judged: /) print test ": " $0
	}
	/"Action":"skip"/ {
		sub(/ by make check: .*/, " by make check", said[test])
		sub(/ by make nightly: .*/, " by make nightly", said[test])
		print "skipped: " said[test]
	}
' | sed 's,"Package":"testbed/*,,; s/","Test":"/ /; s/": /: /' | sort | uniq -c | sort -rn
took=$(($(date +%s) - begin))
[ $failed = 0 ] && result=OK || result=FAILED
echo "$name: $result after $((took / 60)) min $((took % 60)) s"
exit $failed
