//! Figures of this process, for `/metrics`.

use std::path::Path;

use hubbub_pipeline::metrics::ProcessFigures;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

/// Reads them from the system; what it does not tell is `None`. Takes microseconds, so any thread may ask.
pub(crate) fn figures() -> ProcessFigures {
    let (virtual_bytes, resident_bytes) = memory().unzip();
    ProcessFigures {
        cpu_seconds: seconds(clock_gettime(ClockId::ProcessCPUTime)),
        resident_bytes,
        virtual_bytes,
        open_fds: open_fds(),
        // Without a limit it is shown as the largest number.
        max_fds: Some(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)),
        start_time_seconds: start_time(),
    }
}

fn seconds(time: rustix::time::Timespec) -> Option<f64> {
    std::time::Duration::try_from(time).ok().map(|time| time.as_secs_f64())
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// Bytes of address space, and of memory in use.
fn memory() -> Option<(u64, u64)> {
    let text = read("/proc/self/statm")?;
    let mut pages = text.split(' ').map_while(|count| count.trim().parse::<u64>().ok());
    let page = u64::try_from(rustix::param::page_size()).ok()?;
    Some((pages.next()?.checked_mul(page)?, pages.next()?.checked_mul(page)?))
}

/// Newer kernels tell the number as the size of the directory; it is not listed then, however many there are.
fn open_fds() -> Option<u64> {
    let dir = Path::new("/proc/self/fd");
    let told = std::fs::metadata(dir).ok()?.len();
    if told > 0 {
        return Some(told);
    }
    // The listing itself needs one.
    u64::try_from(std::fs::read_dir(dir).ok()?.count()).ok()?.checked_sub(1)
}

fn start_time() -> Option<f64> {
    let stat = read("/proc/self/stat")?;
    // The name, in parentheses, may contain anything; the 22nd field of all is the 20th behind it.
    let ticks: u64 = stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()?;
    let boot = read("/proc/stat")?;
    let boot: u64 = boot.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    #[allow(clippy::cast_precision_loss, reason = "far below 2^53")]
    let (boot, ticks, per_second) =
        (boot as f64, ticks as f64, rustix::param::clock_ticks_per_second() as f64);
    Some(boot + ticks / per_second)
}
