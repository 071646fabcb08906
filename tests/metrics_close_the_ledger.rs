//! `/metrics` shows everything that is declared, and its figures add up.

use hyper::Method;
use serde_json::{Value, json};

use crate::harness::{Http, Server, Setup, chat_message, in_time, until};

const DECLARED: &[(&str, &str)] = &[
    ("build_info", "gauge"),
    ("live_read_backs_total", "counter"),
    ("messages_accepted_total", "counter"),
    ("messages_stored_total", "counter"),
    ("changes_total", "counter"),
    ("messages_duplicate_total", "counter"),
    ("messages_unconfirmed_total", "counter"),
    ("messages_delivered_total", "counter"),
    ("messages_rejected_total", "counter"),
    ("delivery_seconds", "histogram"),
    ("pipeline_waiting_operations", "gauge"),
    ("pipeline_in_flight_operations", "gauge"),
    ("pipeline_batch_operations", "histogram"),
    ("pipeline_wait_seconds", "histogram"),
    ("pipeline_store_seconds", "histogram"),
    ("pipeline_answer_seconds", "histogram"),
    ("pipeline_fan_out_seconds", "histogram"),
    ("pipeline_total_seconds", "histogram"),
    ("pipeline_client_seconds", "histogram"),
    ("presence_records_received_total", "counter"),
    ("presence_remote_users", "gauge"),
    ("traces_spans_dropped_total", "counter"),
    ("traces_spans_exported_total", "counter"),
    ("websocket_connections", "gauge"),
    ("connections", "gauge"),
    ("connections_refused_total", "counter"),
    ("connections_refused_by_address_total", "counter"),
    ("connections_timed_out_total", "counter"),
    ("websocket_bad_frames_total", "counter"),
    ("flooding_sockets_total", "counter"),
    ("tls_handshakes_total", "counter"),
    ("tls_handshakes_failed_total", "counter"),
    ("tls_reloads_failed_total", "counter"),
    ("subscriptions", "gauge"),
    ("slow_subscribers_total", "counter"),
    ("http_requests_total", "counter"),
    ("http_request_seconds", "histogram"),
    ("logins_total", "counter"),
    ("logins_refused_total", "counter"),
    ("logins_limited_total", "counter"),
    ("members_cache_hits_total", "counter"),
    ("members_cache_misses_total", "counter"),
    ("kv_changes_total", "counter"),
    ("kv_cache_hits_total", "counter"),
    ("kv_cache_misses_total", "counter"),
    ("kv_cache_validations_total", "counter"),
    ("kv_exclusive", "gauge"),
    ("kv_exclusive_lost_total", "counter"),
    ("kv_exclusive_waits_total", "counter"),
    ("kv_cache_evictions_total", "counter"),
    ("kv_cache_load_seconds", "histogram"),
    ("kv_cache_entries", "gauge"),
    ("kv_cache_bytes", "gauge"),
    ("store_keys", "gauge"),
    ("store_up", "gauge"),
    ("store_messages", "gauge"),
    ("store_rooms", "gauge"),
    ("store_disk_bytes", "gauge"),
    ("store_segments", "gauge"),
    ("store_unsealed_slots", "gauge"),
    ("store_partitions_missing", "gauge"),
    ("store_cache_hits_total", "counter"),
    ("store_cache_misses_total", "counter"),
    ("store_cache_validations_total", "counter"),
    ("store_cache_bytes", "gauge"),
    ("store_sync_last_seconds", "gauge"),
    ("store_sync_max_seconds", "gauge"),
    ("line_command_seconds", "histogram"),
    ("line_bad_requests_total", "counter"),
    ("line_commands_total", "counter"),
    ("line_connections", "gauge"),
    ("queue_messages_sent_total", "counter"),
    ("queue_messages_taken_total", "counter"),
    ("queue_messages_leased_total", "counter"),
    ("queue_messages_acked_total", "counter"),
    ("queue_messages_nacked_total", "counter"),
    ("queue_messages_dead_total", "counter"),
    ("queue_messages_dropped_total", "counter"),
    ("queue_waiting_consumers", "gauge"),
    ("store_queues", "gauge"),
    ("store_queue_messages", "gauge"),
    ("store_queue_bytes", "gauge"),
    ("store_clients", "gauge"),
    ("unfinished_bytes", "gauge"),
    ("unfinished_refused_total", "counter"),
    ("unread_bytes", "gauge"),
    ("unread_given_up_total", "counter"),
    ("live_bytes", "gauge"),
    ("live_evictions_total", "counter"),
    ("log_batch_messages", "histogram"),
    ("log_batches_retried_total", "counter"),
    ("log_confirm_seconds", "histogram"),
    ("log_depth", "gauge"),
    ("log_lag_seconds", "gauge"),
    ("log_messages_confirmed_total", "counter"),
    ("log_messages_consumed_total", "counter"),
    ("log_messages_dead_total", "counter"),
    ("log_messages_forwarded_total", "counter"),
    ("bus_depth", "gauge"),
    ("bus_messages_received_total", "counter"),
    ("bus_partitions", "gauge"),
    ("bus_records_dropped_total", "counter"),
    ("bus_records_sent_total", "counter"),
    ("bus_seconds", "histogram"),
    ("log_messages_published_total", "counter"),
    ("log_messages_redelivered_total", "counter"),
    ("log_messages_returned_total", "counter"),
    ("log_rewinds_total", "counter"),
    ("log_messages_unconfirmed_total", "counter"),
    ("log_messages_without_id_total", "counter"),
    ("log_partition_faults", "gauge"),
    ("log_partitions", "gauge"),
    ("log_partitions_committed", "gauge"),
    ("log_partitions_unreadable", "gauge"),
    ("log_unacked", "gauge"),
    ("log_up", "gauge"),
    ("log_end_to_end_seconds", "histogram"),
    ("store_pool_acquire_max_seconds", "gauge"),
    ("store_pool_acquire_seconds_total", "counter"),
    ("broken_invariants_total", "counter"),
    ("store_unreadable_reads_total", "counter"),
    ("store_pool_acquired_total", "counter"),
    ("store_pool_active", "gauge"),
    ("store_pool_connections", "gauge"),
    ("store_pool_idle", "gauge"),
    ("store_pool_round_trips_total", "counter"),
    ("store_pool_statements_total", "counter"),
    ("store_pool_timeouts_total", "counter"),
    ("store_pool_waiting", "gauge"),
];

#[tokio::test]
async fn every_metric_is_shown_with_its_help() {
    let server = Server::start();
    let answer = server.get("/metrics").await;
    assert!(answer.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"), "{answer:?}");
    let text = answer.text();
    let mut types: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("# TYPE hubbub_")).collect();
    types.sort_unstable();
    let mut declared: Vec<_> = DECLARED.iter().map(|(name, kind)| format!("{name} {kind}")).collect();
    declared.sort_unstable();
    assert_eq!(types, declared);
    assert_eq!(text.matches("# HELP hubbub_").count(), DECLARED.len());
    for reason in
        ["malformed", "invalid", "id_reused", "overloaded", "disk_full", "unavailable", "unknown_room"]
    {
        assert!(
            text.contains(&format!("hubbub_messages_rejected_total{{reason=\"{reason}\"}} 0\n")),
            "{reason}"
        );
    }
}

#[tokio::test]
async fn metrics_close_the_ledger() {
    let server = Server::start();
    let mut subscriber = server.subscriber("r", json!({})).await;
    let mut chat = server.ws("/chat/r").await;
    let frames: Vec<_> =
        (0..100).map(|n| chat_message(&(n % 90).to_string(), &(n % 90).to_string())).collect();
    chat.send_all(&frames).await;
    chat.receive_many(100).await;
    chat.request(&json!({})).await;
    chat.request(&chat_message("1", "another text")).await;
    chat.send_text("{").await;
    chat.receive().await;
    for n in 0..10 {
        server.send("r", &n.to_string()).await;
    }
    server.post("/v1/rooms/r/messages", &json!({})).await.problem(422, "invalid");
    server.send_as("r", "1", "another text").await.problem(422, "id_reused");
    let lines = "{\n{\"roomId\":\"r\",\"userId\":\"ada\",\"message\":\"x\"}\n{}\n";
    assert_eq!(server.http().await.post("/v1/messages", lines).await.lines().len(), 3);
    subscriber.receive_many(101).await;

    // Two sockets and the one that asks; those of the requests before end when the server has noticed.
    let mut text = String::new();
    until("earlier connections are gone", async || {
        text = server.get("/metrics").await.text();
        // And what is counted after the answer: 101 stored, 10 that were there, 2 refused by the store.
        ["connections 3", "pipeline_total_seconds_count 113", "messages_delivered_total 101"]
            .iter()
            .all(|line| text.contains(&format!("\nhubbub_{line}\n")))
    })
    .await;
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("hubbub_{name} ")));
        let value = line.unwrap_or_else(|| panic!("no {name} in\n{text}"));
        // Sums are written as "7.0".
        value.trim_end_matches(".0").parse::<u64>().unwrap()
    };
    let rejected = |reason: &str| value(&format!("messages_rejected_total{{reason=\"{reason}\"}}"));
    let (accepted, stored) = (value("messages_accepted_total"), value("messages_stored_total"));
    assert_eq!((stored, value("messages_duplicate_total")), (101, 10));
    assert_eq!(accepted, stored + value("messages_duplicate_total"));
    assert_eq!((rejected("invalid"), rejected("malformed"), rejected("id_reused")), (3, 2, 2));
    // Sent = accepted + rejected + unconfirmed.
    let sent = 100 + 3 + 10 + 2 + 3;
    assert_eq!(sent, accepted + 3 + 2 + 2 + value("messages_unconfirmed_total"));
    assert_eq!(
        (value("messages_delivered_total"), value("store_messages"), value("store_rooms")),
        (stored, stored, 1)
    );
    assert_eq!((value("websocket_connections"), value("subscriptions"), value("connections")), (2, 1, 3));
    assert_eq!((value("pipeline_waiting_operations"), value("pipeline_in_flight_operations")), (0, 0));
    // Each operation went through the pipeline once, whatever came of it.
    let operations = accepted + rejected("id_reused");
    assert_eq!(value("pipeline_wait_seconds_count"), operations);
    assert_eq!(value("pipeline_total_seconds_count"), operations);
    assert_eq!(value("pipeline_batch_operations_sum"), operations);
    assert_eq!(value("pipeline_batch_operations_count"), value("pipeline_store_seconds_count"));
    assert!(value("http_requests_total") >= 15 && value("store_disk_bytes") > 0);
}

/// What the store refuses is one refusal, on every way in.
#[tokio::test]
async fn a_refusal_by_the_store_is_counted_once() {
    let server = Setup::new().set("rooms.autocreate=false").start();
    let body = json!({"userId": "ada", "message": "hello"});
    server.post("/v1/rooms/r/messages", &body).await.problem(404, "unknown_room");
    assert_eq!(server.metric("messages_rejected_total{reason=\"unknown_room\"}").await, 1);
    server.http().await.post("/v1/messages", r#"{"roomId":"r","userId":"ada","message":"hello"}"#).await;
    assert_eq!(server.metric("messages_rejected_total{reason=\"unknown_room\"}").await, 2);
    server.ws("/chat/r").await.request(&chat_message("one", "hello")).await;
    assert_eq!(server.metric("messages_rejected_total{reason=\"unknown_room\"}").await, 3);
}

/// Each answer once, over both protocols; who asks for the figures, and who waits for a message, is not a slow answer.
#[tokio::test]
async fn answers_are_timed() {
    let server = Setup::new().line().start();
    let timed = async || server.metric("http_request_seconds_count").await;
    server.put_queue("jobs", json!({})).await;
    server.get("/v1/nothing").await;
    server.get("/health").await;
    until("both are counted", async || timed().await == 2).await;
    assert_eq!(server.take("get", "jobs", json!({"receiver": "ann"})).await.len(), 0);
    assert_eq!(server.take("get", "jobs", json!({"receiver": "ann", "waitMs": 50})).await.len(), 0);
    assert_eq!(server.take("get", "jobs", json!({"receiver": "ann"})).await.len(), 0);
    until("these, too", async || timed().await >= 4).await;
    assert_eq!(timed().await, 4, "without the one that waited");
    let address = server.address();
    let waiting = tokio::spawn(async move {
        Http::connect(address).await.post("/v1/queues/jobs/get", r#"{"waitMs":20000}"#).await
    });
    until("it waits", async || server.metric("queue_waiting_consumers").await == 1).await;
    server.call("", Method::DELETE, "/v1/queues/jobs", Value::Null).await;
    in_time("the answer", waiting).await.unwrap().problem(404, "unknown_queue");
    server.get("/v1/nothing").await;
    until("the deletion and that", async || timed().await >= 6).await;
    assert_eq!(timed().await, 6, "without the one whose wait ended in an error");
    let mut line = server.line().await;
    // Three at once: an answer, one that the store gives, and a refusal.
    line.request("ping\n\nlist all queues\nnonsense\n", &["OK", "OK", "queues:[]", "Bad Request"]).await;
    until("commands", async || server.metric("line_command_seconds_count").await == 3).await;
    assert_eq!(server.metric("line_commands_total").await, 3);
    let sum: f64 = server.metric_text("hubbub_http_request_seconds_sum").await.parse().unwrap();
    assert!(sum > 0.0 && sum < 60.0, "{sum}");
}

/// By the names that every dashboard of a process asks for.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_process_and_its_build_are_shown() {
    let before = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    let server = Server::start();
    let figure =
        async |name: &str| -> f64 { server.metric_text(&format!("process_{name}")).await.parse().unwrap() };
    // The system counts from a moment after 1970 that it knows to the second.
    let started = figure("start_time_seconds").await;
    assert!((before - 2.0..before + 120.0).contains(&started), "{started}, asked to start at {before}");
    assert!(figure("cpu_seconds_total").await > 0.0);
    let (resident, whole) = (figure("resident_memory_bytes").await, figure("virtual_memory_bytes").await);
    assert!(1e6 < resident && resident < whole, "{resident} of {whole}");
    let open = figure("open_fds").await;
    assert!(open >= 3.0 && open <= figure("max_fds").await, "{open}");
    let mut sockets = Vec::new();
    for _ in 0..50 {
        sockets.push(server.ws("/chat/r").await);
    }
    let more = figure("open_fds").await;
    assert!(more >= open + 40.0, "{more} with 50 sockets, {open} before");

    let ran = crate::harness::hubbub(&["--version"], "").success();
    let (version, commit) = ran.trim().strip_prefix("hubbub ").unwrap().split_once(' ').unwrap();
    let commit = commit.trim_matches(['(', ')']);
    let build = format!("hubbub_build_info{{version=\"{version}\",revision=\"{commit}\"}}");
    assert_eq!(server.metric_text(&build).await, "1");
}
