//! What control groups can limit: how it is called and written in scenarios, and which files of a group have it.

use std::fmt::{self, Display};

use anyhow::{Context, anyhow};

/// Processor time is given out for so long at a time, in microseconds.
const PERIOD_US: u64 = 100_000;
/// Least of it that the kernel takes.
const QUOTA_US_MIN: u64 = 1_000;
const CPUS_MAX: f64 = 4_096.0;
const MEMORY_MIN: u64 = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resource {
    Cpus,
    Memory,
    Iops,
}

/// What can be limited, and how it is called in scenarios.
pub(super) const RESOURCES: [(&str, Resource); 3] =
    [("cpus", Resource::Cpus), ("memory", Resource::Memory), ("iops", Resource::Iops)];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    V1,
    V2,
}

impl Resource {
    pub(super) fn controller(self, version: Version) -> &'static str {
        match (self, version) {
            (Self::Cpus, _) => "cpu",
            (Self::Memory, _) => "memory",
            (Self::Iops, Version::V1) => "blkio",
            (Self::Iops, Version::V2) => "io",
        }
    }
}

/// A limit as a scenario has it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ResourceLimit {
    /// Such as `cgroup.server.cpus`.
    key: String,
    text: String,
    pub(super) resource: Resource,
    /// Microseconds of each [`PERIOD_US`], bytes, or as many reads and as many writes in a second.
    value: u64,
}

impl Display for ResourceLimit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} = {}", self.key, self.text)
    }
}

impl ResourceLimit {
    /// Whether there is a limit of this name: the last part of its key.
    pub(crate) fn is_known(name: &str) -> bool {
        RESOURCES.iter().any(|(known, _)| *known == name)
    }

    /// # Errors
    /// The key names no resource, or the value breaks its rule.
    pub(crate) fn parse(key: &str, text: &str) -> anyhow::Result<Self> {
        let name = key.rsplit_once('.').map_or(key, |(_, name)| name);
        let found = RESOURCES.iter().find(|(known, _)| *known == name);
        let (_, resource) = *found.with_context(|| format!("{key} is none of cpus, memory and iops"))?;
        let (value, rule) = match resource {
            Resource::Cpus => (quota_us(text), "must be a number of processors, from 0.01 on, such as 1.5"),
            Resource::Memory => {
                let bytes = bytes(text).filter(|bytes| *bytes >= MEMORY_MIN);
                (bytes, "must be a number of bytes, from 1MiB on, such as 512MiB")
            }
            Resource::Iops => {
                let count = text.parse().ok().filter(|count| (1..=u64::from(u32::MAX)).contains(count));
                (count, "must be a whole number of reads, and of writes, in a second")
            }
        };
        let value = value.ok_or_else(|| anyhow!("{key} = {text} {rule}"))?;
        Ok(Self { key: key.to_owned(), text: text.to_owned(), resource, value })
    }

    /// Files of a group, and what is written into them, in order.
    pub(super) fn files(&self, version: Version, disk: &str) -> Vec<(&'static str, String)> {
        let value = self.value;
        match (self.resource, version) {
            (Resource::Cpus, Version::V1) => {
                vec![("cpu.cfs_period_us", PERIOD_US.to_string()), ("cpu.cfs_quota_us", value.to_string())]
            }
            (Resource::Cpus, Version::V2) => vec![("cpu.max", format!("{value} {PERIOD_US}"))],
            // That of memory and swap together may not be below that of memory.
            (Resource::Memory, Version::V1) => ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]
                .map(|file| (file, value.to_string()))
                .into(),
            (Resource::Memory, Version::V2) => {
                vec![("memory.max", value.to_string()), ("memory.swap.max", "0".to_owned())]
            }
            (Resource::Iops, Version::V1) => {
                ["blkio.throttle.read_iops_device", "blkio.throttle.write_iops_device"]
                    .map(|file| (file, format!("{disk} {value}")))
                    .into()
            }
            (Resource::Iops, Version::V2) => {
                vec![("io.max", format!("{disk} riops={value} wiops={value}"))]
            }
        }
    }
}

fn quota_us(text: &str) -> Option<u64> {
    let cpus: f64 = text.parse().ok().filter(|cpus| (0.0..=CPUS_MAX).contains(cpus))?;
    Some((cpus * PERIOD_US as f64).round() as u64).filter(|quota| *quota >= QUOTA_US_MIN)
}

fn bytes(text: &str) -> Option<u64> {
    let units = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let (number, factor) = units
        .into_iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))
        .unwrap_or((text, 1));
    number.trim().parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::host::lab::cgroup) fn limits(all: &[(&str, &str)]) -> Vec<ResourceLimit> {
        all.iter()
            .map(|(name, text)| ResourceLimit::parse(&format!("cgroup.server.{name}"), text).unwrap())
            .collect()
    }

    #[test]
    fn limits_have_rules() {
        for (name, text, value) in [
            ("cpus", "1.5", 150_000),
            ("cpus", "0.01", 1_000),
            ("memory", "512MiB", 512 << 20),
            ("memory", "1048576", 1 << 20),
            ("iops", "500", 500),
        ] {
            assert_eq!(limits(&[(name, text)])[0].value, value, "{name} = {text}");
        }
        for (name, text, rule) in [
            ("cpus", "0", "number of processors"),
            ("cpus", "NaN", "number of processors"),
            ("cpus", "-1", "number of processors"),
            ("memory", "1KiB", "from 1MiB"),
            ("memory", "99999999999GiB", "number of bytes"),
            ("iops", "0", "whole number"),
            ("iops", "1.5", "whole number"),
            ("colour", "1", "none of cpus"),
        ] {
            let error =
                ResourceLimit::parse(&format!("cgroup.database.{name}"), text).unwrap_err().to_string();
            assert!(error.contains(&format!("cgroup.database.{name}")) && error.contains(rule), "{error}");
        }
    }
}
