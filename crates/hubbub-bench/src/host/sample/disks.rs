//! What the disks of this machine do, from `/proc/diskstats`; whoever uses them.

use std::fs;

use super::raw::{Named, Raw};

/// What all disks of this machine write.
pub(crate) const DISK: &str = "disk MB/s";
/// Share of the time in which the busiest disk had something to do, and the mean time of a flush of the disks' caches.
pub(crate) const DISK_BUSY: &str = "busiest disk %";
pub(crate) const DISK_FLUSH: &str = "disk flush ms";

/// Numbers of the fields, as the kernel's documentation counts them (admin-guide/iostats).
const READS: usize = 1;
const READ_SECTORS: usize = 3;
const WRITES: usize = 5;
const WRITTEN_SECTORS: usize = 7;
const BUSY_MS: usize = 10;
const FLUSHES: usize = 16;
const FLUSH_MS: usize = 17;

/// A sector here is 512 bytes, whatever the disk's is.
const MB_OF_A_SECTOR: f64 = 512.0 / 1e6;

/// Devices whose writes go to other devices, where they are counted, or to memory.
const STACKED_OR_VIRTUAL: [&str; 7] = ["dm-", "md", "zram", "loop", "ram", "bcache", "drbd"];

pub(super) fn disks(raw: &mut Raw) {
    if let Ok(stats) = fs::read_to_string("/proc/diskstats") {
        add(&stats, raw);
    }
}

struct Disk<'s> {
    name: &'s str,
    /// Behind the name.
    fields: Vec<&'s str>,
}

impl Disk<'_> {
    fn count(&self, field: usize) -> Option<f64> {
        self.fields.get(field.checked_sub(1)?)?.parse().ok()
    }
}

/// The same from the text of `/proc/diskstats`. Without a disk nothing is known.
fn add(stats: &str, raw: &mut Raw) {
    let disks = whole_disks(stats);
    // What one of them does not have, older kernels do not count.
    let sum = |field| disks.iter().filter_map(|disk| disk.count(field)).reduce(|all, one| all + one);
    raw.count("disk reads/s", sum(READS));
    raw.count("disk read MB/s", sum(READ_SECTORS).map(|sectors| sectors * MB_OF_A_SECTOR));
    raw.count("disk writes/s", sum(WRITES));
    raw.count(DISK, sum(WRITTEN_SECTORS).map(|sectors| sectors * MB_OF_A_SECTOR));
    // Disks without a cache of their own, and partitions, never count one.
    let flushes = sum(FLUSHES).filter(|count| *count > 0.0);
    raw.count("disk flushes/s", flushes);
    raw.ratio(DISK_FLUSH, sum(FLUSH_MS), flushes);
    let busy = |disk: &Disk<'_>| {
        // Milliseconds in a second, in percent.
        let count = disk.count(BUSY_MS)? / 10.0;
        Some((disk.name.to_owned(), Named { name: disk.name.to_owned(), count }))
    };
    raw.busiest.insert(DISK_BUSY.to_owned(), disks.iter().filter_map(busy).collect());
}

/// Parts of a disk are counted with it.
fn whole_disks(stats: &str) -> Vec<Disk<'_>> {
    let device = |line| {
        let mut fields = str::split_whitespace(line).skip(2);
        Some(Disk { name: fields.next()?, fields: fields.collect() })
    };
    let devices: Vec<Disk<'_>> = stats.lines().filter_map(device).collect();
    let names: Vec<&str> = devices.iter().map(|device| device.name).collect();
    let is_whole = |device: &Disk<'_>| {
        let is_stacked = STACKED_OR_VIRTUAL.iter().any(|kind| device.name.starts_with(kind));
        !is_stacked && !names.iter().any(|disk| is_partition(device.name, disk))
    };
    devices.into_iter().filter(is_whole).collect()
}

/// By the names that Linux gives: `sda1` is one of `sda`, `nvme0n1p2` one of `nvme0n1`.
fn is_partition(name: &str, disk: &str) -> bool {
    let number = name.strip_prefix(disk).and_then(|rest| {
        if disk.ends_with(|last: char| last.is_ascii_digit()) { rest.strip_prefix('p') } else { Some(rest) }
    });
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(stats: &str) -> Raw {
        let mut raw = Raw::default();
        add(stats, &mut raw);
        raw
    }

    #[test]
    fn each_field_is_where_linux_writes_it() {
        let before = " 254 0 vda 200 9 4000 900 100 7 2000 950 0 500 1976 4 0 8 2 50 300\n 253 0 zram0 9 9 9 9 9 9 9 9 9 9 9\n";
        let after = " 254 0 vda 220 9 9000 990 140 7 7000 990 0 900 1990 4 0 8 2 60 325\n 253 0 zram0 9 9 9 9 9 9 9 9 9 9 9\n";
        let (before, after) = (of(before), Raw { at_s: 2.0, ..of(after) });
        let sample = after.since(&before);
        let shown: Vec<(&str, f64)> =
            sample.values.iter().map(|(name, value)| (&**name, value.mean())).collect();
        let wanted = [
            (DISK_BUSY, 20.0),
            ("disk MB/s", 1.28),
            (DISK_FLUSH, 2.5),
            ("disk flushes/s", 5.0),
            ("disk read MB/s", 1.28),
            ("disk reads/s", 10.0),
            ("disk writes/s", 20.0),
        ];
        let is_wanted = |((name, value), (wanted, by)): (&(&str, f64), &(&str, f64))| {
            name == wanted && (value - by).abs() < 1e-9
        };
        assert!(shown.len() == wanted.len() && shown.iter().zip(&wanted).all(is_wanted), "{shown:?}");
        assert_eq!(sample.busiest[DISK_BUSY], "vda");
    }

    #[test]
    fn what_a_kernel_does_not_count_is_not_known() {
        let old = of(" 8 0 sda 1 2 3 4 5 6 7 8 0 10 11\n");
        assert!(!old.counters.contains_key("disk flushes/s") && old.ratios.is_empty(), "{old:?}");
        assert_eq!(old.counters["disk writes/s"], 5.0);
        let uncached = of(" 8 0 sda 1 2 3 4 5 6 7 8 0 10 11 0 0 0 0 0 0\n");
        assert!(!uncached.counters.contains_key("disk flushes/s"), "{uncached:?}");
        for none in ["", "\n8 0\n", " 7 0 loop0 1 2 3 4 5 6 7 8 0 10 11\n"] {
            let raw = of(none);
            assert!(raw.counters.is_empty() && raw.ratios.is_empty(), "{raw:?}");
            assert!(raw.since(&of(none)).values.is_empty(), "{none}");
        }
    }

    #[test]
    fn bytes_are_counted_once_and_only_those_of_disks() {
        let one = |name: &str, writes: u32, sectors: u32| {
            format!(" 8 0 {name} 1 2 3 4 {writes} 6 {sectors} 8 0 0 0\n")
        };
        let written = |stats: &str| {
            let raw = of(stats);
            [raw.counters["disk writes/s"], (1e6 * raw.counters[DISK]).round()]
        };
        let whole = [
            ("sda", 10, 100),
            ("sdaa", 20, 200),
            ("nvme0n1", 40, 400),
            ("nvme0n10", 80, 800),
            ("mmcblk0", 160, 1_600),
        ];
        let skipped = [
            "sda1",
            "sda12",
            "sdaa3",
            "nvme0n1p1",
            "nvme0n10p2",
            "mmcblk0p1",
            "dm-0",
            "md0",
            "md127",
            "zram0",
            "loop3",
            "ram0",
        ];
        let mut text: String = whole.map(|(name, writes, sectors)| one(name, writes, sectors)).concat();
        assert_eq!(written(&text), [310.0, 3_100.0 * 512.0]);
        text.extend(skipped.map(|name| one(name, 7, 70)));
        assert_eq!(written(&text), [310.0, 3_100.0 * 512.0]);
        // A container may see a part alone.
        assert_eq!(written(&one("vda1", 7, 70)), [7.0, 70.0 * 512.0]);
    }
}
