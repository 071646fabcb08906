//! Who registered or went.

use std::collections::HashMap;

use tokio_postgres::types::Type;

use crate::db::{Fault, Sql, Tx};
use crate::queues::image::Image;

const NEXT_VERSION: Sql = Sql {
    what: "noting that clients change",
    text: "update queue_head set client_version = client_version + 1 returning client_version",
    types: &[],
};

const CHANGE_CLIENTS: Sql = Sql {
    what: "registering clients",
    text: "insert into clients (id, registered, version) \
           select c.id, c.registered, $3 from unnest($1, $2) as c (id, registered) order by c.id \
           on conflict (id) do update set registered = excluded.registered, version = excluded.version \
           returning id, no",
    types: &[Type::TEXT_ARRAY, Type::BOOL_ARRAY, Type::INT8],
};

pub(super) async fn write(tx: &Tx<'_>, image: &mut Image) -> Result<(), Fault> {
    let changed = image.clients.iter().filter(|(_, client)| client.is_changed);
    let (names, registered): (Vec<&str>, Vec<bool>) =
        changed.map(|(name, client)| (&**name, client.is_registered)).unzip();
    if names.is_empty() {
        return Ok(());
    }
    let version: i64 = tx.query_one(&NEXT_VERSION, &[]).await?.get(0);
    let rows = tx.query(&CHANGE_CLIENTS, &[&names, &registered, &version]).await?;
    let numbers = rows.iter().filter_map(|row| {
        let client = image.clients.get(row.get::<_, &str>(0))?;
        Some((client.no, row.get::<_, i32>(1)))
    });
    let numbers: HashMap<i32, i32> = numbers.collect();
    let number = |no: i32| numbers.get(&no).copied().unwrap_or(no);
    for message in image.messages.values_mut().filter(|message| message.stored_in.is_none()) {
        (message.sender, message.receiver) = (number(message.sender), number(message.receiver));
    }
    Ok(())
}
