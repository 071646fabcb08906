//! What a run makes in the servers that it is told to measure: rooms, keys, queues and clients. It is announced before the load, and
//! removed once the result is shown, so that no figure has a part of it.
//!
//! Only what was not there before the run is removed. Servers that a measurement starts for itself are gone with all that is in
//! them: nothing is noted for these.

mod removal;

use std::collections::HashSet;
use std::io::Write as _;
use std::sync::Arc;

use hubbub_core::text::counted;
use parking_lot::Mutex;

use crate::client::{Target, Targets};
use crate::options::Common;

/// Names that a workload uses, and makes where they are missing.
#[derive(Debug, Clone, Default)]
pub(crate) enum Makes {
    /// Nothing, or what [`Workload::prepare`](crate::workloads::engine::Workload::prepare) notes itself.
    #[default]
    Nothing,
    /// Rooms from 1 to a number, behind a prefix.
    Rooms { prefix: String, count: u16 },
    /// Keys from 0 to below a number, behind a prefix.
    Keys {
        prefix: String,
        count: u64,
        /// All of them are put before the load.
        are_put: bool,
    },
}

/// What is to be removed from one server.
#[derive(Debug, Clone)]
enum Thing {
    Rooms {
        prefix: String,
        count: u16,
        /// Those that were there before.
        before: HashSet<String>,
    },
    Keys {
        prefix: String,
        /// Some were there before: they are the run's own only once it has put them all.
        once_measured: bool,
    },
    Queues(Vec<u64>),
    Clients(Vec<u64>),
}

#[derive(Debug)]
struct Notes {
    is_kept: bool,
    is_quiet: bool,
    things: Mutex<Vec<(Target, Thing)>>,
}

/// Notes what a run makes in servers that are given. By default, it notes nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct Made(Option<Arc<Notes>>);

impl Made {
    /// For a run that a user asks for.
    pub(crate) fn in_servers_of(common: &Common) -> Self {
        let (is_kept, is_quiet) = (common.keep, common.quiet);
        Self(Some(Arc::new(Notes { is_kept, is_quiet, things: Mutex::default() })))
    }

    /// Announces what a workload is about to make in each of the servers; in one of them, where they share a store.
    pub(crate) async fn announce(&self, targets: &Targets, is_shared: bool, makes: &Makes) {
        let Some(notes) = &self.0 else { return };
        for target in targets.iter().take(if is_shared { 1 } else { targets.len() }) {
            match makes {
                Makes::Nothing => {}
                Makes::Rooms { prefix, count } => notes.announce_rooms(target, prefix, *count).await,
                Makes::Keys { prefix, count, are_put } => {
                    notes.announce_keys(target, prefix, *count, *are_put).await;
                }
            }
        }
    }

    /// Announces the `queues` that a run uses, of which it `made` some, and the `clients` that it is about to register.
    pub(crate) async fn queues(&self, target: &Target, queues: &[u64], made: Vec<u64>, clients: &[u64]) {
        let Some(notes) = &self.0 else { return };
        let there = queues.len().saturating_sub(made.len());
        if there > 0 {
            let there = were_there(there, "queue");
            notes.say(&format!("sends through {there}, and takes from what waits there"));
        }
        // Where nobody says which are there, all may have been.
        let before = removal::clients(target).await;
        let is_new = |client: &&u64| before.as_ref().is_ok_and(|before| !before.contains(client));
        let clients: Vec<u64> = clients.iter().filter(is_new).copied().collect();
        if !made.is_empty() || !clients.is_empty() {
            let what = [counted(made.len() as u64, "queue"), counted(clients.len() as u64, "client")];
            let server = target.url();
            let by_hand = format!(
                "hubbub queue delete QUEUE --force --server {server}, hubbub queue clients --remove CLIENT --server {server}"
            );
            notes.say_what(&what.join(" and "), target, &by_hand);
        }
        notes.add(target, Thing::Queues(made));
        notes.add(target, Thing::Clients(clients));
    }

    /// The same, of which nothing is removed: it is made for a later run.
    pub(crate) fn kept(&self) -> Self {
        let kept =
            |notes: &Arc<Notes>| Notes { is_kept: true, is_quiet: notes.is_quiet, things: Mutex::default() };
        Self(self.0.as_ref().map(|notes| Arc::new(kept(notes))))
    }

    /// Removes what was made; `is_measured`: the run came to its end. Says what could not be removed.
    pub(crate) async fn remove(&self, is_measured: bool) {
        let Some(notes) = &self.0 else { return };
        let things = std::mem::take(&mut *notes.things.lock());
        for (target, thing) in things {
            match thing.remove(&target, is_measured).await {
                Ok(0) => {}
                Ok(count) => notes.say(&format!("removed {} from {}", thing.counted(count), target.url())),
                Err(error) => {
                    say(&format!(
                        "{} of the measurement are left in {}: {error:#}",
                        thing.name(),
                        target.url()
                    ));
                }
            }
        }
    }
}

impl Notes {
    async fn announce_rooms(&self, target: &Target, prefix: &str, count: u16) {
        if self.has(target, |thing| matches!(thing, Thing::Rooms { prefix: other, .. } if other == prefix)) {
            return;
        }
        let (first, last) = (format!("{prefix}1"), format!("{prefix}{count}"));
        let what = if count == 1 { format!("room {first}") } else { format!("rooms {first} to {last}") };
        let by_hand = match count {
            1 => format!("hubbub room delete {first} --server {}", target.url()),
            _ => format!("seq {count} | xargs -I% hubbub room delete {prefix}% --server {}", target.url()),
        };
        let before = match removal::rooms(target, prefix, count).await {
            Ok(before) => before,
            Err(error) => {
                let url = target.url();
                return self.say(&format!(
                    "leaves {what} in {url}, as nobody says which are there already: {error:#}; remove with: {by_hand}"
                ));
            }
        };
        if !before.is_empty() {
            let there = were_there(before.len(), "room");
            self.say(&format!("sends to {there}: all that stays. If an earlier run left them: {by_hand}"));
        }
        if before.len() < usize::from(count) {
            self.say_what(&what, target, &by_hand);
        }
        self.add(target, Thing::Rooms { prefix: prefix.to_owned(), count, before });
    }

    async fn announce_keys(&self, target: &Target, prefix: &str, count: u64, are_put: bool) {
        let what = format!("keys {prefix}0 to {prefix}{}", count.saturating_sub(1));
        let by_hand = &format!("hubbub kv del KEY --server {}", target.url());
        let any_before = match removal::has_keys(target, prefix).await {
            Ok(any_before) => any_before,
            Err(error) => {
                let url = target.url();
                return self.say(&format!("leaves {what} in {url}: {error:#}; remove with: {by_hand}"));
            }
        };
        if any_before && !are_put {
            return self.say(&format!("uses {what}, of which some were there already: all stay"));
        }
        self.say_what(&what, target, by_hand);
        self.add(target, Thing::Keys { prefix: prefix.to_owned(), once_measured: any_before });
    }

    /// Says what is made in a server, and what becomes of it.
    fn say_what(&self, what: &str, target: &Target, by_hand: &str) {
        let url = target.url();
        self.say(&if self.is_kept {
            format!("leaves {what} in {url}; remove with: {by_hand}")
        } else {
            format!("makes {what} in {url}, and removes them when it ends (--keep leaves them)")
        });
    }

    fn say(&self, text: &str) {
        if !self.is_quiet {
            say(text);
        }
    }

    fn has(&self, target: &Target, is_it: impl Fn(&Thing) -> bool) -> bool {
        self.things.lock().iter().any(|(other, thing)| other.host == target.host && is_it(thing))
    }

    fn add(&self, target: &Target, thing: Thing) {
        if !self.is_kept {
            self.things.lock().push((target.clone(), thing));
        }
    }
}

fn were_there(count: usize, noun: &str) -> String {
    format!("{} that {} there already", counted(count as u64, noun), if count == 1 { "was" } else { "were" })
}

/// Says something on standard error.
pub(crate) fn say(text: &str) {
    // Nobody can be told that the terminal is gone.
    let _ = writeln!(std::io::stderr(), "hubbub: {text}");
}
