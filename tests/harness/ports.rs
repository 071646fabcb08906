//! Ports for servers that are restarted. The system gives outgoing connections ports from 32,768 on: one of those could
//! be somebody's when the server comes back.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

/// The first of `count` ports in a row that nobody listens on, and that no other test of this process gets.
pub(crate) fn free_ports(count: u16) -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Another process begins elsewhere.
    let start = std::process::id() % 100 * 100;
    loop {
        let number = (start + NEXT.fetch_add(u32::from(count), Ordering::Relaxed)) % 10_000;
        let first = 21_000 + u16::try_from(number).unwrap();
        if (first..first + count).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok()) {
            return first;
        }
    }
}
