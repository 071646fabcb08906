//! Whole-process tests: the real binary, killed, restarted, starved and lied to. One file for each event.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test ends where something is not as expected"
)]

mod harness;

#[cfg(any(feature = "amqp", feature = "kafka"))]
mod a_broker_closes_the_ledger;
mod a_damaged_revocation_counts;
mod a_dead_essential_task_ends_the_process;
#[cfg(feature = "kafka")]
mod a_store_that_goes_back;
#[cfg(all(feature = "kafka", feature = "scylla"))]
mod a_stuck_partition_holds_up_no_other;
#[cfg(feature = "amqp")]
mod alerts_fire;
#[cfg(feature = "amqp")]
mod amqps_is_checked;
mod an_unreadable_block_refuses_one_message;
mod an_unreadable_text_is_passed_over;
mod any_sequence_is_gapless;
mod autobahn;
mod backup_under_load_restores_exactly;
mod backups_are_whole_or_not_there;
mod bad_frames_keep_the_socket;
mod bad_requests_name_the_rule;
mod bench_leaves_nothing_behind;
mod bench_removes_what_it_made;
mod bench_says_where_time_and_money_go;
mod bench_takes_agents;
mod bench_takes_tokens_and_tls;
#[cfg(feature = "amqp")]
mod blocked_broker_answers_503_and_recovers;
mod books_agree_after_everything;
mod bottlenecks_are_named;
mod broadcast_reaches_each_once;
#[cfg(feature = "amqp")]
mod broker_down_answers_503_and_recovers;
#[cfg(feature = "amqp")]
mod broker_refusals_are_told;
#[cfg(feature = "kafka")]
mod broker_restart_is_ridden_out;
#[cfg(feature = "scylla")]
mod cassandra_needs_a_log;
#[cfg(feature = "kafka")]
mod changed_partition_count_is_refused;
#[cfg(feature = "kafka")]
mod changes_are_decided_elsewhere;
mod chat_replies_are_aligned;
mod chat_sockets_answer_in_order;
mod chats_over_forms;
mod clocks_that_jump_delete_nothing;
mod commands_are_kind;
mod commands_work;
mod corrupt_block_is_named;
#[cfg(all(feature = "amqp", feature = "kafka", feature = "postgres", feature = "scylla"))]
mod dashboards_have_data;
mod data_directory_is_refused;
#[cfg(feature = "amqp")]
mod dead_letters_wait_aside;
mod delayed_is_never_early;
mod delete_of_full_queue_is_refused;
mod deployment_is_consistent;
mod disk_full_refuses_and_recovers;
mod documents_are_true;
mod documents_link_to_files;
mod duplicate_id_is_noop;
mod event_stream_resumes;
mod export_and_import;
mod failed_sync_stops_writes;
mod flood_is_limited_others_unharmed;
#[cfg(feature = "kafka")]
mod foreign_kafka_producer_is_ingested;
#[cfg(feature = "amqp")]
mod foreign_publisher_is_ingested;
mod highest_rate_is_found;
mod history_pages;
mod http2_is_as_http1;
mod ids_are_remembered_at_any_rate;
mod joins_reach_all_servers;
mod jwks_rotation;
mod k6_runs;
#[cfg(feature = "kafka")]
mod kafka_poison_goes_to_dead_topic;
#[cfg(feature = "kafka")]
mod kafka_that_lost_records_is_refused;
#[cfg(all(feature = "kafka", feature = "scylla"))]
mod kafka_with_cassandra;
#[cfg(feature = "kafka")]
mod kafkas_is_checked;
mod killed_at_any_moment;
#[cfg(feature = "amqp")]
mod killed_with_a_broker;
mod kv_commands_work;
mod kv_is_linearizable_on_two_servers;
mod kv_no_stale_read;
mod kv_over_http;
mod kv_watch_resumes;
#[cfg(feature = "amqp")]
mod lag_grows_while_the_store_is_away;
mod last_block_is_missed;
mod lease_expires_and_returns;
mod limits_are_as_documented;
mod limits_are_in_force;
mod line_clients_do_not_wait_for_each_other;
mod line_garbage_is_answered;
mod line_is_as_documented;
mod live_memory_has_one_budget;
mod loads_share_a_server;
mod long_poll_wakes_one;
mod members_only_rooms_are_closed;
mod memory_comes_back;
mod metrics_close_the_ledger;
mod migrate_plans_and_runs;
mod ndjson_answers_line_by_line;
#[cfg(all(feature = "kafka", feature = "scylla"))]
mod newer_schema_is_left_alone;
mod no_token_no_entry;
#[cfg(feature = "kafka")]
mod node_death_loses_nothing;
#[cfg(all(feature = "kafka", feature = "scylla"))]
mod nodes_die_in_turn;
mod offline_member_catches_up;
mod overload_is_answered;
mod oversize_is_refused_cheaply;
mod pages_are_bounded_as_written;
#[cfg(feature = "postgres")]
mod paused_server_frees_its_locks;
mod people_log_in;
mod pitr_restores_to_a_moment;
mod poison_goes_to_dead_letter;
#[cfg(feature = "amqp")]
mod poison_message_goes_to_dead_letter;
mod postgres_comes_and_goes;
mod postgres_killed_at_any_moment;
mod postgres_refusals_say_what_to_do;
mod presence_and_typing;
#[cfg(feature = "postgres")]
mod presence_crosses_nodes;
#[cfg(feature = "amqp")]
mod prometheus_computes_quantiles;
#[cfg(feature = "postgres")]
mod proxies_pass_everything_on;
mod queue_commands_work;
mod queue_requests_are_checked;
mod queues_and_keys_killed_at_any_moment;
mod queues_survive_a_kill;
mod read_marks_are_the_same_everywhere;
mod readme_commands_run;
mod receipts_cannot_be_guessed;
mod receipts_never_come_back;
mod refused_frames_keep_their_order;
mod removed_member_stops_receiving;
mod replica_lag_falls_back;
mod report_is_read_by_tools;
mod restart_keeps_acked;
mod restored_server_resets_clients;
mod resume_has_no_gap;
mod retention_is_told_while_catching_up;
mod reused_id_is_refused;
#[cfg(all(feature = "kafka", feature = "postgres"))]
mod roles_divide_the_work;
mod rooms_are_made_changed_and_deleted;
#[cfg(feature = "postgres")]
mod rooms_of_a_user_are_limited;
mod scaling_model;
#[cfg(all(feature = "amqp", feature = "kafka", feature = "scylla"))]
mod scenarios_have_backends;
mod scenarios_run;
#[cfg(all(feature = "kafka", feature = "scylla"))]
mod scyllas_is_checked;
mod shutdown_drains;
mod silent_peers_are_dropped;
mod slow_loris_is_dropped;
mod slow_reader_is_cut;
mod stale_epoch_is_reset;
mod stale_receipt_is_refused;
mod stats_commands_show_them;
mod stats_over_http_are_exact;
mod stops_while_it_opens;
#[cfg(all(feature = "kafka", feature = "scylla"))]
mod store_restart_is_ridden_out;
mod tail_survives_a_restart;
mod timeline_of_a_message;
mod tls_is_as_configured;
mod tls_reload_keeps_connections;
mod token_commands_work;
mod tokens_end;
mod tokens_limit_what_is_seen;
mod traces_are_exported;
#[cfg(feature = "kafka")]
mod transactions_of_others_end;
#[cfg(feature = "amqp")]
mod two_servers_one_broker;
mod two_servers_one_database;
mod unfinished_requests_share_one_budget;
mod units_take_their_environment;
mod unread_and_statistics_agree;
mod unread_answers_share_one_budget;
mod unsubscribing_keeps_the_order;
mod user_messages_page;
mod websocket_conformance;
mod wrong_usage_is_told;
