#!/usr/bin/env bash
# Fuzzes each decoder with libFuzzer, on the stable toolchain: `fuzz/run.sh [SECONDS [TARGET...]]`.
#
# What it finds is in fuzz/found/TARGET-crash-…; run the program with that file as its argument to see it again. New
# inputs that reach new code are kept in fuzz/target/corpus; fuzz/corpus holds the few that everybody begins with.
set -euo pipefail
cd "$(dirname "$0")"
seconds=${1:-60}
shift $(($# > 0 ? 1 : 0))
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(websocket drafts line tables store)

triple=$(rustc -vV | sed -n 's/^host: //p')
flags="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
flags+=" -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1"
# With a target named, build scripts are compiled without the flags.
RUSTFLAGS=$flags CARGO_TARGET_DIR=target cargo build --quiet --target "$triple"

mkdir -p found
for target in "${targets[@]}"; do
    mkdir -p "target/corpus/$target"
    echo "fuzzing $target for $seconds s"
    "target/$triple/debug/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=4096 \
        -print_final_stats=1 -verbosity=0 -artifact_prefix="found/$target-" \
        "target/corpus/$target" "corpus/$target" > "target/$target.log" 2>&1 \
        || { tail -40 "target/$target.log"; exit 1; }
    grep -E "number_of_executed_units|new_units_added|peak_rss" "target/$target.log" || true
done
