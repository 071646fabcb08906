//! The conformance suite on a real CQL server.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, unreachable_pub)]

#[allow(dead_code)]
mod support;

use support::Opened;

mod rooms {
    use super::Opened;
    hubbub_conformance::conformance_tests!(Opened::behind(1).await);
}

mod rooms_over_several_partitions {
    use super::Opened;
    hubbub_conformance::conformance_tests!(Opened::behind(3).await);
}

mod log {
    use super::Opened;
    hubbub_conformance::log_conformance_tests!(Opened::unattached(3).await);
}
