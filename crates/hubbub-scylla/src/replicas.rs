//! Warns of a keyspace with several replicas of which only one is asked.

use std::collections::HashMap;

use scylla::client::session::Session;

use crate::db::{OpenError, wrong};
use crate::options::{Consistency, ScyllaOptions};

/// Warns if what one replica answers may be older than what another one has confirmed. Servers decide on what they read, so
/// the promise of the store rests on that.
pub(crate) async fn check(
    session: &Session,
    keyspace: &str,
    options: &ScyllaOptions,
) -> Result<(), OpenError> {
    if options.consistency != Consistency::One {
        return Ok(());
    }
    let what = "reading the replication of the keyspace";
    let select = "select replication from system_schema.keyspaces where keyspace_name = ?";
    let rows = session.query_unpaged(select, (keyspace,)).await.map_err(wrong(what))?;
    let rows = rows.into_rows_result().map_err(wrong(what))?;
    let row = rows.maybe_first_row::<(HashMap<String, String>,)>().map_err(wrong(what))?;
    let replicas = row.map_or(0, |(replication,)| count(&replication));
    if replicas > 1 {
        tracing::warn!(
            "store.scylla.consistency is one, and the keyspace {keyspace} has {replicas} replicas: servers may read what is \
             older than what was acknowledged, so messages can be missing, stored twice or counted wrongly; set \
             store.scylla.consistency to local_quorum"
        );
    }
    Ok(())
}

/// Replicas in all data centres.
fn count(replication: &HashMap<String, String>) -> u64 {
    let of_centre = |(name, value): (&String, &String)| {
        // Of transient replication, as in 3/1, the first number is that of all replicas.
        let number = value.split('/').next().and_then(|number| number.parse::<u64>().ok());
        number.filter(|_| name != "class")
    };
    replication.iter().filter_map(of_centre).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_of_all_data_centres_are_counted() {
        let of = |options: &[(&str, &str)]| {
            count(&options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
        };
        let class = ("class", "org.apache.cassandra.locator.NetworkTopologyStrategy");
        assert_eq!(of(&[class, ("one", "1")]), 1);
        assert_eq!(of(&[class, ("one", "1"), ("two", "3/1")]), 4);
        assert_eq!(of(&[("class", "SimpleStrategy"), ("replication_factor", "2")]), 2);
    }
}
