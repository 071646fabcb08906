//! Looks whether a read is answered by a replica that has what was confirmed before.

use std::collections::HashMap;

use scylla::client::session::Session;

use crate::db::{OpenError, wrong};
use crate::options::{Consistency, ScyllaOptions};

/// Warns or fails if what is answered may be older than what was confirmed. Servers decide on what they read, so the promise of
/// the store rests on that.
pub(crate) async fn check(
    session: &Session,
    keyspace: &str,
    options: &ScyllaOptions,
) -> Result<(), OpenError> {
    if options.consistency == Consistency::Quorum {
        return Ok(());
    }
    let what = "reading the replication of the keyspace";
    let select = "select replication from system_schema.keyspaces where keyspace_name = ?";
    let rows = session.query_unpaged(select, (keyspace,)).await.map_err(wrong(what))?;
    let rows = rows.into_rows_result().map_err(wrong(what))?;
    let row = rows.maybe_first_row::<(HashMap<String, String>,)>().map_err(wrong(what))?;
    let replicas: Vec<u64> = row.map_or_else(Vec::new, |(replication,)| replicas(&replication));
    if options.consistency == Consistency::LocalQuorum {
        // A statement may go to any data centre, and is local there.
        return if replicas.len() < 2 { Ok(()) } else { Err(OpenError(divided(keyspace, replicas.len()))) };
    }
    let replicas: u64 = replicas.iter().sum();
    if replicas > 1 {
        tracing::warn!(
            "store.scylla.consistency is one, and the keyspace {keyspace} has {replicas} replicas: servers may read what is \
             older than what was acknowledged, so messages can be missing, stored twice or counted wrongly; set \
             store.scylla.consistency to local_quorum"
        );
    }
    Ok(())
}

fn divided(keyspace: &str, centres: usize) -> String {
    format!(
        "store.scylla.consistency is local_quorum, and the keyspace {keyspace} has replicas in {centres} data centres: what is \
         written in one would not be read in the other; set store.scylla.consistency to quorum"
    )
}

/// Replicas in each data centre that has any.
fn replicas(replication: &HashMap<String, String>) -> Vec<u64> {
    let of_centre = |(name, value): (&String, &String)| {
        // Of transient replication, as in 3/1, the first number is that of all replicas.
        let number = value.split('/').next().and_then(|number| number.parse::<u64>().ok());
        number.filter(|number| name != "class" && *number > 0)
    };
    let mut replicas: Vec<u64> = replication.iter().filter_map(of_centre).collect();
    replicas.sort_unstable();
    replicas
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_are_counted_by_data_centre() {
        let of = |options: &[(&str, &str)]| {
            replicas(&options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
        };
        let class = ("class", "org.apache.cassandra.locator.NetworkTopologyStrategy");
        assert_eq!(of(&[class, ("one", "1"), ("none", "0")]), [1]);
        assert_eq!(of(&[class, ("one", "1"), ("two", "3/1")]), [1, 3]);
        assert_eq!(of(&[("class", "SimpleStrategy"), ("replication_factor", "2")]), [2]);
    }
}
