//! Erasing a user takes several steps, each a repetition of the same record.

use hubbub_core::{Change, OpBatch, Outcome, RoomChange};

use super::super::model::Model;
use super::LogFixture;
use super::script::Writer;
use super::steps::{ROOMS, attach, execute, expected, next_offsets, observe, replay, try_apply};

/// More messages than most stores erase at once.
const MESSAGES: usize = 5_400;

/// The record of an erasure is executed when its last step is. Until then the next offset stays, also over a restart. Then
/// it changes nothing any more, whatever the user wrote since.
pub async fn an_erasure_is_one_record(fixture: &mut impl LogFixture) {
    attach(&fixture.store()).await;
    let mut writer = Writer::at([0; 3]);
    for n in 0..MESSAGES {
        let user = if n % 100 == 7 { "ada" } else { "eve" };
        writer.send(ROOMS[n % ROOMS.len()], user, &format!("m{n}"));
    }
    writer.change(None, RoomChange::AddMember { room: "c1", user: "eve" });
    writer.change(None, RoomChange::AddMember { room: "c1", user: "ada" });
    writer.erase("eve", fixture.erases_by_partition());
    let (records, mut model) = (writer.into_records(), Model::default());
    execute(&mut model, &records);
    let (before, erasures) = records.split_at(MESSAGES + 2);
    let cap = fixture.store().batch_cap().ops;
    replay(&fixture.store(), before, cap.min(500)).await;
    let offsets = next_offsets(&fixture.store()).await;

    let (mut erased, mut ends) = (0, [offsets[0], offsets[1], offsets[2]]);
    for erasure in erasures {
        loop {
            let mut batch = OpBatch::default();
            batch.push_at(&erasure.op(), erasure.position);
            let outcomes = try_apply(&fixture.store(), batch).await.unwrap();
            let [Outcome::Erased { messages, more }] = outcomes[..] else { panic!("{outcomes:?}") };
            erased += messages;
            if !more {
                break;
            }
            assert_eq!(next_offsets(&fixture.store()).await, ends, "there is more to erase");
            fixture.restart(true).await;
            attach(&fixture.store()).await;
        }
        ends[erasure.position.partition as usize] = erasure.position.offset + 1;
    }
    assert_eq!(erased, (MESSAGES - MESSAGES / 100) as u64);
    assert_eq!(observe(&fixture.store()).await.0, expected(&model));
    assert_eq!(next_offsets(&fixture.store()).await, ends);

    let mut writer = Writer::at(ends);
    writer.send("a0", "eve", "again");
    writer.change(Some("eve"), RoomChange::AddMember { room: "d2", user: "eve" });
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
