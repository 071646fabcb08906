//! A full disk refuses writes and says so, reads go on, and it heals by itself when space comes back.

use std::fs::File;

use rustix::fs::{FallocateFlags, fallocate, statvfs};
use serde_json::json;

use crate::harness::{Setup, until};

const GIB: u64 = 1 << 30;

#[tokio::test]
async fn disk_full_refuses_and_recovers() {
    let setup = Setup::new();
    let directory = setup.data().parent().unwrap().to_owned();
    let disk = statvfs(&directory).unwrap();
    // The reserve begins a little below what is free now, so that a file of moderate size makes the disk "full".
    // What other programs write meanwhile stays far below the differences.
    let free = disk.f_bavail * disk.f_frsize;
    assert!(free > 4 * GIB, "this test wants 4 GiB of free disk space in {}", directory.display());
    let mut server = setup.set(&format!("store.embedded.disk_reserve={}", free - GIB)).start();
    server.send("r", "before").await;

    let ballast = directory.join("ballast");
    fallocate(File::create(&ballast).unwrap(), FallocateFlags::empty(), 0, 2 * GIB).unwrap();
    let mut refused = 0;
    let mut stored = 1;
    until("the refusal", async || {
        let answer = server.send_as("r", &format!("id-{stored}"), "meanwhile").await;
        if answer.status == 201 {
            stored += 1;
            return false;
        }
        let problem = answer.problem(503, "disk_full");
        assert!(problem["detail"].as_str().unwrap().contains("store.embedded.disk_reserve"), "{problem}");
        assert_eq!((&problem["retryable"], answer.header("retry-after")), (&json!(true), Some("1")));
        refused += 1;
        true
    })
    .await;
    for restarted in [false, true] {
        if restarted {
            // A server that starts on a full disk serves what it has.
            server.restart();
            assert!(server.log().contains("little space on the disk"), "{}", server.log());
        }
        until("health", async || server.get("/health").await.status == 503).await;
        let health = server.get("/health").await.json();
        assert_eq!(
            (&health["status"], &health["components"]["disk"]["status"]),
            (&json!("DOWN"), &json!("DOWN"))
        );
        assert!(health["components"]["disk"]["reason"].is_string(), "{health}");
        assert_eq!(server.get("/health/live").await.status, 200, "it is alive all the same");
        assert_eq!(server.metric("store_up").await, 0);
        assert_eq!(server.history("r").await.len(), stored);
        server.send_as("r", "refused", "x").await.problem(503, "disk_full");
        assert_eq!(refused, 1);
    }

    std::fs::remove_file(&ballast).unwrap();
    until("the recovery", async || server.send_as("r", "refused", "after").await.status == 201).await;
    assert_eq!((server.get("/health").await.status, server.metric("store_up").await), (200, 1));
    assert_eq!(server.history("r").await.len(), stored + 1, "nothing of what was refused is there");
}
