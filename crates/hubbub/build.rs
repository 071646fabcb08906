//! Tells the program which commit it is built from: of `HUBBUB_COMMIT`, or of the repository it lies in.
//! Without either it is `unknown`.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=HUBBUB_COMMIT");
    let given = std::env::var("HUBBUB_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = given.or_else(commit_of_repository).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo:rustc-env=HUBBUB_COMMIT={commit}");
}

/// `None` without git, and where the sources lie in a repository of something else.
fn commit_of_repository() -> Option<String> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)?;
    let top = git(workspace, &["rev-parse", "--show-toplevel"])?;
    if Path::new(&top).canonicalize().ok()? != workspace.canonicalize().ok()? {
        return None;
    }
    // HEAD names a branch, whose file moves with each commit; once packed, it has none until the next commit.
    let branch = git(workspace, &["symbolic-ref", "-q", "HEAD"]);
    for name in ["HEAD", "packed-refs"].into_iter().chain(branch.as_deref()) {
        if let Some(path) = git(workspace, &["rev-parse", "--path-format=absolute", "--git-path", name])
            && Path::new(&path).exists()
        {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    git(workspace, &["rev-parse", "--short=12", "HEAD"])
}

fn git(dir: &Path, arguments: &[&str]) -> Option<String> {
    let ran = Command::new("git").arg("-C").arg(dir).args(arguments).output().ok()?;
    let text = String::from_utf8(ran.stdout).ok().filter(|_| ran.status.success())?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}
