//! What this program was built from.

/// The version of all crates.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit, or `unknown` (build.rs).
pub(crate) const COMMIT: &str = env!("HUBBUB_COMMIT");
/// Both, as `--version` shows them.
pub(crate) const VERSION_AND_COMMIT: &str =
    concat!(env!("CARGO_PKG_VERSION"), " (", env!("HUBBUB_COMMIT"), ")");
