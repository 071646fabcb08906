//! Where the machine has its control groups, of either version, and which disk a directory is on.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rustix::fs::{major, minor};

use super::limit::{Resource, Version};

/// Where a controller has its groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hierarchy {
    pub(super) version: Version,
    controller: &'static str,
    /// The part of the tree that is mounted, and where.
    root: String,
    pub(super) point: PathBuf,
}

impl Hierarchy {
    /// Of version 1 where the controller is mounted so; a controller is in one hierarchy only. `mounts` is
    /// `/proc/self/mountinfo`.
    pub(super) fn of(resource: Resource, mounts: &str) -> Option<Self> {
        let mounted = |version| {
            let controller = resource.controller(version);
            mounts.lines().find_map(|line| {
                let (place, kind) = line.split_once(" - ")?;
                let mut place = place.split(' ').skip(3);
                let (root, point) = (place.next()?.to_owned(), PathBuf::from(place.next()?));
                let mut kind = kind.split(' ');
                let (kind, options) = (kind.next()?, kind.nth(1)?);
                let has_it = match version {
                    Version::V1 => kind == "cgroup" && options.split(',').any(|option| option == controller),
                    Version::V2 => {
                        kind == "cgroup2" && has_word(&point.join("cgroup.controllers"), controller)
                    }
                };
                has_it.then_some(Self { version, controller, root, point })
            })
        };
        mounted(Version::V1).or_else(|| mounted(Version::V2))
    }

    /// The group of a process, by its `/proc/PID/cgroup`.
    pub(super) fn group_in(&self, groups: &str) -> Option<PathBuf> {
        groups.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            let is_it = match self.version {
                Version::V1 => controllers.split(',').any(|one| one == self.controller),
                Version::V2 => controllers.is_empty(),
            };
            let below = path.strip_prefix(self.root.trim_end_matches('/'))?.trim_start_matches('/');
            // What begins so is outside of what this process may see.
            (is_it && !below.starts_with("..")).then(|| self.point.join(below))
        })
    }

    /// Where new groups are made.
    pub(super) fn parent(&self) -> PathBuf {
        match self.version {
            Version::V1 => {
                let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
                self.group_in(&own).unwrap_or_else(|| self.point.clone())
            }
            Version::V2 => self.point.clone(),
        }
    }

    /// Lets its controller limit the groups that are made there.
    pub(super) fn enable(&self) -> anyhow::Result<()> {
        let enabled = self.point.join("cgroup.subtree_control");
        if self.version == Version::V2 && !has_word(&enabled, self.controller) {
            write(&enabled, &format!("+{}", self.controller))?;
        }
        Ok(())
    }
}

fn has_word(file: &Path, word: &str) -> bool {
    fs::read_to_string(file).unwrap_or_default().split_whitespace().any(|one| one == word)
}

pub(super) fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {text} into {}", file.display()))
}

pub(super) fn mounts() -> String {
    fs::read_to_string("/proc/self/mountinfo").unwrap_or_default()
}

/// The whole disk that has a file or directory, as `major:minor`.
pub(super) fn disk_of(data: &Path) -> anyhow::Result<String> {
    let shown = data.display();
    let device = fs::metadata(data).with_context(|| format!("cannot look at {shown}"))?.dev();
    let number = format!("{}:{}", major(device), minor(device));
    let entry = PathBuf::from(format!("/sys/dev/block/{number}"));
    if !entry.exists() {
        bail!("{shown} is on no disk whose reads and writes are counted (device {number})");
    }
    if !entry.join("partition").exists() {
        return Ok(number);
    }
    // The entry is a link to the directory of the partition, which is in that of its disk.
    let disk =
        fs::read_to_string(entry.join("../dev")).with_context(|| format!("{shown} is on an unknown disk"))?;
    Ok(disk.trim().to_owned())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::host::lab::cgroup) const V1: &str = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
         32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
         38 31 0:35 /docker/abc /sys/fs/cgroup/blkio rw,relatime - cgroup cgroup rw,blkio\n";

    #[test]
    fn a_controller_is_found_where_it_is_mounted() {
        let cpu = Hierarchy::of(Resource::Cpus, V1).unwrap();
        assert_eq!((cpu.version, cpu.point.to_str()), (Version::V1, Some("/sys/fs/cgroup/cpu,cpuacct")));
        let groups = "4:memory:/a\n2:cpuacct,cpu:/b/c\n7:blkio:/docker/abc/d\n0::/e\n";
        assert_eq!(cpu.group_in(groups), Some("/sys/fs/cgroup/cpu,cpuacct/b/c".into()));
        let blkio = Hierarchy::of(Resource::Iops, V1).unwrap();
        assert_eq!(blkio.group_in(groups), Some("/sys/fs/cgroup/blkio/d".into()), "below what is mounted");
        assert_eq!(blkio.group_in("7:blkio:/elsewhere"), None);
        assert_eq!(Hierarchy::of(Resource::Memory, V1), None);
    }
}
