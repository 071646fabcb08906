//! What goes over the network of this machine, from `/proc/net`; whoever uses it.

use std::fs;

use super::raw::Raw;

const LOOPBACK: &str = "lo";

/// Interfaces whose bytes go over others, where they are counted, or to this machine itself.
const STACKED_OR_VIRTUAL: [&str; 15] = [
    "veth", "docker", "br-", "virbr", "vnet", "cni", "flannel", "cali", "bond", "team", "tun", "tap", "wg",
    "ifb", "dummy",
];

pub(super) fn network(raw: &mut Raw) {
    let read = |file| fs::read_to_string(format!("/proc/net/{file}")).unwrap_or_default();
    add_bytes(&read("dev"), raw);
    raw.count("TCP retransmits/s", retransmitted(&read("snmp")));
}

/// From the text of `/proc/net/dev`. What goes over the loopback comes in as it goes out.
fn add_bytes(devices: &str, raw: &mut Raw) {
    let device = |line: &str| {
        let (name, fields) = line.split_once(':')?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let mb = |index: usize| Some(fields.get(index)?.parse::<f64>().ok()? / 1e6);
        Some((name.trim().to_owned(), mb(0)?, mb(8)?))
    };
    for (name, received, sent) in devices.lines().filter_map(device) {
        let mut add = |shown: &str, mb: f64| *raw.counters.entry(shown.to_owned()).or_default() += mb;
        if name == LOOPBACK {
            add("loopback MB/s", received);
        } else if !is_stacked_or_virtual(&name) {
            add("network in MB/s", received);
            add("network out MB/s", sent);
        }
    }
}

/// A dot is in the names of VLANs.
fn is_stacked_or_virtual(name: &str) -> bool {
    name.contains('.') || STACKED_OR_VIRTUAL.iter().any(|kind| name.starts_with(kind))
}

/// Segments that TCP sent again, from the text of `/proc/net/snmp`: a line of names, and one of values.
fn retransmitted(snmp: &str) -> Option<f64> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Tcp:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let place = names.split_whitespace().position(|name| name == "RetransSegs")?;
    values.split_whitespace().nth(place)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_counted_where_they_leave_the_machine() {
        let devices = "Inter-|   Receive                            |  Transmit\n \
            face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    \
            lo:   68403    1007    0    0    0     0          0         0    68403    1007    0    0    0     0       0          0\n  \
            ifb0:     500       0    0    0    0     0          0         0      500       0    0    0    0     0       0          0\n  \
            eth0: 3000000   26200    0    0    0     0          0         0  2000000   18006    0    0    0     0       0          0\n\
            eth1.7: 9       1    0    0    0     0          0         0        9       1    0    0    0     0       0          0\n\
            wlan0:1000000       1    0    0    0     0          0         0        0       1    0    0    0     0       0          0\n\
            veth12:     500       0    0    0    0     0          0         0      500       0    0    0    0     0       0          0\n";
        let mut raw = Raw::default();
        add_bytes(devices, &mut raw);
        let counted: Vec<(&str, f64)> = raw.counters.iter().map(|(name, mb)| (&**name, *mb)).collect();
        let wanted = [("loopback MB/s", 0.068_403), ("network in MB/s", 4.0), ("network out MB/s", 2.0)];
        assert_eq!(counted, wanted);
        let mut none = Raw::default();
        add_bytes("eth0: 1 2\nlo\n", &mut none);
        assert!(none.counters.is_empty(), "{none:?}");
    }

    #[test]
    fn retransmits_are_found_by_their_name() {
        let snmp = "Ip: Forwarding DefaultTTL\nIp: 1 64\n\
            Tcp: RtoAlgorithm MaxConn InSegs OutSegs RetransSegs InErrs\nTcp: 1 -1 27139 18959 12 3\n";
        assert_eq!(retransmitted(snmp), Some(12.0));
        for unknown in
            ["", "Tcp: RetransSegs\n", "Tcp: InSegs\nTcp: 1\n", "Tcp: InSegs RetransSegs\nTcp: 1\n"]
        {
            assert_eq!(retransmitted(unknown), None, "{unknown}");
        }
    }
}
