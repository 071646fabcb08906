//! What must exist in the broker: the exchange, the queues and what leads from the one to the others. What is there
//! already is used when it fits, since somebody with more rights may have made it.

use lapin::options::{
    BasicPublishOptions, ConfirmSelectOptions, ExchangeBindOptions, ExchangeDeclareOptions,
    ExchangeUnbindOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::protocol::{AMQPErrorKind, AMQPSoftError};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{BasicProperties, Channel, Connection, ErrorKind, ExchangeKind, Queue};

use super::AmqpOptions;
use super::address::{Address, AmqpError};

/// Every key of a message of a room.
const ALL_ROOMS: &str = "room.#";

/// Neither a queue nor a binding has this name.
const NO_KEY: &str = "hubbub.none";

/// The queue for what cannot be stored.
pub(super) const DEAD_QUEUE: &str = "hubbub.dead";

impl AmqpOptions {
    /// The queue of a shard.
    pub(super) fn queue(&self, shard: u16) -> String {
        format!("{}{shard}", self.queue_prefix)
    }

    /// The exchange that spreads rooms over the queues when there are several.
    fn spreader(&self) -> String {
        format!("{}hash", self.queue_prefix)
    }
}

/// Makes sure that everything is there and bound.
pub(super) async fn declare(
    connection: &Connection,
    options: &AmqpOptions,
    address: &Address,
) -> Result<(), AmqpError> {
    let declaring = Declaring { connection, options, address };
    declaring.exchange(&options.exchange, ExchangeKind::Topic).await?;
    declaring.queue(DEAD_QUEUE, FieldTable::default()).await?;
    declaring.refuse_leftovers().await?;
    for shard in 0..options.shards {
        let mut arguments = FieldTable::default();
        arguments.insert("x-single-active-consumer".into(), AMQPValue::Boolean(true));
        declaring.queue(&options.queue(shard), arguments).await?;
    }
    if options.shards == 1 { declaring.bind_one().await } else { declaring.bind_spread().await }
}

/// A channel with confirmations of a user who may publish to the exchange and to the queue of dead letters, which is found
/// out while nothing depends on it. Nothing is opened on the connection later: a broker short of memory reads no more of
/// one that has published.
pub(super) async fn publishing_channel(
    connection: &Connection,
    options: &AmqpOptions,
    address: &Address,
) -> Result<Channel, AmqpError> {
    let declaring = Declaring { connection, options, address };
    declaring.ensure_writable(&options.exchange).await?;
    let channel = declaring.channel().await?;
    declaring.ensure_default_writable(&channel).await?;
    Ok(channel)
}

struct Declaring<'a> {
    connection: &'a Connection,
    options: &'a AmqpOptions,
    address: &'a Address,
}

impl Declaring<'_> {
    fn explain<'a>(&'a self, what: &'a str) -> impl Fn(lapin::Error) -> AmqpError + 'a {
        move |error| self.address.explain(what, &error)
    }

    /// A refusal closes the channel, so each attempt has its own.
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
            // Made by somebody with more rights, or with arguments of no consequence here.
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
            // A replicated queue is better still.
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

    /// A queue as it is, if it is.
    async fn find(&self, name: &str) -> Result<Option<Queue>, AmqpError> {
        match look(&self.channel().await?, name).await {
            Ok(queue) => Ok(Some(queue)),
            Err(error) if is_kind(&error, &AMQPSoftError::NOTFOUND) => Ok(None),
            Err(error) => Err(self.explain(&format!("looking at the queue {name}"))(error)),
        }
    }

    async fn bind_one(&self) -> Result<(), AmqpError> {
        let (options, channel) = (self.options, self.channel().await?);
        // Left from a start with more shards; an exchange that is not there closes the channel, and that is all.
        let unbound = channel
            .exchange_unbind(
                options.spreader().into(),
                options.exchange.as_str().into(),
                ALL_ROOMS.into(),
                ExchangeUnbindOptions::default(),
                FieldTable::default(),
            )
            .await;
        let channel = if unbound.is_ok() { channel } else { self.channel().await? };
        self.bind_queue(&channel, 0, &options.exchange, ALL_ROOMS).await
    }

    async fn bind_spread(&self) -> Result<(), AmqpError> {
        let (options, spreader) = (self.options, self.options.spreader());
        self.exchange(&spreader, ExchangeKind::Custom("x-consistent-hash".to_owned())).await?;
        let channel = self.channel().await?;
        // The key of these bindings is a weight.
        for shard in 0..options.shards {
            self.bind_queue(&channel, shard, &spreader, "1").await?;
        }
        let first: ShortString = options.queue(0).into();
        let exchange: ShortString = options.exchange.as_str().into();
        channel
            .exchange_bind(
                spreader.as_str().into(),
                exchange.clone(),
                ALL_ROOMS.into(),
                ExchangeBindOptions::default(),
                FieldTable::default(),
            )
            .await
            .map_err(self.explain(&format!("binding the exchange {spreader}")))?;
        // Left from a start with one shard, when the first queue took everything.
        channel
            .queue_unbind(first, exchange, ALL_ROOMS.into(), FieldTable::default())
            .await
            .map_err(self.explain("unbinding the first queue"))
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

    /// Whoever may write to an exchange may take bindings from it, also one that is not there; and nobody notices.
    async fn ensure_writable(&self, name: &str) -> Result<(), AmqpError> {
        let unbinding = self.channel().await?;
        let unbound = unbinding.exchange_unbind(
            name.into(),
            name.into(),
            NO_KEY.into(),
            ExchangeUnbindOptions::default(),
            FieldTable::default(),
        );
        unbound.await.map_err(self.explain(&format!("publishing to the exchange {name}")))
    }

    /// The exchange that leads straight to queues has no bindings to take, but what is published to no queue is dropped.
    async fn ensure_default_writable(&self, channel: &Channel) -> Result<(), AmqpError> {
        let what = "publishing to the default exchange, which dead letters go through,";
        let publishing = async {
            channel.confirm_select(ConfirmSelectOptions::default()).await?;
            let (options, properties) = (BasicPublishOptions::default(), BasicProperties::default());
            channel.basic_publish("".into(), NO_KEY.into(), options, &[], properties).await?.await
        };
        publishing.await.map(drop).map_err(self.explain(what))
    }

    /// Queues of a start with more shards must be emptied by as many before there are fewer; empty ones get no more.
    async fn refuse_leftovers(&self) -> Result<(), AmqpError> {
        for shard in self.options.shards.. {
            let name = self.options.queue(shard);
            let Some(queue) = self.find(&name).await? else { return Ok(()) };
            if queue.message_count() > 0 {
                let (count, shards) = (queue.message_count(), u32::from(shard) + 1);
                return Err(AmqpError(format!(
                    "the queue {name} at {} still holds {count} messages of a start with more shards; start with \
                     amqp.shards = {shards} until it is empty",
                    self.address
                )));
            }
            let channel = self.channel().await?;
            let unbound = channel.queue_unbind(
                name.as_str().into(),
                self.options.spreader().into(),
                "1".into(),
                FieldTable::default(),
            );
            unbound.await.map_err(self.explain(&format!("unbinding the queue {name}")))?;
        }
        Ok(())
    }
}

/// A queue as it is, with the number of messages that wait in it.
pub(super) async fn look(channel: &Channel, name: &str) -> lapin::Result<Queue> {
    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::durable() };
    channel.queue_declare(name.into(), options, FieldTable::default()).await
}

fn is_kind(error: &lapin::Error, kind: &AMQPSoftError) -> bool {
    matches!(error.kind(), ErrorKind::ProtocolError(error) if *error.kind() == AMQPErrorKind::Soft(kind.clone()))
}

fn is_forbidden(error: &lapin::Error) -> bool {
    is_kind(error, &AMQPSoftError::ACCESSREFUSED)
}

/// Something of that name is there, with other arguments.
fn is_other(error: &lapin::Error) -> bool {
    is_kind(error, &AMQPSoftError::PRECONDITIONFAILED)
}

fn differs_in(error: &lapin::Error, argument: &str) -> bool {
    is_other(error)
        && matches!(error.kind(), ErrorKind::ProtocolError(error) if error.get_message().as_str().contains(argument))
}
