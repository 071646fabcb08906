//! Notifies other servers of changed rooms, and receives their notifications, by `NOTIFY` and `LISTEN`.
//!
//! One connection of each server does both. What its batches changed is collected for [`INTERVAL`], and sent as one
//! notification in a transaction of its own, behind the commits: inside them it would make all commits of the database
//! wait for each other. It has the numbers of the rooms.
//!
//! A notification is a hint. Whoever receives it compares the rooms with the database. What is lost while the connection is
//! away is found by the regular comparison. Behind a transaction pooler nobody can listen, so nothing is sent either.

use std::collections::HashSet;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::poll_fn;
use hubbub_core::Essential;
use hubbub_core::backoff::Backoff;
use hubbub_core::essential::supervise;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_postgres::{AsyncMessage, Client, Config, Notification};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::db::{DbError, Result};
use crate::peers::PeerQueues;

/// Shortest time between two notifications of a server.
const INTERVAL: Duration = Duration::from_millis(5);
/// Rooms in a notification. What concerns more concerns any room.
const ROOMS_MAX: usize = 600;
/// Rooms of notifications that wait to be compared.
const INCOMING_MAX: usize = 10_000;
/// Longest wait for the database's answer; it has none to wait for.
const PATIENCE: Duration = Duration::from_secs(10);
/// Shortest and longest time between two attempts to connect.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// What stands for any room.
const ANY: &str = "*";

/// Nobody waits for a notification to be on disk.
const SETTINGS: &str = "set synchronous_commit = off";
/// The database keeps all notifications for a listener that takes none: one that is stopped, but whose machine still answers,
/// is given up. Where the database does not have the setting, it does without.
const PATIENCE_OF_DATABASE: &str = "set tcp_user_timeout = '30s'";
const NOTIFY: &str = "select pg_notify($1, $2)";
/// The session, and what tells the channels from those of other clusters, whose tables are in other schemas: a channel belongs
/// to all schemas of a database.
const OWN: &str = "select pg_backend_pid(), case namespace.nspname when 'public' then '' else '_' || namespace.oid::text end \
     from pg_class rooms join pg_namespace namespace on namespace.oid = rooms.relnamespace \
     where rooms.oid = 'rooms'::regclass";

/// What the names of the channels begin with.
const TO_ROOMS: &str = "hubbub_rooms";
const TO_PEERS: &str = "hubbub_peers";

/// Rooms that changed.
#[derive(Debug, Default)]
struct Changed {
    numbers: HashSet<i32>,
    is_any: bool,
}

/// Rooms by their numbers; `None` = any.
pub(crate) type ChangedRooms = Option<HashSet<i32>>;

impl Changed {
    fn add(&mut self, rooms: impl Iterator<Item = i32>, max: usize) {
        self.numbers.extend(rooms);
        self.is_any |= self.numbers.len() > max;
        if self.is_any {
            self.numbers.clear();
        }
    }

    /// Takes everything; nothing if nothing changed.
    fn take(&mut self) -> Option<ChangedRooms> {
        let Self { numbers, is_any } = std::mem::take(self);
        (is_any || !numbers.is_empty()).then_some((!is_any).then_some(numbers))
    }
}

/// A set of changed rooms, and a signal when there are some.
#[derive(Debug, Default)]
struct Mailbox {
    changed: Mutex<Changed>,
    signal: Notify,
}

impl Mailbox {
    fn add(&self, rooms: impl Iterator<Item = i32>, max: usize) {
        self.changed.lock().add(rooms, max);
        self.signal.notify_one();
    }

    fn add_any(&self) {
        self.changed.lock().is_any = true;
        self.signal.notify_one();
    }

    async fn next(&self) -> ChangedRooms {
        loop {
            if let Some(changed) = self.changed.lock().take() {
                return changed;
            }
            self.signal.notified().await;
        }
    }
}

/// The notifications of one server. They end when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Notifications {
    mailboxes: Arc<Mailboxes>,
    task: OnceLock<JoinHandle<()>>,
}

/// What the task has of the notifications, which it must not keep alive.
#[derive(Debug, Default)]
struct Mailboxes {
    outgoing: Mailbox,
    incoming: Mailbox,
    peers: PeerQueues,
    /// The process of the database that sends the notifications of this server.
    own: AtomicI32,
}

impl Notifications {
    /// Connects, and sends and receives from then on.
    pub(crate) fn start(&self, mut config: Config, tls: MakeRustlsConnect) {
        config.application_name("hubbub notifications");
        let mailboxes = self.mailboxes.clone();
        let running = async move {
            let mut backoff = Backoff::new(RETRY_MIN, RETRY_MAX);
            loop {
                match mailboxes.serve(&config, &tls, &mut backoff).await {
                    Ok(()) => tracing::warn!("the connection for notifications was closed; connecting again"),
                    Err(error) => tracing::warn!(%error, "notifications failed; connecting again"),
                }
                tokio::time::sleep(backoff.exact_pause()).await;
            }
        };
        // Nobody else sets it.
        let _ = self.task.set(tokio::spawn(supervise(Essential::new("database notifications"), running)));
    }

    /// Notifies the other servers soon that these rooms have changed.
    pub(crate) fn notify_changed(&self, rooms: impl Iterator<Item = i32>) {
        if self.task.get().is_some() {
            self.mailboxes.outgoing.add(rooms, ROOMS_MAX);
        }
    }

    /// Waits until others have changed rooms.
    pub(crate) async fn changed(&self) -> ChangedRooms {
        self.mailboxes.incoming.next().await
    }

    pub(crate) fn peers(&self) -> &PeerQueues {
        &self.mailboxes.peers
    }

    /// Whether it sends and receives; not behind a transaction pooler.
    pub(crate) fn is_running(&self) -> bool {
        self.task.get().is_some()
    }

    pub(crate) fn close(&self) {
        self.task.get().into_iter().for_each(JoinHandle::abort);
    }
}

impl Drop for Notifications {
    fn drop(&mut self) {
        self.close();
    }
}

impl Mailboxes {
    /// Sends and receives until the connection breaks. Resets the pauses once it works.
    async fn serve(&self, config: &Config, tls: &MakeRustlsConnect, backoff: &mut Backoff) -> Result<()> {
        let what = "connecting for notifications";
        let connecting = tokio::time::timeout(PATIENCE, config.connect(tls.clone()));
        let connected = connecting.await.map_err(|_| DbError::Timeout { what })?;
        let (client, mut connection) = connected.map_err(|error| DbError::Statement { what, error })?;
        let mut messages = poll_fn(move |context| connection.poll_message(context));
        let receiving = async {
            while let Some(message) = messages.next().await {
                let message = message
                    .map_err(|error| DbError::Statement { what: "waiting for notifications", error })?;
                // Others are notices of the server.
                if let AsyncMessage::Notification(notification) = message {
                    self.receive(&notification);
                }
            }
            Ok(())
        };
        // Its own task polls the connection as long as it waits for the database.
        tokio::select! {
            ended = receiving => ended,
            failed = self.send_all(&client, backoff) => failed,
        }
    }

    async fn send_all(&self, client: &Client, backoff: &mut Backoff) -> Result<()> {
        let what = "listening for notifications";
        in_time(what, client.batch_execute(SETTINGS)).await?;
        if let Err(fault) = in_time(what, client.batch_execute(PATIENCE_OF_DATABASE)).await {
            // If the connection is gone, the next statement says so.
            tracing::debug!(%fault, "the database keeps notifications for a server that takes none");
        }
        let own = in_time(what, client.query_one(OWN, &[])).await?;
        self.own.store(own.get(0), Ordering::Relaxed);
        let channel = |name: &str| format!("{name}{}", own.get::<_, &str>(1));
        let (to_rooms, to_peers) = (channel(TO_ROOMS), channel(TO_PEERS));
        in_time(what, client.batch_execute(&format!("listen {to_rooms}; listen {to_peers}"))).await?;
        // Notifications before this are lost.
        self.incoming.add_any();
        let statement = in_time(what, client.prepare(NOTIFY)).await?;
        backoff.reset();
        let sending_rooms = async {
            loop {
                let text = match self.outgoing.next().await {
                    None => ANY.to_owned(),
                    Some(rooms) => rooms.iter().map(i32::to_string).collect::<Vec<_>>().join(","),
                };
                in_time("notifying of changed rooms", client.execute(&statement, &[&to_rooms, &text]))
                    .await?;
                tokio::time::sleep(INTERVAL).await;
            }
        };
        let sending_texts = async {
            loop {
                let text = self.peers.outgoing.next().await;
                in_time("sending to other servers", client.execute(&statement, &[&to_peers, &text])).await?;
            }
        };
        tokio::select! {
            failed = sending_rooms => failed,
            failed = sending_texts => failed,
        }
    }

    fn receive(&self, notification: &Notification) {
        if notification.process_id() == self.own.load(Ordering::Relaxed) {
            return;
        }
        if notification.channel().starts_with(TO_PEERS) {
            return self.peers.push_incoming(notification.payload());
        }
        let rooms: Option<Vec<i32>> =
            notification.payload().split(',').map(|number| number.parse().ok()).collect();
        match rooms {
            Some(rooms) => self.incoming.add(rooms.into_iter(), INCOMING_MAX),
            None => self.incoming.add_any(),
        }
    }
}

async fn in_time<T>(
    what: &'static str,
    answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T> {
    let answered = tokio::time::timeout(PATIENCE, answer).await;
    answered.map_err(|_| DbError::Timeout { what })?.map_err(|error| DbError::Statement { what, error })
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn many_rooms_are_any_room() {
        let mailbox = Mailbox::default();
        assert_eq!(mailbox.next().now_or_never(), None);
        mailbox.add([1, 2].into_iter(), 3);
        mailbox.add([2, 3].into_iter(), 3);
        assert_eq!(mailbox.next().now_or_never(), Some(Some(HashSet::from([1, 2, 3]))));
        mailbox.add([1, 2].into_iter(), 3);
        mailbox.add([3, 4].into_iter(), 3);
        mailbox.add([5].into_iter(), 3);
        assert_eq!(mailbox.next().now_or_never(), Some(None));
        assert_eq!(mailbox.next().now_or_never(), None);
    }
}
