//! Limits put on processes by control groups (cgroups), for as long as a measurement takes.
//!
//! [`Group::make`] makes a group in the hierarchy of each controller that its limits need, and writes them. A server enters
//! before its program begins ([`Group::command`]); what runs already is moved ([`Group::take`]). When it is dropped, whoever
//! is left goes back and the group is removed. Groups of a run that was killed are removed by the next one.
//!
//! Both versions are known ([`limit`] has their files, [`hierarchy`] finds them). Of version 1, a group is made below the one
//! this process is in; of version 2, where a group with processes has no limited ones below it, below the root.

mod hierarchy;
mod limit;

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tokio::process::Command;

use hierarchy::{Hierarchy, disk_of, mounts, write};
pub(crate) use limit::ResourceLimit;
use limit::{RESOURCES, Resource, Version};

/// Names of groups begin so; the id of this process follows.
const NAME: &str = "hubbub-bench-";
/// Lists the processes of a group, and moves those in that are written.
const PROCS: &str = "cgroup.procs";
/// Files that are not there where the kernel does not count swap. Without swap, the limit holds without them, too.
const OF_SWAP: [&str; 2] = ["memory.memsw.limit_in_bytes", "memory.swap.max"];
/// A process that was killed stays in its group for a moment.
const REMOVAL_MAX: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(5);
/// Enters the group of `$0`, then becomes the program.
const ENTER: &str = r#"echo $$ >"$0" && exec "$@""#;

/// The group of one part of an experiment, in each hierarchy that it needs; without limits, in none.
#[derive(Debug, Default)]
pub(crate) struct Group {
    places: Vec<ControlGroup>,
}

#[derive(Debug)]
struct ControlGroup {
    hierarchy: Hierarchy,
    path: PathBuf,
    /// Where its processes came from, and go back to.
    home: Option<PathBuf>,
}

impl Group {
    /// Makes it, with these limits. `part` tells it from others of this process. Reads and writes are limited on the disk
    /// that has `data`.
    ///
    /// # Errors
    /// The limit that cannot be put in place, and why: this process may not, or the machine has no such controller or disk.
    pub(crate) fn make(part: &str, limits: &[ResourceLimit], data: &Path) -> anyhow::Result<Self> {
        Self::make_among(&mounts(), part, limits, data)
    }

    fn make_among(mounts: &str, part: &str, limits: &[ResourceLimit], data: &Path) -> anyhow::Result<Self> {
        let mut group = Self::default();
        for limit in limits {
            group.add(mounts, part, limit, data).with_context(|| limit.to_string())?;
        }
        Ok(group)
    }

    fn add(&mut self, mounts: &str, part: &str, limit: &ResourceLimit, data: &Path) -> anyhow::Result<()> {
        let hierarchy = Hierarchy::of(limit.resource, mounts).with_context(|| {
            let [v1, v2] = [Version::V1, Version::V2].map(|version| limit.resource.controller(version));
            format!("this machine has no cgroups with the controller {v1} (version 1) or {v2} (version 2)")
        })?;
        hierarchy.enable()?;
        let parent = hierarchy.parent();
        let path = parent.join(format!("{NAME}{}-{part}", std::process::id()));
        let version = hierarchy.version;
        if self.places.iter().all(|place| place.path != path) {
            clear(&parent);
            fs::create_dir(&path).with_context(|| format!("cannot make the group {}", path.display()))?;
            self.places.push(ControlGroup { hierarchy, path: path.clone(), home: None });
        }
        let disk = if limit.resource == Resource::Iops { disk_of(data)? } else { String::new() };
        for (file, text) in limit.files(version, &disk) {
            let file_path = path.join(file);
            if !OF_SWAP.contains(&file) || file_path.exists() {
                write(&file_path, &text)?;
            }
        }
        Ok(())
    }

    /// A command whose process is in the group before `program` begins.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let entering = self.places.iter().flat_map(|place| {
            ["sh".into(), "-c".into(), ENTER.into(), place.path.join(PROCS).into_os_string()]
        });
        let mut words = entering.chain([program.as_os_str().to_owned()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words);
        command
    }

    /// Whether the kernel ended one of its processes, because all together needed more memory than they may have.
    pub(crate) fn has_killed(&self) -> bool {
        let counts = self.places.iter().flat_map(|place| {
            ["memory.oom_control", "memory.events"].map(|file| fs::read_to_string(place.path.join(file)))
        });
        counts.flatten().any(|text| {
            let killed = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
            killed.is_some_and(|count| count.trim() != "0")
        })
    }

    /// Moves processes that run already into it, until it is dropped; what they start stays with them.
    ///
    /// # Errors
    /// One that is there cannot be moved.
    #[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "only those of PostgreSQL are moved"))]
    pub(crate) fn take(&mut self, pids: &[u32]) -> anyhow::Result<()> {
        for ControlGroup { hierarchy, path, home } in &mut self.places {
            for pid in pids {
                // One that ended meanwhile needs nothing.
                let Ok(groups) = fs::read_to_string(format!("/proc/{pid}/cgroup")) else { continue };
                let before = hierarchy.group_in(&groups).filter(|before| before != path);
                *home = home.take().or(before);
                if let Err(error) = write(&path.join(PROCS), &pid.to_string()) {
                    ensure!(!is_alive(*pid), "process {pid} cannot be limited: {error:#}");
                }
            }
        }
        Ok(())
    }
}

fn is_alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

impl Drop for Group {
    fn drop(&mut self) {
        for ControlGroup { path, home, .. } in &self.places {
            remove(path, home.as_deref().or(path.parent()).unwrap_or(path));
        }
    }
}

/// Removes a group; whoever is in it goes to that of `home`.
fn remove(group: &Path, home: &Path) {
    let until = Instant::now() + REMOVAL_MAX;
    loop {
        let left = fs::read_to_string(group.join(PROCS)).unwrap_or_default();
        for pid in left.lines() {
            // Who is about to end cannot be moved, and need not be.
            let _ = fs::write(home.join(PROCS), pid);
        }
        match fs::remove_dir(group) {
            Err(error) if error.kind() == ErrorKind::ResourceBusy && Instant::now() < until => {
                std::thread::sleep(PAUSE);
            }
            Err(error) if error.kind() != ErrorKind::NotFound => {
                // Nobody can be told that the terminal is gone.
                let _ = writeln!(
                    std::io::stderr(),
                    "the group {} was not removed: {error}; the next run tries again",
                    group.display()
                );
                return;
            }
            _ => return,
        }
    }
}

/// Removes groups of processes that are gone: of runs that were killed. What still runs there is let go.
fn clear(parent: &Path) {
    for group in left(parent) {
        remove(&group, parent);
    }
}

/// Removes what runs that were killed left, in every hierarchy, except where something still runs in a group: a run that has
/// limits itself lets that go.
pub(crate) fn remove_leftovers() {
    let mounts = mounts();
    let hierarchies = RESOURCES.into_iter().filter_map(|(_, resource)| Hierarchy::of(resource, &mounts));
    for group in hierarchies.flat_map(|hierarchy| left(&hierarchy.parent())) {
        // The kernel refuses it while there is a process in it. What this process may not remove limits nobody.
        let _ = fs::remove_dir(group);
    }
}

/// Groups below `parent` whose names say that a process made them that is gone.
fn left(parent: &Path) -> Vec<PathBuf> {
    let owner = |name: &str| name.strip_prefix(NAME)?.split_once('-')?.0.parse().ok();
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let is_left =
        |entry: &fs::DirEntry| entry.file_name().to_str().and_then(owner).is_some_and(|id| !is_alive(id));
    entries.filter(is_left).map(|entry| entry.path()).collect()
}

/// Processors that its groups leave to a process; `None` where they limit nothing.
pub(crate) fn cpus_of(pid: u32) -> Option<f64> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let hierarchy = Hierarchy::of(Resource::Cpus, &mounts())?;
    let group = hierarchy.group_in(&groups)?;
    let above = group.ancestors().take_while(|group| group.starts_with(&hierarchy.point));
    above.filter_map(|group| cpus_in(group, hierarchy.version)).min_by(f64::total_cmp)
}

fn cpus_in(group: &Path, version: Version) -> Option<f64> {
    let text = |file: &str| fs::read_to_string(group.join(file)).ok();
    let (quota, period) = match version {
        Version::V1 => (text("cpu.cfs_quota_us")?, text("cpu.cfs_period_us")?),
        Version::V2 => {
            text("cpu.max")?.split_once(' ').map(|(quota, period)| (quota.to_owned(), period.to_owned()))?
        }
    };
    // No limit is `max`, or -1.
    let quota: f64 = quota.trim().parse().ok().filter(|quota| *quota > 0.0)?;
    Some(quota / period.trim().parse::<f64>().ok()?)
}

#[cfg(test)]
impl Group {
    /// One that is a plain directory, whose files say what a kernel would.
    pub(crate) fn at(path: &Path) -> Self {
        let hierarchy = Hierarchy::of(Resource::Cpus, hierarchy::tests::V1).into_iter();
        Self {
            places: hierarchy
                .map(|hierarchy| ControlGroup { hierarchy, path: path.to_owned(), home: None })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::hierarchy::tests::V1;
    use super::limit::tests::limits;
    use super::*;

    #[test]
    fn a_controller_that_is_not_there_is_named_with_its_limit() {
        let error = Group::make_among(V1, "server", &limits(&[("memory", "1GiB")]), Path::new("."));
        let error = format!("{:#}", error.unwrap_err());
        assert!(error.contains("cgroup.server.memory = 1GiB") && error.contains("no cgroups"), "{error}");
    }

    /// A directory that looks like a hierarchy of version 2: what the kernel makes of it is not tested here.
    #[test]
    fn version_2_has_one_group_for_all_limits() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        fs::write(path("cgroup.controllers"), "cpuset cpu io memory pids\n").unwrap();
        fs::write(path("cgroup.subtree_control"), "cpu memory\n").unwrap();
        let mounts = format!("41 31 0:38 / {} rw,relatime - cgroup2 cgroup2 rw\n", root.path().display());
        let own = path(&format!("{NAME}{}-server", std::process::id()));
        let wanted = limits(&[("cpus", "1.5"), ("memory", "512MiB"), ("iops", "500")]);
        let made = Group::make_among(&mounts, "server", &wanted, Path::new("/proc"));
        // The disk is looked for last; what was made before is there until it is dropped.
        assert!(format!("{:#}", made.unwrap_err()).contains("cgroup.server.iops = 500: /proc is on no disk"));
        let read = |name: &str| fs::read_to_string(own.join(name)).unwrap_or_default();
        assert_eq!(read("cpu.max"), "150000 100000");
        assert_eq!((read("memory.max"), read("memory.swap.max")), ("536870912".to_owned(), String::new()));
        assert_eq!(fs::read_to_string(path("cgroup.subtree_control")).unwrap(), "+io");
        let hierarchy = Hierarchy::of(Resource::Cpus, &mounts).unwrap();
        assert_eq!(cpus_in(&own, hierarchy.version), Some(1.5));
        assert_eq!(wanted[2].files(Version::V2, "8:0"), [("io.max", "8:0 riops=500 wiops=500".to_owned())]);
    }

    #[test]
    fn a_program_enters_before_it_begins() {
        let dir = tempfile::tempdir().unwrap();
        let place = |name: &str| {
            let path = dir.path().join(name);
            fs::create_dir(&path).unwrap();
            let hierarchy = Hierarchy::of(Resource::Cpus, V1).unwrap();
            ControlGroup { hierarchy, path, home: None }
        };
        let group = Group { places: vec![place("one"), place("two")] };
        let mut command = group.command(Path::new("/bin/echo")).into_std();
        let child = command.args(["a b", "$0"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
        let id = child.id();
        let said = child.wait_with_output().unwrap().stdout;
        assert_eq!(String::from_utf8(said).unwrap(), "a b $0\n", "arguments are passed on as they are");
        for place in &group.places {
            let entered = fs::read_to_string(place.path.join(PROCS)).unwrap();
            assert_eq!(entered.trim(), id.to_string(), "the program has the id that entered");
        }
        let plain = Group::default().command(Path::new("/bin/echo"));
        assert_eq!(plain.as_std().get_program(), "/bin/echo");
    }

    /// Where this machine permits groups.
    #[test]
    fn leftovers_go_but_for_those_that_are_used() {
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let Some(hierarchy) = Hierarchy::of(Resource::Memory, &mounts()) else { return };
        let group = |id: u32, part: &str| hierarchy.parent().join(format!("{NAME}{id}-{part}"));
        let [empty, used, own] =
            [group(ended.id(), "empty"), group(ended.id(), "used"), group(std::process::id(), "own")];
        let all = [&empty, &used, &own];
        if all.into_iter().any(|group| fs::create_dir(group).is_err()) {
            all.into_iter().for_each(|group| drop(fs::remove_dir(group)));
            return;
        }
        let mut sleeper = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let entered = fs::write(used.join(PROCS), sleeper.id().to_string());
        remove_leftovers();
        let is_there = all.map(|group| group.exists());
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        all.into_iter().for_each(|group| remove(group, &hierarchy.parent()));
        assert_eq!(is_there, [false, entered.is_ok(), true]);
    }
}
