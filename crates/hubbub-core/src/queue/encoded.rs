//! The encoding of a [`QueueOp`] in a batch.

use std::sync::Arc;

use crate::invariant::cast_or_nearest;

use super::{
    Audience, Due, LeaseReceipt, QueueOp, QueueSend, QueueSettings, Settle, Take, TakeFilter, TakeMode,
};

#[derive(Debug, Clone)]
enum OpKind {
    Put(Arc<QueueSettings>),
    PutNumbered,
    Delete { force: bool },
    Register,
    Unregister,
    Send { to_all: bool, due: Due, ttl_ms: Option<u64>, registers: bool },
    Take { max: usize, how: TakeMode, newest_first: bool, registers: bool },
    Settle { receipt: LeaseReceipt, how: Settle },
    Remove(u64),
    Redrive(Option<u64>),
    Sweep,
}

/// Number of names of an operation: queue, sender or client, receiver, message id, group.
const NAMES: usize = 5;

/// The length of an absent name.
const NONE: u16 = u16::MAX;

/// The fixed-size part of a [`QueueOp`] whose strings are stored in a shared buffer.
#[derive(Debug, Clone)]
pub(crate) struct EncodedQueueOp {
    start: usize,
    names: [u16; NAMES],
    text_bytes: u32,
    kind: OpKind,
}

impl<'a> QueueOp<'a> {
    /// The queue, if the operation concerns a single one.
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

impl EncodedQueueOp {
    pub(crate) fn write(op: &QueueOp<'_>, into: &mut String) -> Self {
        let start = into.len();
        let queue = op.queue();
        let client = if let QueueOp::Register { client } | QueueOp::Unregister { client } = op {
            Some(*client)
        } else {
            None
        };
        let mut names = [queue, client, None, None, None];
        let text = if let QueueOp::Send(send) = op { send.text } else { "" };
        let kind = match *op {
            QueueOp::Put { settings, .. } => OpKind::Put(Arc::new(settings.clone())),
            QueueOp::PutNumbered => OpKind::PutNumbered,
            QueueOp::Delete { force, .. } => OpKind::Delete { force },
            QueueOp::Register { .. } => OpKind::Register,
            QueueOp::Unregister { .. } => OpKind::Unregister,
            QueueOp::Send(QueueSend {
                sender, audience, message_id, due, group, ttl_ms, registers, ..
            }) => {
                let receiver = if let Audience::One(receiver) = audience { Some(receiver) } else { None };
                names = [queue, Some(sender), receiver, message_id, group];
                OpKind::Send { to_all: audience == Audience::All, due, ttl_ms, registers }
            }
            QueueOp::Take(Take { wanted, max, how, registers }) => {
                names = [queue, wanted.sender, wanted.receiver, None, None];
                OpKind::Take { max, how, newest_first: wanted.newest_first, registers }
            }
            QueueOp::Settle { receipt, how, .. } => OpKind::Settle { receipt, how },
            QueueOp::Remove { id, .. } => OpKind::Remove(id),
            QueueOp::Redrive { id, .. } => OpKind::Redrive(id),
            QueueOp::Sweep => OpKind::Sweep,
        };
        names.into_iter().flatten().for_each(|name| into.push_str(name));
        into.push_str(text);
        let length =
            |name: &str| u16::from(cast_or_nearest::<usize, u8>(name.len(), "an id is at most 64 bytes"));
        Self {
            start,
            names: names.map(|name| name.map_or(NONE, length)),
            text_bytes: cast_or_nearest(text.len(), "a text is shorter than 4 GiB"),
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
            OpKind::Put(settings) => QueueOp::Put { queue: queue?, settings },
            OpKind::PutNumbered => QueueOp::PutNumbered,
            OpKind::Delete { force } => QueueOp::Delete { queue: queue?, force: *force },
            OpKind::Register => QueueOp::Register { client: sender? },
            OpKind::Unregister => QueueOp::Unregister { client: sender? },
            OpKind::Send { to_all, due, ttl_ms, registers } => QueueOp::Send(QueueSend {
                queue: queue?,
                sender: sender?,
                audience: if *to_all {
                    Audience::All
                } else {
                    receiver.map_or(Audience::Anyone, Audience::One)
                },
                text: rest.get(..usize::try_from(self.text_bytes).ok()?)?,
                message_id,
                due: *due,
                group,
                ttl_ms: *ttl_ms,
                registers: *registers,
            }),
            OpKind::Take { max, how, newest_first, registers } => QueueOp::Take(Take {
                wanted: TakeFilter { queue, receiver, sender, newest_first: *newest_first },
                max: *max,
                how: *how,
                registers: *registers,
            }),
            OpKind::Settle { receipt, how } => {
                QueueOp::Settle { queue: queue?, receipt: *receipt, how: *how }
            }
            OpKind::Remove(id) => QueueOp::Remove { queue: queue?, id: *id },
            OpKind::Redrive(id) => QueueOp::Redrive { queue: queue?, id: *id },
            OpKind::Sweep => QueueOp::Sweep,
        })
    }
}
