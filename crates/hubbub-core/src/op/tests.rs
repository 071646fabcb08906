use super::*;
use crate::change::{RoomChange, RoomSettings};
use crate::message::MessageType;
use proptest::prelude::*;

fn strings() -> impl Strategy<Value = (String, String, String, Option<String>, String)> {
    ("[a-z]{1,64}", "[a-z]{1,8}", "[a-z]{1,64}", proptest::option::of("\\PC{0,20}"), "\\PC{0,99}")
}

fn changes(room: &str, user: &str, title: Option<&str>, seq: u64) -> Vec<Op<'static>> {
    let leak = |text: &str| -> &'static str { Box::leak(text.to_owned().into_boxed_str()) };
    let (room, user, title) = (leak(room), leak(user), title.map(leak));
    let settings =
        RoomSettings { title, members_only: Some(seq.is_multiple_of(2)), retention_s: title.map(|_| seq) };
    [
        RoomChange::PutRoom { room, settings },
        RoomChange::DeleteRoom { room },
        RoomChange::AddMember { room, user },
        RoomChange::RemoveMember { room, user },
        RoomChange::MarkRead { room, user, seq },
        RoomChange::EraseUser { user },
        RoomChange::ExpireMessages {
            room,
            before: Timestamp::from_micros(7),
            retention_s: seq,
            is_own: title.is_some(),
        },
    ]
    .into_iter()
    .map(|what| Op::Change(Change { by: (!seq.is_multiple_of(3)).then_some(user), what }))
    .collect()
}

fn others(name: &str, text: &str, number: u64) -> Vec<Op<'static>> {
    use crate::kv::Condition;
    use crate::queue::*;
    let leak = |text: &str| -> &'static str { Box::leak(text.to_owned().into_boxed_str()) };
    let (name, text) = (leak(name), leak(text));
    let settings: &'static QueueSettings =
        Box::leak(Box::new(QueueSettings { ttl_ms: Some(number), ..QueueSettings::default() }));
    let maybe = number.is_multiple_of(2).then_some(name);
    let audience = match maybe {
        Some(name) => Audience::One(name),
        None if number.is_multiple_of(3) => Audience::All,
        None => Audience::Anyone,
    };
    let send = QueueSend {
        queue: name,
        sender: name,
        audience,
        text,
        message_id: maybe,
        due: Due::In(number),
        group: maybe,
        ttl_ms: maybe.map(|_| number),
        registers: maybe.is_none(),
    };
    let wanted =
        TakeFilter { queue: maybe, receiver: Some(name), sender: maybe, newest_first: maybe.is_some() };
    let receipt = LeaseReceipt { id: number, delivery: 7, epoch: number };
    let queues = [
        QueueOp::Put { queue: name, settings },
        QueueOp::PutNumbered,
        QueueOp::Delete { queue: name, force: maybe.is_some() },
        QueueOp::Register { client: name },
        QueueOp::Unregister { client: name },
        QueueOp::Send(send),
        QueueOp::Take(Take {
            wanted,
            max: 3,
            how: TakeMode::Lease { lease_ms: Some(number) },
            registers: true,
        }),
        QueueOp::Settle { queue: name, receipt, how: Settle::Nack { delay_ms: Some(number) } },
        QueueOp::Remove { queue: name, id: number },
        QueueOp::Redrive { queue: name, id: maybe.map(|_| number) },
        QueueOp::Sweep,
    ];
    let (key, condition) = (name.as_bytes(), Condition::Is(number));
    let keys = [
        KvOp::Put { key, value: text.as_bytes(), ttl_ms: maybe.map(|_| number), condition },
        KvOp::Delete { key, condition },
        KvOp::Sweep,
    ];
    queues.map(Op::Queue).into_iter().chain(keys.map(Op::Kv)).collect()
}

#[test]
fn appended_operations_keep_their_traces() {
    let context = |span| TraceContext { trace: 1, span };
    let (mut all, mut part) = (OpBatch::default(), OpBatch::default());
    part.trace_last(context(9));
    for span in 1..=3 {
        part.push(&Op::Kv(KvOp::Sweep));
        if span != 2 {
            part.trace_last(context(span));
        }
    }
    all.push(&Op::Kv(KvOp::Sweep));
    all.append(&part);
    all.append(&part);
    assert_eq!(all.traces(), [(1, context(1)), (3, context(3)), (4, context(1)), (6, context(3))]);
    all.clear();
    assert_eq!(all.traces(), []);
}

proptest! {
    #[test]
    fn appended_batches_read_as_their_parts(parts in proptest::collection::vec(proptest::collection::vec(strings(), 0..5), 0..5)) {
        let mut all = OpBatch::default();
        let mut expected = Vec::new();
        for part in &parts {
            let mut batch = OpBatch::default();
            for (room, user, id, username, text) in part {
                let op = Op::Send(Send { room, user, id, username: username.as_deref(), text, kind: MessageType::Join, timestamp: Timestamp::from_micros(5) });
                batch.push(&op);
                expected.push(op);
                let number = text.len() as u64;
                let more = changes(room, user, username.as_deref(), number);
                for op in more.into_iter().chain(others(room, text, number)) {
                    batch.push(&op);
                    expected.push(op);
                }
            }
            all.append(&batch);
        }
        prop_assert_eq!(all.iter().collect::<Vec<_>>(), expected);
    }
}
