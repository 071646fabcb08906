//! How a [`QueueOp`] stands in a batch.

use std::sync::Arc;

use crate::queue::{
    Audience, Due, LeaseReceipt, QueueOp, QueueSend, QueueSettings, Settle, Take, TakeHow, Wanted,
};

#[derive(Debug, Clone, Copy)]
enum To {
    Anyone,
    One,
    All,
}

#[derive(Debug, Clone)]
enum Kind {
    Put(Arc<QueueSettings>),
    PutNumbered,
    Delete { force: bool },
    Register,
    Unregister,
    Send { to: To, due: Due, ttl_ms: Option<u64>, registers: bool },
    Take { max: usize, how: TakeHow, newest_first: bool, registers: bool },
    Settle { receipt: LeaseReceipt, how: Settle },
    Remove(u64),
    Redrive(Option<u64>),
    Sweep,
}

/// Strings of an operation besides the text of a message: queue, sender or client, receiver, message id, group.
const NAMES: usize = 5;

/// A name that is not there.
const NONE: u16 = u16::MAX;

/// The fixed part of a [`QueueOp`] whose strings stand one after another in a shared text.
#[derive(Debug, Clone)]
pub(crate) struct QueueHead {
    start: usize,
    names: [u16; NAMES],
    text_bytes: u32,
    kind: Kind,
}

impl<'a> QueueOp<'a> {
    /// The queue it belongs to, if it is one.
    pub fn queue(&self) -> Option<&'a str> {
        match self {
            Self::Put { queue, .. }
            | Self::Delete { queue, .. }
            | Self::Settle { queue, .. }
            | Self::Remove { queue, .. }
            | Self::Redrive { queue, .. } => Some(queue),
            Self::Send(send) => Some(send.queue),
            Self::Take(take) => take.wanted.queue,
            Self::PutNumbered | Self::Register { .. } | Self::Unregister { .. } | Self::Sweep => None,
        }
    }
}

impl QueueHead {
    pub(crate) fn write(op: &QueueOp<'_>, into: &mut String) -> Self {
        let start = into.len();
        let queue = op.queue();
        let mut names = [queue, None, None, None, None];
        let mut text = "";
        let kind = match *op {
            QueueOp::Put { settings, .. } => Kind::Put(Arc::new(settings.clone())),
            QueueOp::PutNumbered => Kind::PutNumbered,
            QueueOp::Delete { force, .. } => Kind::Delete { force },
            QueueOp::Register { client } => {
                names = [None, Some(client), None, None, None];
                Kind::Register
            }
            QueueOp::Unregister { client } => {
                names = [None, Some(client), None, None, None];
                Kind::Unregister
            }
            QueueOp::Send(QueueSend {
                sender,
                audience,
                text: body,
                message_id,
                due,
                group,
                ttl_ms,
                registers,
                ..
            }) => {
                let (to, receiver) = match audience {
                    Audience::Anyone => (To::Anyone, None),
                    Audience::One(receiver) => (To::One, Some(receiver)),
                    Audience::All => (To::All, None),
                };
                names = [queue, Some(sender), receiver, message_id, group];
                text = body;
                Kind::Send { to, due, ttl_ms, registers }
            }
            QueueOp::Take(Take { wanted, max, how, registers }) => {
                names = [queue, wanted.sender, wanted.receiver, None, None];
                Kind::Take { max, how, newest_first: wanted.newest_first, registers }
            }
            QueueOp::Settle { receipt, how, .. } => Kind::Settle { receipt, how },
            QueueOp::Remove { id, .. } => Kind::Remove(id),
            QueueOp::Redrive { id, .. } => Kind::Redrive(id),
            QueueOp::Sweep => Kind::Sweep,
        };
        names.into_iter().flatten().for_each(|name| into.push_str(name));
        into.push_str(text);
        // Ids and texts were limited when they were checked; nothing is cut.
        let length = |name: &str| u16::try_from(name.len()).unwrap_or(NONE - 1);
        Self {
            start,
            names: names.map(|name| name.map_or(NONE, length)),
            text_bytes: u32::try_from(text.len()).unwrap_or(u32::MAX),
            kind,
        }
    }

    /// The same after its strings moved by `offset` bytes.
    pub(crate) fn moved_by(mut self, offset: usize) -> Self {
        self.start += offset;
        self
    }

    pub(crate) fn read<'a>(&'a self, from: &'a str) -> Option<QueueOp<'a>> {
        let mut rest = from.get(self.start..)?;
        let mut names = [None; NAMES];
        for (name, bytes) in names.iter_mut().zip(self.names) {
            if bytes != NONE {
                let (part, after) = rest.split_at_checked(bytes.into())?;
                (*name, rest) = (Some(part), after);
            }
        }
        let [queue, sender, receiver, message_id, group] = names;
        Some(match &self.kind {
            Kind::Put(settings) => QueueOp::Put { queue: queue?, settings },
            Kind::PutNumbered => QueueOp::PutNumbered,
            Kind::Delete { force } => QueueOp::Delete { queue: queue?, force: *force },
            Kind::Register => QueueOp::Register { client: sender? },
            Kind::Unregister => QueueOp::Unregister { client: sender? },
            Kind::Send { to, due, ttl_ms, registers } => QueueOp::Send(QueueSend {
                queue: queue?,
                sender: sender?,
                audience: match to {
                    To::Anyone => Audience::Anyone,
                    To::One => Audience::One(receiver?),
                    To::All => Audience::All,
                },
                text: rest.get(..usize::try_from(self.text_bytes).ok()?)?,
                message_id,
                due: *due,
                group,
                ttl_ms: *ttl_ms,
                registers: *registers,
            }),
            Kind::Take { max, how, newest_first, registers } => QueueOp::Take(Take {
                wanted: Wanted { queue, receiver, sender, newest_first: *newest_first },
                max: *max,
                how: *how,
                registers: *registers,
            }),
            Kind::Settle { receipt, how } => QueueOp::Settle { queue: queue?, receipt: *receipt, how: *how },
            Kind::Remove(id) => QueueOp::Remove { queue: queue?, id: *id },
            Kind::Redrive(id) => QueueOp::Redrive { queue: queue?, id: *id },
            Kind::Sweep => QueueOp::Sweep,
        })
    }
}
