#!/usr/bin/env bash
# Fuzzes each decoder with libFuzzer, on the stable toolchain, as many at a time as there are cores:
# `fuzz/run.sh [SECONDS [TARGET...]]`, by default each target for 15 s; with 0 they are only built.
#
# What it finds is in fuzz/found/TARGET-crash-…; run the program with that file as its argument to see it again. New
# inputs that reach new code are kept in fuzz/target/corpus; fuzz/corpus holds the few that everybody begins with.
# `fuzz/minimize.sh TARGET` adds to them what a long run found.
set -euo pipefail
cd "$(dirname "$0")"
export SECONDS_EACH=${1:-15}
shift $(($# > 0 ? 1 : 0))
targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(sed -n 's|^path = "targets/\(.*\)\.rs"|\1|p' Cargo.toml)

TRIPLE=$(rustc -vV | sed -n 's/^host: //p')
export TRIPLE
flags="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
flags+=" -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1"
# With a target named, build scripts are compiled without the flags.
RUSTFLAGS=$flags CARGO_TARGET_DIR=target cargo build --quiet --target "$TRIPLE"
[ "$SECONDS_EACH" != 0 ] || exit 0

mkdir -p found
fuzz() {
    mkdir -p "target/corpus/$1"
    "target/$TRIPLE/debug/$1" -max_total_time="$SECONDS_EACH" -timeout=10 -rss_limit_mb=2048 -max_len=4096 \
        -print_final_stats=1 -verbosity=0 -artifact_prefix="found/$1-" \
        "target/corpus/$1" "corpus/$1" > "target/$1.log" 2>&1 \
        || { echo "$1 failed:"; tail -40 "target/$1.log"; return 1; }
    echo "$1: $(sed -nE 's/^stat::(number_of_executed_units|new_units_added|peak_rss_mb): +/\1 /p' "target/$1.log" | paste -sd ' ')"
}
export -f fuzz
echo "fuzzing ${targets[*]} for $SECONDS_EACH s each"
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I '{}' bash -c 'fuzz {}'
