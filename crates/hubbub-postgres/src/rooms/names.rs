//! Numbers for names. A name keeps its number for ever, so what is known once stays true, whoever else writes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use hubbub_core::store::ApplyError;
use quick_cache::sync::Cache;
use tokio_postgres::types::Type;

use crate::db::{Db, Fault, Sql, Tx};

/// Names remembered of each kind.
const KNOWN_MAX: usize = 100_000;

/// A name, and whether it is to get a number if it has none.
pub(super) type Wanted<'a> = (&'a str, bool);

/// The names of one kind.
pub(super) struct Names {
    numbers: Cache<Arc<str>, i32>,
    names: Cache<i32, Arc<str>>,
    find: Sql,
    make: Sql,
    tell: Sql,
}

impl Names {
    pub(super) fn of_users() -> Self {
        Self::new([
            "select no, id from users where id = any($1)",
            "insert into users (id) select * from unnest($1) on conflict do nothing",
            "select no, id from users where no = any($1)",
        ])
    }

    /// A room that has a number and nothing else is as one that was deleted: nobody sees it.
    pub(super) fn of_rooms() -> Self {
        Self::new([
            "select no, id from rooms where id = any($1)",
            "insert into rooms (id, deleted) select id, true from unnest($1) id on conflict do nothing",
            "select no, id from rooms where no = any($1)",
        ])
    }

    fn new([find, make, tell]: [&'static str; 3]) -> Self {
        Self {
            numbers: Cache::new(KNOWN_MAX),
            names: Cache::new(KNOWN_MAX),
            find: Sql { what: "looking up names", text: find, types: &[Type::TEXT_ARRAY] },
            make: Sql { what: "numbering names", text: make, types: &[Type::TEXT_ARRAY] },
            tell: Sql { what: "looking up names", text: tell, types: &[Type::INT4_ARRAY] },
        }
    }

    fn learn(&self, name: &Arc<str>, no: i32) {
        self.numbers.insert(name.clone(), no);
        self.names.insert(no, name.clone());
    }

    /// The numbers of names, in their order; `None` where there is none and none was to be made, and for no name.
    pub(super) async fn numbers(
        &self,
        db: &Db,
        wanted: &[Wanted<'_>],
    ) -> Result<Vec<Option<i32>>, ApplyError> {
        let mut numbers: Vec<_> = wanted.iter().map(|(name, _)| self.numbers.get(*name)).collect();
        // In their order, so that no two servers wait for each other.
        let mut missing: BTreeMap<&str, bool> = BTreeMap::new();
        for ((name, make), number) in wanted.iter().zip(&numbers) {
            if number.is_none() && !name.is_empty() {
                *missing.entry(name).or_default() |= make;
            }
        }
        if missing.is_empty() {
            return Ok(numbers);
        }
        let found = db.transact("numbering names", async |tx| self.look_up(tx, &missing).await).await;
        // Numbers alone are nothing that anybody could miss.
        let found = found.map_err(|error| match error {
            ApplyError::Unconfirmed { reason } => ApplyError::Unavailable { reason },
            error => error,
        })?;
        for (name, no) in &found {
            self.learn(name, *no);
        }
        for ((name, _), number) in wanted.iter().zip(&mut numbers) {
            *number = number.or_else(|| found.get(*name).copied());
        }
        Ok(numbers)
    }

    async fn look_up(
        &self,
        tx: &Tx<'_>,
        missing: &BTreeMap<&str, bool>,
    ) -> Result<HashMap<Arc<str>, i32>, Fault> {
        let names: Vec<&str> = missing.keys().copied().collect();
        let mut found = self.found(tx, &names).await?;
        let is_new = |(name, make): (&&'_ str, &bool)| *make && !found.contains_key(*name);
        let new: Vec<&str> = missing.iter().filter(|pair| is_new(*pair)).map(|(name, _)| *name).collect();
        if !new.is_empty() {
            tx.execute(&self.make, &[&new]).await?;
            found.extend(self.found(tx, &new).await?);
        }
        Ok(found)
    }

    async fn found(&self, tx: &Tx<'_>, names: &[&str]) -> Result<HashMap<Arc<str>, i32>, Fault> {
        let rows = tx.query(&self.find, &[&names]).await?;
        Ok(rows.iter().map(|row| (Arc::from(row.get::<_, &str>(1)), row.get(0))).collect())
    }

    /// The names that belong to numbers.
    pub(super) async fn names(
        &self,
        db: &Db,
        numbers: impl Iterator<Item = i32>,
    ) -> Result<HashMap<i32, Arc<str>>, Fault> {
        let (mut names, mut missing) = (HashMap::new(), Vec::new());
        for no in numbers.collect::<BTreeSet<_>>() {
            match self.names.get(&no) {
                Some(name) => drop(names.insert(no, name)),
                None => missing.push(no),
            }
        }
        if !missing.is_empty() {
            for row in db.read(&self.tell, &[&missing]).await? {
                let (no, name) = (row.get(0), Arc::from(row.get::<_, &str>(1)));
                self.learn(&name, no);
                names.insert(no, name);
            }
        }
        Ok(names)
    }
}
