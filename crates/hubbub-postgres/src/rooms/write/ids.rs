//! Ids of messages: which are used, and by which messages.

use std::collections::HashMap;

use hubbub_core::{MessageType, Receipt, RoomOp, Send};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::Numbered;
use super::differences::NewMessage;
use crate::db::{Db, Param, PgTime, Result, Tx, column, statements};
use crate::rooms::not_erased;
use crate::rooms::versions::newest_version;

/// The kept messages that use ids of a batch, by room and hash.
pub(super) type UsedIds = HashMap<(i32, Uuid), FirstMessage>;

/// The kept message that uses an id.
#[derive(Debug)]
pub(super) struct FirstMessage {
    pub(super) receipt: Receipt,
    sender: i32,
    kind: Option<MessageType>,
    /// SHA-256 of the text: what is repeated need not be sent back to be compared.
    text: Vec<u8>,
}

statements! {
    /// An id whose message is gone or hidden is free again.
    LOOK_UP("looking up ids") =
        concat!("select i.room, i.id_hash, i.seq, i.received_at, m.sender, m.kind, m.digest \
         from unnest($1, $2) as wanted (room, id_hash) \
         join message_ids i on i.room = wanted.room and i.id_hash = wanted.id_hash \
         cross join lateral (", newest_version!("*", "no", "i.room"), ") r \
         join lateral (select sender, kind, sha256(convert_to(body, 'UTF8')) as digest from messages \
             where room = i.room and seq = i.seq and received_at = i.received_at limit 1) m on true \
         where r.no = i.room and r.oldest <= i.seq \
             and ", not_erased!("i.room", "i.seq"));

    SEQ_OF("looking up an id") =
        concat!("select i.seq from (", newest_version!("*", "id", "$1"),
            ") r join message_ids i on i.room = r.no and i.id_hash = $2 where r.id = $1 and not r.deleted");

    INSERT("inserting ids") =
        "insert into message_ids (room, id_hash, received_at, seq) select * from unnest($1, $2, $3, $4) \
         on conflict do nothing";

    INSERT_OR_REPLACE("inserting ids") =
        "insert into message_ids (room, id_hash, received_at, seq) select * from unnest($1, $2, $3, $4) \
         on conflict (room, id_hash) do update set received_at = excluded.received_at, seq = excluded.seq";
}

/// The first 128 bits of the SHA-256 of a message's id; anything for what is no message.
pub(super) fn hash_of(op: &RoomOp<'_>) -> Uuid {
    match op {
        RoomOp::Send(send) => hash_of_id(send.id),
        RoomOp::Change(_) => Uuid::nil(),
    }
}

fn hash_of_id(id: &str) -> Uuid {
    let hash: [u8; 32] = Sha256::digest(id).into();
    let (first, _) = hash.split_at(16);
    Uuid::from_slice(first).unwrap_or_default()
}

/// The seq that the id of a message leads to, whether the message is kept or not.
pub(crate) async fn seq_of(db: &Db, room: &str, id: &str) -> Result<Option<u64>> {
    let rows = db.read(&SEQ_OF, &[&room, &hash_of_id(id)]).await?;
    Ok(rows.first().map(|row| row.get::<_, i64>(0).unsigned_abs()))
}

impl FirstMessage {
    /// Whether a message with the same id is the same message.
    pub(super) fn is_same(&self, sender: i32, send: &Send<'_>) -> bool {
        self.sender == sender && self.kind == Some(send.kind) && self.text == *Sha256::digest(send.text)
    }
}

/// The kept messages that use ids of a batch.
pub(super) async fn look_up(tx: &Tx<'_>, ops: &[Numbered<'_>], hashes: &[Uuid]) -> Result<UsedIds> {
    let sends = ops.iter().zip(hashes).filter(|(numbered, _)| matches!(numbered.op, RoomOp::Send(_)));
    let (rooms, hashes): (Vec<i32>, Vec<Uuid>) =
        sends.filter_map(|(numbered, hash)| Some((numbered.room?, *hash))).unzip();
    let rows = tx.query_for(&LOOK_UP, &[&rooms, &hashes]).await?;
    let used = rows.iter().map(|row| {
        let (seq, received_at) = (row.get::<_, i64>(2).unsigned_abs(), row.get::<_, PgTime>(3).0);
        let receipt = Receipt { seq, received_at, gap: 0 };
        let kind = u8::try_from(row.get::<_, i8>(5)).ok().and_then(MessageType::from_u8);
        ((row.get(0), row.get(1)), FirstMessage { receipt, sender: row.get(4), kind, text: row.get(6) })
    });
    Ok(used.collect())
}

/// Inserts the ids of new messages, and returns how many it inserted. Used ids are not inserted, unless they were looked
/// up and found to be free.
pub(super) async fn insert(tx: &Tx<'_>, stored: &[NewMessage<'_>], are_free: bool) -> Result<u64> {
    let params: [Param<'_>; 4] = [
        &column(stored, |new| new.room),
        &column(stored, |new| new.hash),
        &column(stored, |new| PgTime(new.received_at)),
        &column(stored, |new| new.seq),
    ];
    tx.execute_for(if are_free { &INSERT_OR_REPLACE } else { &INSERT }, &params).await
}

#[cfg(test)]
mod tests {
    use hubbub_core::Timestamp;

    use super::*;

    #[test]
    fn an_id_is_known_by_the_begin_of_its_hash() {
        let send = Send {
            room: "r",
            user: "u",
            id: "abc",
            username: None,
            text: "",
            kind: MessageType::Text,
            timestamp: Timestamp::default(),
        };
        assert_eq!(hash_of(&RoomOp::Send(send)).to_string(), "ba7816bf-8f01-cfea-4141-40de5dae2223");
    }
}
