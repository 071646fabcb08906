//! Says of files that this program may not use whom they belong to.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use hubbub_store::embedded::OpenError;

/// What to add to the error; empty if other users have nothing to do with it.
pub(crate) fn advice(error: &OpenError) -> String {
    match error {
        OpenError::Unreadable { path, source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
            difference(path, rustix::process::geteuid().as_raw())
        }
        _ => String::new(),
    }
}

fn difference(path: &Path, own: u32) -> String {
    // What is in a directory that may not be searched is not to be seen; the directory is.
    let owner = path.ancestors().find_map(|path| path.metadata().ok()).map(|metadata| metadata.uid());
    match owner {
        Some(owner) if owner != own => {
            format!(": it belongs to {}, and this program runs as {}", user(owner), user(own))
        }
        _ => String::new(),
    }
}

/// The user with the name, if this machine's own list has one.
fn user(id: u32) -> String {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == id.to_string()).then_some(name)
    });
    name.map_or_else(|| format!("user {id}"), |name| format!("user {id} ({name})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_owner_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let own = file.as_file().metadata().unwrap().uid();
        assert_eq!(difference(file.path(), own), "");
        let said = difference(&file.path().join("LOCK"), own + 4_000_000);
        let expected =
            format!(": it belongs to {}, and this program runs as user {}", user(own), own + 4_000_000);
        assert_eq!(said, expected);
        assert_eq!(user(0), "user 0 (root)");
    }
}
