//! Programs that not every machine has, such as those in Go that `scripts/services/tools.sh` builds.

use std::path::PathBuf;
use std::process::Command;

/// Where `scripts/services/tools.sh` puts them, unless `HUBBUB_TEST_TOOLS` says otherwise.
const DIRECTORY: &str = "/var/tmp/hubbub-tools";

/// The program of that name; `None` where it was not built. Under `CI=true` it must be there.
pub(crate) fn tool(name: &str) -> Option<Command> {
    let directory = std::env::var("HUBBUB_TEST_TOOLS").unwrap_or_else(|_| DIRECTORY.to_owned());
    let path = PathBuf::from(directory).join(name);
    if path.exists() {
        return Some(Command::new(path));
    }
    or_skip(false, &format!("no {name} in {}; scripts/services/tools.sh builds it", path.display()));
    None
}

/// Whether a test can run with what is there. Where it cannot, that is said; under `CI=true` it is a failure.
pub(crate) fn or_skip(is_there: bool, missing: &str) -> bool {
    if !is_there {
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{missing}");
        println!("SKIPPED: {missing}");
    }
    is_there
}
