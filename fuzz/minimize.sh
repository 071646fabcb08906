#!/usr/bin/env bash
# Adds to the corpora of these targets, in the repository, what runs found: of the inputs that reach more code than those
# that are there, the smallest. `fuzz/minimize.sh TARGET...`, after `fuzz/run.sh`.
set -euo pipefail
cd "$(dirname "$0")"
triple=$(rustc -vV | sed -n 's/^host: //p')
for target in "$@"; do
    "target/$triple/debug/$target" -merge=1 -max_len=4096 -verbosity=0 "corpus/$target" "target/corpus/$target" \
        > "target/$target.log" 2>&1 || { tail -40 "target/$target.log"; exit 1; }
    echo "$target: $(find "corpus/$target" -type f | wc -l) inputs, $(du -sb "corpus/$target" | cut -f1) bytes"
done
