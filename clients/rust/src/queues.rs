//! Queues: sending to them, and taking from them.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::http::{Http, Request, escape};
use crate::random::{self, make_id};
use crate::socket::OVERLOAD_ATTEMPT;

/// Longest time the server waits for a message.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// Shortest pause between two extensions of a lease.
const EXTEND_MIN: Duration = Duration::from_millis(50);

/// Queue to send to and to take from.
#[derive(Debug, Clone)]
pub struct Queue {
    path: String,
    http: Arc<Http>,
}

/// Settings of a queue. What is `None` stays as it is.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "docs/queues.md says what each does")]
pub struct QueueSettings {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_deliveries: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letter: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_messages: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_full: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_max_ms: Option<u64>,
}

/// Counts of a queue.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "docs/queues.md says what each counts")]
pub struct QueueState {
    pub messages: u64,
    pub ready: u64,
    pub delayed: u64,
    pub leased: u64,
    pub bytes: u64,
    pub sent: u64,
    pub done: u64,
    pub dropped: u64,
    pub dead: u64,
}

/// Says that a message is on disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueReceipt {
    /// The server's id of it.
    pub id: String,
    /// The sender's id of it.
    pub message_id: String,
    /// How many receivers get one; 0 if it is for one anyway.
    pub copies: u64,
    /// The server's clock.
    pub sent_at: String,
    /// It was stored before.
    pub duplicate: bool,
}

/// Options of a message. What is `None` is left out, but for the id, which is made.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueSendOptions {
    /// The same for all attempts.
    pub message_id: Option<String>,
    /// By whom; else [`crate::Options::user`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender: Option<String>,
    /// For whom; else for whoever takes it first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receiver: Option<String>,
    /// `all`: every registered client gets a copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// Not before so many milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// Not before, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deliver_at: Option<String>,
    /// Messages of a group are delivered one after another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_id: Option<String>,
    /// Gone after so many milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
}

/// Options of a request for messages. What is `None` has the server's default.
#[derive(Debug, Clone, Default)]
pub struct TakeOptions {
    /// Most messages.
    pub max: Option<u64>,
    /// How long they are yours.
    pub lease: Option<Duration>,
    /// How long to wait for the first, up to 20 s.
    pub wait: Duration,
    /// For whom; else [`crate::Options::user`].
    pub receiver: Option<String>,
    /// `oldest` or `newest`.
    pub order: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SendBody<'a> {
    message: &'a str,
    #[serde(flatten)]
    options: &'a QueueSendOptions,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TakeBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    max: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_ms: Option<u64>,
    wait_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    receiver: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    order: Option<&'a str>,
}

#[derive(Deserialize)]
struct TakenBody {
    messages: Vec<Delivery>,
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Queue {
    pub(crate) fn new(name: &str, http: Arc<Http>) -> Self {
        Self { path: format!("/v1/queues/{}", escape(name)), http }
    }

    /// Makes the queue, or changes the settings that are given.
    ///
    /// # Errors
    /// The server's refusal, `unreachable`; so for all methods.
    pub async fn create(&self, settings: &QueueSettings) -> Result<(), Error> {
        let (path, wait) = (&self.path, Duration::ZERO);
        self.http.json::<IgnoredAny>("messages", Method::PUT, path, settings, wait).await.map(drop)
    }

    /// Counts of the queue.
    ///
    /// # Errors
    /// The server's refusal, `unreachable`.
    pub async fn state(&self) -> Result<QueueState, Error> {
        self.http.call(&Request::new(Method::GET, &self.path)).await?.value("messages")
    }

    /// Returns once the message is on disk. It is repeated with the same id until then: it is stored once.
    ///
    /// # Errors
    /// The server's refusal, `unreachable`.
    pub async fn send(&self, message: &str, mut options: QueueSendOptions) -> Result<QueueReceipt, Error> {
        options.message_id.get_or_insert_with(make_id);
        options.sender = options.sender.or_else(|| self.http.options.user.clone());
        let body = SendBody { message, options: &options };
        let path = format!("{}/messages", self.path);
        self.http.json("id", Method::POST, &path, &body, Duration::ZERO).await
    }

    /// Takes messages on lease.
    ///
    /// # Errors
    /// The server's refusal, `unreachable`.
    pub async fn take(&self, options: &TakeOptions) -> Result<Vec<Delivery>, Error> {
        let receiver = options.receiver.as_deref().or(self.http.options.user.as_deref());
        let body = TakeBody {
            max: options.max,
            lease_ms: options.lease.map(ms),
            wait_ms: ms(options.wait),
            receiver,
            order: options.order.as_deref(),
        };
        let path = format!("{}/lease", self.path);
        let mut taken: TakenBody =
            self.http.json("messages", Method::POST, &path, &body, options.wait).await?;
        for delivery in &mut taken.messages {
            let path = format!("{}/messages/{}", self.path, escape(&delivery.id));
            delivery.at = Some((Arc::clone(&self.http), path));
        }
        Ok(taken.messages)
    }

    /// Works through the queue until the server refuses, the client is closed, or the future is dropped. Calls `handler` with each delivery,
    /// extends its lease meanwhile, and acknowledges it when the handler returns `Ok`. Otherwise the message goes back to
    /// the queue. `lease` is 30 s at best. `on_error` gets what the handler returns, and the error of an acknowledgement
    /// that failed: then the message comes again, but with `is_open` it may be done. If the future is dropped, the message it worked on is not given back: it comes
    /// again when its lease ends.
    ///
    /// # Errors
    /// The server's final refusal, `closed`.
    pub async fn poll<E: From<Error>>(
        &self,
        lease: Duration,
        mut handler: impl AsyncFnMut(&Delivery) -> Result<(), E>,
        mut on_error: impl FnMut(E),
    ) -> Result<(), Error> {
        let options = TakeOptions { lease: Some(lease), wait: WAIT_MAX, ..TakeOptions::default() };
        loop {
            let worked = async {
                for delivery in self.take(&options).await? {
                    delivery.work(lease, &mut handler, &mut on_error).await?;
                }
                Ok::<(), Error>(())
            };
            if let Err(error) = worked.await {
                if !error.retryable {
                    return Err(error);
                }
                // Whatever the patience was.
                let options = &self.http.options;
                let pause = options.pause(OVERLOAD_ATTEMPT, error.retry_after, random::fraction());
                self.http.until_closed(tokio::time::sleep(pause)).await?;
            }
        }
    }
}

/// Message on lease.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Delivery {
    /// The server's id of it.
    pub id: String,
    /// By whom.
    pub sender: String,
    /// For whom; `None` = for whoever takes it first.
    pub receiver: Option<String>,
    /// The text.
    pub message: String,
    /// Messages of a group are delivered one after another.
    pub group_id: Option<String>,
    /// The server's clock.
    pub sent_at: String,
    /// How many times it was delivered, with this one.
    pub deliveries: u64,
    /// Proof of the lease.
    pub receipt: String,
    /// End of the lease.
    pub leased_until: String,
    #[serde(skip)]
    at: Option<(Arc<Http>, String)>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct LeaseChange<'a> {
    receipt: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms: Option<u64>,
}

impl Delivery {
    /// It is done: the message is gone.
    ///
    /// # Errors
    /// `stale_receipt` if the lease had ended; with `is_open` that may be this call's own doing.
    pub async fn ack(&self) -> Result<(), Error> {
        let (http, request) = self.lease_change("ack", None, None)?;
        http.done(&request).await
    }

    /// Gives the message back, for others to have after `delay`, or after the queue's own backoff.
    ///
    /// # Errors
    /// As [`Delivery::ack`].
    pub async fn nack(&self, delay: Option<Duration>) -> Result<(), Error> {
        let (http, request) = self.lease_change("nack", None, delay)?;
        http.call(&request).await?.value::<IgnoredAny>("id").map(drop)
    }

    /// Lets the lease end so long from now.
    ///
    /// # Errors
    /// As [`Delivery::ack`].
    pub async fn extend(&self, lease: Duration) -> Result<(), Error> {
        let (http, request) = self.lease_change("extend", Some(lease), None)?;
        http.call(&request).await?.value::<IgnoredAny>("leasedUntil").map(drop)
    }

    fn lease_change(
        &self,
        how: &str,
        lease: Option<Duration>,
        delay: Option<Duration>,
    ) -> Result<(&Http, Request), Error> {
        let Some((http, path)) = &self.at else { return Err(Error::new("invalid", "it is of no queue")) };
        let body = LeaseChange { receipt: &self.receipt, lease_ms: lease.map(ms), delay_ms: delay.map(ms) };
        let body = serde_json::to_vec(&body).map_err(|error| Error::new("invalid", error.to_string()))?;
        Ok((http, Request::new(Method::POST, format!("{path}/{how}")).json(body)))
    }

    async fn work<E: From<Error>>(
        &self,
        lease: Duration,
        handler: &mut impl AsyncFnMut(&Self) -> Result<(), E>,
        on_error: &mut impl FnMut(E),
    ) -> Result<(), Error> {
        let extending = async {
            loop {
                tokio::time::sleep((lease / 3).max(EXTEND_MIN)).await;
                // If it fails, the acknowledgement will tell.
                let _ = self.extend(lease).await;
            }
        };
        let worked = tokio::select! {
            worked = handler(self) => worked,
            never = extending => match never as Infallible {},
        };
        if let Err(failed) = worked {
            // If it fails, the lease ends by itself.
            let _ = self.nack(None).await;
            on_error(failed);
            return Ok(());
        }
        let Err(error) = self.ack().await else { return Ok(()) };
        on_error(error.clone().into());
        if error.is("stale_receipt") { Ok(()) } else { Err(error) }
    }
}
