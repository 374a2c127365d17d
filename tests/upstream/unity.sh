#!/bin/sh
# Build the Unity test program named like this file (t/NAME.t -> tests/NAME.c) and say its results as TAP.
# The plan comes last and only if Unity's own count agrees, so a crash leaves a run without a plan.
name=$(basename "$0" .t)
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
gcc -g -I. -Itests/unity/src -o "$dir/$name" "tests/$name.c" tests/unity/src/unity.c -lm || exit 2
stdbuf -oL "$dir/$name" >"$dir/out"
rc=$?
awk -F: '
    $4 == "PASS"   { print "ok " ++n " - " $3 }
    $4 == "FAIL"   { print "not ok " ++n " - " $3; print "# line " $2 ":" $5 }
    $4 == "IGNORE" { print "ok " ++n " - " $3 " # SKIP" }
    / Tests .* Failures / { split($0, count, " "); if (count[1] == n) print "1.." n }' "$dir/out"
exit $rc
