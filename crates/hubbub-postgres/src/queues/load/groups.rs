//! Reading groups of messages.

use std::collections::HashMap;

use super::Loader;
use super::enter::enter_messages;
use crate::db::DbError;
use crate::queues::sql;
use crate::queues::working_set::{Frontier, GroupKey, WorkingSet};

impl Loader<'_> {
    pub(super) async fn read_groups(
        &self,
        set: &mut WorkingSet,
        keys: &[GroupKey],
        most: i64,
    ) -> Result<(), DbError> {
        let behind = |key: &GroupKey| {
            let group = set.groups.get(key).and_then(|group| group.frontier);
            group.map_or(0, |frontier| frontier.to)
        };
        let queues: Vec<i32> = keys.iter().map(|key| key.queue).collect();
        let receivers: Vec<i32> = keys.iter().map(|key| key.receiver).collect();
        let groups: Vec<&str> = keys.iter().map(|key| &*key.group).collect();
        let behinds: Vec<i64> = keys.iter().map(behind).collect();
        let mosts = vec![most; keys.len()];
        let rows = self.tx.query(&sql::GROUPS, &[&queues, &receivers, &groups, &behinds, &mosts]).await?;
        let mut read: HashMap<GroupKey, (i64, i64)> = HashMap::new();
        for row in &rows {
            let group: &str = row.get("group_id");
            let key =
                GroupKey { queue: row.get("queue"), receiver: row.get("receiver"), group: group.into() };
            let (count, last) = read.entry(key).or_default();
            (*count, *last) = (*count + 1, (*last).max(row.get("id")));
        }
        enter_messages(set, &rows);
        for (key, behind) in keys.iter().zip(behinds) {
            let (count, last) = read.get(key).copied().unwrap_or_default();
            let frontier = Frontier { to: last.max(behind), is_complete: count < most };
            set.groups.entry(key.clone()).or_default().frontier = Some(frontier);
        }
        Ok(())
    }
}
