//! Erasing a user takes several steps, each a repetition of the same record.

use hubbub_core::{Change, OpBatch, Outcome, RoomChange};

use super::super::model::Model;
use super::LogFixture;
use super::script::Writer;
use super::steps::{ROOMS, attach, execute, expected, next_offsets, observe, replay, try_apply};

/// More messages than most stores erase at once, most of them in one partition.
const MESSAGES: usize = 5_400;

/// The record of an erasure is executed when its last step is. Until then the next offset stays, also over a restart. Then
/// it changes nothing any more, whatever the user wrote since.
pub async fn an_erasure_is_one_record(fixture: &mut impl LogFixture) {
    attach(&fixture.store()).await;
    let mut writer = Writer::at([0; 3]);
    for n in 0..MESSAGES {
        let user = if n % 100 == 7 { "ada" } else { "eve" };
        let room = if n % 50 == 3 { ROOMS[n / 50 % ROOMS.len()] } else { ["a0", "c0"][n % 2] };
        writer.send(room, user, &format!("m{n}"));
    }
    for room in ["a0", "d1"] {
        writer.add(room, "eve");
        writer.add(room, "ada");
    }
    let before = MESSAGES + 4;
    // What is sent behind the record of a partition stays, though other partitions have theirs later.
    for (partition, room) in [(1, "d1"), (0, "a0"), (2, "p2")] {
        writer.erase_in(partition, "eve");
        writer.send(room, "eve", &format!("behind-{room}"));
        writer.add(room, "eve");
    }
    let (records, mut model) = (writer.into_records(), Model::default());
    execute(&mut model, &records);
    let cap = fixture.store().batch_cap().ops;
    replay(&fixture.store(), &records[..before], cap.min(500)).await;
    let offsets = next_offsets(&fixture.store()).await;

    let (mut erased, mut ends) = (0, [offsets[0], offsets[1], offsets[2]]);
    for record in &records[before..] {
        loop {
            let mut batch = OpBatch::default();
            batch.push_at(&record.op(), record.position);
            let outcomes = try_apply(&fixture.store(), batch).await.unwrap();
            let [outcome] = &outcomes[..] else { panic!("{outcomes:?}") };
            if let Outcome::Erased { messages, .. } = outcome {
                erased += messages;
            }
            if !matches!(outcome, Outcome::Erased { more: true, .. }) {
                break;
            }
            assert_eq!(next_offsets(&fixture.store()).await, ends, "there is more to erase");
            fixture.restart(true).await;
            attach(&fixture.store()).await;
        }
        ends[record.position.partition as usize] = record.position.offset + 1;
    }
    assert_eq!(erased, (MESSAGES - MESSAGES / 100) as u64);
    assert_eq!(observe(&fixture.store()).await.0, expected(&model));
    assert_eq!(next_offsets(&fixture.store()).await, ends);

    let mut writer = Writer::at(ends);
    writer.send("a0", "eve", "again");
    writer.change(Some("eve"), RoomChange::AddMember { room: "p2", user: "eve" });
    let later = writer.into_records();
    execute(&mut model, &later);
    replay(&fixture.store(), &later, 2).await;
    for _ in 0..2 {
        let again = replay(&fixture.store(), &records[MESSAGES..], 9).await;
        assert_eq!(again, vec![Outcome::Accepted; records.len() - MESSAGES]);
        assert_eq!(observe(&fixture.store()).await.0, expected(&model));
        fixture.restart(true).await;
        attach(&fixture.store()).await;
    }
    // Without a position it is no step of that record.
    let mut batch = OpBatch::default();
    batch.push(&hubbub_core::Op::Change(Change { by: None, what: RoomChange::EraseUser { user: "eve" } }));
    assert!(try_apply(&fixture.store(), batch).await.is_err());
    assert_eq!(observe(&fixture.store()).await.0, expected(&model));
}
