use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::client::address::Server;

/// Answers the requests with these texts in turn, then with the last one again and again; closes the connection behind one that
/// breaks off. Also says how many requests there were.
async fn server(answers: Vec<String>) -> (Connection, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server: Server = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = Vec::new();
            while stream.read_buf(&mut request).await.unwrap_or(0) > 0 {
                if request.ends_with(b"\r\n\r\n") {
                    let number = counted.fetch_add(1, Ordering::Relaxed);
                    request.clear();
                    let answer = answers.get(number).or(answers.last()).unwrap();
                    stream.write_all(answer.as_bytes()).await.unwrap();
                    if !answer.ends_with(END) {
                        break;
                    }
                }
            }
        }
    });
    (server.connection(), asked)
}

/// The end of a whole answer.
const END: &str = "}";

fn answer(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nretry-after: 0\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn job(connection: Connection, bytes_per_second: u64) -> Job {
    Job {
        connection,
        progress: Progress::of_bytes("backing up", 0),
        path: "/v1/backups/b".into(),
        asked: Instant::now(),
        dir: PathBuf::new(),
        partial: PathBuf::new(),
        previous: None,
        copied: Copied::default(),
        pace: Pace::new(bytes_per_second),
    }
}

fn file_of(bytes: &[u8]) -> BackupFile {
    BackupFile { name: "a".into(), bytes: bytes.len() as u64, crc32c: crc32c::crc32c(bytes) }
}

#[tokio::test]
async fn a_backup_is_asked_for_while_old_files_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = vec![7; 4 << 20];
    let file = file_of(&bytes);
    fs::write(dir.path().join("a"), bytes).unwrap();
    let listing = Listing::new(SystemClock::new().now(), "e".into(), 1, vec![file.clone()]);
    // Another list is that of another backup, which the server began for want of this one.
    for (is_kept, waited) in [(true, Duration::ZERO), (true, 2 * ASK_EVERY), (false, 2 * ASK_EVERY)] {
        let files = if is_kept { listing.files.as_slice() } else { &[] };
        let begun = json!({"epoch": "e", "messages": 1, "files": files}).to_string();
        let (connection, asked) = server(vec![answer("200 OK", &begun)]).await;
        let mut job = job(connection, 0);
        job.asked = Instant::now().checked_sub(waited).unwrap();
        let target = dir.path().join(format!("{is_kept} {waited:?}"));
        let linked = job.link(dir.path().join("a"), target, &file, &listing).await;
        assert_eq!(linked.is_ok_and(|linked| linked == Old::Linked), is_kept);
        assert_eq!(asked.load(Ordering::Relaxed), usize::from(!waited.is_zero()));
    }
}

/// One refusal or lost connection among thousands of files is no end of the backup.
#[tokio::test]
async fn a_file_that_does_not_come_is_asked_for_again() {
    let dir = tempfile::tempdir().unwrap();
    let content = "{a file}";
    let busy =
        answer("503 Service Unavailable", r#"{"code":"overloaded","detail":"later","retryable":true}"#);
    let whole = answer("200 OK", content);
    let broken = whole.strip_suffix(END).unwrap().to_owned();
    let (connection, asked) = server(vec![busy.clone(), broken, busy, whole]).await;
    let target = dir.path().join("a");
    job(connection, 0).fetch(&file_of(content.as_bytes()), &target).await.unwrap();
    assert_eq!(fs::read_to_string(&target).unwrap(), content);
    assert_eq!(asked.load(Ordering::Relaxed), 4);
    // What will be refused for ever is final.
    let gone = answer("404 Not Found", r#"{"code":"not_found","detail":"no such backup","retryable":false}"#);
    let (connection, asked) = server(vec![gone]).await;
    let error = job(connection, 0).fetch(&file_of(content.as_bytes()), &target).await.unwrap_err();
    assert!(format!("{error:#}").contains("begin the backup again"), "{error:#}");
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

/// Where there are no hard links, whole backups are copied while senders wait for the same disk.
#[tokio::test]
async fn a_copy_is_no_faster_than_is_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(2 * STEP_BYTES).collect();
    let (file, old, target) = (file_of(&bytes), dir.path().join("old"), dir.path().join("new"));
    fs::write(&old, &bytes).unwrap();
    let listing = Listing::new(SystemClock::new().now(), "e".into(), 1, vec![file.clone()]);
    let (connection, _) = server(Vec::new()).await;
    let begun = Instant::now();
    job(connection, 1_000_000).copy_old(&old, &file, &target, &listing).await.unwrap();
    assert!(begun.elapsed() > Duration::from_millis(150), "{:?}", begun.elapsed());
    assert_eq!(fs::read(&target).unwrap(), bytes);
}
