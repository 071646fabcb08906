//! Declares the broker's topology: the exchange, the queues and the bindings between them. Existing objects are used if
//! they fit: an administrator with more permissions may have created them.

use std::time::Duration;

use lapin::options::{
    BasicPublishOptions, ConfirmSelectOptions, ExchangeBindOptions, ExchangeDeclareOptions,
    ExchangeUnbindOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::protocol::{AMQPErrorKind, AMQPSoftError};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ErrorKind, ExchangeKind, Queue};

use super::AmqpOptions;
use super::address::AmqpError;

/// Binding key that matches every message of a room.
const ALL_ROOMS: &str = "room.#";

/// A key that no queue and no binding has.
const NO_KEY: &str = "hubbub.none";

/// How often a start looks whether readers that may just have ended are gone, and the pauses between.
const READERS_LOOKS: usize = 25;
const READERS_INTERVAL: Duration = Duration::from_millis(200);

pub(super) const DEAD_QUEUE: &str = "hubbub.dead";

impl AmqpOptions {
    pub(super) fn queue(&self, shard: u16) -> String {
        format!("{}{shard}", self.queue_prefix)
    }

    /// The exchange that distributes rooms over several queues by hash.
    fn hash_exchange(&self) -> String {
        format!("{}hash", self.queue_prefix)
    }
}

/// The objects of a broker that this server uses, as seen through one connection.
pub(super) struct Topology<'a> {
    pub(super) connection: &'a Connection,
    pub(super) options: &'a AmqpOptions,
}

impl Topology<'_> {
    pub(super) async fn declare(&self) -> Result<(), AmqpError> {
        self.exchange(&self.options.exchange, ExchangeKind::Topic).await?;
        self.queue(DEAD_QUEUE, FieldTable::default()).await?;
        self.refuse_leftovers().await?;
        for shard in 0..self.options.shards {
            let mut arguments = FieldTable::default();
            arguments.insert("x-single-active-consumer".into(), AMQPValue::Boolean(true));
            self.queue(&self.options.queue(shard), arguments).await?;
        }
        if self.options.shards == 1 { self.bind_one().await } else { self.bind_hashed().await }
    }

    /// Opens a channel with confirmations, after checking the permission to publish to the exchange and to the
    /// dead-letter queue. No channel is opened on this connection later: a broker short of memory reads nothing more
    /// from a connection that has published.
    pub(super) async fn publishing_channel(&self) -> Result<Channel, AmqpError> {
        // Whoever may write to an exchange may remove a binding that does not exist.
        let exchange = self.options.exchange.as_str();
        let unbound = unbind_exchange(&self.channel().await?, exchange, exchange, NO_KEY).await;
        unbound.map_err(self.explain(&format!("publishing to the exchange {exchange}")))?;
        let channel = self.channel().await?;
        // The default exchange has no bindings. But the broker drops a message to a queue that does not exist.
        let publishing = async {
            channel.confirm_select(ConfirmSelectOptions::default()).await?;
            let (options, properties) = (BasicPublishOptions::default(), BasicProperties::default());
            channel.basic_publish("".into(), NO_KEY.into(), options, &[], properties).await?.await
        };
        let what = "publishing to the default exchange, which dead letters are published through,";
        publishing.await.map_err(self.explain(what))?;
        Ok(channel)
    }

    fn explain<'a>(&'a self, what: &'a str) -> impl Fn(lapin::Error) -> AmqpError + 'a {
        move |error| self.options.address.explain(what, &error)
    }

    /// Opens a channel. A refusal closes it, so each attempt has its own.
    async fn channel(&self) -> Result<Channel, AmqpError> {
        self.connection.create_channel().await.map_err(self.explain("opening a channel"))
    }

    async fn exchange(&self, name: &str, kind: ExchangeKind) -> Result<(), AmqpError> {
        let what = format!("declaring the exchange {name}");
        let declare = async |passive| {
            let options =
                ExchangeDeclareOptions { passive, durable: true, ..ExchangeDeclareOptions::default() };
            let channel = self.channel().await?;
            let declared =
                channel.exchange_declare(name.into(), kind.clone(), options, FieldTable::default()).await;
            Ok::<_, AmqpError>(declared)
        };
        let is_there = declare(true).await?.is_ok();
        match declare(false).await? {
            Ok(()) => Ok(()),
            // Created by a user with more permissions, or with arguments that do not matter here.
            Err(error)
                if is_there
                    && (is_forbidden(&error) || is_other(&error) && !differs_in(&error, "'type'")) =>
            {
                Ok(())
            }
            Err(error) => Err(self.explain(&what)(error)),
        }
    }

    async fn queue(&self, name: &str, arguments: FieldTable) -> Result<(), AmqpError> {
        let what = format!("declaring the queue {name}");
        let is_there = self.find(name).await?.is_some();
        match self.make(name, arguments.clone()).await? {
            Ok(_) => Ok(()),
            Err(error) if is_there && is_forbidden(&error) => Ok(()),
            // A replicated queue is even better.
            Err(error) if is_there && differs_in(&error, "'x-queue-type'") => {
                let mut arguments = arguments;
                arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
                self.make(name, arguments).await?.map(|_| ()).map_err(self.explain(&what))
            }
            Err(error) => Err(self.explain(&what)(error)),
        }
    }

    async fn make(&self, name: &str, arguments: FieldTable) -> Result<lapin::Result<Queue>, AmqpError> {
        let channel = self.channel().await?;
        Ok(channel.queue_declare(name.into(), QueueDeclareOptions::durable(), arguments).await)
    }

    async fn find(&self, name: &str) -> Result<Option<Queue>, AmqpError> {
        match inspect_queue(&self.channel().await?, name).await {
            Ok(queue) => Ok(Some(queue)),
            Err(error) if is_kind(&error, &AMQPSoftError::NOTFOUND) => Ok(None),
            Err(error) => Err(self.explain(&format!("inspecting the queue {name}"))(error)),
        }
    }

    async fn bind_one(&self) -> Result<(), AmqpError> {
        let (options, channel) = (self.options, self.channel().await?);
        // Remains of a start with more shards. If there is no such exchange, the broker closes the channel, nothing more.
        let unbound = unbind_exchange(&channel, &options.hash_exchange(), &options.exchange, ALL_ROOMS).await;
        let channel = if unbound.is_ok() { channel } else { self.channel().await? };
        self.bind_queue(&channel, 0, &options.exchange, ALL_ROOMS).await
    }

    async fn bind_hashed(&self) -> Result<(), AmqpError> {
        let (options, hash_exchange) = (self.options, self.options.hash_exchange());
        self.exchange(&hash_exchange, ExchangeKind::Custom("x-consistent-hash".to_owned())).await?;
        let channel = self.channel().await?;
        // The key of these bindings is a weight.
        for shard in 0..options.shards {
            self.bind_queue(&channel, shard, &hash_exchange, "1").await?;
        }
        let exchange = options.exchange.as_str();
        let bound = channel.exchange_bind(
            hash_exchange.as_str().into(),
            exchange.into(),
            ALL_ROOMS.into(),
            ExchangeBindOptions::default(),
            FieldTable::default(),
        );
        bound.await.map_err(self.explain(&format!("binding the exchange {hash_exchange}")))?;
        // Remains of a start with one shard, when the first queue was bound to all rooms.
        self.unbind_queue(&channel, &options.queue(0), exchange, ALL_ROOMS).await
    }

    async fn bind_queue(&self, channel: &Channel, shard: u16, to: &str, key: &str) -> Result<(), AmqpError> {
        let queue = self.options.queue(shard);
        let bound = channel.queue_bind(
            queue.as_str().into(),
            to.into(),
            key.into(),
            QueueBindOptions::default(),
            FieldTable::default(),
        );
        bound.await.map_err(self.explain(&format!("binding the queue {queue} to the exchange {to}")))
    }

    async fn unbind_queue(
        &self,
        channel: &Channel,
        queue: &str,
        from: &str,
        key: &str,
    ) -> Result<(), AmqpError> {
        let unbound = channel.queue_unbind(queue.into(), from.into(), key.into(), FieldTable::default());
        unbound.await.map_err(self.explain(&format!("unbinding the queue {queue}")))
    }

    /// Refuses to start while a queue of an earlier start with more shards holds messages, or a server reads it: it may have
    /// messages in hand, which nobody counts. Others are unbound.
    async fn refuse_leftovers(&self) -> Result<(), AmqpError> {
        for shard in self.options.shards.. {
            let name = self.options.queue(shard);
            let Some(mut queue) = self.find(&name).await? else { return Ok(()) };
            for _ in 0..READERS_LOOKS {
                if queue.consumer_count() == 0 {
                    break;
                }
                tokio::time::sleep(READERS_INTERVAL).await;
                let Some(found) = self.find(&name).await? else { return Ok(()) };
                queue = found;
            }
            if queue.consumer_count() > 0 {
                return Err(AmqpError(format!(
                    "the queue {name} at {} of a start with more shards is still being read; stop the servers that do, and start \
                     with amqp.shards = {} until it is empty",
                    self.options.address,
                    u32::from(shard) + 1
                )));
            }
            if queue.message_count() > 0 {
                let (count, shards) = (queue.message_count(), u32::from(shard) + 1);
                return Err(AmqpError(format!(
                    "the queue {name} at {} still holds {count} messages of a start with more shards; start with \
                     amqp.shards = {shards} until it is empty",
                    self.options.address
                )));
            }
            self.unbind_queue(&self.channel().await?, &name, &self.options.hash_exchange(), "1").await?;
        }
        Ok(())
    }
}

async fn unbind_exchange(channel: &Channel, name: &str, from: &str, key: &str) -> lapin::Result<()> {
    let (options, arguments) = (ExchangeUnbindOptions::default(), FieldTable::default());
    channel.exchange_unbind(name.into(), from.into(), key.into(), options, arguments).await
}

/// A queue, with the number of its waiting messages.
pub(super) async fn inspect_queue(channel: &Channel, name: &str) -> lapin::Result<Queue> {
    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::durable() };
    channel.queue_declare(name.into(), options, FieldTable::default()).await
}

fn is_kind(error: &lapin::Error, kind: &AMQPSoftError) -> bool {
    matches!(error.kind(), ErrorKind::ProtocolError(error) if *error.kind() == AMQPErrorKind::Soft(kind.clone()))
}

fn is_forbidden(error: &lapin::Error) -> bool {
    is_kind(error, &AMQPSoftError::ACCESSREFUSED)
}

/// An object of that name exists, with other arguments.
fn is_other(error: &lapin::Error) -> bool {
    is_kind(error, &AMQPSoftError::PRECONDITIONFAILED)
}

fn differs_in(error: &lapin::Error, argument: &str) -> bool {
    is_other(error)
        && matches!(error.kind(), ErrorKind::ProtocolError(error) if error.get_message().as_str().contains(argument))
}
