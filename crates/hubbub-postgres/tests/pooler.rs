//! The conformance suite on PostgreSQL behind a transaction pooler.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, unreachable_pub)]

mod support;

use support::fixture::Opened;

mod rooms {
    use super::Opened;
    hubbub_conformance::conformance_tests!(Opened::pooled().await);
}

mod queues {
    use super::Opened;
    hubbub_conformance::queue_conformance_tests!(Opened::pooled().await);
}

mod keys {
    use super::Opened;
    hubbub_conformance::key_conformance_tests!(Opened::pooled().await);
}

mod log {
    use super::Opened;
    hubbub_conformance::log_conformance_tests!(Opened::pooled().await);
}
