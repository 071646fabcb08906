//! The conditions of an experiment: which processors each part may use ([`cores`]), how much of the machine it gets
//! ([`cgroup`]), and how far away the server is ([`delay`]).

pub(crate) mod cgroup;
pub(crate) mod cores;
pub(crate) mod delay;
