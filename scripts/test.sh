#!/bin/sh
# Runs the tests of all packages, as root: scripts/test.sh short|all|nightly. make test, make check and
# make nightly call it, with the packages that move packets in ON_PACKETS and the Go command in GO.
#
#   short    without long tests (go test -short); needs neither gcc nor iproute2
#   all      short tests of packages with goroutines under the race detector, which needs gcc, and
#            all tests without it
#   nightly  all tests, and long series, with the race detector and without it
set -u
cd "$(dirname "$0")/.."
mode=${1:-}
GO=${GO:-go}
case $mode in
short) name="make test" privileged=namespaces ;;
all) name="make check" privileged=1 ;;
nightly) name="make nightly" privileged=1 ;;
*) echo "usage: $0 short|all|nightly" >&2; exit 2 ;;
esac
if [ $mode != short ]; then
	command -v gcc >/dev/null || { echo "$name: the race detector needs gcc: apt-get install gcc libc6-dev" >&2; exit 1; }
fi

: "${COMPILERS:?GOGC of compilers: call it through make}"
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
# Packages that start goroutines: in the others the race detector can find nothing.
concurrent=$($GO list -f '{{.ImportPath}} {{.Dir}}' $rest | while read -r package dir; do
	! grep -qE '^[[:space:]]*go (func\(|[[:alnum:]_.]+\()|\.Go\(|"testbed/emu/parallel"$' "$dir"/*.go || echo "$package"
done)
named() { # named PATTERN: the tests of ON_PACKETS that have such a line, in each package with a test of that name, as a pattern
	awk -v pattern="$1" '
		/^func Test[^(]*\(t \*testing\.T\)/ { name = $2; sub(/\(.*/, "", name); all[name]++; next }
		/^}/ { name = "" }
		name && $0 ~ pattern { found[name]++; name = "" }
		END { for (name in found) if (found[name] == all[name]) print name }
	' $($GO list -f '{{range .TestGoFiles}}{{$.Dir}}/{{.}} {{end}}{{range .XTestGoFiles}}{{$.Dir}}/{{.}} {{end}}' $ON_PACKETS) |
		sort | paste -sd '|' -
}
# They judge no durations, and see nothing of other tests. Those that boot guests use whole processors.
unjudged=$(named '^\tt[.]Parallel[(][)]') guests=$(named '^\t.*needsGuests[(]t[)]')
booting=$(for p in $ON_PACKETS; do ! grep -q 'needsGuests(t)' $p/*_test.go || echo $p; done)
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
failed=0 yield=
begin=$(date +%s)

compile() { # compile FLAGS PACKAGES...: on all processors, once for tests that then run side by side
	GOGC=$COMPILERS $sudo $GO list -test -export "$@" >/dev/null || exit 1
}

# Tests that judge no durations collect garbage less often: it takes 10 to 25 % of what computes.
garbage=${GOGC:-400}

tests() { # tests NAME FLAGS... PACKAGES...: the results are in bin/tests-NAME.json; make lint vets
	file=bin/tests-$1.json
	shift
	GOGC=$garbage $yield $sudo bin/gotestsum --format pkgname --format-icons text --format-hide-empty-pkg --hide-summary=skipped \
		--jsonfile "$file" -- -shuffle=on -vet=off "$@"
}

# Tests on packets wait most of the time: those that judge no durations run two at a time. t.TempDir prefers GOTMPDIR.
raced_packets() { # raced_packets FLAGS...: the tests of ON_PACKETS under the race detector
	CGO_ENABLED=1 TMPDIR="$memory" GOTMPDIR="$memory" tests race-packets -p 2 -race "$@" -parallel 2 $ON_PACKETS
}

# Linked once for all passes.
programs=$PWD/bin/programs
on_packets() { # on_packets NAME FLAGS... PACKAGES...: tests of ON_PACKETS, one package after another
	file=bin/tests-$1.json
	shift
	flags= packages=
	for word; do
		case $word in
		./*) packages="$packages $word" ;;
		*) flags="$flags -test.${word#-}" ;;
		esac
	done
	TMPDIR="$memory" GOTMPDIR="$memory" $yield $sudo bin/gotestsum --format pkgname --format-icons text --format-hide-empty-pkg \
		--hide-summary=skipped --jsonfile "$file" --raw-command -- sh -c '
			failed=0 go=$1 programs=$2 packages=$3
			shift 3
			for p in $packages; do
				(cd $p && $go tool test2json -t -p testbed/${p#./} $programs/${p##*/}.test -test.v=test2json -test.paniconexit0 \
					-test.shuffle=on -test.parallel=2 "$@") || failed=1
			done
			exit $failed' sh $GO $programs "$packages" $flags
}

# By default each program under the race detector waits for a second after its main function.
export GORACE="${GORACE:-atexit_sleep_ms=10}"
export CGO_ENABLED=0
limits="-timeout=1h"
case $mode in
short) limits="-short -timeout=20m" raced= ;;
all) raced=$concurrent race_limits="-short -timeout=20m" ;;
nightly)
	export TESTBED_NIGHTLY=1
	raced=$rest race_limits=$limits
	;;
esac
compile ./...
rm -rf $programs
GOGC=$COMPILERS $sudo $GO test -c -ldflags='-s -w' -o $programs/ $ON_PACKETS || exit 1
[ -z "$raced" ] || CGO_ENABLED=1 compile -race $raced $ON_PACKETS
# What computes yields to tests on packets that judge no durations: no test does under the race detector.
{
	yield="nice -n 10" computed=0
	if [ -n "$raced" ]; then
		CGO_ENABLED=1 tests race -race $race_limits $raced || computed=1
	fi
	tests plain $limits $rest || computed=1
	[ $mode = short ] || on_packets plain-guests $limits -run="^($guests)\$" $booting || computed=1 # alone: one that starves gives up
	exit $computed
} &
if [ -n "$raced" ]; then
	raced_packets $race_limits || failed=1
fi
on_packets plain-unjudged $limits -run="^($unjudged)\$" $ON_PACKETS || failed=1
wait $! || failed=1
# The others have the processors to themselves, one package at a time.
on_packets plain-packets $limits -skip="^($unjudged|$guests)\$" $ON_PACKETS || failed=1

# The reasons of skips, with their number, the tests that left a duration unjudged or repeated attempts, and the numbers
# of both. A test logs the reason before it is skipped. The race detector's own are those of the other pass.
summary=$(cat bin/tests-plain*.json | awk '
	match($0, /"Package":"[^"]*","Test":"[^"]*"/) { test = substr($0, RSTART, RLENGTH) }
	/"Action":"output"/ && sub(/.*_test\.go:[0-9]+: /, "") {
		sub(/\\n"}$/, "")
		said[test] = $0
		if (/^(timing not judged|attempt repeated): /) print test ": " $0
	}
	/"Action":"skip"/ {
		sub(/ by make check: .*/, " by make check", said[test])
		sub(/ by make nightly: .*/, " by make nightly", said[test])
		print "skipped: " said[test]
	}
' | sed 's,"Package":"testbed/*,,; s/","Test":"/ /; s/": /: /')
echo "$summary" | sort | uniq -c | sort -rn
count() { echo "$summary" | grep -c ": $1: "; }
echo "$name: attempts repeated: $(count 'attempt repeated'), tests with timing not judged: $(count 'timing not judged')"
took=$(($(date +%s) - begin))
[ $failed = 0 ] && result=OK || result=FAILED
echo "$name: $result after $((took / 60)) min $((took % 60)) s"
exit $failed
