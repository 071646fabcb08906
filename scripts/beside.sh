#!/usr/bin/env bash
# beside.sh COMMAND…: runs commands of the shell, one in each argument, at the same time. What the first says is shown as it comes;
# what another says, whole, once those before it have ended. Fails, and says which failed, if any did, with the panics among what they said,
# as these may stand far above; all are run to their end.
set -euo pipefail
said="$(mktemp -d)"; running=()
# Each is a group of processes of its own, so that nothing of it is left when this is ended.
set -m
trap 'for group in "${running[@]}"; do kill -- "-$group" 2>/dev/null || true; done; rm -rf "$said"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
for each in "$@"; do
    if [ ${#running[@]} = 0 ]; then
        bash -euo pipefail -c "$each" > >(exec tee "$said/0") 2>&1 </dev/null &
    else
        bash -euo pipefail -c "$each" >"$said/${#running[@]}" 2>&1 </dev/null &
    fi
    running+=($!)
done
failed=()
for index in "${!running[@]}"; do
    each=("$@"); command="${each[index]}"
    wait "${running[index]}" || failed+=("$command ended with $?")
    if [ "$index" != 0 ]; then
        printf '\n== %s\n' "$command"
        cat "$said/$index"
    fi
done
running=()
[ ${#failed[@]} = 0 ] && exit
grep -h -A 9 'panicked at' "$said"/* | head -c 20000 >&2 || true
printf 'FAILED: %s\n' "${failed[@]}" >&2
exit 1
