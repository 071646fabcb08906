//! The conformance suite on PostgreSQL.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, unreachable_pub)]

mod support;

use support::fixture::Opened;

mod rooms {
    use super::Opened;
    hubbub_conformance::conformance_tests!(Opened::fresh().await);
}

mod queues {
    use super::Opened;
    hubbub_conformance::queue_conformance_tests!(Opened::fresh().await);
}

mod queues_with_copies_not_made {
    use super::Opened;
    hubbub_conformance::queue_conformance_tests!(Opened::slow().await);
}

mod keys {
    use super::Opened;
    hubbub_conformance::key_conformance_tests!(Opened::fresh().await);
}

mod log {
    use super::Opened;
    hubbub_conformance::log_conformance_tests!(Opened::fresh().await);
}
