//! The conformance suite on a real CQL server.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, unreachable_pub)]

#[allow(dead_code)]
mod support;

use support::Opened;

mod rooms {
    use super::Opened;
    hubbub_conformance::conformance_tests!(Opened::behind(1).await);
}

/// The cases that tell partitions apart; each takes a keyspace of its own, which takes seconds to make.
mod rooms_over_several_partitions {
    use super::Opened;
    hubbub_conformance::conformance_tests! { @tests Opened::behind(3).await;
        numbering::a_room_counts_from_one_in_batch_order,
        numbering::numbers_go_on_after_a_restart,
        people::an_erased_user_leaves_nothing,
        people::any_changes_agree_with_the_model,
        random::any_history_agrees_with_the_model,
        retention::messages_that_expired_are_counted_nowhere,
        stats::counts_are_those_of_a_recount,
        stats::pages_of_a_users_history_join,
    }
}

mod log {
    use super::Opened;
    hubbub_conformance::log_conformance_tests!(Opened::unattached(3).await);
}
