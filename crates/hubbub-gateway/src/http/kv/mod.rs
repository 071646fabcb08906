//! Keys and values over HTTP.
//!
//! `/kv/{key}` takes and gives raw bytes ([`value`]): GET asks the cache, PUT and DELETE go to the log like any other
//! change. `/v1/kv` lists keys ([`list`]), takes many changes and questions at once ([`batch`]), and tells of changes
//! as they are made ([`watch`]). How a key is written in text is said in [`key`], when a change is made in
//! [`condition`].

mod batch;
mod condition;
mod key;
mod list;
mod value;
mod watch;

pub(super) use batch::{ANSWER_BYTES_MAX, BatchBody, batch};
pub(super) use key::of_path as key_of_path;
pub(crate) use key::parse_prefix as parse_key_prefix;
pub(super) use list::prefix_of_query;
pub(super) use list::{KeyList, list};
pub(super) use value::{delete, get, put};
pub(super) use watch::watch;
