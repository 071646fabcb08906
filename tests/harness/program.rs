//! The binary as a command that ends by itself.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::PATIENCE;

/// The binary under test, `$HUBBUB_BIN` or the one built with the tests; nothing else around it tells it what to do.
pub(crate) fn command() -> Command {
    let built = || env!("CARGO_BIN_EXE_hubbub").into();
    let mut command = Command::new(std::env::var_os("HUBBUB_BIN").unwrap_or_else(built));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("HUBBUB_") {
            command.env_remove(name);
        }
    }
    // A directory without hubbub.toml.
    command.current_dir(std::env::temp_dir()).stdin(Stdio::null());
    command
}

/// What a command that ended left.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// Its standard output, which must be all there is to say.
    pub(crate) fn success(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }

    /// Fails with `code`, one line on standard error, and nothing on standard output.
    pub(crate) fn refusal(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert_eq!((self.stdout.as_str(), self.stderr.trim_end().lines().count()), ("", 1), "{self:?}");
        self.stderr
    }
}

/// Runs `hubbub` with `arguments` and `input` until it ends.
pub(crate) fn hubbub(arguments: &[&str], input: &str) -> Ran {
    hubbub_within(PATIENCE, arguments, input)
}

fn hubbub_within(patience: Duration, arguments: &[&str], input: &str) -> Ran {
    let mut command = command();
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // Fails when the command does not read its input.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let id = Pid::from_child(&child);
    let (sender, ended) = mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output().unwrap()));
    let Ok(output) = ended.recv_timeout(patience) else {
        kill_process(id, Signal::KILL).unwrap();
        panic!("hubbub {arguments:?} does not end");
    };
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// The same with variables in its environment, for a command that ends at once.
pub(crate) fn hubbub_with(arguments: &[&str], variables: &[(&str, &str)]) -> Ran {
    let output = command().args(arguments).envs(variables.iter().copied()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// The same without blocking the test's other tasks.
pub(crate) async fn hubbub_aside(arguments: Vec<String>, input: String) -> Ran {
    let run = move || hubbub(&arguments.iter().map(String::as_str).collect::<Vec<_>>(), &input);
    tokio::task::spawn_blocking(run).await.unwrap()
}

/// The same for a command that has more to do the longer a test runs.
pub(crate) async fn hubbub_at_length(arguments: Vec<String>) -> Ran {
    let run = move || {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        hubbub_within(10 * PATIENCE, &arguments, "")
    };
    tokio::task::spawn_blocking(run).await.unwrap()
}
