//! Models of a server, and how well measurements agree with them: [`little`] for what is under way, [`usl`] for what more
//! of something brings, both over what [`least_squares`] fits.

pub(crate) mod least_squares;
pub(crate) mod little;
pub(crate) mod usl;
