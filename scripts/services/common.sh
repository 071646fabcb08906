# Sourced by the scripts beside it.
# Everything that runs lives below SVC_HOME, which other users must be able to reach, and whose path must be short.
SVC_HOME=${SVC_HOME:-/var/tmp/hubbub-services}

# Whether a process runs; one that ended and was not fetched by its parent does not. As long as threads of it are ending, it has its
# ports still, and runs.
alive() {
  [ -r "/proc/$1/stat" ] || return 1
  ! grep -qE '^[0-9]+ \(.*\) Z' "/proc/$1/stat" 2>/dev/null || [ "$(ls "/proc/$1/task" 2>/dev/null | wc -l)" -gt 1 ]
}

# Ends a process and waits until it is gone.
gone() { kill -"${2:-TERM}" "$1" 2>/dev/null || return 0; for _ in $(seq 300); do alive "$1" || return 0; sleep 0.1; done; return 1; }
