#!/bin/sh
# Runs experiments at full length, one after another, and publishes them in docs/experiments: OUT keeps all results.
#
#   scripts/experiments.sh OUT [NAME…]        those named; by default all that `hubbub bench list` shows
#
# POSTGRES=postgres://…   a server where databases may be made: what needs one runs there; keys and sizes of batches on both stores
# HUBBUB_BIN              the program; by default target/release/hubbub
# DATA                    directory for the data of servers; by default OUT
# RUN_ARGS                further options of `hubbub bench run`, such as --quick or --repeat 1
# TO                      where to publish; by default docs/experiments
set -eu
cd "$(dirname "$0")/.."
out=${1:?usage: scripts/experiments.sh OUT [NAME…]}
shift
bin=${HUBBUB_BIN:-$PWD/target/release/hubbub}
to=${TO:-docs/experiments}
mkdir -p "$out"
[ $# -gt 0 ] || set -- $("$bin" bench list | cut -d' ' -f1)

# One run; what fails leaves a note, and the others still run.
run() {
    kept=$1
    shift
    if [ -e "$out/$kept/results.json" ] && [ ! -e "$out/$kept/unfinished" ]; then
        echo "$kept: there already"
        return
    fi
    mkdir -p "$out/$kept"
    touch "$out/$kept/unfinished"
    # shellcheck disable=SC2086
    if "$bin" bench run "$@" ${RUN_ARGS:-} --dir "${DATA:-$out}" --overwrite --out "$out/$kept" >"$out/$kept.log" 2>&1; then
        echo "$kept: done"
        sed -n "s/^  marked: /$kept: marked: /p" "$out/$kept/results.txt"
    else
        echo "$kept: not clean, see $out/$kept.log"
    fi
    # Messages of a long run fill the disk, and nobody needs them for the page.
    rm -f "$out/$kept/unfinished" "$out/$kept"/*/metrics.csv
}

for name; do
    case $name in
    nodes | queue-scale-out | costs-nodes | pool-size | database-cores)
        if [ -n "${POSTGRES:-}" ]; then run "$name" "$name" --postgres "$POSTGRES"; else echo "$name: needs POSTGRES"; fi
        ;;
    kv-* | batch-size)
        run "$name" "$name"
        [ -z "${POSTGRES:-}" ] || run "$name-postgres" "$name" --postgres "$POSTGRES"
        ;;
    # As it is, it measures the rate that the search begins with, which is no result.
    http-max) echo "$name: for hubbub bench find-max, which writes no page" ;;
    *) run "$name" "$name" ;;
    esac
done

for dir in "$out"/*/; do
    [ -e "$dir/results.json" ] && "$bin" bench publish "$dir" --to "$to"
done

# Charts as pictures, by Chromium, where it is.
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
for chart in "$to"/*/chart.svg; do
    [ -e "$chart" ] || continue
    [ -n "$browser" ] || { echo "no Chromium: chart.png is not made"; break; }
    # A chart with a legend is taller than others.
    size=$(sed -n '1s/.*viewBox="0 0 \([0-9]*\) \([0-9]*\)".*/\1,\2/p' "$chart")
    "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size="${size:-720,260}" \
        --screenshot="$(dirname "$chart")/chart.png" "file://$(realpath "$chart")" >/dev/null 2>&1
done

# The list of all that are there.
{
    echo "# Experiments"
    echo
    echo "Runs of \`scenarios/\` on machines with nothing else on them, written by \`scripts/experiments.sh\`. Each page has the"
    echo "question, the answer, the bottleneck, and all measurements. Figures of another machine differ; repeat them there with"
    echo "\`hubbub bench run NAME\`. A result is marked where others, or the host of a virtual machine, took more than 5 % of it."
    echo
    echo "| experiment | result |"
    echo "| --- | --- |"
    for page in "$to"/*/README.md; do
        name=$(basename "$(dirname "$page")")
        echo "| [$(sed -n '1s/^# //p' "$page")]($name/README.md) | $(sed -n 's/^\*\*Result:\*\* //p' "$page") |"
    done
} >"$to/README.md"
