//! Assigns and caches numbers for names. A name keeps its number for ever, so the cache stays valid whoever writes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use hubbub_core::cache;
use quick_cache::UnitWeighter;
use quick_cache::sync::Cache;
use tokio_postgres::Row;

use crate::db::{Db, Failure, Param, Result, Sql};
use hubbub_core::store::ApplyError;

/// Names cached of each kind.
const CACHED_MAX: usize = 100_000;

/// A name, and whether to assign a number if it has none.
pub(super) type NameRequest<'a> = (&'a str, bool);

/// The names of one kind.
pub(super) struct Names {
    numbers: Cache<Arc<str>, i32>,
    names: Cache<i32, Arc<str>>,
    find_numbers: Sql,
    assign: Sql,
    find_names: Sql,
}

/// The statements of a table of names. `$further` is done with what was made. Rows are inserted in the order of the names,
/// so that no two servers wait for each other.
macro_rules! names_in {
    ($table:literal, $further:literal) => {
        [
            concat!("select no, id from ", $table, " where id = any($1)"),
            concat!(
                "with found as (select no, id from ",
                $table,
                " where id = any($1)), made as (insert into ",
                $table,
                " (id) select wanted.id from unnest($2) as wanted (id) \
                  where not exists (select from found where found.id = wanted.id) order by wanted.id \
                  on conflict do nothing returning no, id)",
                $further,
                " select no, id from found union all select no, id from made"
            ),
            concat!("select no, id from ", $table, " where no = any($1)"),
        ]
    };
}

impl Names {
    pub(super) fn of_users() -> Self {
        Self::new(names_in!("users", ""))
    }

    /// A room with only a number counts as deleted: nobody sees it.
    pub(super) fn of_rooms() -> Self {
        Self::new(names_in!(
            "room_names",
            ", placed as (insert into rooms (no, id, deleted) select no, id, true from made)"
        ))
    }

    fn new([find_numbers, assign, find_names]: [&'static str; 3]) -> Self {
        Self {
            numbers: cached(),
            names: cached(),
            find_numbers: Sql { what: "looking up names", text: find_numbers },
            assign: Sql { what: "assigning numbers to names", text: assign },
            find_names: Sql { what: "looking up names", text: find_names },
        }
    }

    fn insert(&self, name: &Arc<str>, no: i32) {
        self.numbers.insert(name.clone(), no);
        self.names.insert(no, name.clone());
    }

    /// The numbers of names, in their order. `None` for an empty name, and for one that has no number and shall get none.
    pub(super) async fn numbers(
        &self,
        db: &Db,
        wanted: &[NameRequest<'_>],
    ) -> Result<Vec<Option<i32>>, Failure> {
        let mut numbers: Vec<_> = wanted.iter().map(|(name, _)| self.numbers.get(*name)).collect();
        let mut missing: BTreeMap<&str, bool> = BTreeMap::new();
        for ((name, make), number) in wanted.iter().zip(&numbers) {
            if number.is_none() && !name.is_empty() {
                *missing.entry(name).or_default() |= make;
            }
        }
        if missing.is_empty() {
            return Ok(numbers);
        }
        let found = self.look_up(db, &missing).await?;
        for (name, no) in &found {
            self.insert(name, *no);
        }
        for ((name, _), number) in wanted.iter().zip(&mut numbers) {
            *number = number.or_else(|| found.get(*name).copied());
        }
        Ok(numbers)
    }

    async fn look_up(
        &self,
        db: &Db,
        missing: &BTreeMap<&str, bool>,
    ) -> Result<HashMap<Arc<str>, i32>, Failure> {
        let mut names: Vec<&str> = missing.keys().copied().collect();
        let new: Vec<&str> = missing.iter().filter(|(_, make)| **make).map(|(name, _)| *name).collect();
        let mut found = HashMap::new();
        if !new.is_empty() {
            let made = self.assign(db, &names, &new).await?;
            found.extend(made.iter().map(pair));
            // The rest has no number, or another server has just assigned one.
            names = new.into_iter().filter(|name| !found.contains_key(*name)).collect();
        }
        if !names.is_empty() {
            let rows = db.read(&self.find_numbers, &[&names]).await.map_err(|fault| fault.failed())?;
            found.extend(rows.iter().map(pair));
        }
        Ok(found)
    }

    /// Assigns numbers to new names, and returns the numbers of all. Names keep their numbers, so an unconfirmed attempt can
    /// simply be repeated. That is done once, at once: a connection that broke long ago also reports "unconfirmed".
    async fn assign(&self, db: &Db, names: &[&str], new: &[&str]) -> Result<Vec<Row>, Failure> {
        let params: [Param<'_>; 2] = [&names, &new];
        match db.transact_at_once(None, &self.assign, &params).await {
            Err(Failure::Other(ApplyError::Unconfirmed { .. })) => {}
            made => return made,
        }
        db.transact_at_once(None, &self.assign, &params).await.map_err(|error| match error {
            Failure::Other(ApplyError::Unconfirmed { reason }) => ApplyError::Unavailable { reason }.into(),
            failure => failure,
        })
    }

    pub(super) async fn names(
        &self,
        db: &Db,
        numbers: impl Iterator<Item = i32>,
    ) -> Result<HashMap<i32, Arc<str>>> {
        let (mut names, mut missing) = (HashMap::new(), Vec::new());
        for no in numbers.collect::<BTreeSet<_>>() {
            match self.names.get(&no) {
                Some(name) => drop(names.insert(no, name)),
                None => missing.push(no),
            }
        }
        if !missing.is_empty() {
            for row in db.read(&self.find_names, &[&missing]).await? {
                let (no, name) = (row.get(0), Arc::from(row.get::<_, &str>(1)));
                self.insert(&name, no);
                names.insert(no, name);
            }
        }
        Ok(names)
    }
}

fn cached<Key: Eq + Hash, Value: Clone>() -> Cache<Key, Value> {
    let options = cache::options(CACHED_MAX, CACHED_MAX as u64, 1);
    Cache::with_options(options, UnitWeighter, Default::default(), Default::default())
}

fn pair(row: &Row) -> (Arc<str>, i32) {
    (Arc::from(row.get::<_, &str>(1)), row.get(0))
}
