//! What sends: plans of messages, their pace and phases, and the connections that carry them.

pub(crate) mod feed;
pub(crate) mod in_flight;
pub(crate) mod message_plan;
pub(crate) mod pace;
pub(crate) mod phases;
pub(crate) mod punctuality;
pub(crate) mod room_load;
pub(crate) mod run;
pub(crate) mod session;
pub(crate) mod subscribers;
pub(crate) mod worker;
