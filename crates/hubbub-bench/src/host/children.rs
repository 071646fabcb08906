//! Processes that end with this one.

use rustix::io::Errno;
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
use tokio::process::Command;

/// Has the process of a command end with this one, however this one ends. What a terminal tells to stop is this one, which knows
/// what else is to be done.
///
/// The kernel ends it already with the thread that starts it, so that must be one that lasts: the main thread, or one of a
/// runtime's own.
#[allow(
    unsafe_code,
    reason = "before its program begins, a process may do little; these calls neither allocate nor lock"
)]
pub(crate) fn tied(command: &mut Command) -> &mut Command {
    let own = getpid();
    let tie = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // It may have ended just before.
        if getppid() == Some(own) { Ok(()) } else { Err(Errno::SRCH.into()) }
    };
    unsafe { command.kill_on_drop(true).process_group(0).pre_exec(tie) }
}
