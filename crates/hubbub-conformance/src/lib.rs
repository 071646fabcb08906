//! What every store must do, as tests: the contracts of [`hubbub_core::store`] and [`hubbub_core::stats`] in a form that
//! can fail. Rooms and statistics are one suite; queues, keys and logs have theirs, which
//! work the same way.
//!
//! A backend's test implements [`Fixture`] (open an empty store, restart it, make it move its data to the final
//! place) and calls [`conformance_tests!`](crate::conformance_tests), which makes one named test of every case:
//!
//! ```text
//! hubbub_conformance::conformance_tests!(MyFixture::fresh().await);
//! ```
//!
//! A case gets a fixture nobody used before. It works through `Arc<dyn Store>` alone and says by a panic what a
//! store did wrong. The random one prints the seed that repeats it.
//!
//! Not here: crashes (a store's own tests lose what was not synced), speed, anything above the store.

// A case that finds a fault has nothing better to do than to panic.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::future::Future;
use std::sync::Arc;

use hubbub_core::clock::ManualClock;
use hubbub_core::{Op, OpBatch, Store};

pub mod content;
pub mod history;
pub mod keys;
pub mod log;
pub mod model;
pub mod numbering;
pub mod people;
pub mod queues;
pub mod random;
pub mod recount;
pub mod repeats;
pub mod retention;
pub mod rooms;
pub mod stats;
mod steps;
pub mod times;

#[cfg(test)]
mod tests;

/// Clients of queues that may be registered in every fixture.
pub const CLIENTS_MAX: u64 = 300;

/// A store under test.
pub trait Fixture: Send + Sync {
    /// The store; open, taking writes.
    fn store(&self) -> Arc<dyn Store>;

    /// The clock it was opened with. Stands at any time after 1970 at first.
    fn clock(&self) -> &ManualClock;

    /// Adds an operation to a batch the way the store takes them. Returns the number that the operation gives if it is a
    /// message that is stored; `None` = numbers are dense, it is the one behind the room's head.
    fn push(&self, batch: &mut OpBatch, op: &Op<'_>) -> Option<u64> {
        batch.push(op);
        None
    }

    /// Closes the store and opens the same data again, with the same clock. Fresh fixtures have `autocreate` on.
    fn restart(&mut self, autocreate: bool) -> impl Future<Output = ()> + Send;

    /// Returns when everything stored so far is where it will stay, and memory, journals and the like hold nothing
    /// of it any more. Nothing to do for a store that writes to the final place at once.
    fn seal_all(&mut self) -> impl Future<Output = ()> + Send;

    /// Returns when messages that have outlived their retention, and an eighth of it, are removed. For stores whose log says
    /// when; others remove them with all else that is due.
    fn expire(&mut self) -> impl Future<Output = ()> + Send {
        self.seal_all()
    }
}

/// Makes a test of every case. The expression makes a new [`Fixture`]; it may await.
#[macro_export]
macro_rules! conformance_tests {
    ($fixture:expr) => { $crate::conformance_tests!(@list tests $fixture); };

    (@list $how:ident $fixture:expr) => {
        $crate::conformance_tests! { @$how $fixture;
            content::every_legal_character_comes_back,
            content::ids_are_kept_as_they_were_written,
            content::parts_come_back_as_they_were_sent,
            content::the_largest_text_comes_back,
            history::a_page_ends_before_its_texts_grow_too_large,
            history::an_unknown_room_is_told_from_an_empty_window,
            history::edges_of_a_room_give_empty_pages,
            history::every_window_agrees_with_the_model,
            history::pages_join_without_gap_or_repeat,
            history::what_was_acknowledged_is_seen_by_the_next_read,
            numbering::a_room_counts_from_one_in_batch_order,
            numbering::an_empty_batch_is_answered_by_nothing,
            numbering::numbers_go_on_after_a_restart,
            numbering::receipts_say_what_history_shows,
            people::a_batch_is_judged_in_its_order,
            people::a_deleted_room_goes_on_counting,
            people::an_erased_user_leaves_nothing,
            people::any_changes_agree_with_the_model,
            people::only_members_may_change_a_room,
            people::who_joins_again_is_listed_anew,
            random::any_history_agrees_with_the_model,
            repeats::a_refused_message_leaves_the_rest_of_its_batch_alone,
            repeats::a_repeat_is_known_wherever_the_first_one_is,
            repeats::a_repeat_uses_no_number,
            repeats::a_repeated_batch_changes_nothing,
            repeats::a_reused_id_is_refused_wherever_the_first_one_is,
            repeats::an_id_leads_to_its_message,
            repeats::every_one_of_many_ids_is_remembered,
            repeats::of_two_equal_ids_in_a_batch_the_second_is_the_repeat,
            repeats::only_user_text_and_type_make_the_same_message,
            repeats::the_same_id_in_another_room_is_another_message,
            retention::a_room_keeps_messages_as_long_as_it_says,
            retention::an_erased_user_takes_no_ids_of_others,
            retention::messages_that_expired_are_counted_nowhere,
            rooms::a_room_is_described,
            rooms::figures_and_health_are_told,
            rooms::rooms_are_listed_in_pages_by_name,
            rooms::without_autocreate_unknown_rooms_are_refused,
            stats::a_users_history_keeps_to_its_window,
            stats::active_users_are_exact_at_the_edges,
            stats::counts_are_those_of_a_recount,
            stats::lists_come_in_pages,
            stats::pages_of_a_users_history_join,
            stats::repeats_are_not_counted,
            stats::what_is_deleted_or_erased_is_not_counted,
            stats::what_was_acknowledged_is_counted_at_once,
            times::a_room_keeps_its_last_time_over_restarts,
            times::received_at_is_the_clocks_time,
            times::received_at_never_decreases,
            times::the_senders_clock_is_kept_and_orders_nothing,
        }
    };

    (@tests $fixture:expr; $($topic:ident::$case:ident),* $(,)?) => {
        $(
            #[::tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let mut fixture = $fixture;
                $crate::$topic::$case(&mut fixture).await;
            }
        )*
    };

    (@subsystem $subsystem:ident $fixture:expr; $($topic:ident::$case:ident),* $(,)?) => {
        $(
            #[::tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let mut fixture = $fixture;
                $crate::$subsystem::$topic::$case(&mut fixture).await;
            }
        )*
    };

    (@subsystem_list $subsystem:ident $fixture:expr; $($topic:ident::$case:ident),* $(,)?) => {
        vec![$({
            let case: ::std::pin::Pin<Box<dyn ::std::future::Future<Output = ()> + Send>> = Box::pin(async move {
                let mut fixture = $fixture;
                $crate::$subsystem::$topic::$case(&mut fixture).await;
            });
            (stringify!($case), case)
        }),*]
    };

    (@each $fixture:expr; $($topic:ident::$case:ident),* $(,)?) => {
        vec![$({
            let case: ::std::pin::Pin<Box<dyn ::std::future::Future<Output = ()> + Send>> = Box::pin(async move {
                let mut fixture = $fixture;
                $crate::$topic::$case(&mut fixture).await;
            });
            (stringify!($case), case)
        }),*]
    };
}

/// The same for queues: makes a test of every case about them.
#[macro_export]
macro_rules! queue_conformance_tests {
    ($fixture:expr) => {
        $crate::conformance_tests! { @subsystem queues $fixture;
            basics::a_batch_is_done_in_its_order,
            basics::a_message_is_removed_by_its_id,
            basics::a_queue_is_made_and_deleted,
            basics::an_unknown_queue_is_told_from_an_empty_one,
            basics::clients_are_known_by_name,
            basics::everybody_gets_what_is_theirs,
            basics::everything_that_waits_is_listed,
            basics::messages_are_found_by_their_sender,
            basics::numbered_queues_never_share_a_number,
            basics::queues_say_whom_they_hold_something_for,
            delivery::a_group_keeps_its_order,
            delivery::a_redriven_message_waits_for_its_group,
            delivery::a_look_takes_nothing,
            delivery::a_message_to_everybody_comes_once_to_each,
            broadcasts::a_full_queue_counts_copies,
            broadcasts::clients_are_not_too_many,
            broadcasts::copies_are_due_and_over_together,
            broadcasts::copies_are_there_at_once,
            broadcasts::copies_keep_their_place,
            broadcasts::leases_outlive_a_registration,
            delivery::a_message_to_everybody_ends,
            delivery::nothing_comes_early,
            delivery::what_becomes_due_is_as_old_as_it_is,
            delivery::what_outlived_its_time_is_gone,
            leases::a_lease_is_extended,
            leases::a_lease_is_one_takers,
            leases::a_lease_that_ran_out_returns_the_message,
            leases::a_restart_does_not_prolong_a_lease,
            leases::dead_letters_can_share_a_queue,
            leases::poison_goes_to_the_dead_letter_queue,
            leases::a_receipt_names_one_delivery,
            leases::what_is_given_back_waits_again,
            limits::a_full_queue_does_as_it_was_told,
            limits::a_repeat_is_known_for_ten_minutes,
            limits::many_messages_come_back,
            limits::only_ids_make_repeats,
            limits::an_id_is_remembered_however_many_there_are,
            many::letters_that_stay_are_in_nobodys_way,
            many::pages_skip_nothing,
            many::what_comes_due_at_once_is_ready_at_once,
            over::numbers_of_queues_end,
            over::the_last_lease_outlives_a_life,
            over::what_waits_behind_expired_messages_is_found,
            random::any_operations_agree_with_the_model,
        }
    };
}

/// The same for stores that take operations from a log. The expression makes a new [`log::LogFixture`].
#[macro_export]
macro_rules! log_conformance_tests {
    ($fixture:expr) => { $crate::log_conformance_tests!(@as subsystem $fixture); };

    (@list $fixture:expr) => { $crate::log_conformance_tests!(@as subsystem_list $fixture) };

    (@as $how:ident $fixture:expr) => {
        $crate::conformance_tests! { @$how log $fixture;
            basics::a_refusal_is_final,
            basics::one_log_is_attached,
            basics::records_are_executed_in_their_order,
            basics::rooms_are_not_changed_past_the_log,
            erasure::an_erasure_is_one_record,
            repeats::a_repeat_changes_nothing,
            repeats::a_replay_after_a_restart_changes_nothing,
            repeats::a_zombie_changes_nothing,
            repeats::records_twice_in_a_batch_are_executed_once,
            repeats::two_owners_at_once_execute_the_log_once,
        }
    };
}

/// The same for keys: makes a test of every case about them.
#[macro_export]
macro_rules! key_conformance_tests {
    ($fixture:expr) => { $crate::key_conformance_tests!(@as subsystem $fixture); };

    (@list $fixture:expr) => { $crate::key_conformance_tests!(@as subsystem_list $fixture) };

    (@as $how:ident $fixture:expr) => {
        $crate::conformance_tests! { @$how keys $fixture;
            basics::a_batch_is_done_in_its_order,
            basics::a_value_comes_back,
            basics::any_bytes_are_a_key,
            basics::conditions_decide,
            basics::keys_are_listed_in_order,
            basics::large_values_come_back,
            basics::revisions_only_grow,
            changes::changes_are_told_in_order,
            changes::old_changes_are_compacted,
            changes::what_ran_out_is_told,
            expiry::a_key_runs_out_to_the_moment,
            expiry::a_new_value_has_its_own_time,
            expiry::a_sweep_leaves_what_its_batch_put,
            random::any_operations_agree_with_the_model,
        }
    };
}
